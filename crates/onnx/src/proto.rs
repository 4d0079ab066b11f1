//! The part of ONNX's schema that is written here, as messages of `prost`; fields that are not
//! named are skipped when read.
//!
//! Names and tags are those of the standard (`onnx.proto`, IR version 8).

use prost::Message;

/// The version of the file format.
pub const IR_VERSION: i64 = 8;
/// The version of the operators: the first with `LayerNormalization`.
pub const OPSET: i64 = 17;

/// The tag of a model's graph.
pub(crate) const GRAPH_TAG: u32 = 7;
/// The tag of a graph's weights.
pub(crate) const INITIALIZER_TAG: u32 = 5;
/// The tag of a tensor's elements.
pub(crate) const RAW_DATA_TAG: u32 = 9;

/// A whole file.
#[derive(Clone, PartialEq, Message)]
pub struct ModelProto {
    /// The version of the file format.
    #[prost(int64, tag = "1")]
    pub ir_version: i64,
    /// The program that wrote it.
    #[prost(string, tag = "2")]
    pub producer_name: String,
    /// The network.
    #[prost(message, optional, tag = "7")]
    pub graph: Option<GraphProto>,
    /// The versions of its operators.
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSetIdProto>,
}

/// A set of operators.
#[derive(Clone, PartialEq, Message)]
pub struct OperatorSetIdProto {
    /// Whose operators; empty for the standard's.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// Which of them.
    #[prost(int64, tag = "2")]
    pub version: i64,
}

/// A network.
#[derive(Clone, PartialEq, Message)]
pub struct GraphProto {
    /// The operators, each after those whose outputs it takes.
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<NodeProto>,
    /// Its name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Weights and other constants.
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<TensorProto>,
    /// What goes in.
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfoProto>,
    /// What comes out.
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfoProto>,
}

/// One operator at its place.
#[derive(Clone, PartialEq, Message)]
pub struct NodeProto {
    /// The names of the tensors that it takes.
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    /// The names of the tensors that it gives.
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    /// Its own name.
    #[prost(string, tag = "3")]
    pub name: String,
    /// The operator.
    #[prost(string, tag = "4")]
    pub op_type: String,
    /// What is fixed about it.
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<AttributeProto>,
}

/// Something that is fixed about an operator.
#[derive(Clone, PartialEq, Message)]
pub struct AttributeProto {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The value, where it is a number.
    #[prost(float, optional, tag = "2")]
    pub f: Option<f32>,
    /// The value, where it is an integer.
    #[prost(int64, optional, tag = "3")]
    pub i: Option<i64>,
    /// The value, where it is a list of integers.
    #[prost(int64, repeated, tag = "8")]
    pub ints: Vec<i64>,
    /// Which of them it is.
    #[prost(enumeration = "AttributeType", tag = "20")]
    pub r#type: i32,
}

/// What an attribute's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum AttributeType {
    /// Nothing that is known here.
    Undefined = 0,
    /// A number.
    Float = 1,
    /// An integer.
    Int = 2,
    /// A list of integers.
    Ints = 7,
}

impl AttributeProto {
    /// A number.
    pub fn float(name: &str, value: f32) -> Self {
        let kind = AttributeType::Float.into();
        Self { name: name.to_owned(), f: Some(value), r#type: kind, ..Self::default() }
    }

    /// An integer.
    pub fn int(name: &str, value: i64) -> Self {
        let kind = AttributeType::Int.into();
        Self { name: name.to_owned(), i: Some(value), r#type: kind, ..Self::default() }
    }

    /// A list of integers.
    pub fn ints(name: &str, values: impl Into<Vec<i64>>) -> Self {
        let kind = AttributeType::Ints.into();
        Self { name: name.to_owned(), ints: values.into(), r#type: kind, ..Self::default() }
    }
}

/// A tensor whose elements are known.
#[derive(Clone, PartialEq, Message)]
pub struct TensorProto {
    /// Its axes.
    #[prost(int64, repeated, tag = "1")]
    pub dims: Vec<i64>,
    /// What its elements are.
    #[prost(enumeration = "DataType", tag = "2")]
    pub data_type: i32,
    /// Its name.
    #[prost(string, tag = "8")]
    pub name: String,
    /// The elements, the low byte first.
    #[prost(bytes = "vec", tag = "9")]
    pub raw_data: Vec<u8>,
}

/// What the elements of a tensor are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum DataType {
    /// Nothing that is known here.
    Undefined = 0,
    /// Floating point of four bytes.
    Float = 1,
    /// A byte.
    Uint8 = 2,
    /// An integer of eight bytes.
    Int64 = 7,
    /// Floating point of two bytes.
    Float16 = 10,
}

/// The name and the type of an input or output.
#[derive(Clone, PartialEq, Message)]
pub struct ValueInfoProto {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its type.
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<TypeProto>,
}

/// The type of an input or output.
#[derive(Clone, PartialEq, Message)]
pub struct TypeProto {
    /// That of a tensor: there are others, which are not known here.
    #[prost(message, optional, tag = "1")]
    pub tensor_type: Option<TensorTypeProto>,
}

/// The type of a tensor.
#[derive(Clone, PartialEq, Message)]
pub struct TensorTypeProto {
    /// What its elements are.
    #[prost(enumeration = "DataType", tag = "1")]
    pub elem_type: i32,
    /// Its axes.
    #[prost(message, optional, tag = "2")]
    pub shape: Option<TensorShapeProto>,
}

/// The axes of a tensor.
#[derive(Clone, PartialEq, Message)]
pub struct TensorShapeProto {
    /// Axis by axis.
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<DimensionProto>,
}

/// The length of one axis.
#[derive(Clone, PartialEq, Message)]
pub struct DimensionProto {
    /// How long it is, as far as that is known.
    #[prost(oneof = "Dimension", tags = "1, 2")]
    pub value: Option<Dimension>,
}

/// How long an axis is.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Dimension {
    /// This long.
    #[prost(int64, tag = "1")]
    Value(i64),
    /// As long as all others of this name.
    #[prost(string, tag = "2")]
    Param(String),
}
