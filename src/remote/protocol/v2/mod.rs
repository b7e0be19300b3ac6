//! The Open Inference Protocol v2 (KServe): tensors as JSON, or as bytes after a JSON head (its binary extension).

mod answers;

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use hyper::body::Bytes;
use hyper::header::HeaderValue;
use serde::Deserialize;
use serde_json::json;

use self::answers::{Checks, HEAD_LENGTH, outputs_of};
use super::tensors::{
    BYTES, Form, MOST_INPUT, Right, Varied, element_type, elements_of, json_of, shape_text, type_name,
};
use super::{AnswerReader, Described, Protocol, Turn, WORDS, Wishes, base_of, get_json, json_answer, whole};
use crate::definition::{BATCH, Dimension, Dtype, ElementType, Model, SEQUENCE, Sizes, TensorSpec};
use crate::fixture::HostTensor;
use crate::remote::connection::{Call, Connection, Seen};
use crate::remote::fault::{Fault, Kind};
use crate::remote::target::Target;

pub(super) use answers::Output;

/// A server's description of the tensors of a model.
#[derive(Deserialize)]
pub(super) struct Metadata {
    #[serde(default)]
    pub inputs: Vec<TensorMetadata>,
    #[serde(default)]
    pub outputs: Vec<TensorMetadata>,
}

#[derive(Clone, Deserialize)]
pub(super) struct TensorMetadata {
    pub name: String,
    pub datatype: String,
    pub shape: Vec<i64>,
}

/// A model as the server describes it, and the path of its requests.
pub(super) struct Found {
    pub name: String,
    /// The name and version of the server.
    pub server: [String; 2],
    pub path: String,
    pub metadata: Metadata,
}

/// A model behind the protocol.
pub(super) struct V2 {
    pub path: String,
    pub inputs: Vec<Input>,
    wishes: Wishes,
    pub checks: Arc<Checks>,
}

/// An input of requests.
pub(super) struct Input {
    pub name: String,
    pub datatype: &'static str,
    pub shape: Vec<usize>,
    content: Content,
}

enum Content {
    Seeded(Varied),
    Texts,
    /// The values of a reference or of samples, which requests use in turn.
    Known(Vec<Vec<u8>>),
}

/// Reads the server's description of the model, and makes its requests. `right` returns inputs that replace seeded ones,
/// and their right outputs if they are known.
///
/// # Errors
/// The user's flags are wrong, or the server has a [`Fault`].
pub fn describe(
    connection: &mut Connection,
    target: &Target,
    wishes: &Wishes,
    right: impl FnOnce(&Model) -> Result<Option<Right>>,
) -> Result<Described> {
    let base = base_of(&target.path, &["/v2"]);
    let named = target.path.split_once("/v2/models/").map(|(_, name)| name.trim_end_matches("/infer").to_owned());
    let server = get_json(connection, &format!("{base}/v2"))?.unwrap_or_default();
    let name = match named.or_else(|| wishes.model.clone()) {
        Some(name) => name,
        None => {
            let listed = json_answer(connection, &Call::json(format!("{base}/v2/repository/index"), "{}"))?;
            only_model(listed.map(names_of))?
        }
    };
    let path = format!("{base}/v2/models/{name}");
    let none = || Fault::new(Kind::ClientError, format!("the server has no model {name:?}"));
    let metadata = get_json(connection, &path)?.ok_or_else(none)?;
    let metadata: Metadata = serde_json::from_value(metadata).with_context(|| format!("{path} describes no model"))?;
    let text = |key: &str| server.get(key).and_then(|text| text.as_str()).unwrap_or_default().to_owned();
    let found = Found { name, server: [text("name"), text("version")], path: format!("{path}/infer"), metadata };
    found.described(wishes, right, |v2| v2)
}

