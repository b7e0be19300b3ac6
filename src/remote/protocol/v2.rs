//! The Open Inference Protocol v2 (KServe): tensors as JSON, or as bytes after a JSON head (its binary extension).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use hyper::body::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::json;

use super::tensors::{BYTES, Numbers, Right, bytes_of, element_type, json_of, tensors_of, type_name};
use super::{AnswerReader, Checked, Described, Protocol, Whole, Wishes, base_of, get_json, json_of as json_answer};
use crate::definition::{BATCH, Dimension, Dtype, ElementType, Model, Phase, SEQUENCE, Sizes, TensorSpec};
use crate::fixture::{HostTensor, RING, batch};
use crate::remote::connection::{Call, Connection, Reader, Seen};
use crate::remote::fault::{Fault, Kind};
use crate::remote::protocol::seeded_words;
use crate::remote::target::Target;

/// The header with the length of the JSON before the bytes.
const HEAD_LENGTH: HeaderName = HeaderName::from_static("inference-header-content-length");

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    inputs: Vec<TensorMetadata>,
    #[serde(default)]
    outputs: Vec<TensorMetadata>,
}

#[derive(Clone, Deserialize)]
struct TensorMetadata {
    name: String,
    datatype: String,
    shape: Vec<i64>,
}

/// A model behind the protocol, with the requests that take turns.
struct V2 {
    path: String,
    bodies: Vec<(Bytes, usize)>,
    is_binary: bool,
    checks: Arc<Checks>,
}

/// What a right answer is.
struct Checks {
    outputs: Vec<TensorMetadata>,
    batch_size: usize,
    right: Option<Right>,
    /// Whole answers that were right, by the place of the request: equal bytes need no second look.
    known: Mutex<Vec<Option<Vec<u8>>>>,
}

/// Reads what the server says about the model and makes the requests. `right` gives inputs with their outputs, where they are known.
///
/// # Errors
/// The outer error is about what was asked for, and the inner one about the server.
pub fn describe(
    connection: &mut Connection,
    target: &Target,
    wishes: &Wishes,
    right: impl FnOnce(&Model) -> Result<Option<Right>>,
) -> Result<Result<Described, Fault>> {
    let base = base_of(&target.path, &["/v2"]);
    let named = target.path.split_once("/v2/models/").map(|(_, name)| name.trim_end_matches("/infer").to_owned());
    let mut ask = |path: String| get_json(connection, &path);
    let server = match ask(format!("{base}/v2")) {
        Ok(server) => server.unwrap_or_default(),
        Err(fault) => return Ok(Err(fault)),
    };
    let name = match named.or_else(|| wishes.model.clone()) {
        Some(name) => name,
        None => match json_answer(connection, &Call::json(format!("{base}/v2/repository/index"), "{}")) {
            Ok(listed) => only_model(listed)?,
            Err(fault) => return Ok(Err(fault)),
        },
    };
    let path = format!("{base}/v2/models/{name}");
    let metadata = match get_json(connection, &path) {
        Ok(Some(metadata)) => {
            serde_json::from_value::<Metadata>(metadata).with_context(|| format!("{path} describes no model"))?
        }
        Ok(None) => return Ok(Err(Fault::new(Kind::ClientError, format!("the server has no model {name:?}")))),
        Err(fault) => return Ok(Err(fault)),
    };
    ensure!(
        !metadata.inputs.is_empty(),
        "the server does not say which inputs {name} takes: describe the request by `--template`"
    );
    let model = model_of(&name, &metadata, wishes)?;
    let right = right(&model)?;
    let sizes = Sizes { batch: wishes.batch_size, sequence: wishes.sequence_length };
    let mut bodies = Vec::new();
    for place in 0..RING {
        let inputs = match &right {
            Some(right) => right.inputs[place % right.inputs.len()].clone(),
            None => batch(&model, None, place, sizes).with_context(|| {
                format!("the server leaves a size of {name} open: say it by `--seq-lens` or `--input`")
            })?,
        };
        bodies.push(body(&metadata.inputs, &model.inputs, inputs, wishes, place));
    }
    let text = |key: &str| server.get(key).and_then(|text| text.as_str()).map(str::to_owned);
    let input_shape = model.inputs.iter().map(|spec| Ok(shape_text(&spec.concrete_shape(sizes)?)));
    let checks =
        Checks { outputs: metadata.outputs, batch_size: wishes.batch_size, right, known: Mutex::new(vec![None; RING]) };
    let protocol = V2 { path: format!("{path}/infer"), bodies, is_binary: wishes.is_binary, checks: Arc::new(checks) };
    Ok(Ok(Described {
        protocol: Box::new(protocol),
        model: name,
        server: text("name").map(|name| format!("{name} {}", text("version").unwrap_or_default()).trim().to_owned()),
        dtype: model.dtype,
        phase: Phase::Forward,
        input_shape: input_shape.collect::<Result<Vec<String>>>().ok().map(|shapes| shapes.join(", ")),
        makes_tokens: false,
    }))
}

