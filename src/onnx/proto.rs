//! The messages of an ONNX file, whole: what is read from one is written to another without loss.
//!
//! Field numbers are those of `onnx.proto3` of the ONNX project, which never change. Parts that this program only
//! passes on are kept as the bytes that they are on the wire. Large fields are slices of the file's bytes, not copies.

use std::collections::HashMap;

use prost::Message;
use prost::bytes::Bytes;

#[derive(Clone, PartialEq, Message)]
#[rustfmt::skip]
pub struct ModelProto {
    #[prost(int64, tag = "1")] pub ir_version: i64,
    #[prost(string, tag = "2")] pub producer_name: String,
    #[prost(string, tag = "3")] pub producer_version: String,
    #[prost(string, tag = "4")] pub domain: String,
    #[prost(int64, tag = "5")] pub model_version: i64,
    #[prost(string, tag = "6")] pub doc_string: String,
    #[prost(message, optional, tag = "7")] pub graph: Option<GraphProto>,
    #[prost(message, repeated, tag = "8")] pub opset_imports: Vec<OperatorSetIdProto>,
    #[prost(message, repeated, tag = "14")] pub metadata_props: Vec<StringStringEntryProto>,
    #[prost(bytes = "bytes", repeated, tag = "20")] pub training_info: Vec<Bytes>,
    /// Operators that the file defines itself.
    #[prost(bytes = "bytes", repeated, tag = "25")] pub functions: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "26")] pub configuration: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
#[rustfmt::skip]
pub struct OperatorSetIdProto {
    #[prost(string, tag = "1")] pub domain: String,
    #[prost(int64, tag = "2")] pub version: i64,
}

#[derive(Clone, PartialEq, Message)]
#[rustfmt::skip]
pub struct StringStringEntryProto {
    #[prost(string, tag = "1")] pub key: String,
    #[prost(string, tag = "2")] pub value: String,
}

#[derive(Clone, PartialEq, Message)]
#[rustfmt::skip]
pub struct GraphProto {
    #[prost(message, repeated, tag = "1")] pub nodes: Vec<NodeProto>,
    #[prost(string, tag = "2")] pub name: String,
    #[prost(message, repeated, tag = "5")] pub initializers: Vec<TensorProto>,
    #[prost(string, tag = "10")] pub doc_string: String,
    #[prost(message, repeated, tag = "11")] pub inputs: Vec<ValueInfoProto>,
    #[prost(message, repeated, tag = "12")] pub outputs: Vec<ValueInfoProto>,
    #[prost(message, repeated, tag = "13")] pub value_info: Vec<ValueInfoProto>,
    #[prost(bytes = "bytes", repeated, tag = "14")] pub quantization_annotation: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "15")] pub sparse_initializers: Vec<Bytes>,
    #[prost(message, repeated, tag = "16")] pub metadata_props: Vec<StringStringEntryProto>,
}

#[derive(Clone, PartialEq, Message)]
#[rustfmt::skip]
pub struct NodeProto {
    #[prost(string, repeated, tag = "1")] pub inputs: Vec<String>,
    #[prost(string, repeated, tag = "2")] pub outputs: Vec<String>,
    #[prost(string, tag = "3")] pub name: String,
    #[prost(string, tag = "4")] pub op_type: String,
    #[prost(message, repeated, tag = "5")] pub attributes: Vec<AttributeProto>,
    #[prost(string, tag = "6")] pub doc_string: String,
    #[prost(string, tag = "7")] pub domain: String,
    #[prost(string, tag = "8")] pub overload: String,
    #[prost(message, repeated, tag = "9")] pub metadata_props: Vec<StringStringEntryProto>,
    #[prost(bytes = "bytes", repeated, tag = "10")] pub device_configurations: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
#[rustfmt::skip]
pub struct AttributeProto {
    #[prost(string, tag = "1")] pub name: String,
    #[prost(float, optional, tag = "2")] pub f: Option<f32>,
    #[prost(int64, optional, tag = "3")] pub i: Option<i64>,
    #[prost(bytes = "bytes", optional, tag = "4")] pub s: Option<Bytes>,
    #[prost(message, optional, tag = "5")] pub t: Option<TensorProto>,
    /// A graph inside the node, as those of `If` and `Loop`.
    #[prost(bytes = "bytes", optional, tag = "6")] pub g: Option<Bytes>,
    #[prost(float, repeated, tag = "7")] pub floats: Vec<f32>,
    #[prost(int64, repeated, tag = "8")] pub ints: Vec<i64>,
    #[prost(bytes = "bytes", repeated, tag = "9")] pub strings: Vec<Bytes>,
    #[prost(message, repeated, tag = "10")] pub tensors: Vec<TensorProto>,
    #[prost(bytes = "bytes", repeated, tag = "11")] pub graphs: Vec<Bytes>,
    #[prost(string, tag = "13")] pub doc_string: String,
    #[prost(message, optional, tag = "14")] pub type_proto: Option<TypeProto>,
    #[prost(message, repeated, tag = "15")] pub type_protos: Vec<TypeProto>,
    #[prost(int32, tag = "20")] pub r#type: i32,
    #[prost(string, tag = "21")] pub ref_attr_name: String,
    #[prost(bytes = "bytes", optional, tag = "22")] pub sparse_tensor: Option<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "23")] pub sparse_tensors: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
#[rustfmt::skip]
pub struct TensorProto {
    #[prost(int64, repeated, tag = "1")] pub dims: Vec<i64>,
    #[prost(int32, tag = "2")] pub data_type: i32,
    #[prost(bytes = "bytes", optional, tag = "3")] pub segment: Option<Bytes>,
    #[prost(float, repeated, tag = "4")] pub float_data: Vec<f32>,
    #[prost(int32, repeated, tag = "5")] pub int32_data: Vec<i32>,
    #[prost(bytes = "bytes", repeated, tag = "6")] pub string_data: Vec<Bytes>,
    #[prost(int64, repeated, tag = "7")] pub int64_data: Vec<i64>,
    #[prost(string, tag = "8")] pub name: String,
    #[prost(bytes = "bytes", optional, tag = "9")] pub raw_data: Option<Bytes>,
    #[prost(double, repeated, tag = "10")] pub double_data: Vec<f64>,
    #[prost(uint64, repeated, tag = "11")] pub uint64_data: Vec<u64>,
    #[prost(string, tag = "12")] pub doc_string: String,
    /// `location`, `offset` and `length`.
    #[prost(message, repeated, tag = "13")] pub external_data: Vec<StringStringEntryProto>,
    /// 1 where the data are external.
    #[prost(int32, tag = "14")] pub data_location: i32,
    #[prost(message, repeated, tag = "16")] pub metadata_props: Vec<StringStringEntryProto>,
}

#[derive(Clone, PartialEq, Message)]
#[rustfmt::skip]
pub struct ValueInfoProto {
    #[prost(string, tag = "1")] pub name: String,
    #[prost(message, optional, tag = "2")] pub r#type: Option<TypeProto>,
    #[prost(string, tag = "3")] pub doc_string: String,
    #[prost(message, repeated, tag = "4")] pub metadata_props: Vec<StringStringEntryProto>,
}

/// One of the kinds is there.
#[derive(Clone, PartialEq, Message)]
#[rustfmt::skip]
pub struct TypeProto {
    #[prost(message, optional, tag = "1")] pub tensor: Option<TensorTypeProto>,
    #[prost(bytes = "bytes", optional, tag = "4")] pub sequence: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "5")] pub map: Option<Bytes>,
    #[prost(string, tag = "6")] pub denotation: String,
    #[prost(bytes = "bytes", optional, tag = "7")] pub opaque: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "8")] pub sparse_tensor: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "9")] pub optional: Option<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
#[rustfmt::skip]
pub struct TensorTypeProto {
    #[prost(int32, tag = "1")] pub element: i32,
    #[prost(message, optional, tag = "2")] pub shape: Option<ShapeProto>,
}

#[derive(Clone, PartialEq, Message)]
#[rustfmt::skip]
pub struct ShapeProto {
    #[prost(message, repeated, tag = "1")] pub dims: Vec<DimensionProto>,
}

#[derive(Clone, PartialEq, Message)]
#[rustfmt::skip]
pub struct DimensionProto {
    #[prost(int64, optional, tag = "1")] pub value: Option<i64>,
    #[prost(string, optional, tag = "2")] pub symbol: Option<String>,
    #[prost(string, tag = "3")] pub denotation: String,
}

/// The numbers of `TensorProto.DataType`.
pub mod element {
    pub const FLOAT: i32 = 1;
    pub const UINT8: i32 = 2;
    pub const INT8: i32 = 3;
    pub const INT32: i32 = 6;
    pub const INT64: i32 = 7;
    pub const BOOL: i32 = 9;
    pub const FLOAT16: i32 = 10;
    pub const DOUBLE: i32 = 11;
    pub const BFLOAT16: i32 = 16;
    pub const UINT4: i32 = 21;
    pub const INT4: i32 = 22;
}

/// Bytes per element of a type. Returns `None` for strings, and for elements that share a byte.
pub fn element_bytes(element: i32) -> Option<usize> {
    match element {
        2 | 3 | 9 | 17..=20 => Some(1),
        4 | 5 | 10 | 16 => Some(2),
        1 | 6 | 12 => Some(4),
        7 | 11 | 13 | 14 => Some(8),
        15 => Some(16),
        _ => None,
    }
}

/// The numbers of `AttributeProto.AttributeType`.
pub mod attribute {
    pub const INT: i32 = 2;
}

impl NodeProto {
    /// An operator of ONNX itself.
    pub fn new(op_type: &str, inputs: &[&str], output: &str) -> Self {
        NodeProto {
            op_type: op_type.into(),
            name: format!("{op_type}_{output}"),
            inputs: inputs.iter().map(|&name| name.into()).collect(),
            outputs: vec![output.into()],
            ..NodeProto::default()
        }
    }