impl Found {
    /// Makes the requests to the model. `right` is as for [`describe`].
    ///
    /// # Errors
    /// The user's flags do not fit the description.
    pub fn described<P: Protocol + 'static>(
        self,
        wishes: &Wishes,
        right: impl FnOnce(&Model) -> Result<Option<Right>>,
        protocol: impl FnOnce(V2) -> P,
    ) -> Result<Described> {
        let Found { name, server, path, metadata } = self;
        ensure!(
            !metadata.inputs.is_empty(),
            "the server does not describe the inputs of {name}: describe the request with `--template`"
        );
        let model = model_of(&name, &metadata, wishes)?;
        let right = right(&model)?;
        let inputs = inputs_of(&metadata.inputs, &model.inputs, right.as_ref(), wishes)?;
        let input_shape = inputs.iter().map(|input| shape_text(&input.shape)).collect::<Vec<_>>().join(", ");
        let batch_size = model.inputs.iter().any(TensorSpec::is_batched).then_some(wishes.batch_size);
        let checks = Checks::new(metadata.outputs, batch_size, right);
        let v2 = V2 { path, inputs, wishes: wishes.clone(), checks: Arc::new(checks) };
        let server = Some(server.join(" ").trim().to_owned()).filter(|server| !server.is_empty());
        let (dtype, input_shape) = (model.dtype, Some(input_shape));
        Ok(Described { server, dtype, input_shape, ..Described::new(protocol(v2), name) })
    }
}

fn names_of(listed: serde_json::Value) -> Vec<String> {
    let name = |model: &serde_json::Value| Some(model.get("name")?.as_str()?.to_owned());
    listed.as_array().into_iter().flatten().filter_map(name).collect()
}

/// The server's only model, from its list of models.
///
/// # Errors
/// There is no list, or it does not have exactly one model.
pub(super) fn only_model(listed: Option<Vec<String>>) -> Result<String> {
    match listed.context("the server does not list its models: name one with `--model`")?.as_slice() {
        [only] => Ok(only.clone()),
        [] => anyhow::bail!("the server lists no model: name one with `--model`"),
        several => anyhow::bail!("the server has several models, name one with `--model`: {}", several.join(", ")),
    }
}

/// The model with the inputs and the names of the outputs. An open first size of an input is the batch. Other open sizes
/// are the sequence.
fn model_of(name: &str, metadata: &Metadata, wishes: &Wishes) -> Result<Model> {
    let spec = |tensor: &TensorMetadata| -> Result<TensorSpec> {
        if let Some(given) = wishes.inputs.iter().find(|input| input.name == tensor.name) {
            return Ok(given.clone());
        }
        let dtype = match element_type(&tensor.datatype) {
            Some(dtype) => dtype,
            // Texts have no element type: `Content::Texts` makes them.
            None if tensor.datatype == BYTES => ElementType::U8,
            None => anyhow::bail!("input {} has the unknown type {}", tensor.name, tensor.datatype),
        };
        let mut open = [BATCH, SEQUENCE].into_iter();
        let dimension = |(place, &size): (usize, &i64)| match usize::try_from(size) {
            Ok(size) => Dimension::Fixed(size),
            Err(_) if place == 0 => Dimension::Symbol(open.next().unwrap_or(SEQUENCE).to_owned()),
            Err(_) => Dimension::Symbol(SEQUENCE.to_owned()),
        };
        let shape = tensor.shape.iter().enumerate().map(dimension).collect();
        let spec = TensorSpec::new(&tensor.name, dtype, shape);
        // The mask of a language model: no position is masked out.
        let is_mask = tensor.name.contains("mask") && !dtype.is_floating();
        Ok(TensorSpec { constant: is_mask.then_some(1.0), ..spec })
    };
    let inputs = metadata.inputs.iter().map(spec).collect::<Result<Vec<_>>>()?;
    let is_known = |output: &&TensorMetadata| output.datatype == BYTES || element_type(&output.datatype).is_some();
    if let Some(TensorMetadata { name, datatype, .. }) = metadata.outputs.iter().find(|output| !is_known(output)) {
        anyhow::bail!("output {name} has the unknown type {datatype}");
    }
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
    Ok(Model { dtype: dtype.unwrap_or_default(), ..Model::of_tensors(name, inputs, outputs) })
}

