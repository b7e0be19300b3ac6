//! Any other protocol over HTTP: a file describes the requests and the place of the answer.
//!
//! ```toml
//! method = "POST"
//! path = "/predict"
//! body = '{"instances": {{tensor}}, "id": {{number}}}'
//! tensor = "x:f32[batch,3]"
//! answer = "/predictions"
//!
//! [headers]
//! content-type = "application/json"
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use hyper::Method;
use hyper::body::Bytes;
use serde::Deserialize;

use super::tensors::{Form, Numbers, Varied, shape_text};
use super::{AnswerReader, Checked, Described, Protocol, Turn, WORDS, Wishes, parsed, whole};
use crate::definition::{Sizes, TensorSpec};
use crate::remote::connection::Call;
use crate::remote::fault::{Fault, Kind};
use crate::remote::target::{Headers, Target};

const TENSOR: &str = "{{tensor}}";
const TEXT: &str = "{{text}}";
const NUMBER: &str = "{{number}}";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Absent for `POST`.
    method: Option<String>,
    path: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    body: String,
    /// The shape and type of `{{tensor}}`.
    tensor: Option<String>,
    /// A JSON pointer (RFC 6901) to a part that every answer must have.
    answer: Option<String>,
    /// The names of the model and the server in results.
    model: Option<String>,
    server: Option<String>,
}

struct Template {
    method: Method,
    path: String,
    headers: Headers,
    body: String,
    tensor: Option<Varied>,
    wishes: Wishes,
    answer: Option<Arc<str>>,
}

/// # Errors
/// The file cannot be read, or does not describe a valid request.
pub fn describe(target: &Target, wishes: &Wishes) -> Result<Described> {
    let file = wishes.template.as_ref().context("the protocol `template` needs a file: `--template FILE`")?;
    let read: File = toml::from_str(&fs_err::read_to_string(file)?).with_context(|| file.display().to_string())?;
    template(target, wishes, read).with_context(|| file.display().to_string())
}

fn template(target: &Target, wishes: &Wishes, file: File) -> Result<Described> {
    let method: Method =
        file.method.as_deref().unwrap_or("POST").parse().ok().context("`method` is not an HTTP method")?;
    ensure!(file.path.starts_with('/'), "`path` has to begin with a slash");
    let header = |(name, value): (&String, &String)| {
        let named = || format!("the header {name:?}");
        Ok((name.parse().with_context(named)?, value.parse().with_context(named)?))
    };
    let headers = file.headers.iter().map(header).collect::<Result<Headers>>()?;
    ensure!(
        file.body.contains(TENSOR) == file.tensor.is_some(),
        "`tensor` is the shape of {TENSOR} in `body`: one is given without the other"
    );
    ensure!(
        file.answer.as_ref().is_none_or(|it| it.is_empty() || it.starts_with('/')),
        "`answer` has to begin with a slash"
    );
    let sizes = Sizes { batch: wishes.batch_size, sequence: wishes.sequence_length };
    let spec = file.tensor.as_ref().map(|tensor| tensor.parse::<TensorSpec>()).transpose()?;
    ensure!(
        wishes.batch_size == 1 || spec.as_ref().is_some_and(TensorSpec::is_batched),
        "a request has a batch only if the first size of `tensor` is `batch`: leave `--batch-sizes` out"
    );
    let tensor = spec.as_ref().map(|spec| Varied::new(spec, sizes, Form::Nested)).transpose()?;
    let input_shape = spec.map(|spec| Ok::<_, anyhow::Error>(shape_text(&spec.concrete_shape(sizes)?))).transpose()?;
    let protocol = Template {
        method,
        path: format!("{}{}", target.path, file.path),
        headers,
        body: file.body,
        tensor,
        wishes: wishes.clone(),
        answer: file.answer.map(Arc::from),
    };
    let model = wishes.model.clone().or(file.model).unwrap_or_else(|| "template".to_owned());
    Ok(Described { server: file.server, input_shape, ..Described::new(protocol, model) })
}

impl Protocol for Template {
    fn name(&self) -> String {
        "template".to_owned()
    }

