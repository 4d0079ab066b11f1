//! Checks whether a configured signature fits the file.

use super::specs::Specs;
use crate::{Signature, TensorSpec};

/// Whether `signature` fits the file; the error says what does not. It must have every input, since
/// a model needs all of them. It may have fewer outputs.
pub(crate) fn check(file: &Specs, signature: &Signature) -> Result<(), String> {
    side("input", &file.inputs, &signature.inputs, signature.max_batch)?;
    side("output", &file.outputs, &signature.outputs, signature.max_batch)?;
    signature.validate_length()?;
    match file.inputs.iter().find(|spec| !signature.inputs.iter().any(|has| has.name == spec.name))
    {
        Some(missing) => Err(format!("input '{}' of the model is not configured", missing.name)),
        None => Ok(()),
    }
}

fn side(
    side: &str,
    file: &[TensorSpec],
    wanted: &[TensorSpec],
    batch: usize,
) -> Result<(), String> {
    for (at, spec) in wanted.iter().enumerate() {
        let name = &spec.name;
        if wanted[..at].iter().any(|earlier| earlier.name == *name) {
            return Err(format!("{side} '{name}' is configured twice"));
        }
        let Some(has) = file.iter().find(|has| has.name == *name) else {
            let names: Vec<_> = file.iter().map(|spec| format!("'{}'", spec.name)).collect();
            return Err(format!("the model has no {side} '{name}', but {}", names.join(", ")));
        };
        if has.datatype != spec.datatype {
            let (has, spec) = (has.datatype, spec.datatype);
            return Err(format!("{side} '{name}' is {has} in the model, {spec} as configured"));
        }
        // The library reports an unknown number of axes as none.
        let unknown = side == "output" && has.shape.is_empty();
        if !unknown && !axes_fit(&has.shape, &spec.shape, batch) {
            let (has, spec) = (&has.shape, &spec.shape);
            let with = if batch > 0 { format!(" with batches of {batch}") } else { String::new() };
            return Err(format!(
                "{side} '{name}' is {has:?} in the model, {spec:?}{with} as configured"
            ));
        }
    }
    Ok(())
}

/// Whether the model's axes accept the configured ones, after the batch if there is one.
fn axes_fit(model: &[i64], spec: &[i64], batch: usize) -> bool {
    let rest = match (batch, model) {
        (0, all) => all,
        (_, [-1, rest @ ..]) | (1, [1, rest @ ..]) => rest,
        _ => return false,
    };
    rest.len() == spec.len() && rest.iter().zip(spec).all(|(&has, &axis)| has == -1 || has == axis)
}

#[cfg(test)]
mod tests {
    use super::super::specs::AxisNames;
    use super::*;
    use crate::DataType;

    fn spec(name: &str, datatype: DataType, shape: &[i64]) -> TensorSpec {
        TensorSpec { name: name.to_owned(), datatype, shape: shape.to_vec() }
    }

    /// Checks one input `x` and no output against a file with inputs `x` FP32 of this shape.
    fn check_input(shape: &[i64], wanted: TensorSpec, max_batch: usize) -> Result<(), String> {
        let file = Specs {
            inputs: vec![spec("x", DataType::Fp32, shape)],
            outputs: Vec::new(),
            axes: AxisNames::default(),
        };
        check(
            &file,
            &Signature { max_batch, inputs: vec![wanted], outputs: Vec::new(), length: None },
        )
    }

    #[test]
    fn narrower_is_fine() {
        let wanted = |shape: &[i64]| spec("x", DataType::Fp32, shape);
        for (file, shape, batch) in [
            (&[-1, 16][..], &[16][..], 4),
            (&[-1, 16], &[3, 16], 0),
            (&[-1, -1], &[7], 1),
            (&[1, 3], &[3], 1),
            (&[1, 3], &[1, 3], 0),
            (&[], &[], 0),
        ] {
            assert_eq!(check_input(file, wanted(shape), batch), Ok(()), "{file:?} {shape:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let wanted = |shape: &[i64]| spec("x", DataType::Fp32, shape);
        let refused = |shape: &[i64], wanted, batch| check_input(shape, wanted, batch).unwrap_err();
        assert_eq!(
            refused(&[1, 3], wanted(&[3]), 2),
            "input 'x' is [1, 3] in the model, [3] with batches of 2 as configured"
        );
        assert_eq!(
            refused(&[-1, 3], wanted(&[-1]), 0),
            "input 'x' is [-1, 3] in the model, [-1] as configured"
        );
        refused(&[], wanted(&[]), 1);
        assert_eq!(
            refused(&[-1], spec("x", DataType::Int8, &[]), 1),
            "input 'x' is FP32 in the model, INT8 as configured"
        );
        assert_eq!(
            refused(&[-1], spec("z", DataType::Fp32, &[]), 1),
            "the model has no input 'z', but 'x'"
        );
    }

    #[test]
    fn every_input_is_needed_once() {
        let one = |name| spec(name, DataType::Fp32, &[-1]);
        let file = Specs {
            inputs: vec![one("a"), one("b")],
            outputs: Vec::new(),
            axes: AxisNames::default(),
        };
        let check = |inputs| {
            check(&file, &Signature { max_batch: 0, inputs, outputs: vec![], length: None })
        };
        assert_eq!(check(vec![one("b"), one("a")]), Ok(()));
        assert_eq!(check(vec![one("b")]).unwrap_err(), "input 'a' of the model is not configured");
        assert_eq!(check(vec![one("b"), one("b")]).unwrap_err(), "input 'b' is configured twice");
    }
}