/// The most texts of an input.
const MOST_TEXTS: usize = 1 << 16;
/// The bytes that each text counts as.
const TEXT_BYTES: usize = 1 << 10;

/// The inputs of requests. Without a reference or samples they are seeded.
fn inputs_of(
    metadata: &[TensorMetadata],
    specs: &[TensorSpec],
    right: Option<&Right>,
    wishes: &Wishes,
) -> Result<Vec<Input>> {
    let sizes = Sizes { batch: wishes.batch_size, sequence: wishes.sequence_length };
    let form = if wishes.is_binary { Form::Bytes } else { Form::Flat };
    let open = "the server leaves a size open: set it with `--seq-lens` or `--input`";
    // A server may name any number of inputs, each small enough by itself.
    let bytes = metadata.iter().zip(specs).filter_map(|(tensor, spec)| {
        let of_element = if tensor.datatype == BYTES { TEXT_BYTES } else { spec.dtype.bytes() };
        Some(elements_of(&spec.concrete_shape(sizes).ok()?)?.saturating_mul(of_element))
    });
    let bytes = bytes.fold(0, usize::saturating_add);
    ensure!(right.is_some() || bytes <= MOST_INPUT, "the inputs have more than {MOST_INPUT} bytes together");
    let input = |(place, (tensor, spec)): (usize, (&TensorMetadata, &TensorSpec))| -> Result<Input> {
        let is_text = tensor.datatype == BYTES;
        let datatype = if is_text { BYTES } else { type_name(spec.dtype) };
        let of = |shape: Vec<usize>, content| Input { name: tensor.name.clone(), datatype, shape, content };
        let known = right.filter(|_| !is_text).map(|right| right.inputs.iter().map(|inputs| &inputs[place]));
        if let Some(known) = known {
            ensure!(
                form != Form::Bytes || known.clone().all(|input| input.element_type() == spec.dtype),
                "input {} is sent in the bytes of {datatype}, and the reference or the samples have another type: without `--binary`, HTTP sends numbers",
                tensor.name
            );
            let shape = known.clone().next().map(|first| first.shape.clone()).unwrap_or_default();
            let written = |input: &HostTensor| match form {
                Form::Bytes => input.data.to_bytes(),
                _ => json_of(&input.data).into_bytes(),
            };
            return Ok(of(shape, Content::Known(known.map(written).collect())));
        }
        let shape = spec.concrete_shape(sizes).context(open)?;
        if is_text {
            let are_few = elements_of(&shape).is_some_and(|texts| texts <= MOST_TEXTS);
            ensure!(are_few, "input {} has more than {MOST_TEXTS} texts: {}", tensor.name, shape_text(&shape));
            return Ok(of(shape, Content::Texts));
        }
        Ok(of(shape, Content::Seeded(Varied::new(spec, sizes, form)?)))
    };
    metadata.iter().zip(specs).enumerate().map(input).collect()
}

impl V2 {
    /// The place of the request's inputs among those that are used in turn.
    pub fn place(&self, turn: Turn) -> Option<usize> {
        let known = self.checks.right.as_ref()?.inputs.len();
        turn.number.checked_rem(known)
    }

