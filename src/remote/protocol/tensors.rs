//! Tensors of the Open Inference Protocol v2, in JSON and in bytes, and which of them are right.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

use crate::definition::{
    DataSource, Dtype, ElementType, Model, ORIGINAL, Origin, Phase, PhasePlan, TensorSpec, Tolerance,
};
use crate::fixture::{Allowed, Errors, HostTensor, NamedTensors, Spread, TensorData};
use crate::remote::fault::{Fault, Kind};

/// The names of element types in the protocol.
const TYPES: [(&str, ElementType); 13] = [
    ("FP32", ElementType::F32),
    ("FP16", ElementType::F16),
    ("BF16", ElementType::Bf16),
    ("FP64", ElementType::F64),
    ("INT8", ElementType::I8),
    ("INT16", ElementType::I16),
    ("INT32", ElementType::I32),
    ("INT64", ElementType::I64),
    ("UINT8", ElementType::U8),
    ("UINT16", ElementType::U16),
    ("UINT32", ElementType::U32),
    ("UINT64", ElementType::U64),
    ("BOOL", ElementType::Bool),
];

/// The type of texts.
pub const BYTES: &str = "BYTES";

pub fn element_type(name: &str) -> Option<ElementType> {
    TYPES.iter().find(|(known, _)| *known == name).map(|(_, dtype)| *dtype)
}

pub fn type_name(dtype: ElementType) -> &'static str {
    TYPES.iter().find(|(_, known)| *known == dtype).map_or(BYTES, |(name, _)| name)
}

/// A model of which nothing is known but its inputs and outputs.
pub fn tensors_of(name: &str, inputs: Vec<TensorSpec>, outputs: Vec<TensorSpec>, dtype: Dtype) -> Model {
    Model {
        name: name.to_owned(),
        variant: ORIGINAL.to_owned(),
        family: String::new(),
        modality: String::new(),
        parameters: None,
        inputs,
        parts: Vec::new(),
        phases: vec![PhasePlan { phase: Phase::Forward, parts: Vec::new(), outputs }],
        generation: None,
        sequence_lengths: Vec::new(),
        tolerance: Tolerance::default(),
        dtype,
        data_source: DataSource::Synthetic,
        judge: None,
        origin: Origin::Files { onnx: None, torchscript: None, reference: None, quantization: None },
    }
}

/// The elements in row-major order as a list of JSON.
pub fn json_of(data: &TensorData) -> String {
    let written = match data {
        TensorData::F16(values) => {
            serde_json::to_string(&values.iter().map(|value| value.to_f32()).collect::<Vec<_>>())
        }
        TensorData::Bf16(values) => {
            serde_json::to_string(&values.iter().map(|value| value.to_f32()).collect::<Vec<_>>())
        }
        TensorData::F32(values) => serde_json::to_string(values),
        TensorData::F64(values) => serde_json::to_string(values),
        TensorData::I8(values) => serde_json::to_string(values),
        TensorData::I16(values) => serde_json::to_string(values),
        TensorData::I32(values) => serde_json::to_string(values),
        TensorData::I64(values) => serde_json::to_string(values),
        TensorData::U8(values) => serde_json::to_string(values),
        TensorData::U16(values) => serde_json::to_string(values),
        TensorData::U32(values) => serde_json::to_string(values),
        TensorData::U64(values) => serde_json::to_string(values),
        TensorData::Bool(values) => serde_json::to_string(values),
    };
    // Lists of numbers can always be written.
    written.unwrap_or_default()
}