fn shape_text(shape: &[usize]) -> String {
    shape.iter().map(ToString::to_string).collect::<Vec<_>>().join("x")
}

/// The name of the server's only model, by Triton's and MLServer's list of their models.
fn only_model(listed: Option<serde_json::Value>) -> Result<String> {
    let listed = listed.context("the server does not list its models: name one by `--model`")?;
    let name = |model: &serde_json::Value| Some(model.get("name")?.as_str()?.to_owned());
    let names: Vec<String> = listed.as_array().into_iter().flatten().filter_map(name).collect();
    match names.as_slice() {
        [only] => Ok(only.clone()),
        [] => anyhow::bail!("the server lists no model: name one by `--model`"),
        several => anyhow::bail!("the server has several models: name one by `--model`: {}", several.join(", ")),
    }
}

/// The model as far as its inputs go. The first open size is the batch, and the second the sequence.
fn model_of(name: &str, metadata: &Metadata, wishes: &Wishes) -> Result<Model> {
    let spec = |tensor: &TensorMetadata| -> Result<TensorSpec> {
        if let Some(given) = wishes.inputs.iter().find(|input| input.name == tensor.name) {
            return Ok(given.clone());
        }
        let dtype = match element_type(&tensor.datatype) {
            Some(dtype) => dtype,
            // Texts are made beside.
            None if tensor.datatype == BYTES => ElementType::U8,
            None => anyhow::bail!("input {} has the type {}, which is not known", tensor.name, tensor.datatype),
        };
        let mut open = [BATCH, SEQUENCE].into_iter();
        let dimension = |(place, &size): (usize, &i64)| match usize::try_from(size) {
            Ok(size) => Dimension::Fixed(size),
            Err(_) if place == 0 => Dimension::Symbol(open.next().unwrap_or(SEQUENCE).to_owned()),
            Err(_) => Dimension::Symbol(SEQUENCE.to_owned()),
        };
        let shape = tensor.shape.iter().enumerate().map(dimension).collect();
        let spec = TensorSpec::new(&tensor.name, dtype, shape);
        // A mask of a language model says that everything is there.
        let is_mask = tensor.name.contains("mask") && !dtype_is_floating(dtype);
        Ok(TensorSpec { constant: is_mask.then_some(1.0), ..spec })
    };
    let inputs = metadata.inputs.iter().map(spec).collect::<Result<Vec<_>>>()?;
    let unknown = wishes.inputs.iter().find(|given| inputs.iter().all(|input| input.name != given.name));
    ensure!(unknown.is_none(), "{name} has no input {}", unknown.map(|input| input.name.as_str()).unwrap_or_default());
    ensure!(
        wishes.batch_size == 1
            || inputs.iter().any(|input| input.shape.first().is_some_and(|first| first.fixed().is_none())),
        "{name} has no open batch dimension: leave `--batch-sizes` out"
    );
    let dtype = metadata.inputs.iter().chain(&metadata.outputs).find_map(|tensor| match tensor.datatype.as_str() {
        "FP32" => Some(Dtype::F32),
        "FP16" => Some(Dtype::F16),
        "BF16" => Some(Dtype::Bf16),
        _ => None,
    });
    let output = |tensor: &TensorMetadata| TensorSpec::new(&tensor.name, ElementType::F32, Vec::new());
    let outputs = metadata.outputs.iter().map(output).collect();
    Ok(tensors_of(name, inputs, outputs, dtype.unwrap_or_default()))
}