    fn call(&self, turn: Turn) -> Call {
        let (number, wishes) = (turn.number, &self.wishes);
        let mut body = self.body.clone();
        if let Some(tensor) = &self.tensor {
            let made = tensor.make(&turn.samples(wishes.seed, wishes.batch_size));
            body = body.replace(TENSOR, &String::from_utf8_lossy(&made));
        }
        if body.contains(TEXT) {
            // The template has its own quotes around the text.
            let text = wishes.text(turn, number, wishes.sequence_length.unwrap_or(WORDS));
            let quoted = serde_json::Value::String(text).to_string();
            body = body.replace(TEXT, &quoted[1..quoted.len() - 1]);
        }
        body = body.replace(NUMBER, &number.to_string());
        let path = self.path.replace(NUMBER, &number.to_string());
        Call { method: self.method.clone(), path, headers: self.headers.clone(), body: Bytes::from(body) }
    }

    fn reader(&self, _: Turn) -> Box<dyn AnswerReader> {
        let pointer = self.answer.clone();
        whole(move |body, _| check(body, pointer.as_deref()))
    }
}

fn check(body: &[u8], pointer: Option<&str>) -> Result<Checked, Fault> {
    let Some(pointer) = pointer else { return Ok(Checked::default()) };
    let answer: serde_json::Value = parsed(body)?;
    let Some(found) = answer.pointer(pointer) else {
        return Err(Fault::new(Kind::WrongShape, format!("the answer has nothing at {pointer}")));
    };
    // Servers write `null` for a number that is not finite.
    let is_not_finite = |numbers: Numbers| numbers.values.iter().any(|value| !value.is_finite());
    if found.is_null() || Numbers::deserialize(found).is_ok_and(is_not_finite) {
        return Err(Fault::new(Kind::NotFinite, format!("{pointer} has a value that is not finite")));
    }
    Ok(Checked::default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::target::Address;

    #[test]
    fn only_a_tensor_with_a_batch_has_several_samples() {
        let address = Address { url: "http://127.0.0.1:1".into(), ..Address::default() };
        let target = Target::find(&address, Vec::new()).unwrap().unwrap();
        let made = |text: &str, batch_size: usize| {
            let wishes = Wishes { batch_size, ..Wishes::default() };
            let described = template(&target, &wishes, toml::from_str(text).unwrap());
            described.map(|described| described.input_shape).map_err(|error| error.to_string())
        };
        let tensor = |shape: &str| format!("path = '/'\nbody = '{{{{tensor}}}}'\ntensor = 'x:f32[{shape}]'");
        assert_eq!(made(&tensor("batch,3"), 4), Ok(Some("4x3".to_owned())));
        assert_eq!(made(&tensor("1,3"), 1), Ok(Some("1x3".to_owned())));
        for text in [tensor("1,3"), "path = '/'\nbody = '{{text}}'".to_owned()] {
            assert!(made(&text, 1).is_ok(), "{text}");
            assert!(made(&text, 4).unwrap_err().contains("leave `--batch-sizes` out"), "{text}");
        }
    }

    #[test]
    fn an_answer_is_where_the_pointer_says() {
        let of =
            |pointer: Option<&str>, body: &str| check(body.as_bytes(), pointer).map(|_| ()).map_err(|fault| fault.kind);
        assert_eq!(of(Some("/a/0"), r#"{"a":[1]}"#), Ok(()));
        assert_eq!(of(Some("/b"), r#"{"a":[1]}"#), Err(Kind::WrongShape));
        for (pointer, body) in [("/a", r#"{"a":[null]}"#), ("/a/0", r#"{"a":[null]}"#), ("/a", r#"{"a":-Infinity}"#)] {
            assert_eq!(of(Some(pointer), body), Err(Kind::NotFinite), "{body}");
        }
        assert_eq!(of(Some("/a"), r#"{"a":3}"#), Ok(()));
        assert_eq!(of(Some("/a"), "text"), Err(Kind::WrongType));
        assert_eq!(of(None, "text"), Ok(()));
    }
}
