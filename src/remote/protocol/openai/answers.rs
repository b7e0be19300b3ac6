//! OpenAI's answers (server-sent events, whole answers and embeddings), and the number of their tokens.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use serde::Deserialize;
use serde_json::Value;

use crate::remote::connection::{Reader, Seen};
use crate::remote::fault::{Fault, Kind};
use crate::remote::notes::WholeTokens;
use crate::remote::protocol::{AnswerReader, Checked, parsed};
use crate::texts::TokenCounter;

/// The texts of a request, whose tokens are counted if the server does not count them.
pub struct Counted {
    counter: Arc<TokenCounter>,
    prompt: String,
    answer: String,
}

impl Counted {
    pub fn new(counter: Arc<TokenCounter>, prompt: String) -> Self {
        Counted { counter, prompt, answer: String::new() }
    }

    /// The tokens of the prompt and of the answer, and the name of the tokenizer.
    fn tokens(&self) -> Result<(WholeTokens, Cow<'static, str>), Fault> {
        let count = |text: &str| self.counter.count(text);
        let counted = count(&self.prompt).and_then(|prompt| Ok(WholeTokens { prompt, output: count(&self.answer)? }));
        let counted =
            counted.map_err(|error| Fault::new(Kind::WrongType, format!("the tokenizer fails: {error:#}")))?;
        Ok((counted, self.counter.name().to_owned().into()))
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct Usage {
    prompt_tokens: Option<u32>,
    completion_tokens: Option<u32>,
}

impl Usage {
    fn prompt(self) -> usize {
        self.prompt_tokens.unwrap_or(0) as usize
    }

    /// The tokens of the answer, if the server counted them.
    fn output(self) -> Option<usize> {
        self.completion_tokens.map(|tokens| tokens as usize).filter(|tokens| *tokens > 0)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Event {
    choices: Vec<Choice>,
    usage: Option<Usage>,
    error: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Choice {
    text: Option<String>,
    delta: Option<Message>,
    message: Option<Message>,
    finish_reason: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Message {
    content: Option<String>,
    reasoning_content: Option<String>,
    reasoning: Option<String>,
    tool_calls: Option<Value>,
}

impl Message {
    fn texts(&self) -> [&Option<String>; 3] {
        [&self.reasoning_content, &self.reasoning, &self.content]
    }
}

impl Choice {
    /// The texts of the answer, or of a part of it.
    fn texts(&self) -> impl Iterator<Item = &str> {
        let of_messages = self.delta.iter().chain(&self.message).flat_map(Message::texts);
        of_messages.chain([&self.text]).flatten().map(String::as_str)
    }

    /// Whether this has a part of the answer. The first event of a chat often has only the role.
    fn has_content(&self) -> bool {
        // Some servers, such as vLLM 0.22, have an empty list of calls in every event.
        let calls_a_tool =
            |message: &Message| matches!(&message.tool_calls, Some(Value::Array(calls)) if !calls.is_empty());
        self.texts().any(|text| !text.is_empty()) || self.delta.iter().chain(&self.message).any(calls_a_tool)
    }
}

/// # Errors
/// The server broke the answer off, for example because memory ran out. It may still send what it has, and this reason.
fn check_reasons(choices: &[Choice]) -> Result<(), Fault> {
    let mut reasons = choices.iter().filter_map(|choice| choice.finish_reason.as_deref());
    match reasons.find(|reason| ["abort", "error"].contains(reason)) {
        Some(reason) => {
            let why = format!("the server has broken the answer off: its `finish_reason` is {reason:?}");
            Err(Fault::new(Kind::ServerError, why))
        }
        None => Ok(()),
    }
}

/// Reads server-sent events.
#[derive(Default)]
pub struct Stream {
    /// The line that has not ended yet.
    line: Vec<u8>,
    /// The data of an event that continues in the next line.
    begun: Vec<u8>,
    tokens: Vec<Instant>,
    usage: Option<Usage>,
    counted: Option<Counted>,
    has_finished: bool,
    is_done: bool,
}

/// The most bytes of an event, or of a line of a stream.
const MOST_LINE: usize = 1 << 20;

impl Stream {
    pub fn new(counted: Option<Counted>) -> Self {
        Stream { counted, ..Stream::default() }
    }

    /// # Errors
    /// The data so far is not an event.
    fn check_begun(&self) -> Result<(), Fault> {
        let read = serde_json::from_slice::<Event>(&self.begun);
        let Some(error) = read.err().filter(|_| !self.begun.is_empty()) else { return Ok(()) };
        let text = String::from_utf8_lossy(&self.begun);
        Err(Fault::new(Kind::WrongType, format!("an event of the stream is no answer: {error}: {text}")))
    }

    fn line(&mut self, line: &[u8], at: Instant) -> Result<(), Fault> {
        let data = match (line.strip_prefix(b"data:"), line.strip_prefix(b"error:")) {
            (Some(data), _) => data.trim_ascii(),
            // Older servers of llama.cpp send an error in a field of its own, and then `[DONE]`.
            (None, Some(error)) => {
                let error = String::from_utf8_lossy(error.trim_ascii());
                return Err(Fault::new(Kind::ServerError, format!("the stream says: {error}")));
            }
            // An event ends here. One that could be read is no longer in `begun`.
            (None, None) if line.trim_ascii().is_empty() => return self.check_begun(),
            (None, None) => return Ok(()),
        };
        if data == b"[DONE]" && self.begun.is_empty() {
            self.is_done = true;
            return Ok(());
        }
        // The lines of an event are joined by line breaks. Most servers send one line per event.
        let before = if self.begun.is_empty() { Vec::new() } else { [self.begun.as_slice(), b"\n"].concat() };
        let whole = [before.as_slice(), data].concat();
        let Ok(event) = serde_json::from_slice::<Event>(&whole) else {
            self.begun = whole;
            return Ok(());
        };
        self.begun.clear();
        if let Some(error) = event.error {
            return Err(Fault::new(Kind::ServerError, format!("the stream says: {error}")));
        }
        check_reasons(&event.choices)?;
        if event.choices.iter().any(Choice::has_content) {
            self.tokens.push(at);
        }
        if let Some(counted) = &mut self.counted {
            counted.answer.extend(event.choices.iter().flat_map(Choice::texts));
        }
        self.has_finished |= event.choices.iter().any(|choice| choice.finish_reason.is_some());
        self.usage = event.usage.or(self.usage);
        Ok(())
    }
}

impl Reader for Stream {
    fn part(&mut self, bytes: &[u8], at: Instant) -> Result<(), Fault> {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            self.line.extend_from_slice(&rest[..end]);
            let line = std::mem::take(&mut self.line);
            self.line(&line, at)?;
            rest = &rest[end + 1..];
        }
        self.line.extend_from_slice(rest);
        match self.line.len() + self.begun.len() {
            0..=MOST_LINE => Ok(()),
            _ => Err(Fault::new(Kind::TooLarge, "an event of the stream has more than a megabyte")),
        }
    }

    fn has_ended(&self) -> bool {
        self.is_done
    }
}

impl AnswerReader for Stream {
    fn check(&mut self, _: &Seen) -> Result<Checked, Fault> {
        // The last line may have no end.
        let last = std::mem::take(&mut self.line);
        self.line(&last, Instant::now())?;
        self.check_begun()?;
        if !self.is_done && !self.has_finished {
            return Err(Fault::new(Kind::NoEnd, "the stream ended without `[DONE]` or a reason"));
        }
        if self.tokens.is_empty() {
            let kind = if self.has_finished { Kind::Empty } else { Kind::WrongShape };
            return Err(Fault::new(kind, "the stream has no content"));
        }
        let (counted, by) = counted(self.usage, self.counted.as_ref())?;
        Ok(Checked {
            prompt_tokens: counted.map_or_else(|| self.usage.map_or(0, Usage::prompt), |counted| counted.prompt),
            tokens: std::mem::take(&mut self.tokens),
            token_count: counted.map(|counted| counted.output),
            tokens_by: by.or(Some("events".into())),
            ..Checked::default()
        })
    }
}

/// The tokens by the server's count or the tokenizer's, and which of them counted. Returns `None` if neither did.
fn counted(
    usage: Option<Usage>,
    counted: Option<&Counted>,
) -> Result<(Option<WholeTokens>, Option<Cow<'static, str>>), Fault> {
    if let Some((usage, output)) = usage.and_then(|usage| Some((usage, usage.output()?))) {
        return Ok((Some(WholeTokens { prompt: usage.prompt(), output }), Some("usage".into())));
    }
    // For an answer without text, such as a call of a tool, events count as tokens. Without tokens, the answer would keep
    // every bound of TTFT and TPOT.
    let counted = counted.map(Counted::tokens).transpose()?.filter(|(tokens, _)| tokens.output > 0);
    Ok(counted.unzip())
}

#[derive(Deserialize)]
struct Embeddings {
    data: Vec<Embedding>,
    #[serde(default)]
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Embedding {
    embedding: Vec<f64>,
}

pub fn check_embeddings(body: &[u8], batch_size: usize) -> Result<Checked, Fault> {
    let answer: Embeddings = parsed(body)?;
    if answer.data.len() != batch_size || answer.data.iter().any(|it| it.embedding.is_empty()) {
        let why = format!("{} embeddings for {batch_size} texts", answer.data.len());
        return Err(Fault::new(Kind::WrongShape, why));
    }
    if answer.data.iter().flat_map(|it| &it.embedding).any(|value| !value.is_finite()) {
        return Err(Fault::new(Kind::NotFinite, "an embedding has a value that is not finite"));
    }
    Ok(Checked { prompt_tokens: answer.usage.map_or(0, Usage::prompt), ..Checked::default() })
}

/// Checks an answer that is not streamed.
pub fn check_answer(body: &[u8], texts: &mut Option<Counted>) -> Result<Checked, Fault> {
    let answer: Event = parsed(body)?;
    if let Some(error) = answer.error {
        return Err(Fault::new(Kind::ServerError, format!("the answer says: {error}")));
    }
    check_reasons(&answer.choices)?;
    if !answer.choices.iter().any(Choice::has_content) {
        let has_finished = answer.choices.iter().any(|choice| choice.finish_reason.is_some());
        let kind = if has_finished { Kind::Empty } else { Kind::WrongShape };
        return Err(Fault::new(kind, "the answer has no content"));
    }
    if let Some(texts) = texts {
        texts.answer.extend(answer.choices.iter().flat_map(Choice::texts));
    }
    let (whole, tokens_by) = counted(answer.usage, texts.as_ref())?;
    Ok(Checked { whole, tokens_by, ..Checked::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(parts: &[&str]) -> Result<Checked, Kind> {
        let mut stream = Stream::default();
        let all = parts.iter().try_for_each(|part| stream.part(part.as_bytes(), Instant::now()));
        all.and_then(|()| stream.check(&Seen::default())).map_err(|fault| fault.kind)
    }

    #[test]
    fn a_stream_is_read_however_it_is_cut() {
        let text = concat!(
            ": a comment\n\n",
            "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\r\n\r\n",
            "data: {\"choices\":[{\"delta\":{\"content\":\"b c\"},\"finish_reason\":null}]}\n\n",
            "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
            "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}\n\n",
            "data: [DONE]\n\n"
        );
        for size in [1, 7, 64, text.len()] {
            let bytes: Vec<&str> =
                text.as_bytes().chunks(size).map(|part| std::str::from_utf8(part).unwrap()).collect();
            let checked = read(&bytes).unwrap();
            assert_eq!((checked.prompt_tokens, checked.tokens.len(), checked.token_count), (7, 2, Some(3)), "{size}");
            assert_eq!(checked.tokens_by.as_deref(), Some("usage"));
        }
    }

    #[test]
    fn a_stream_says_that_it_has_ended() {
        let token = "data: {\"choices\":[{\"text\":\"a\"}]}\n\n";
        assert_eq!(read(&[token]).unwrap_err(), Kind::NoEnd);
        assert_eq!(read(&[token, "data: [DONE]\n\n"]).unwrap().tokens_by.as_deref(), Some("events"));
        assert!(read(&[token, "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n"]).is_ok());
        assert_eq!(read(&["data: [DONE]\n\n"]).unwrap_err(), Kind::WrongShape);
        assert_eq!(read(&[token, "data: {\"error\":{\"message\":\"no memory\"}}\n"]).unwrap_err(), Kind::ServerError);
        let of_llama_cpp = "error: {\"code\":500,\"message\":\"Context size has been exceeded.\"}\n\n";
        assert_eq!(read(&[token, of_llama_cpp, "data: [DONE]\n\n"]).unwrap_err(), Kind::ServerError);
        for reason in ["abort", "error"] {
            let event = format!("data: {{\"choices\":[{{\"text\":\"\",\"finish_reason\":\"{reason}\"}}]}}\n\n");
            assert_eq!(read(&[token, &event, "data: [DONE]\n\n"]).unwrap_err(), Kind::ServerError, "{reason}");
        }
        assert_eq!(read(&["data: <html>\n"]).unwrap_err(), Kind::WrongType);
        assert!(read(&[token, "data: [DONE]"]).is_ok());
        let of_lines = "data: {\"choices\":\ndata: [{\"text\":\"a\"}]}\n\n";
        assert_eq!(read(&[of_lines, "data: [DONE]\n\n"]).unwrap().tokens.len(), 1);
        let counted = |usage: &str| read(&[token, &format!("data: {{\"usage\":{usage}}}\n\ndata: [DONE]\n")]);
        assert_eq!(counted("{\"prompt_tokens\":null}").unwrap().tokens_by.as_deref(), Some("events"));
        assert_eq!(counted("{\"completion_tokens\":99999999999999}").unwrap_err(), Kind::WrongType);
        let long = format!("data: {}", "x".repeat(MOST_LINE));
        assert_eq!(read(&[&long]).unwrap_err(), Kind::TooLarge);
    }

    #[test]
    fn an_empty_list_of_calls_is_no_content() {
        let event = |rest: &str| format!("data: {{\"choices\":[{rest}]}}\n\n");
        let role = event(r#"{"delta":{"role":"assistant","content":"","tool_calls":[]}}"#);
        let token = event(r#"{"delta":{"content":"a","tool_calls":[]}}"#);
        let call = event(r#"{"delta":{"tool_calls":[{"index":0,"function":{"name":"f"}}]}}"#);
        let end = event(r#"{"delta":{"content":"","tool_calls":[]},"finish_reason":"stop"}"#);
        assert_eq!(read(&[&role, &token, &call, &end]).unwrap().tokens.len(), 2);
        assert_eq!(read(&[&role, &end]).unwrap_err(), Kind::Empty);
        assert_eq!(read(&[&role, "data: [DONE]\n\n"]).unwrap_err(), Kind::WrongShape);
        let whole = br#"{"choices":[{"message":{"content":"","tool_calls":[]}}]}"#;
        assert_eq!(check_answer(whole, &mut None).unwrap_err().kind, Kind::WrongShape);
    }

    #[cfg(feature = "text")]
    #[test]
    fn a_tokenizer_counts_what_the_server_does_not() {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tokenizer.json");
        let counter = Arc::new(TokenCounter::open(&file).unwrap());
        let counted = || Counted::new(counter.clone(), "the water".into());
        let stream = |usage: &str| {
            let mut stream = Stream::new(Some(counted()));
            // Two events, four tokens.
            for event in [r#"{"choices":[{"delta":{"content":"The wat"}}]}"#, r#"{"choices":[{"text":"er looked"}]}"#] {
                stream.line(format!("data: {event}").as_bytes(), Instant::now()).unwrap();
            }
            stream.line(format!("data: {{\"usage\":{usage}}}").as_bytes(), Instant::now()).unwrap();
            stream.line(b"data: [DONE]", Instant::now()).unwrap();
            let checked = stream.check(&Seen::default()).unwrap();
            (checked.prompt_tokens, checked.token_count, checked.tokens_by.unwrap().into_owned())
        };
        assert_eq!(stream("null"), (2, Some(4), counter.name().to_owned()));
        let usage = r#"{"prompt_tokens":7,"completion_tokens":9}"#;
        assert_eq!(stream(usage), (7, Some(9), "usage".to_owned()));
        // A call of a tool has no text.
        let mut stream = Stream::new(Some(counted()));
        let call = br#"data: {"choices":[{"delta":{"tool_calls":[{"index":0}]},"finish_reason":"tool_calls"}]}"#;
        stream.line(call, Instant::now()).unwrap();
        let checked = stream.check(&Seen::default()).unwrap();
        assert_eq!(
            (checked.tokens.len(), checked.token_count, checked.tokens_by.as_deref()),
            (1, None, Some("events"))
        );
        let body = br#"{"choices":[{"message":{"content":"the water"}}]}"#;
        let checked = check_answer(body, &mut Some(counted())).unwrap();
        assert_eq!((checked.whole.unwrap().output, checked.tokens_by.as_deref()), (2, Some(counter.name())));
    }

    #[test]
    fn whole_answers_are_checked() {
        let chat = |body: &str| check_answer(body.as_bytes(), &mut None).map_err(|fault| fault.kind);
        let usage = r#""usage":{"prompt_tokens":5,"completion_tokens":2}"#;
        let answer = format!(r#"{{"choices":[{{"message":{{"content":"hi"}}}}],{usage}}}"#);
        let whole = chat(&answer).unwrap().whole.unwrap();
        assert_eq!((whole.prompt, whole.output), (5, 2));
        assert_eq!(chat(r#"{"choices":[]}"#).unwrap_err(), Kind::WrongShape);
        assert_eq!(chat(r#"{"error":"no"}"#).unwrap_err(), Kind::ServerError);
        let given_up = r#"{"choices":[{"message":{"content":"h"},"finish_reason":"abort"}]}"#;
        assert_eq!(chat(given_up).unwrap_err(), Kind::ServerError);
        assert_eq!(chat("hello").unwrap_err(), Kind::WrongType);
        let embeddings = |body: &str| check_embeddings(body.as_bytes(), 1).map_err(|fault| fault.kind);
        assert!(embeddings(r#"{"data":[{"embedding":[0.1,0.2]}]}"#).is_ok());
        assert_eq!(embeddings(r#"{"data":[]}"#).unwrap_err(), Kind::WrongShape);
        assert_eq!(embeddings(r#"{"data":[{"embedding":[NaN]}]}"#).unwrap_err(), Kind::NotFinite);
    }
}