    /// The data of an input as it is sent.
    pub fn data(&self, input: &Input, turn: Turn) -> Vec<u8> {
        match &input.content {
            Content::Seeded(varied) => varied.make(&turn.samples(self.wishes.seed, self.wishes.batch_size)),
            Content::Known(all) => all[self.place(turn).unwrap_or(0)].clone(),
            Content::Texts => {
                let words = self.wishes.sequence_length.unwrap_or(WORDS);
                let count: usize = input.shape.iter().product();
                let numbers = turn.number * count..(turn.number + 1) * count;
                let texts: Vec<String> = numbers.map(|number| self.wishes.text(turn, number, words)).collect();
                if !self.wishes.is_binary {
                    return json!(texts).to_string().into_bytes();
                }
                // Each text follows its length.
                let bytes = |text: &String| [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
                texts.iter().flat_map(bytes).collect()
            }
        }
    }

    /// The id of a request. Requests with the same inputs have the same id, so that their answers have the same bytes.
    pub fn id(&self, turn: Turn) -> usize {
        self.place(turn).unwrap_or(turn.number)
    }

    /// A request's body, and the length of its JSON.
    fn body(&self, turn: Turn) -> (Bytes, usize) {
        let (is_binary, id) = (self.wishes.is_binary, self.id(turn));
        let mut body = format!(r#"{{"id":"{id}","inputs":["#).into_bytes();
        let mut tail: Vec<u8> = Vec::new();
        for (place, input) in self.inputs.iter().enumerate() {
            let Input { name, datatype, shape, .. } = input;
            let comma = if place > 0 { "," } else { "" };
            let (name, shape) = (json!(name), json!(shape));
            let head = format!(r#"{comma}{{"name":{name},"shape":{shape},"datatype":"{datatype}","#);
            body.extend_from_slice(head.as_bytes());
            let mut data = self.data(input, turn);
            if is_binary {
                let size = format!(r#""parameters":{{"binary_data_size":{}}}}}"#, data.len());
                body.extend_from_slice(size.as_bytes());
                tail.append(&mut data);
            } else {
                body.extend_from_slice(b"\"data\":");
                body.append(&mut data);
                body.push(b'}');
            }
        }
        let end = if is_binary { r#"],"parameters":{"binary_data_output":true}}"# } else { "]}" };
        body.extend_from_slice(end.as_bytes());
        let length = body.len();
        body.append(&mut tail);
        (Bytes::from(body), length)
    }

    /// The reader of the answer to this turn's request. `status_of` checks the headers and trailers, and `outputs_of`
    /// reads the outputs of a whole answer.
    pub(super) fn reader_of(
        &self,
        turn: Turn,
        status_of: fn(&Seen) -> Result<(), Fault>,
        outputs_of: fn(&[u8], &Seen) -> Result<Vec<Output>, Fault>,
    ) -> Box<dyn AnswerReader> {
        let (place, checks) = (self.place(turn), self.checks.clone());
        whole(move |body, seen| {
            status_of(seen)?;
            checks.check(place, body, |body| outputs_of(body, seen))
        })
    }
}

impl Protocol for V2 {
    fn name(&self) -> String {
        format!("v2 {}", if self.wishes.is_binary { "binary" } else { "json" })
    }

    fn call(&self, turn: Turn) -> Call {
        let (body, length) = self.body(turn);
        let mut call = Call::json(&self.path, body);
        if self.wishes.is_binary {
            call.headers = vec![
                (hyper::header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
                (HEAD_LENGTH, HeaderValue::from(length)),
            ];
        }
        call
    }

    fn reader(&self, turn: Turn) -> Box<dyn AnswerReader> {
        self.reader_of(turn, |_| Ok(()), outputs_of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_in_the_form_of_the_protocol() {
        let metadata: Vec<TensorMetadata> = serde_json::from_str(
            r#"[{"name":"x","datatype":"FP32","shape":[-1,2]},{"name":"t","datatype":"BYTES","shape":[-1]}]"#,
        )
        .unwrap();
        let made = |is_binary: bool, number: usize| {
            let texts = Some(vec!["hello".into()]);
            let wishes = Wishes { batch_size: 1, texts, is_binary, ..Wishes::default() };
            let model = model_of("m", &Metadata { inputs: metadata.clone(), outputs: Vec::new() }, &wishes).unwrap();
            let inputs = inputs_of(&metadata, &model.inputs, None, &wishes).unwrap();
            let v2 =
                V2 { path: String::new(), inputs, wishes, checks: Arc::new(Checks::new(Vec::new(), Some(1), None)) };
            v2.body(Turn { trial: 0, number })
        };
        let (json, length) = made(false, 0);
        assert_eq!(json.len(), length);
        let read: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!((&read["inputs"][0]["shape"], &read["inputs"][1]["data"]), (&json!([1, 2]), &json!(["hello"])));
        let (binary, length) = made(true, 0);
        let head: serde_json::Value = serde_json::from_slice(&binary[..length]).unwrap();
        assert_eq!(head["inputs"][0]["parameters"]["binary_data_size"], 8);
        assert_eq!(&binary[length + 8..], b"\x05\0\0\0hello");
        let bodies: std::collections::BTreeSet<Bytes> = (0..200).map(|number| made(true, number).0).collect();
        let tails: std::collections::BTreeSet<&[u8]> = bodies.iter().map(|body| &body[body.len() - 17..]).collect();
        assert_eq!(tails.len(), 200);
    }

    #[test]
    fn inputs_are_limited_together() {
        let tensor = |datatype: &str, size: i64| TensorMetadata {
            name: "x".into(),
            datatype: datatype.into(),
            shape: vec![size],
        };
        let wishes = Wishes { batch_size: 1, ..Wishes::default() };
        for inputs in
            [vec![tensor("UINT8", 1 << 26); 3], vec![tensor(BYTES, 1 << 16); 3], vec![tensor("FP32", 1 << 40)]]
        {
            let metadata = Metadata { inputs, outputs: Vec::new() };
            let model = model_of("m", &metadata, &wishes).unwrap();
            let error = inputs_of(&metadata.inputs, &model.inputs, None, &wishes).err().unwrap();
            assert!(error.to_string().contains("more than 134217728 bytes together"), "{error}");
        }
    }

    #[test]
    fn bytes_of_another_type_are_never_sent() {
        let tensor = |datatype: &str| TensorMetadata { name: "x".into(), datatype: datatype.into(), shape: vec![2] };
        let of = |datatype: &str, is_binary: bool| {
            let wishes = Wishes { batch_size: 1, is_binary, ..Wishes::default() };
            let metadata = Metadata { inputs: vec![tensor(datatype)], outputs: Vec::new() };
            let model = model_of("m", &metadata, &wishes).unwrap();
            let known = HostTensor { shape: vec![2], data: vec![1_i64, 2].into() };
            let right = Right::of_samples(vec![vec![known]]);
            inputs_of(&metadata.inputs, &model.inputs, Some(&right), &wishes).is_ok()
        };
        assert_eq!([of("INT64", true), of("INT32", false), of("INT32", true)], [true, true, false]);
    }

    #[test]
    fn types_that_are_not_known_are_named_before_the_first_request() {
        let of = |inputs: &str, outputs: &str| {
            let metadata = format!(r#"{{"inputs":[{inputs}],"outputs":[{outputs}]}}"#);
            let wishes = Wishes { batch_size: 1, ..Wishes::default() };
            model_of("m", &serde_json::from_str(&metadata).unwrap(), &wishes).map_err(|error| error.to_string())
        };
        let tensor = |datatype: &str| format!(r#"{{"name":"x","datatype":"{datatype}","shape":[-1,2]}}"#);
        for datatype in ["FP16", "BF16", "FP64", "INT8", "UINT8", "UINT16", "UINT64", "BOOL", BYTES] {
            assert!(of(&tensor(datatype), &tensor(datatype)).is_ok(), "{datatype}");
        }
        assert!(of(&tensor("FP8"), "").unwrap_err().contains("input x has the unknown type FP8"));
        assert!(of(&tensor("FP32"), &tensor("FP8")).unwrap_err().contains("output x has the unknown type FP8"));
    }
}