    /// Makes a tensor of another element type.
    pub fn cast(input: &str, output: &str, element: i32) -> Self {
        NodeProto { attributes: vec![AttributeProto::int("to", element.into())], ..Self::new("Cast", &[input], output) }
    }

    pub fn attribute(&self, name: &str) -> Option<&AttributeProto> {
        self.attributes.iter().find(|attribute| attribute.name == name)
    }

    pub fn int(&self, name: &str) -> Option<i64> {
        // A zero may be left out on the wire.
        self.attribute(name).map(|attribute| attribute.i.unwrap_or_default())
    }

    /// Whether it is an operator of ONNX itself, and not of another set.
    pub fn is_standard(&self) -> bool {
        matches!(self.domain.as_str(), "" | "ai.onnx")
    }

    pub fn has_subgraph(&self) -> bool {
        self.attributes.iter().any(|attribute| attribute.g.is_some() || !attribute.graphs.is_empty())
    }
}

impl AttributeProto {
    pub fn int(name: &str, value: i64) -> Self {
        AttributeProto { name: name.into(), i: Some(value), r#type: attribute::INT, ..AttributeProto::default() }
    }
}

impl GraphProto {
    /// The places of the initializers, by name.
    pub fn places(&self) -> HashMap<&str, usize> {
        self.initializers.iter().enumerate().map(|(place, tensor)| (tensor.name.as_str(), place)).collect()
    }

    pub fn initializer(&self, name: &str) -> Option<&TensorProto> {
        self.initializers.iter().find(|tensor| tensor.name == name)
    }

    /// The inputs without those that have an initializer: older exporters list initializers among the inputs too.
    pub fn own_inputs(&self) -> impl Iterator<Item = &ValueInfoProto> {
        let places = self.places();
        self.inputs.iter().filter(move |input| !places.contains_key(input.name.as_str()))
    }
}

impl TensorProto {
    /// The number of elements, where it is a number that a file can hold.
    pub fn elements(&self) -> Option<u64> {
        self.dims.iter().try_fold(1_u64, |elements, &size| elements.checked_mul(u64::try_from(size).ok()?))
    }
}
