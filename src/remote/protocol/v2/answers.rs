//! The answers of the Open Inference Protocol v2, and whether their outputs are right.

use std::sync::{Mutex, PoisonError};

use hyper::header::HeaderName;
use serde::Deserialize;

use super::TensorMetadata;
use crate::fixture::HostTensor;
use crate::remote::connection::Seen;
use crate::remote::fault::{Fault, Kind};
use crate::remote::protocol::tensors::{BYTES, Numbers, Right, element_type, elements_of, shape_text};
use crate::remote::protocol::{Checked, parsed};

/// The header with the length of the JSON, which the bytes follow.
pub const HEAD_LENGTH: HeaderName = HeaderName::from_static("inference-header-content-length");

/// The checks of an answer.
pub struct Checks {
    outputs: Vec<TensorMetadata>,
    /// Samples per request, if an input is a batch.
    batch_size: Option<usize>,
    pub right: Option<Right>,
    /// The last right answer by the place of the request: equal bytes need no further check.
    known: Mutex<Vec<Option<Vec<u8>>>>,
}

#[derive(Deserialize)]
struct Outputs {
    outputs: Vec<JsonOutput>,
}

#[derive(Deserialize)]
struct JsonOutput {
    name: String,
    shape: Vec<usize>,
    datatype: String,
    #[serde(default)]
    parameters: Parameters,
    #[serde(default)]
    data: Option<Numbers>,
}

#[derive(Default, Deserialize)]
struct Parameters {
    binary_data_size: Option<usize>,
}

/// The outputs of an answer over HTTP.
///
/// # Errors
/// The body does not have the form of the protocol, or the values of an output do not fit.
pub fn outputs_of(body: &[u8], seen: &Seen) -> Result<Vec<Output>, Fault> {
    let length = seen.headers.get(HEAD_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let (head, mut tail) = body
        .split_at_checked(length.unwrap_or(body.len()))
        .ok_or_else(|| Fault::new(Kind::WrongType, "the head of the answer is longer than the answer"))?;
    let mut found = Vec::new();
    for JsonOutput { name, shape, datatype, parameters, data } in parsed::<Outputs>(head)?.outputs {
        found.push(match (parameters.binary_data_size, data) {
            (Some(size), _) => {
                let (own, rest) = tail.split_at_checked(size).ok_or_else(|| {
                    Fault::new(Kind::WrongType, format!("output {name} has fewer bytes than it says"))
                })?;
                tail = rest;
                Output::of_bytes(name, &datatype, shape, own)?
            }
            (None, Some(numbers)) => Output::new(name, &datatype, shape, numbers)?,
            (None, None) => return Err(Fault::new(Kind::WrongType, format!("output {name} has no data"))),
        });
    }
    if !tail.is_empty() {
        let why = format!("{} bytes after the outputs belong to none of them", tail.len());
        return Err(Fault::new(Kind::WrongType, why));
    }
    Ok(found)
}

/// An output with finite values of its type, as many as its shape has.
pub struct Output {
    name: String,
    shape: Vec<usize>,
    values: Vec<f64>,
}

impl Output {
    /// # Errors
    /// The values do not fit the type or the shape, or one is not finite.
    pub fn new(name: String, datatype: &str, shape: Vec<usize>, numbers: Numbers) -> Result<Self, Fault> {
        let has_other_type = if datatype == BYTES { !numbers.values.is_empty() } else { numbers.texts > 0 };
        if has_other_type {
            let why = format!("output {name} has values that are not of its type {datatype}");
            return Err(Fault::new(Kind::WrongType, why));
        }
        let count = numbers.values.len() + numbers.texts;
        if Some(count) != elements_of(&shape) {
            let why = format!("output {name} has {count} values for the shape {}", shape_text(&shape));
            return Err(Fault::new(Kind::WrongShape, why));
        }
        if numbers.values.iter().any(|value| !value.is_finite()) {
            return Err(Fault::new(Kind::NotFinite, format!("output {name} has a value that is not finite")));
        }
        Ok(Output { name, shape, values: numbers.values })
    }

    /// The same from little-endian bytes.
    pub fn of_bytes(name: String, datatype: &str, shape: Vec<usize>, bytes: &[u8]) -> Result<Self, Fault> {
        let numbers = numbers_of_bytes(datatype, &shape, bytes)
            .map_err(|why| Fault::new(Kind::WrongShape, format!("output {name}: {why}")))?;
        Output::new(name, datatype, shape, numbers)
    }
}

impl Checks {
    pub fn new(outputs: Vec<TensorMetadata>, batch_size: Option<usize>, right: Option<Right>) -> Self {
        let known = Mutex::new(vec![None; right.as_ref().map_or(0, |right| right.inputs.len())]);
        Checks { outputs, batch_size, right, known }
    }

    /// Checks the answer to the request of this place. `outputs_of` reads the outputs of a body.
    ///
    /// # Errors
    /// The answer is wrong.
    pub fn check(
        &self,
        place: Option<usize>,
        body: &mut Vec<u8>,
        outputs_of: impl FnOnce(&[u8]) -> Result<Vec<Output>, Fault>,
    ) -> Result<Checked, Fault> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if place.is_some_and(|place| known()[place].as_ref() == Some(body)) {
            return Ok(Checked::default());
        }
        let found = outputs_of(body)?;
        self.check_outputs(place, &found)?;
        let lacks_rows = self.may_lack_rows(&found);
        if let Some(place) = place.filter(|_| !lacks_rows) {
            known()[place] = Some(std::mem::take(body));
        }
        Ok(Checked { lacks_rows, ..Checked::default() })
    }

    /// Whether outputs may have too few rows: no output whose first size is open has a row per sample, and the right
    /// outputs are unknown. The server may drop samples, or the rows may be boxes, whose number depends on the pictures.
    fn may_lack_rows(&self, found: &[Output]) -> bool {
        let Some(batch_size) = self.batch_size else { return false };
        let has_open_rows = |output: &&Output| {
            let mut announced = self.outputs.iter().filter(|announced| announced.name == output.name);
            announced.any(|announced| announced.shape.first().is_some_and(|&size| size < 0))
        };
        let rows: Vec<usize> = found.iter().filter(has_open_rows).filter_map(|it| it.shape.first().copied()).collect();
        !rows.is_empty() && !rows.contains(&batch_size) && !self.right.as_ref().is_some_and(Right::has_outputs)
    }

    /// Checks that the outputs are those that the server announced, with their shapes, and with the right values if they
    /// are known.
    fn check_outputs(&self, place: Option<usize>, found: &[Output]) -> Result<(), Fault> {
        let wrong = |why: String| Err(Fault::new(Kind::WrongShape, why));
        if found.is_empty() {
            return wrong("the answer has no output".to_owned());
        }
        for announced in &self.outputs {
            let Some(Output { name, shape, .. }) = found.iter().find(|output| output.name == announced.name) else {
                return wrong(format!("there is no output {}", announced.name));
            };
            // A size below 0 is open.
            let is_like = |(size, &announced): (&usize, &i64)| {
                usize::try_from(announced).ok().is_none_or(|wanted| wanted == *size)
            };
            if shape.len() != announced.shape.len() || !shape.iter().zip(&announced.shape).all(is_like) {
                return wrong(format!(
                    "output {name} has the shape {}, and not {:?}",
                    shape_text(shape),
                    announced.shape
                ));
            }
        }
        let by_name = |name: &str| {
            let is_meant = |output: &&Output| output.name == name || name.is_empty() && found.len() == 1;
            found.iter().find(is_meant).map(|output| (output.shape.clone(), output.values.clone()))
        };
        self.right.as_ref().zip(place).map_or(Ok(()), |(right, place)| right.check(place, by_name))
    }
}

