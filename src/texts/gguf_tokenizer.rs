//! The tokenizer of a GGUF file, as the `tokenizer.json` that the library `tokenizers` reads.
//!
//! Such a file has the tokens and, depending on `tokenizer.ggml.model`, either GPT-2's merges of bytes within words, or
//! the scores of SentencePiece's BPE (`llama`). `tokenizer.ggml.pre` names the pattern that finds the words. No text is
//! normalised, as in llama.cpp.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value as Json, json};

use crate::gguf::{Header, Value};

const TOKENS: &str = "tokenizer.ggml.tokens";
const MERGES: &str = "tokenizer.ggml.merges";
const SCORES: &str = "tokenizer.ggml.scores";
const KINDS: &str = "tokenizer.ggml.token_type";

/// Bytes of the longest token that is merged from others.
const LONGEST: usize = 512;

/// A kind of tokens, by its number in files.
const NORMAL: i128 = 1;
const UNKNOWN: i128 = 2;
const CONTROL: i128 = 3;
const USER_DEFINED: i128 = 4;

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// What follows the alternatives for letters and digits.
const REST: &str = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const SHORTENED: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)";
/// A word that has capitals only at its beginning, or one of capitals.
const CASED: [&str; 2] = [
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
];
const REST_OF_CASED: &str = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The patterns that split a text into words, one after the other, for a value of `tokenizer.ggml.pre`. They are those
/// of the models' own `tokenizer.json`. Returns `None` for an unknown value.
fn patterns(name: &str) -> Option<Vec<String>> {
    let [lower, upper] = CASED;
    Some(match name {
        "gpt-2" | "phi-2" | "mpt" | "olmo" | "jais" | "mellum" | "modern-bert" => vec![GPT2.into()],
        "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" | "exaone" | "minerva-7b" => {
            vec![r"\p{N}".into(), GPT2.into()]
        }
        "llama-bpe" | "llama3" | "llama-v3" | "falcon3" | "falcon-h1" | "pixtral" | "lfm2" | "dbrx" | "smaug-bpe"
        | "chatglm-bpe" | "glm4" => vec![format!(r"{SHORTENED}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}{REST}")],
        "qwen2" | "deepseek-r1-qwen" | "stablelm2" | "hunyuan" | "megrez" => {
            vec![format!(r"{SHORTENED}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{REST}")]
        }
        "qwen35" => vec![format!(
            r"{SHORTENED}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}{}",
            REST.replacen(r"\p{L}", r"\p{L}\p{M}", 1)
        )],
        "tekken" => vec![format!(r"{lower}|{upper}|\p{{N}}{REST_OF_CASED}")],
        "gpt-4o" | "llama4" => {
            vec![format!(r"{lower}{SHORTENED}?|{upper}{SHORTENED}?|\p{{N}}{{1,3}}{REST_OF_CASED}")]
        }
        _ => return None,
    })
}

/// Whether texts begin with a token, and words are looked up before they are merged, for a value of
/// `tokenizer.ggml.pre`.
fn looks_words_up(name: &str) -> bool {
    matches!(name, "llama-bpe" | "llama3" | "llama-v3" | "falcon3" | "falcon-h1" | "pixtral" | "lfm2" | "tekken")
}

/// The tokens of a file.
struct Tokens<'a> {
    texts: Vec<String>,
    kinds: &'a [Value],
}

impl Tokens<'_> {
    fn is(&self, id: usize, kinds: &[i128]) -> bool {
        match self.kinds.get(id) {
            Some(Value::Integer(kind)) => kinds.contains(kind),
            _ => kinds.contains(&NORMAL),
        }
    }

    /// The tokens of these kinds, with their ids.
    fn of<'a>(&'a self, kinds: &'a [i128]) -> impl Iterator<Item = (usize, &'a String)> {
        self.texts.iter().enumerate().filter(|(id, _)| self.is(*id, kinds))
    }
}

/// The ids of tokens. If a token comes twice, the last one counts.
type Ids<'a> = HashMap<&'a str, usize>;