fn dtype_is_floating(dtype: ElementType) -> bool {
    matches!(dtype, ElementType::F32 | ElementType::F16 | ElementType::Bf16 | ElementType::F64)
}

/// A request with the length of its JSON.
fn body(
    metadata: &[TensorMetadata],
    specs: &[TensorSpec],
    inputs: Vec<HostTensor>,
    wishes: &Wishes,
    place: usize,
) -> (Bytes, usize) {
    let mut heads = Vec::new();
    let mut tail: Vec<u8> = Vec::new();
    for ((tensor, spec), input) in metadata.iter().zip(specs).zip(inputs) {
        let count: usize = input.shape.iter().product();
        let texts = (tensor.datatype == BYTES).then(|| texts(wishes, place, count));
        let datatype = if texts.is_some() { BYTES } else { type_name(spec.dtype) };
        let (name, shape) = (json!(tensor.name), json!(input.shape));
        if wishes.is_binary {
            let before = tail.len();
            match texts {
                // Each text has its length before it.
                Some(texts) => texts.iter().for_each(|text| {
                    tail.extend_from_slice(&(text.len() as u32).to_le_bytes());
                    tail.extend_from_slice(text.as_bytes());
                }),
                None => tail.extend(bytes_of(&input.data)),
            }
            let size = tail.len() - before;
            heads.push(format!(
                r#"{{"name":{name},"shape":{shape},"datatype":"{datatype}","parameters":{{"binary_data_size":{size}}}}}"#
            ));
        } else {
            let data = texts.map_or_else(|| json_of(&input.data), |texts| json!(texts).to_string());
            heads.push(format!(r#"{{"name":{name},"shape":{shape},"datatype":"{datatype}","data":{data}}}"#));
        }
    }
    let binary = if wishes.is_binary { r#","parameters":{"binary_data_output":true}"# } else { "" };
    // The same id makes the same answer.
    let mut body = format!(r#"{{"id":"{place}","inputs":[{}]{binary}}}"#, heads.join(",")).into_bytes();
    let length = body.len();
    body.extend(tail);
    (Bytes::from(body), length)
}

fn texts(wishes: &Wishes, place: usize, count: usize) -> Vec<String> {
    const WORDS: usize = 16;
    let text = |number: usize| match &wishes.texts {
        Some(texts) => texts[(place * count + number) % texts.len()].clone(),
        None => seeded_words(wishes.seed, place * count + number, wishes.sequence_length.unwrap_or(WORDS)),
    };
    (0..count).map(text).collect()
}

impl Protocol for V2 {
    fn name(&self) -> String {
        format!("v2 {}", if self.is_binary { "binary" } else { "json" })
    }

    fn call(&self, number: usize) -> Call {
        let (body, length) = &self.bodies[number % self.bodies.len()];
        let mut call = Call::json(&self.path, body.clone());
        if self.is_binary {
            call.headers = vec![
                (hyper::header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
                (HEAD_LENGTH, HeaderValue::from(*length)),
            ];
        }
        call
    }

    fn reader(&self, number: usize) -> Box<dyn AnswerReader> {
        Box::new(Answer { place: number % self.bodies.len(), body: Whole::default(), checks: self.checks.clone() })
    }
}

struct Answer {
    place: usize,
    body: Whole,
    checks: Arc<Checks>,
}

impl Reader for Answer {
    fn part(&mut self, bytes: &[u8], at: Instant) -> Result<(), Fault> {
        self.body.part(bytes, at)
    }
}

#[derive(Deserialize)]
struct Outputs {
    outputs: Vec<Output>,
}

#[derive(Deserialize)]
struct Output {
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

impl AnswerReader for Answer {
    fn check(&mut self, seen: &Seen) -> Result<Checked, Fault> {
        let known = || self.checks.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known()[self.place].as_ref() == Some(&self.body.0) {
            return Ok(Checked::default());
        }
        self.checks.check(self.place, &self.body.0, seen)?;
        known()[self.place] = Some(std::mem::take(&mut self.body.0));
        Ok(Checked::default())
    }
}

impl Checks {
    fn check(&self, place: usize, body: &[u8], seen: &Seen) -> Result<(), Fault> {
        let length = seen.headers.get(HEAD_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        let (head, mut tail) = body
            .split_at_checked(length.unwrap_or(body.len()))
            .ok_or_else(|| Fault::new(Kind::WrongType, "the head of the answer is longer than the answer"))?;
        let outputs: Outputs = serde_json::from_slice(head).map_err(|error| not_json(head, &error))?;
        let mut found: Vec<(String, Vec<usize>, Vec<f64>)> = Vec::new();
        for output in outputs.outputs {
            let name = output.name;
            let count: usize = output.shape.iter().product();
            let numbers = match (output.parameters.binary_data_size, output.data) {
                (Some(size), _) => {
                    let (own, rest) = tail.split_at_checked(size).ok_or_else(|| {
                        Fault::new(Kind::WrongType, format!("output {name} has fewer bytes than it says"))
                    })?;
                    tail = rest;
                    numbers_of_bytes(&output.datatype, &output.shape, own)
                        .map_err(|why| Fault::new(Kind::WrongShape, format!("output {name}: {why}")))?
                }
                (None, Some(numbers)) => numbers,
                (None, None) => return Err(Fault::new(Kind::WrongType, format!("output {name} has no data"))),
            };
            if numbers.values.len() + numbers.texts != count {
                let why = format!(
                    "output {name} has {} values for the shape {}",
                    numbers.values.len() + numbers.texts,
                    shape_text(&output.shape)
                );
                return Err(Fault::new(Kind::WrongShape, why));
            }
            if numbers.values.iter().any(|value| !value.is_finite()) {
                return Err(Fault::new(Kind::NotFinite, format!("output {name} has a value that is not finite")));
            }
            found.push((name, output.shape, numbers.values));
        }
        self.check_shapes(&found)?;
        let by_name = |name: &str| {
            let is_meant =
                |output: &&(String, Vec<usize>, Vec<f64>)| output.0 == name || name.is_empty() && found.len() == 1;
            found.iter().find(is_meant).map(|(_, shape, values)| (shape.clone(), values.clone()))
        };
        self.right.as_ref().map_or(Ok(()), |right| right.check(place, by_name))
    }

    /// The outputs have to be there that the server has announced, in these shapes.
    fn check_shapes(&self, found: &[(String, Vec<usize>, Vec<f64>)]) -> Result<(), Fault> {
        let wrong = |why: String| Err(Fault::new(Kind::WrongShape, why));
        if found.is_empty() {
            return wrong("the answer has no output".to_owned());
        }
        for announced in &self.outputs {
            let Some((name, shape, _)) = found.iter().find(|(name, ..)| *name == announced.name) else {
                return wrong(format!("there is no output {}", announced.name));
            };
            let is_like = |(place, (size, &announced)): (usize, (&usize, &i64))| {
                let is_batch = place == 0 && announced < 0;
                usize::try_from(announced).map_or(!is_batch || *size == self.batch_size, |announced| announced == *size)
            };
            let sizes = shape.iter().zip(&announced.shape).enumerate();
            if shape.len() != announced.shape.len() || !sizes.into_iter().all(is_like) {
                return wrong(format!(
                    "output {name} has the shape {}, and not {:?}",
                    shape_text(shape),
                    announced.shape
                ));
            }
        }
        Ok(())
    }
}

/// Python's servers write numbers that are no JSON.
fn not_json(body: &[u8], error: &serde_json::Error) -> Fault {
    let text = String::from_utf8_lossy(body);
    if ["NaN", "Infinity"].iter().any(|word| text.contains(word)) {
        return Fault::new(Kind::NotFinite, "an output has a value that is not finite");
    }
    Fault::new(Kind::WrongType, format!("the answer is no answer of the protocol: {error}"))
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
    let dtype = element_type(datatype).ok_or_else(|| format!("the type {datatype} is not known"))?;
    let tensor =
        HostTensor::from_bytes(&dtype.to_string(), shape.to_vec(), bytes).map_err(|error| error.to_string())?;
    Ok(Numbers { values: tensor.to_f64(), texts: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks(outputs: &str) -> Checks {
        Checks {
            outputs: serde_json::from_str(outputs).unwrap(),
            batch_size: 1,
            right: None,
            known: Mutex::new(vec![None; RING]),
        }
    }

    #[test]
    fn an_answer_has_the_outputs_that_were_announced() {
        let checks = checks(r#"[{"name":"logits","datatype":"FP32","shape":[-1,3]}]"#);
        let of = |body: &str| checks.check(0, body.as_bytes(), &Seen::default()).map_err(|fault| fault.kind);
        let answer = |shape: &str, data: &str| {
            format!(
                r#"{{"model_name":"m","outputs":[{{"name":"logits","datatype":"FP32","shape":{shape},"data":{data}}}]}}"#
            )
        };
        assert_eq!(of(&answer("[1,3]", "[1,2.5,3]")), Ok(()));
        assert_eq!(of(&answer("[1,3]", "[[1,2,3]]")), Ok(()));
        assert_eq!(of(&answer("[1,3]", "[1,2]")), Err(Kind::WrongShape));
        assert_eq!(of(&answer("[1,4]", "[1,2,3,4]")), Err(Kind::WrongShape));
        assert_eq!(of(&answer("[2,3]", "[1,2,3,4,5,6]")), Err(Kind::WrongShape));
        assert_eq!(of(&answer("[1,3]", "[1,NaN,3]")), Err(Kind::NotFinite));
        assert_eq!(of(&answer("[1,3]", "[1,null,3]")), Err(Kind::NotFinite));
        assert_eq!(of(r#"{"outputs":[]}"#), Err(Kind::WrongShape));
        assert_eq!(of("<html>"), Err(Kind::WrongType));
        assert_eq!(of(r#"{"outputs":[{"name":"logits","datatype":"FP32","shape":[1,3]}]}"#), Err(Kind::WrongType));
    }

    #[test]
    fn bytes_follow_the_head_of_a_binary_answer() {
        let checks = checks(r#"[{"name":"y","datatype":"FP32","shape":[1,2]}]"#);
        let head = br#"{"outputs":[{"name":"y","datatype":"FP32","shape":[1,2],"parameters":{"binary_data_size":8}}]}"#;
        let mut seen = Seen::default();
        seen.headers.insert(HEAD_LENGTH, HeaderValue::from(head.len()));
        let body = |values: [f32; 2]| [&head[..], &bytes_of(&values.to_vec().into())].concat();
        assert!(checks.check(0, &body([1.0, 2.0]), &seen).is_ok());
        assert_eq!(checks.check(0, &body([1.0, f32::INFINITY]), &seen).unwrap_err().kind, Kind::NotFinite);
        assert_eq!(checks.check(0, &body([1.0, 2.0])[..head.len() + 5], &seen).unwrap_err().kind, Kind::WrongType);
        assert_eq!(checks.check(0, &head[..20], &seen).unwrap_err().kind, Kind::WrongType);
        assert_eq!(numbers_of_bytes(BYTES, &[2], b"\x01\0\0\0a\0\0\0\0").unwrap().texts, 2);
        assert!(numbers_of_bytes(BYTES, &[1], b"\x09\0\0\0a").is_err());
    }

    #[test]
    fn requests_are_in_the_form_of_the_protocol() {
        let metadata: Vec<TensorMetadata> = serde_json::from_str(
            r#"[{"name":"x","datatype":"FP32","shape":[-1,2]},{"name":"t","datatype":"BYTES","shape":[-1]}]"#,
        )
        .unwrap();
        let wishes = Wishes { batch_size: 1, texts: Some(vec!["hello".into()]), ..Wishes::default() };
        let model = model_of("m", &Metadata { inputs: metadata.clone(), outputs: Vec::new() }, &wishes).unwrap();
        let inputs = || batch(&model, None, 0, Sizes { batch: 1, sequence: None }).unwrap();
        let (json, length) = body(&metadata, &model.inputs, inputs(), &wishes, 0);
        assert_eq!(json.len(), length);
        let read: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!((&read["inputs"][0]["shape"], &read["inputs"][1]["data"]), (&json!([1, 2]), &json!(["hello"])));
        let (binary, length) = body(&metadata, &model.inputs, inputs(), &Wishes { is_binary: true, ..wishes }, 0);
        let head: serde_json::Value = serde_json::from_slice(&binary[..length]).unwrap();
        assert_eq!(head["inputs"][0]["parameters"]["binary_data_size"], 8);
        assert_eq!(&binary[length + 8..], b"\x05\0\0\0hello");
    }
}