/// The elements as little-endian bytes.
pub fn bytes_of(data: &TensorData) -> Vec<u8> {
    match data {
        TensorData::F16(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        TensorData::Bf16(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        TensorData::F32(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        TensorData::F64(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        TensorData::I8(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        TensorData::I16(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        TensorData::I32(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        TensorData::I64(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        TensorData::U8(values) => values.clone(),
        TensorData::U16(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        TensorData::U32(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        TensorData::U64(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        TensorData::Bool(values) => values.iter().map(|&value| u8::from(value)).collect(),
    }
}

/// The numbers of a list, which may be nested; texts count and have no number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Numbers {
    pub values: Vec<f64>,
    pub texts: usize,
}

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut numbers = Numbers::default();
        deserializer.deserialize_seq(List(&mut numbers))?;
        Ok(numbers)
    }
}

/// A list whose numbers are added.
struct List<'a>(&'a mut Numbers);

impl<'de> Visitor<'de> for List<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of numbers or texts, which may be nested")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(Element(self.0))?.is_some() {}
        Ok(())
    }
}

struct Element<'a>(&'a mut Numbers);

impl<'de> serde::de::DeserializeSeed<'de> for Element<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Element<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a number, a text or a list of them")
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.0.values.push(value);
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.0.values.push(value as f64);
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.0.values.push(value as f64);
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.0.values.push(f64::from(u8::from(value)));
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        self.0.texts += 1;
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.0.values.push(f64::NAN);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<(), A::Error> {
        List(self.0).visit_seq(list)
    }
}

/// The right outputs for each of the inputs that take turns.
pub struct Right {
    /// The inputs, in the order of the model.
    pub inputs: Vec<Vec<HostTensor>>,
    outputs: Vec<NamedTensors>,
    spread: Spread,
    allowed: Allowed,
}

impl Right {
    /// # Errors
    /// An output has no finite number.
    pub fn new(
        inputs: Vec<Vec<HostTensor>>,
        outputs: Vec<NamedTensors>,
        batch: usize,
        allowed: Allowed,
    ) -> anyhow::Result<Self> {
        let spread = Spread::of(&outputs, batch)?;
        Ok(Right { inputs, outputs, spread, allowed })
    }

    /// Checks the answer to the inputs of this place. `found` gives the numbers of an output by its name.
    ///
    /// # Errors
    /// They are not the right ones.
    pub fn check(&self, place: usize, found: impl Fn(&str) -> Option<(Vec<usize>, Vec<f64>)>) -> Result<(), Fault> {
        let wrong = |why: String| Fault::new(Kind::WrongValues, why);
        let expected = &self.outputs[place % self.outputs.len().max(1)];
        let output = |(name, wanted): &(String, HostTensor)| {
            let (shape, values) = found(name)
                .or_else(|| found("").filter(|_| expected.len() == 1))
                .ok_or_else(|| Fault::new(Kind::WrongShape, format!("there is no output {name}")))?;
            let data = match wanted.is_integer() {
                true => like_integers(&wanted.data, &values),
                false => TensorData::F64(values),
            };
            Ok(HostTensor { shape, data })
        };
        let outputs = expected.iter().map(output).collect::<Result<Vec<_>, Fault>>()?;
        let mut errors = Errors::default();
        errors.add(&self.spread, &outputs, expected, &self.allowed).map_err(|error| wrong(format!("{error:#}")))?;
        match errors.worst(&self.spread, None, self.allowed) {
            Some(worst) if worst.of_allowed > 1.0 => Err(wrong(format!(
                "{} is off by {:.3} of what samples differ by; the largest error is {:.3e}",
                worst.place, worst.of_spread, errors.max_abs
            ))),
            _ => Ok(()),
        }
    }
}

/// Numbers as integers of the type that is wanted.
fn like_integers(wanted: &TensorData, values: &[f64]) -> TensorData {
    match wanted {
        TensorData::I8(_) => values.iter().map(|&value| value as i8).collect::<Vec<_>>().into(),
        TensorData::I16(_) => values.iter().map(|&value| value as i16).collect::<Vec<_>>().into(),
        TensorData::I32(_) => values.iter().map(|&value| value as i32).collect::<Vec<_>>().into(),
        TensorData::U8(_) => values.iter().map(|&value| value as u8).collect::<Vec<_>>().into(),
        TensorData::U16(_) => values.iter().map(|&value| value as u16).collect::<Vec<_>>().into(),
        TensorData::U32(_) => values.iter().map(|&value| value as u32).collect::<Vec<_>>().into(),
        TensorData::U64(_) => values.iter().map(|&value| value as u64).collect::<Vec<_>>().into(),
        TensorData::Bool(_) => values.iter().map(|&value| value != 0.0).collect::<Vec<_>>().into(),
        _ => values.iter().map(|&value| value as i64).collect::<Vec<_>>().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_numbers_are_read_however_they_are_nested() {
        let of = |text: &str| serde_json::from_str::<Numbers>(text).map_err(|_| ());
        let numbers = |values: &[f64]| Ok(Numbers { values: values.to_vec(), texts: 0 });
        assert_eq!(of("[1, 2.5, -3, true]"), numbers(&[1.0, 2.5, -3.0, 1.0]));
        assert_eq!(of("[[1, 2], [[3], []]]"), numbers(&[1.0, 2.0, 3.0]));
        assert_eq!(of("[\"a\", \"b\"]"), Ok(Numbers { values: vec![], texts: 2 }));
        assert!(of("[null]").unwrap().values[0].is_nan());
        for wrong in ["3", "{}", "[{}]", "[1", "[NaN]"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bytes_are_little_endian_and_types_have_two_names() {
        assert_eq!(bytes_of(&TensorData::I16(vec![1, -2])), [1, 0, 254, 255]);
        assert_eq!(bytes_of(&TensorData::Bool(vec![true, false])), [1, 0]);
        assert_eq!(json_of(&TensorData::F32(vec![0.1, -2.0])), "[0.1,-2.0]");
        for (name, dtype) in TYPES {
            assert_eq!((element_type(name), type_name(dtype)), (Some(dtype), name));
        }
        assert_eq!(element_type(BYTES), None);
    }
}
