//! Tensors of the Open Inference Protocol v2, in JSON and in bytes, and the check of their values.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

use anyhow::{Context, Result};

use crate::definition::{BATCH, Dimension, ElementType, Sizes, TensorSpec};
use crate::fixture::{Allowed, Errors, HostTensor, NamedTensors, Spread, TensorData, seeded_input, with_values};
use crate::remote::fault::{Fault, Kind};
use crate::report::numbers::three_digits_of_any;

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

/// The protocol's type of texts.
pub const BYTES: &str = "BYTES";

pub fn element_type(name: &str) -> Option<ElementType> {
    TYPES.iter().find(|(known, _)| *known == name).map(|(_, dtype)| *dtype)
}

pub fn type_name(dtype: ElementType) -> &'static str {
    TYPES.iter().find(|(_, known)| *known == dtype).map_or(BYTES, |(name, _)| name)
}

/// The elements in row-major order as a JSON list. Rust's debug format differs from it only in spaces.
pub fn json_of(data: &TensorData) -> String {
    with_values!(data, values => format!("{values:?}")).replace(' ', "")
}

/// The number of elements of a shape. Returns `None` if it overflows.
pub fn elements_of(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1_usize, |product, &size| product.checked_mul(size))
}

pub fn shape_text(shape: &[usize]) -> String {
    shape.iter().map(ToString::to_string).collect::<Vec<_>>().join("x")
}

/// How the elements of a tensor are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A JSON list.
    Flat,
    /// JSON lists, nested like the shape.
    Nested,
    Bytes,
}

/// The most bytes of a request's inputs.
pub const MOST_INPUT: usize = 1 << 27;
/// Elements at the beginning of each row that differ from request to request.
const LEAD: usize = 32;
/// Stands for an element that differs. No number contains this character.
const HOLE: &str = "\0";

/// An input whose rows begin with other seeded values in each request. The rest of each row stays the same: making and
/// writing all values of a large input would take longer than the server takes to answer.
pub struct Varied {
    lead: TensorSpec,
    form: Form,
    rows: usize,
    /// The text or bytes before, between and after the elements that differ.
    parts: Vec<Vec<u8>>,
}

impl Varied {
    /// # Errors
    /// A size is open, or the input has more than [`MOST_INPUT`] bytes.
    pub fn new(spec: &TensorSpec, sizes: Sizes, form: Form) -> Result<Self> {
        let shape = spec.concrete_shape(sizes)?;
        let elements = elements_of(&shape).filter(|count| count.saturating_mul(spec.dtype.bytes()) <= MOST_INPUT);
        let elements = elements.with_context(|| {
            format!("the input {} of the shape {} has more than {MOST_INPUT} bytes", spec.name, shape_text(&shape))
        })?;
        let samples: Vec<usize> = (0..sizes.batch).collect();
        let base = seeded_input(spec, &samples, sizes)?.data;
        let rows = if spec.is_batched() { sizes.batch } else { 1 };
        let per_row = (elements / rows.max(1)).max(1);
        let lead = per_row.min(LEAD);
        let is_lead = |place: usize| place % per_row < lead;
        let parts = if form == Form::Bytes {
            let mut parts = vec![Vec::new()];
            for (place, element) in base.to_bytes().chunks(spec.dtype.bytes()).enumerate() {
                match parts.last_mut() {
                    Some(part) if !is_lead(place) => part.extend_from_slice(element),
                    _ => parts.push(Vec::new()),
                }
            }
            parts
        } else {
            let json = json_of(&base);
            let mut items = items_of(&json).enumerate().map(|(place, item)| if is_lead(place) { HOLE } else { item });
            let mut text = String::new();
            let shape = if form == Form::Nested { shape } else { vec![elements] };
            write_nested(&mut items, &shape, &mut text);
            text.split(HOLE).map(|part| part.as_bytes().to_vec()).collect()
        };
        let first = spec.is_batched().then(|| Dimension::Symbol(BATCH.to_owned()));
        let shape = first.into_iter().chain([Dimension::Fixed(lead)]).collect();
        Ok(Varied { lead: TensorSpec { shape, ..spec.clone() }, form, rows, parts })
    }