/// The tokenizer of a file. Returns `None` if it has none.
///
/// # Errors
/// The file cannot be read, or its tokenizer is of a kind that is not read.
pub(super) fn json_of(file: &Path) -> Result<Option<Json>> {
    let (header, lists) = Header::read_with_lists(file, &[TOKENS, MERGES, SCORES, KINDS])?;
    let list = |key: &str| lists.get(key).map_or(&[][..], Vec::as_slice);
    let texts = list(TOKENS).iter().map(|token| text(token).unwrap_or_default().to_owned()).collect();
    let tokens = Tokens { texts, kinds: list(KINDS) };
    let ids: Ids<'_> = tokens.texts.iter().enumerate().map(|(id, token)| (token.as_str(), id)).collect();
    let pre = header.text("tokenizer.ggml.pre").unwrap_or("default");
    let kind = header.text("tokenizer.ggml.model").unwrap_or("none");
    let mut tokenizer = match kind {
        "none" | "no_vocab" => return Ok(None),
        "gpt2" => byte_pairs(pre, list(MERGES), &ids)?,
        "llama" => {
            let has_prefix = header.values.get("tokenizer.ggml.add_space_prefix") != Some(&Value::Bool(false));
            sentence_piece(&tokens, list(SCORES), &ids, has_prefix)
        }
        other => bail!("its tokenizer is of the kind {other:?}, and only the kinds gpt2 and llama can be read"),
    };
    let vocabulary: Map<_, _> = ids.iter().map(|(token, id)| ((*token).to_owned(), json!(id))).collect();
    let added = tokens.of(&[UNKNOWN, CONTROL, USER_DEFINED]).map(|(id, token)| {
        json!({
            "id": id, "content": token, "special": !tokens.is(id, &[USER_DEFINED]),
            "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        })
    });
    tokenizer["version"] = "1.0".into();
    tokenizer["added_tokens"] = added.collect();
    tokenizer["post_processor"] = around(&header, &tokens, kind == "llama", looks_words_up(pre));
    tokenizer["model"]["vocab"] = vocabulary.into();
    Ok(Some(tokenizer))
}

fn text(value: &Value) -> Option<&str> {
    if let Value::Text(text) = value { Some(text) } else { None }
}

/// GPT-2's kind: words are bytes, each of which has a letter, and the two neighbours that come first among the merges
/// are merged first.
fn byte_pairs(pre: &str, merges: &[Value], ids: &Ids<'_>) -> Result<Json> {
    let merges = merges.iter().filter_map(text).filter_map(|merge| {
        let (left, right) = merge.split_once(' ')?;
        let is_known = [left, right, &*format!("{left}{right}")].iter().all(|token| ids.contains_key(token));
        is_known.then_some([left, right])
    });
    let merges: Vec<[&str; 2]> = merges.collect();
    ensure!(!merges.is_empty(), "its tokenizer has no merges");
    let patterns = patterns(pre)
        .with_context(|| format!("its tokenizer splits texts into words as {pre:?} does, which is not known here"))?;
    let split = |pattern: String| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    let all: Vec<Json> = patterns.into_iter().map(split).chain([bytes]).collect();
    Ok(json!({
        "normalizer": null,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": all},
        "model": {"type": "BPE", "ignore_merges": looks_words_up(pre), "merges": merges},
    }))
}

/// SentencePiece's kind: a space is `▁`, the whole text is one word, and what is not a token is spelt in bytes.
fn sentence_piece(tokens: &Tokens<'_>, scores: &[Value], ids: &Ids<'_>, has_prefix: bool) -> Json {
    let mut changes = vec![json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})];
    if has_prefix {
        changes.insert(0, json!({"type": "Prepend", "prepend": "▁"}));
    }
    let unknown = tokens.of(&[UNKNOWN]).next().map(|(_, token)| token);
    let merges = merges_of_scores(tokens, scores, ids);
    json!({
        "normalizer": {"type": "Sequence", "normalizers": changes},
        "pre_tokenizer": null,
        "model": {"type": "BPE", "byte_fallback": true, "fuse_unk": true, "unk_token": unknown, "merges": merges},
    })
}

