//! Builds a graph, operator by operator. Tensors are handles whose elements and axes are known; the
//! first axis of each is the batch, of any length, and is not among those that a shape lists.
//!
//! What cannot be built is a slip of whoever writes a network down, and panics. Shapes are never
//! computed while a network runs: every operator then stays on the device, and the whole can be
//! captured as one graph of kernels.

mod dense;
mod image;
mod shape;

pub use crate::element::Element;
use crate::model::{Model, TensorSpec};
use crate::proto::{
    AttributeProto, Dimension, DimensionProto, GraphProto, NodeProto, TensorShapeProto,
    TensorTypeProto, TypeProto, ValueInfoProto,
};
use crate::values::{Initializer, Values};
pub use image::{Conv, Pool};

/// The name of the batch's axis.
const BATCH: &str = "N";

/// With which numbers a network computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Two bytes each.
    Fp16,
    /// Four bytes each.
    Fp32,
}

impl Precision {
    fn element(self) -> Element {
        match self {
            Self::Fp16 => Element::Fp16,
            Self::Fp32 => Element::Fp32,
        }
    }
}

/// A tensor of a graph that is being built.
#[derive(Clone, Debug)]
pub struct Tensor {
    name: String,
    element: Element,
    shape: Vec<usize>,
}

impl Tensor {
    /// Its axes without the batch.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The axes of an image: channels, height, width.
    fn image(&self) -> [usize; 3] {
        self.shape.as_slice().try_into().expect("an image has channels, height and width")
    }
}

/// What follows an operator at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// Nothing.
    #[default]
    None,
    /// Nothing below zero.
    Relu,
    /// Nothing below zero or above six.
    Relu6,
}

impl Activation {
    /// The deviation of weights, over the root of how many inputs are summed, with which what
    /// follows is as large as what came in, in the mean square (He et al.): an activation takes
    /// half of it away.
    fn gain(self) -> f32 {
        match self {
            Self::None => 1.0,
            Self::Relu | Self::Relu6 => std::f32::consts::SQRT_2,
        }
    }
}

/// A graph that is being built.
#[derive(Debug)]
pub struct Graph {
    precision: Precision,
    proto: GraphProto,
    initializers: Vec<Initializer>,
    inputs: Vec<TensorSpec>,
    outputs: Vec<TensorSpec>,
    parameters: usize,
    multiply_adds: usize,
}

impl Graph {
    /// An empty graph.
    pub fn new(name: &str, precision: Precision) -> Self {
        Self {
            precision,
            proto: GraphProto { name: name.to_owned(), ..GraphProto::default() },
            initializers: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            parameters: 0,
            multiply_adds: 0,
        }
    }

    /// Something that goes in.
    pub fn input(&mut self, name: &str, element: Element, shape: &[usize]) -> Tensor {
        let spec = TensorSpec { name: name.to_owned(), element, shape: shape.to_vec() };
        self.proto.input.push(value_info(&spec));
        self.inputs.push(spec);
        Tensor { name: name.to_owned(), element, shape: shape.to_vec() }
    }

    /// Lets a tensor out, in FP32, which every client can read.
    pub fn output(&mut self, name: &str, tensor: &Tensor) {
        let tensor = self.cast(tensor, Element::Fp32);
        let named = |other: &String| *other == tensor.name;
        assert!(self.proto.node.iter().any(|node| node.output.iter().any(named)), "it is computed");
        for node in &mut self.proto.node {
            for other in node.input.iter_mut().chain(&mut node.output).filter(|other| named(other))
            {
                name.clone_into(other);
            }
        }
        let spec =
            TensorSpec { name: name.to_owned(), element: tensor.element, shape: tensor.shape };
        self.proto.output.push(value_info(&spec));
        self.outputs.push(spec);
    }

    /// The graph as a model, whose weights are those of the seed.
    pub fn finish(self, seed: u64) -> Model {
        let Self { proto: graph, initializers, inputs, outputs, parameters, multiply_adds, .. } =
            self;
        Model { graph, initializers, inputs, outputs, parameters, multiply_adds, seed }
    }

    /// Adds an operator with one output.
    fn node(
        &mut self,
        operator: &str,
        inputs: &[&str],
        attribute: Vec<AttributeProto>,
        element: Element,
        shape: Vec<usize>,
    ) -> Tensor {
        let name = format!("{operator}_{}", self.proto.node.len());
        self.proto.node.push(NodeProto {
            input: inputs.iter().map(|&input| input.to_owned()).collect(),
            output: vec![name.clone()],
            name: name.clone(),
            op_type: operator.to_owned(),
            attribute,
        });
        Tensor { name, element, shape }
    }

    /// Adds an operator whose output is as its first input is.
    fn like(
        &mut self,
        operator: &str,
        x: &Tensor,
        others: &[&str],
        attribute: Vec<AttributeProto>,
    ) -> Tensor {
        let inputs: Vec<&str> = [x.name.as_str()].iter().chain(others).copied().collect();
        self.node(operator, &inputs, attribute, x.element, x.shape.clone())
    }

    /// Something that training would find; its name.
    fn weight(&mut self, shape: &[usize], values: Values) -> String {
        self.parameters += shape.iter().product::<usize>();
        self.initializer("weight", self.precision.element(), shape, values)
    }

    /// The bias of so many channels: small, and not nothing.
    fn bias(&mut self, channels: usize) -> String {
        self.weight(&[channels], Values::Uniform { mean: 0.0, bound: 0.05 })
    }

    /// A number that is fixed, in the network's precision; its name.
    fn constant(&mut self, value: f32) -> String {
        self.initializer("constant", self.precision.element(), &[], Values::Same(value))
    }

    /// Numbers that are fixed, in the network's precision; their name.
    fn constants(&mut self, values: Vec<f32>) -> String {
        let shape = [values.len()];
        self.initializer("constant", self.precision.element(), &shape, Values::Floats(values))
    }

    /// Integers that are fixed, such as shapes; their name.
    fn integers(&mut self, values: Vec<i64>) -> String {
        let shape = [values.len()];
        self.initializer("integers", Element::Int64, &shape, Values::Integers(values))
    }

    fn initializer(
        &mut self,
        what: &str,
        element: Element,
        shape: &[usize],
        values: Values,
    ) -> String {
        let name = format!("{what}_{}", self.initializers.len());
        self.initializers.push(Initializer {
            name: name.clone(),
            data_type: element.data_type(),
            shape: shape.to_vec(),
            values,
        });
        name
    }
}

fn value_info(spec: &TensorSpec) -> ValueInfoProto {
    let axes = spec.shape.iter().map(|&axis| Dimension::Value(axis as i64));
    let dim = std::iter::once(Dimension::Param(BATCH.to_owned()))
        .chain(axes)
        .map(|value| DimensionProto { value: Some(value) })
        .collect();
    let tensor_type = TensorTypeProto {
        elem_type: spec.element.data_type().into(),
        shape: Some(TensorShapeProto { dim }),
    };
    ValueInfoProto {
        name: spec.name.clone(),
        r#type: Some(TypeProto { tensor_type: Some(tensor_type) }),
    }
}