    /// The input with the values of these samples, one per row.
    pub fn make(&self, samples: &[usize]) -> Vec<u8> {
        let sizes = Sizes { batch: self.rows, sequence: None };
        // This never fails, because the shape has no open size.
        let Ok(lead) = seeded_input(&self.lead, samples, sizes) else { return self.parts.concat() };
        let mut made: Vec<u8> = Vec::with_capacity(self.parts.iter().map(|part| part.len() + 16).sum());
        let mut parts = self.parts.iter();
        made.extend(parts.next().into_iter().flatten());
        let mut add = |(element, part): (&[u8], &Vec<u8>)| {
            made.extend_from_slice(element);
            made.extend_from_slice(part);
        };
        match self.form {
            Form::Bytes => lead.data.to_bytes().chunks(self.lead.dtype.bytes()).zip(parts).for_each(&mut add),
            _ => items_of(&json_of(&lead.data)).map(str::as_bytes).zip(parts).for_each(&mut add),
        }
        made
    }
}

/// The items of a flat JSON list.
fn items_of(json: &str) -> impl Iterator<Item = &str> {
    json.trim_matches(['[', ']']).split(',').filter(|item| !item.is_empty())
}

/// Writes the items as nested lists of this shape.
fn write_nested<'a>(items: &mut impl Iterator<Item = &'a str>, shape: &[usize], text: &mut String) {
    let Some((&size, inner)) = shape.split_first() else {
        text.push_str(items.next().unwrap_or_default());
        return;
    };
    text.push('[');
    for place in 0..size {
        if place > 0 {
            text.push(',');
        }
        write_nested(items, inner, text);
    }
    text.push(']');
}

/// The numbers of a list, which may be nested, and the count of its texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Numbers {
    pub values: Vec<f64>,
    pub texts: usize,
}

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut numbers = Numbers::default();
        deserializer.deserialize_seq(Element(&mut numbers))?;
        Ok(numbers)
    }
}

/// Adds a number, a text or a list to the numbers.
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

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(Element(self.0))?.is_some() {}
        Ok(())
    }
}

/// Inputs that requests use in turn, and the right outputs of each, if they are known.
pub struct Right {
    /// The inputs, in the order of the model.
    pub inputs: Vec<Vec<HostTensor>>,
    outputs: Option<Outputs>,
}

struct Outputs {
    of_inputs: Vec<NamedTensors>,
    spread: Spread,
}

/// How far a server's outputs may be off, as a fraction of what samples differ by. The server may compute in another
/// dtype.
const TOLERANCE: f64 = 1e-2;
const ALLOWED: Allowed = Allowed {
    part_of_spread: TOLERANCE,
    without_rounding: TOLERANCE,
    unit_roundoff: 1.0 / 2048.0,
    times_rounding: 1.0,
    largest: f32::MAX as f64,
    may_flip: 0.0,
};

impl Right {
    /// # Errors
    /// A right output has no finite number.
    pub fn new(inputs: Vec<Vec<HostTensor>>, outputs: Vec<NamedTensors>, batch: usize) -> Result<Self> {
        let spread = Spread::of(&outputs, batch)?;
        Ok(Right { inputs, outputs: Some(Outputs { of_inputs: outputs, spread }) })
    }

    /// Inputs without known outputs.
    pub fn of_samples(inputs: Vec<Vec<HostTensor>>) -> Self {
        Right { inputs, outputs: None }
    }

    /// Whether the right outputs are known.
    pub fn has_outputs(&self) -> bool {
        self.outputs.is_some()
    }

