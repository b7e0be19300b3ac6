//! The messages of an ONNX file, in the types that `build.rs` generates from `onnx.proto`. Large fields are slices of
//! the file's bytes, not copies.

use std::collections::{HashMap, HashSet};

use prost::bytes::Bytes;

pub use generated::*;

mod generated {
    include!(concat!(env!("OUT_DIR"), "/onnx.rs"));
}

/// The numbers of `TensorProto.DataType`.
pub mod element {
    use crate::definition::ElementType;

    pub const FLOAT: i32 = 1;
    pub const UINT8: i32 = 2;
    pub const INT8: i32 = 3;
    pub const UINT16: i32 = 4;
    pub const INT16: i32 = 5;
    pub const INT32: i32 = 6;
    pub const INT64: i32 = 7;
    pub const BOOL: i32 = 9;
    pub const FLOAT16: i32 = 10;
    pub const DOUBLE: i32 = 11;
    pub const UINT32: i32 = 12;
    pub const UINT64: i32 = 13;
    pub const BFLOAT16: i32 = 16;
    pub const UINT4: i32 = 21;
    pub const INT4: i32 = 22;

    /// The type of tensors with these elements. Returns `None` for elements that this project has no type for.
    pub fn known(element: i32) -> Option<ElementType> {
        Some(match element {
            FLOAT => ElementType::F32,
            UINT8 => ElementType::U8,
            INT8 => ElementType::I8,
            UINT16 => ElementType::U16,
            INT16 => ElementType::I16,
            INT32 => ElementType::I32,
            INT64 => ElementType::I64,
            BOOL => ElementType::Bool,
            FLOAT16 => ElementType::F16,
            DOUBLE => ElementType::F64,
            UINT32 => ElementType::U32,
            UINT64 => ElementType::U64,
            BFLOAT16 => ElementType::Bf16,
            _ => return None,
        })
    }

    /// The name of an element type in messages.
    pub fn name(element: i32) -> String {
        let name = match element {
            UINT8 => "uint8",
            INT8 => "int8",
            8 => "strings",
            14 | 15 => "complex numbers",
            17..=20 => "float8",
            UINT4 => "uint4",
            INT4 => "int4",
            23 => "float4",
            24 => "float8 exponents",
            25 => "uint2",
            26 => "int2",
            other => match known(other) {
                Some(dtype) => return dtype.to_string(),
                None => return format!("ONNX's element type {other}"),
            },
        };
        name.to_owned()
    }
}

/// Bytes per element of a type. Returns `None` for strings, and for elements that share a byte.
pub fn element_bytes(element: i32) -> Option<usize> {
    match element {
        17..=20 => Some(1),
        14 => Some(8),
        15 => Some(16),
        other => element::known(other).map(|dtype| dtype.bytes()),
    }
}

/// The position of an axis, which counts from the end if it is negative. Returns `None` if there are fewer dimensions.
pub fn place_of_axis(axis: i64, rank: usize) -> Option<usize> {
    let place = if axis < 0 { axis.checked_add(i64::try_from(rank).ok()?)? } else { axis };
    usize::try_from(place).ok().filter(|&place| place < rank)
}

impl NodeProto {
    /// A node with one of ONNX's own operators.
    pub fn new(op_type: &str, inputs: &[&str], output: &str) -> Self {
        NodeProto {
            op_type: op_type.into(),
            name: format!("{op_type}_{output}"),
            inputs: inputs.iter().map(|&name| name.into()).collect(),
            outputs: vec![output.into()],
            ..NodeProto::default()
        }
    }

    /// A node that casts a tensor to another element type.
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

    /// The tensor, if the node is a constant.
    pub fn constant(&self) -> Option<&TensorProto> {
        self.attribute("value").filter(|_| self.op_type == "Constant")?.t.as_ref()
    }

    /// Whether the operator is ONNX's own, and not one of another domain.
    pub fn is_standard(&self) -> bool {
        matches!(self.domain.as_str(), "" | "ai.onnx")
    }

    pub fn has_subgraph(&self) -> bool {
        self.attributes.iter().any(|attribute| attribute.g.is_some() || !attribute.graphs.is_empty())
    }
}

impl AttributeProto {
    pub fn int(name: &str, value: i64) -> Self {
        // The number of `AttributeType.INT`.
        AttributeProto { name: name.into(), i: Some(value), r#type: 2, ..AttributeProto::default() }
    }

    pub fn ints(name: &str, values: &[i64]) -> Self {
        // The number of `AttributeType.INTS`.
        AttributeProto { name: name.into(), ints: values.to_vec(), r#type: 7, ..AttributeProto::default() }
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

    /// The value itself, and all values that these operators make from it: the same numbers in another order or shape.
    pub fn same_as<'a>(&'a self, name: &'a str, operators: &[&str]) -> HashSet<&'a str> {
        let mut same = HashSet::from([name]);
        // Nodes are in topological order.
        for node in self.nodes.iter().filter(|node| operators.contains(&node.op_type.as_str())) {
            if node.inputs.iter().any(|input| same.contains(input.as_str())) {
                same.extend(node.outputs.iter().map(String::as_str));
            }
        }
        same
    }

    /// The inputs without those that have an initializer: older exporters list initializers among the inputs too.
    pub fn own_inputs(&self) -> impl Iterator<Item = &ValueInfoProto> {
        let places = self.places();
        self.inputs.iter().filter(move |input| !places.contains_key(input.name.as_str()))
    }
}

impl ValueInfoProto {
    /// A tensor of these elements. Without a shape, it may have any.
    pub fn tensor(name: &str, element: i32, shape: Option<ShapeProto>) -> Self {
        let tensor = Some(TensorTypeProto { element, shape });
        ValueInfoProto { name: name.into(), r#type: Some(TypeProto { tensor, ..TypeProto::default() }) }
    }

    /// The dimensions of a tensor; empty if the file does not give them.
    pub fn dimensions(&self) -> &[DimensionProto] {
        let shape = self.r#type.as_ref().and_then(|kind| kind.tensor.as_ref()?.shape.as_ref());
        shape.map(|shape| shape.dims.as_slice()).unwrap_or_default()
    }
}

impl TensorProto {
    /// The bytes of the elements, little-endian and without gaps, if they are in the message.
    pub fn inside(&self) -> Option<Bytes> {
        let width = element_bytes(self.data_type).filter(|_| self.data_location == 0)?;
        Some(match self.data_type {
            _ if self.raw_data.is_some() => self.raw_data.clone()?,
            element::FLOAT => self.float_data.iter().flat_map(|value| value.to_le_bytes()).collect(),
            element::DOUBLE => self.double_data.iter().flat_map(|value| value.to_le_bytes()).collect(),
            element::INT64 => self.int64_data.iter().flat_map(|value| value.to_le_bytes()).collect(),
            element::UINT32 | element::UINT64 => {
                self.uint64_data.iter().flat_map(|value| value.to_le_bytes().into_iter().take(width)).collect()
            }
            // Narrower types are in this field, too.
            _ => self.int32_data.iter().flat_map(|value| value.to_le_bytes().into_iter().take(width)).collect(),
        })
    }

    /// The number of elements. Returns `None` for a negative size, and for more elements than a `u64` counts.
    pub fn elements(&self) -> Option<u64> {
        self.dims.iter().try_fold(1_u64, |elements, &size| elements.checked_mul(u64::try_from(size).ok()?))
    }
}