/// The merges that SentencePiece makes: two neighbouring tokens become one, the one with the best score first.
fn merges_of_scores<'a>(tokens: &'a Tokens<'_>, scores: &[Value], ids: &Ids<'_>) -> Vec<[&'a str; 2]> {
    let score = |id: usize| match scores.get(id) {
        Some(Value::Float(score)) => *score,
        Some(Value::Integer(score)) => *score as f64,
        _ => 0.0,
    };
    let mut merges = Vec::new();
    for (id, token) in tokens.of(&[NORMAL, USER_DEFINED]).filter(|(_, token)| token.len() <= LONGEST) {
        for (at, _) in token.char_indices().skip(1) {
            if let (Some(left), Some(right)) = (ids.get(&token[..at]), ids.get(&token[at..])) {
                merges.push((score(id), *left, *right));
            }
        }
    }
    merges.sort_by(|one, other| other.0.total_cmp(&one.0).then((one.1, one.2).cmp(&(other.1, other.2))));
    merges.into_iter().map(|(_, left, right)| [left, right].map(|id| tokens.texts[id].as_str())).collect()
}

/// Adds the tokens at the beginning and end of each text.
fn around(header: &Header, tokens: &Tokens<'_>, is_sentence_piece: bool, begins: bool) -> Json {
    let token = |name: &str, adds: bool, usual: Option<u64>| -> Option<(usize, &String)> {
        let adds = match header.values.get(&format!("tokenizer.ggml.add_{name}_token")) {
            Some(Value::Bool(adds)) => *adds,
            _ => adds,
        };
        let id = header.number(&format!("tokenizer.ggml.{name}_token_id")).or(usual.filter(|_| is_sentence_piece));
        let id = usize::try_from(id.filter(|_| adds)?).ok()?;
        Some((id, tokens.texts.get(id)?))
    };
    let first = token("bos", is_sentence_piece || begins, Some(1));
    let last = token("eos", false, Some(2));
    if first.is_none() && last.is_none() {
        return Json::Null;
    }
    let special = |(_, token): (usize, &String)| json!({"SpecialToken": {"id": token, "type_id": 0}});
    let whole = |text: &str| {
        let text = json!({"Sequence": {"id": text, "type_id": 0}});
        first.map(special).into_iter().chain([text]).chain(last.map(special)).collect::<Vec<Json>>()
    };
    let named = first.into_iter().chain(last);
    let named: Map<String, Json> =
        named.map(|(id, token)| (token.clone(), json!({"id": token, "ids": [id], "tokens": [token]}))).collect();
    let pair = [whole("A"), whole("B")].concat();
    json!({"type": "TemplateProcessing", "single": whole("A"), "pair": pair, "special_tokens": named})
}

#[cfg(test)]
mod tests {
    use super::super::tokenizer::ModelTokenizer;
    use super::*;