    /// Checks the answer to the inputs at `place`. `found` returns the shape and the numbers of an output by its name.
    ///
    /// # Errors
    /// An output is missing or wrong.
    pub fn check(&self, place: usize, found: impl Fn(&str) -> Option<(Vec<usize>, Vec<f64>)>) -> Result<(), Fault> {
        let wrong = |why: String| Fault::new(Kind::WrongValues, why);
        let Some(Outputs { of_inputs, spread }) = &self.outputs else { return Ok(()) };
        let expected = &of_inputs[place % of_inputs.len().max(1)];
        let output = |(name, wanted): &(String, HostTensor)| {
            let (shape, values) = found(name)
                .or_else(|| found("").filter(|_| expected.len() == 1))
                .ok_or_else(|| Fault::new(Kind::WrongShape, format!("there is no output {name}")))?;
            if wanted.is_integer() && values.iter().any(|value| value.fract() != 0.0) {
                return Err(wrong(format!("output {name} has a value that is not an integer")));
            }
            Ok(HostTensor { shape, data: TensorData::F64(values) })
        };
        let outputs = expected.iter().map(output).collect::<Result<Vec<_>, Fault>>()?;
        let mut errors = Errors::default();
        errors.add(spread, &outputs, expected, &ALLOWED).map_err(|error| wrong(format!("{error:#}")))?;
        match errors.worst(spread, None, ALLOWED) {
            Some(worst) if worst.of_allowed > 1.0 => Err(wrong(format!(
                "{} differs by {} times as much as the outputs of different samples differ; the largest error is {:.3e}",
                worst.place,
                three_digits_of_any(worst.of_spread),
                errors.max_abs
            ))),
            _ => Ok(()),
        }
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
    fn requests_differ_in_the_values_at_the_beginning_of_each_row() {
        let of = |text: &str, form| {
            let sizes = Sizes { batch: 2, sequence: None };
            let varied = Varied::new(&text.parse().unwrap(), sizes, form).unwrap();
            move |samples: &[usize]| varied.make(samples)
        };
        let numbers = |json: &[u8]| serde_json::from_slice::<Numbers>(json).unwrap().values;
        for (_, dtype) in TYPES.into_iter().filter(|(_, dtype)| *dtype != ElementType::Bool) {
            let text = format!("x:{dtype}[batch,40,2]");
            let [flat, nested, bytes] = [Form::Flat, Form::Nested, Form::Bytes].map(|form| of(&text, form));
            let values = numbers(&flat(&[7, 8]));
            assert_eq!(values, numbers(&nested(&[7, 8])), "{text}");
            let read = HostTensor::from_bytes(&dtype.to_string(), vec![2, 40, 2], &bytes(&[7, 8])).unwrap().to_f64();
            assert!(values.iter().zip(&read).all(|(one, other)| (one - other).abs() < 1e-6), "{text}");
            let others = numbers(&flat(&[9, 10]));
            for row in [0, 80] {
                assert_ne!(values[row..row + LEAD], others[row..row + LEAD], "{text}");
                assert_eq!(values[row + LEAD..row + 80], others[row + LEAD..row + 80], "{text}");
            }
            assert_eq!(flat(&[7, 8]), flat(&[7, 8]));
        }
        let text = |form| String::from_utf8(of("x:i32[batch,1,2]=3", form)(&[0, 1])).unwrap();
        assert_eq!((text(Form::Flat).as_str(), text(Form::Nested).as_str()), ("[3,3,3,3]", "[[[3,3]],[[3,3]]]"));
        let small = of("x:f32[2]", Form::Flat);
        assert_ne!(small(&[0, 1]), small(&[1, 2]));
        let huge = |text: &str| Varied::new(&text.parse().unwrap(), Sizes { batch: 1, sequence: None }, Form::Flat);
        assert!(huge("x:f32[batch,1000000000000]").is_err());
        assert!(huge("x:f32[batch,4294967296,4294967296]").is_err());
        assert!(huge("x:f32[batch,sequence]").is_err());
    }

    #[test]
    fn bytes_are_little_endian_and_types_have_two_names() {
        assert_eq!(TensorData::I16(vec![1, -2]).to_bytes(), [1, 0, 254, 255]);
        assert_eq!(TensorData::Bool(vec![true, false]).to_bytes(), [1, 0]);
        assert_eq!(json_of(&TensorData::F32(vec![0.1, -2.0])), "[0.1,-2.0]");
        for (name, dtype) in TYPES {
            assert_eq!((element_type(name), type_name(dtype)), (Some(dtype), name));
        }
        assert_eq!(element_type(BYTES), None);
    }
}
