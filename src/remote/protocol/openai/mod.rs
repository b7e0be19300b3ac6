//! OpenAI's completions, chat and embeddings, streamed as server-sent events or whole.

mod answers;

use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::{Map, Value, json};

use self::answers::{Counted, Stream, check_answer, check_embeddings};
use super::v2::only_model;
use super::{AnswerReader, Described, Protocol, ProtocolName, Turn, Wishes, base_of, get_json, whole};
use crate::definition::Phase;
use crate::load::lengths_of;
use crate::remote::connection::{Call, Connection};
use crate::remote::target::Target;
use crate::texts::TokenCounter;

/// The default tokens of prompts and answers.
pub const USUAL_TOKENS: [usize; 2] = [32, 16];

struct OpenAi {
    name: ProtocolName,
    path: String,
    model: String,
    is_stream: bool,
    wishes: Wishes,
}

/// Finds the model and the server's name.
///
/// # Errors
/// The user's flags are wrong, or the server has a fault.
pub fn describe(
    connection: &mut Connection,
    target: &Target,
    wishes: &Wishes,
    name: ProtocolName,
) -> Result<Described> {
    let end = match name {
        ProtocolName::Completions => "/completions",
        ProtocolName::Embeddings => "/embeddings",
        _ => "/chat/completions",
    };
    let (base, path) = match target.path.strip_suffix(end) {
        Some(base) => (base.trim_end_matches("/v1").to_owned(), target.path.clone()),
        None => {
            let base = base_of(&target.path, &["/v1"]).to_owned();
            (base.clone(), format!("{base}/v1{end}"))
        }
    };
    let listed = get_json(connection, &format!("{base}/v1/models"))?.unwrap_or_default();
    let models = listed.get("data").and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |model: &Value, key: &str| model.get(key).and_then(Value::as_str).map(str::to_owned);
    let ids: Vec<String> = models.iter().filter_map(|model| text(model, "id")).collect();
    let model = wishes.model.clone().map_or_else(|| only_model(Some(ids)), Ok)?;
    let owner = models.iter().find(|it| text(it, "id").as_ref() == Some(&model)).or(models.first());
    let server = server_of(connection, &base, owner.and_then(|model| text(model, "owned_by")).as_deref());
    let makes_tokens = name != ProtocolName::Embeddings;
    ensure!(
        !makes_tokens || wishes.batch_size == 1,
        "a request to a language model is one prompt: leave `--batch-sizes` out"
    );
    let is_stream = makes_tokens && !wishes.is_whole;
    let protocol = OpenAi { name, path, model: model.clone(), is_stream, wishes: wishes.clone() };
    let phase = if makes_tokens { Phase::Decode } else { Phase::Forward };
    Ok(Described { server, phase, ..Described::new(protocol, model) })
}

/// The server's name, which follows from the owner of its models, and its version if the server tells it.
fn server_of(connection: &mut Connection, base: &str, owner: Option<&str>) -> Option<String> {
    let (name, path, key) = match owner? {
        "llamacpp" => ("llama.cpp", "/props", "build_info"),
        "vllm" => ("vllm", "/version", "version"),
        "sglang" => ("sglang", "/get_server_info", "version"),
        "library" => ("ollama", "/api/version", "version"),
        other => return Some(other.to_owned()),
    };
    let told = get_json(connection, &format!("{base}{path}")).ok().flatten();
    let version = told.and_then(|told| Some(told.get(key)?.as_str()?.to_owned()));
    Some(version.map_or_else(|| name.to_owned(), |version| format!("{name} {version}")))
}

impl OpenAi {
    /// The requested tokens of the prompt and of the answer.
    fn lengths(&self, turn: Turn) -> [usize; 2] {
        let lengths = self.wishes.lengths.as_ref();
        lengths.map_or(USUAL_TOKENS, |lengths| lengths_of(lengths, self.wishes.seed, turn.number, USUAL_TOKENS))
    }
}

impl Protocol for OpenAi {
    fn name(&self) -> String {
        format!("openai {}{}", self.name, if self.is_stream { " stream" } else { "" })
    }

    fn call(&self, turn: Turn) -> Call {
        let [prompt, output] = self.lengths(turn);
        let text = |number: usize| self.wishes.text(turn, number, prompt);
        let mut body = Map::new();
        let mut add = |name: &str, value: Value| drop(body.insert(name.to_owned(), value));
        add("model", json!(self.model));
        match self.name {
            ProtocolName::Embeddings => {
                let first = turn.number * self.wishes.batch_size;
                add("input", (first..first + self.wishes.batch_size).map(text).collect());
            }
            ProtocolName::Completions => add("prompt", json!(text(turn.number))),
            _ => add("messages", json!([{"role": "user", "content": text(turn.number)}])),
        }
        if self.name != ProtocolName::Embeddings {
            add("max_tokens", json!(output));
            add("temperature", json!(0));
        }
        if self.is_stream {
            add("stream", json!(true));
            add("stream_options", json!({"include_usage": true}));
        }
        body.extend(self.wishes.fields.iter().cloned());
        Call::json(&self.path, Value::Object(body).to_string())
    }

    fn reader(&self, turn: Turn) -> Box<dyn AnswerReader> {
        let prompt = || self.wishes.text(turn, turn.number, self.lengths(turn)[0]);
        let with_prompt = |counter: &Arc<TokenCounter>| Counted::new(counter.clone(), prompt());
        let mut counted = self.wishes.tokenizer.as_ref().map(with_prompt);
        let batch_size = self.wishes.batch_size;
        match self.name {
            _ if self.is_stream => Box::new(Stream::new(counted)),
            ProtocolName::Embeddings => whole(move |body, _| check_embeddings(body, batch_size)),
            _ => whole(move |body, _| check_answer(body, &mut counted)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_data::RequestLengths;

    #[test]
    fn requests_say_their_lengths_and_the_fields_of_the_user() {
        let lengths = crate::load::parse_token_length("5").unwrap();
        let wishes = Wishes {
            batch_size: 1,
            fields: vec![("ignore_eos".into(), true.into()), ("temperature".into(), json!(1))],
            lengths: Some(RequestLengths::Drawn { prompt: Some(lengths), output: None }),
            seed: 1,
            ..Wishes::default()
        };
        let (name, path) = (ProtocolName::Chat, "/v1/chat/completions".into());
        let protocol = OpenAi { name, path, model: "m".into(), is_stream: true, wishes };
        let call = |trial, number| protocol.call(Turn { trial, number });
        let body: Value = serde_json::from_slice(&call(0, 3).body).unwrap();
        assert_eq!(body["messages"][0]["content"].as_str().unwrap().split(' ').count(), 5);
        assert_eq!((&body["max_tokens"], &body["temperature"]), (&json!(16), &json!(1)));
        assert_eq!((&body["ignore_eos"], &body["stream_options"]["include_usage"]), (&json!(true), &json!(true)));
        assert_eq!(call(0, 3).body, call(0, 3).body);
        assert_ne!(call(0, 3).body, call(0, 4).body);
        assert_ne!(call(0, 3).body, call(1, 3).body);
    }
}