fn numbers_of_bytes(datatype: &str, shape: &[usize], bytes: &[u8]) -> Result<Numbers, String> {
    if datatype == BYTES {
        let (mut rest, mut texts) = (bytes, 0);
        while let Some((length, after)) = rest.split_first_chunk::<4>() {
            let length = u32::from_le_bytes(*length) as usize;
            rest = after.get(length..).ok_or("a text is longer than the bytes")?;
            texts += 1;
        }
        return Ok(Numbers { values: Vec::new(), texts });
    }
    let dtype = element_type(datatype).ok_or_else(|| format!("the type {datatype} is unknown"))?;
    let size = elements_of(shape).and_then(|count| count.checked_mul(dtype.bytes()));
    if size != Some(bytes.len()) {
        return Err(format!("{} bytes of the type {datatype} for the shape {}", bytes.len(), shape_text(shape)));
    }
    let tensor =
        HostTensor::from_bytes(&dtype.to_string(), shape.to_vec(), bytes).map_err(|error| error.to_string())?;
    Ok(Numbers { values: tensor.to_f64(), texts: 0 })
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn checks(outputs: &str) -> Checks {
        Checks::new(serde_json::from_str(outputs).unwrap(), Some(1), None)
    }

    fn checked(checks: &Checks, body: &[u8], seen: &Seen) -> Result<(), Kind> {
        let checked = checks.check(None, &mut body.to_vec(), |body| outputs_of(body, seen));
        checked.map(|_| ()).map_err(|fault| fault.kind)
    }

    #[test]
    fn an_answer_has_the_outputs_that_were_announced() {
        let checks = checks(r#"[{"name":"logits","datatype":"FP32","shape":[-1,3]}]"#);
        let of = |body: &str| checked(&checks, body.as_bytes(), &Seen::default());
        let answer = |shape: &str, data: &str| {
            format!(
                r#"{{"model_name":"m","outputs":[{{"name":"logits","datatype":"FP32","shape":{shape},"data":{data}}}]}}"#
            )
        };
        assert_eq!(of(&answer("[1,3]", "[1,2.5,3]")), Ok(()));
        assert_eq!(of(&answer("[1,3]", "[[1,2,3]]")), Ok(()));
        assert_eq!(of(&answer("[1,3]", "[1,2]")), Err(Kind::WrongShape));
        assert_eq!(of(&answer("[1,4]", "[1,2,3,4]")), Err(Kind::WrongShape));
        assert_eq!(of(&answer("[1,3]", "[1,NaN,3]")), Err(Kind::NotFinite));
        assert_eq!(of(&answer("[1,3]", "[1,null,3]")), Err(Kind::NotFinite));
        assert_eq!(of(r#"{"outputs":[]}"#), Err(Kind::WrongShape));
        assert_eq!(of(&answer("[1,3]", "[1,\"2\",3]")), Err(Kind::WrongType));
        assert_eq!(of(&answer("[-1,3]", "[1,2,3]")), Err(Kind::WrongType));
        // The product of these sizes overflows to 0.
        assert_eq!(of(&answer("[4294967296,4294967296]", "[]")), Err(Kind::WrongShape));
        assert_eq!(of(&answer("[1,3]", &format!("{}1,2,3", "[".repeat(100_000)))), Err(Kind::WrongType));
        assert_eq!(of("<html>"), Err(Kind::WrongType));
        assert_eq!(of(r#"{"outputs":[{"name":"logits","datatype":"FP32","shape":[1,3]}]}"#), Err(Kind::WrongType));
    }

    #[test]
    fn an_open_size_may_be_any_and_rows_that_may_be_missing_are_noted() {
        let tensor = |name: &str, shape: &[i64]| TensorMetadata {
            name: name.into(),
            datatype: "FP32".into(),
            shape: shape.to_vec(),
        };
        let lacks_rows = |batch_size: Option<usize>, boxes: usize, of_y: usize| {
            let checks = Checks::new(vec![tensor("boxes", &[-1, 2]), tensor("y", &[-1])], batch_size, None);
            let output = |name: &str, shape: Vec<usize>| {
                let values = vec![1.0; shape.iter().product()];
                Output::new(name.into(), "FP32", shape, Numbers { values, texts: 0 })
            };
            let outputs = [output("boxes", vec![boxes, 2]), output("y", vec![of_y])];
            let checked = checks.check(None, &mut Vec::new(), |_| outputs.into_iter().collect());
            checked.unwrap().lacks_rows
        };
        assert_eq!([lacks_rows(Some(4), 0, 0), lacks_rows(Some(4), 1, 1)], [true; 2]);
        assert_eq!([lacks_rows(Some(4), 4, 4), lacks_rows(Some(4), 7, 4), lacks_rows(None, 7, 0)], [false; 3]);
    }

    #[test]
    fn bytes_follow_the_head_of_a_binary_answer() {
        let checks = checks(r#"[{"name":"y","datatype":"FP32","shape":[1,2]}]"#);
        let head = br#"{"outputs":[{"name":"y","datatype":"FP32","shape":[1,2],"parameters":{"binary_data_size":8}}]}"#;
        let mut seen = Seen::default();
        seen.headers.insert(HEAD_LENGTH, HeaderValue::from(head.len()));
        let body = |values: [f32; 2]| [&head[..], values.map(f32::to_le_bytes).as_flattened()].concat();
        assert_eq!(checked(&checks, &body([1.0, 2.0]), &seen), Ok(()));
        assert_eq!(checked(&checks, &body([1.0, f32::INFINITY]), &seen), Err(Kind::NotFinite));
        assert_eq!(checked(&checks, &body([1.0, 2.0])[..head.len() + 5], &seen), Err(Kind::WrongType));
        assert_eq!(checked(&checks, &head[..20], &seen), Err(Kind::WrongType));
        assert_eq!(checked(&checks, &[body([1.0, 2.0]), vec![0]].concat(), &seen), Err(Kind::WrongType));
        assert!(numbers_of_bytes("FP32", &[2], &[0; 7]).is_err() && numbers_of_bytes("FP32", &[2], &[0; 9]).is_err());
        assert!(
            numbers_of_bytes("INT64", &[1 << 32, 1 << 32], &[]).is_err()
                && numbers_of_bytes("FP8", &[1], &[0]).is_err()
        );
        assert_eq!(numbers_of_bytes("BF16", &[1], &[0x80, 0x3f]).unwrap().values, [1.0]);
        assert_eq!(numbers_of_bytes("FP16", &[1], &[0, 0x3c]).unwrap().values, [1.0]);
        assert_eq!(numbers_of_bytes("UINT64", &[1], &[255, 0, 0, 0, 0, 0, 0, 0]).unwrap().values, [255.0]);
        assert_eq!(numbers_of_bytes("BOOL", &[2], &[1, 0]).unwrap().values, [1.0, 0.0]);
        assert_eq!(numbers_of_bytes(BYTES, &[2], b"\x01\0\0\0a\0\0\0\0").unwrap().texts, 2);
        assert!(numbers_of_bytes(BYTES, &[1], b"\x09\0\0\0a").is_err());
    }
}
