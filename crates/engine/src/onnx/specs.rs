//! The inputs and outputs of an ONNX file: their types, their axes, and the names of the axes.

use ort::session::Session;
use ort::value::{Outlet, ValueType};

use super::value;
use crate::TensorSpec;

/// The inputs and outputs of a file, with all their axes.
#[derive(Debug)]
pub(crate) struct Specs {
    pub(crate) inputs: Vec<TensorSpec>,
    pub(crate) outputs: Vec<TensorSpec>,
    pub(super) axes: AxisNames,
}

/// The names of a tensor's axes, in order; empty for an axis without a name.
pub(super) type Axes = Vec<String>;

/// The names of the axes of all tensors.
#[derive(Debug, Default)]
pub(super) struct AxisNames {
    pub(super) inputs: Vec<Axes>,
    pub(super) outputs: Vec<Axes>,
}

/// Reads the inputs and outputs. The error names the first that is not supported.
pub(crate) fn read(session: &Session) -> Result<Specs, String> {
    let both = |side: &str, outlets: &[Outlet]| {
        outlets
            .iter()
            .map(|outlet| {
                spec(outlet).map_err(|reason| format!("{side} '{}': {reason}", outlet.name()))
            })
            .collect::<Result<(Vec<_>, Vec<_>), String>>()
    };
    let (inputs, input_axes) = both("input", session.inputs())?;
    let (outputs, output_axes) = both("output", session.outputs())?;
    let axes = AxisNames { inputs: input_axes, outputs: output_axes };
    Ok(Specs { inputs, outputs, axes })
}

fn spec(outlet: &Outlet) -> Result<(TensorSpec, Axes), String> {
    let ValueType::Tensor { ty, shape, dimension_symbols } = outlet.dtype() else {
        return Err(format!("{} is not a tensor", outlet.dtype()));
    };
    let datatype =
        value::datatype(*ty).ok_or_else(|| format!("elements of {ty} are not supported"))?;
    let spec = TensorSpec { name: outlet.name().to_owned(), datatype, shape: shape.to_vec() };
    Ok((spec, dimension_symbols.to_vec()))
}