    /// The value of a key in a file, with its type.
    enum Kept<'a> {
        Text(&'a str),
        Number(u32),
        Bool(bool),
        Texts(Vec<&'a str>),
        Floats(Vec<f32>),
        Numbers(Vec<i32>),
    }

    fn bytes_of(text: &str) -> Vec<u8> {
        [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
    }

    fn list(kind: u32, elements: Vec<Vec<u8>>) -> (u32, Vec<u8>) {
        let mut bytes = [&kind.to_le_bytes()[..], &(elements.len() as u64).to_le_bytes()].concat();
        bytes.extend(elements.concat());
        (9, bytes)
    }

    /// A file without tensors.
    fn file(keys: &[(&str, Kept<'_>)]) -> tempfile::NamedTempFile {
        let mut bytes = [b"GGUF".as_slice(), &3_u32.to_le_bytes(), &0_u64.to_le_bytes()].concat();
        bytes.extend((keys.len() as u64).to_le_bytes());
        for (key, kept) in keys {
            let (kind, value) = match kept {
                Kept::Text(text) => (8, bytes_of(text)),
                Kept::Number(number) => (4, number.to_le_bytes().into()),
                Kept::Bool(is_on) => (7, vec![u8::from(*is_on)]),
                Kept::Texts(texts) => list(8, texts.iter().map(|text| bytes_of(text)).collect()),
                Kept::Floats(floats) => list(6, floats.iter().map(|float| float.to_le_bytes().into()).collect()),
                Kept::Numbers(numbers) => list(5, numbers.iter().map(|number| number.to_le_bytes().into()).collect()),
            };
            bytes.extend([bytes_of(&format!("tokenizer.ggml.{key}")), kind.to_le_bytes().into(), value].concat());
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        file
    }

    fn ids(file: &tempfile::NamedTempFile, text: &str) -> Vec<u32> {
        ModelTokenizer::of_gguf(file.path()).unwrap().unwrap().encode(text).unwrap().ids
    }

    #[test]
    fn tokens_are_those_of_the_tokenizer_that_the_file_was_made_from() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tokenizer_of_bytes.json");
        let right = ModelTokenizer::read(&path).unwrap();
        let json: Json = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let vocabulary = json["model"]["vocab"].as_object().unwrap();
        let mut tokens = vec![""; vocabulary.len()];
        vocabulary.iter().for_each(|(token, id)| tokens[id.as_u64().unwrap() as usize] = token);
        let merges: Vec<String> = json["model"]["merges"].as_array().unwrap().iter().map(merge_of).collect();
        let kinds = (0..tokens.len()).map(|id| if id < 2 { CONTROL as i32 } else { NORMAL as i32 });
        let file = file(&[
            ("model", Kept::Text("gpt2")),
            ("pre", Kept::Text("llama-bpe")),
            ("tokens", Kept::Texts(tokens.clone())),
            ("token_type", Kept::Numbers(kinds.collect())),
            ("merges", Kept::Texts(merges.iter().map(String::as_str).collect())),
            ("bos_token_id", Kept::Number(0)),
            ("eos_token_id", Kept::Number(1)),
        ]);
        for text in ["We measure models, don't we?  In 2024:", "früh<|end|> am\tTag 12345", "  indented\n\n  lines  "]
        {
            assert_eq!(ids(&file, text), right.encode(text).unwrap().ids, "{text}");
        }
        assert_eq!(ids(&file, "the")[0], 0);
    }

    fn merge_of(merge: &Json) -> String {
        merge.as_array().unwrap().iter().map(|token| token.as_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn sentence_piece_merges_by_scores_and_spells_what_it_does_not_know() {
        let tokens = vec!["<unk>", "<s>", "</s>", "<0xC3>", "<0xA4>", "▁", "a", "b", "ab", "ba", "▁a"];
        let scores = vec![0.0, 0.0, 0.0, 0.0, 0.0, -4.0, -5.0, -6.0, -2.0, -1.0, -3.0];
        let keys = |with_space: bool| {
            file(&[
                ("model", Kept::Text("llama")),
                ("tokens", Kept::Texts(tokens.clone())),
                ("scores", Kept::Floats(scores.clone())),
                ("token_type", Kept::Numbers(vec![2, 3, 3, 6, 6, 1, 1, 1, 1, 1, 1])),
                ("add_space_prefix", Kept::Bool(with_space)),
            ])
        };
        // `ba` is better than `ab`, and that than `▁a`.
        assert_eq!(ids(&keys(true), "aba ab"), [1, 10, 9, 5, 8]);
        assert_eq!(ids(&keys(false), "aba ä"), [1, 6, 9, 5, 3, 4]);
        assert_eq!(ids(&keys(false), "b</s>x"), [1, 7, 2, 0]);
    }

    #[test]
    fn what_is_not_read_is_said_and_a_file_without_a_tokenizer_has_none() {
        let read = |keys: &[(&str, Kept<'_>)]| ModelTokenizer::of_gguf(file(keys).path());
        let refused = |keys: &[(&str, Kept<'_>)]| format!("{:#}", read(keys).err().unwrap());
        assert!(read(&[("model", Kept::Text("none"))]).unwrap().is_none());
        assert!(refused(&[("model", Kept::Text("bert"))]).contains("of the kind \"bert\""));
        assert!(refused(&[("model", Kept::Text("gpt2"))]).contains("no merges"));
        let (tokens, merges) = (|| Kept::Texts(vec!["a", "b", "ab"]), || Kept::Texts(vec!["a b", "b c", "ab", ""]));
        let unknown = [("model", Kept::Text("gpt2")), ("tokens", tokens()), ("merges", merges())];
        assert!(refused(&unknown).contains("splits texts into words as \"default\" does"));
        // Lists of the wrong type or length, and ids beyond the tokens.
        let wrong = [
            ("model", Kept::Text("gpt2")),
            ("pre", Kept::Text("qwen2")),
            ("tokens", tokens()),
            ("merges", merges()),
            ("token_type", Kept::Texts(vec!["x"])),
            ("bos_token_id", Kept::Number(u32::MAX)),
            ("add_bos_token", Kept::Bool(true)),
        ];
        assert_eq!(ids(&file(&wrong), "ab"), [2]);
        assert!(read(&[("model", Kept::Text("llama"))]).is_ok());
    }
}
