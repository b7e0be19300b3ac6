//! Reduces a batch's outputs to what is judged: boxes and transcripts in place of logits, and the vectors of an embedding model.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;

use crate::definition::{CaseFailure, Judge, Model, Origin, Phase, is_embedding};
use crate::fixture::{HostTensor, Label, Sample};
use crate::run_data::{FoundBox, Judged, Transcript, files};

/// The most boxes that are kept of a picture.
const MOST_BOXES: usize = 100;
/// Parts of the names of families whose classes have a score each and no class for "no object": RT-DETR and its relatives.
const INDEPENDENT_SCORES: [&str; 6] = ["rt-detr", "rt_detr", "rtdetr", "deformable", "conditional", "d-fine"];

/// The boxes of each sample. Returns `None` if the outputs are of another kind.
///
/// There are two forms: boxes `[batch, n, 4]` of centre, width and height with logits `[batch, n, classes]`, as DETR gives them, of
/// which the last class is "no object"; and boxes of left, top, right and bottom with scores and classes, both `[batch, n]`.
pub fn boxes(model: &Model, outputs: &[HostTensor]) -> Option<Vec<Vec<FoundBox>>> {
    let (boxes_place, form) = form_of_boxes(&model.output_names(Phase::Forward), outputs)?;
    let boxes = outputs[boxes_place].to_f64();
    let [batch, count, _] = outputs[boxes_place].shape[..] else { return None };
    let (scores, classes): (Vec<f64>, Vec<i64>) = match form {
        Form::Listed { scores, classes } => {
            let classes = outputs[classes].to_f64().into_iter().map(|class| class as i64).collect();
            (outputs[scores].to_f64(), classes)
        }
        Form::Centred { logits } => {
            let is_independent = INDEPENDENT_SCORES.iter().any(|name| model.family.to_lowercase().contains(name));
            let width = outputs[logits].shape[2];
            let best = |row: &[f64]| if is_independent { best_independent(row) } else { best_of_softmax(row) };
            outputs[logits].to_f64().chunks_exact(width).map(best).unzip()
        }
    };
    let corners = |place: usize| {
        let sides: [f64; 4] = std::array::from_fn(|side| boxes[4 * place + side]);
        let is_centred = matches!(form, Form::Centred { .. });
        (if is_centred { corners_of_centred(sides) } else { sides }).map(|side| side as f32)
    };
    let of_sample = |sample: usize| {
        let found = (sample * count..(sample + 1) * count).map(|place| FoundBox {
            corners: corners(place),
            class: classes[place],
            score: scores[place] as f32,
        });
        let is_finite = |it: &FoundBox| it.score.is_finite() && it.corners.iter().all(|side| side.is_finite());
        let mut found: Vec<FoundBox> = found.filter(is_finite).collect();
        found.sort_by(|one, other| other.score.total_cmp(&one.score));
        found.truncate(MOST_BOXES);
        found
    };
    Some((0..batch).map(of_sample).collect())
}

/// Places of the outputs with boxes and what belongs to them.
enum Form {
    Centred { logits: usize },
    Listed { scores: usize, classes: usize },
}

fn form_of_boxes(names: &[String], outputs: &[HostTensor]) -> Option<(usize, Form)> {
    let name = |place: usize| names.get(place).map(|name| name.to_lowercase()).unwrap_or_default();
    let is_boxes = |&place: &usize| {
        let output = &outputs[place];
        let is_four = output.shape.len() == 3 && output.shape[2] == 4 && !output.is_integer();
        is_four && (names.is_empty() || name(place).contains("box"))
    };
    let boxes = (0..outputs.len()).find(is_boxes)?;
    let of_boxes = |place: usize| place != boxes && outputs[place].shape.starts_with(&outputs[boxes].shape[..2]);
    let find = |dimensions: usize, is_integer: Option<bool>, word: &str| {
        let fits = |&place: &usize| {
            let output = &outputs[place];
            let is_kind = is_integer.is_none_or(|wanted| output.is_integer() == wanted);
            of_boxes(place) && output.shape.len() == dimensions && is_kind
        };
        let all: Vec<usize> = (0..outputs.len()).filter(fits).collect();
        all.iter().copied().find(|&place| name(place).contains(word)).or(all.first().copied())
    };
    if let Some(logits) = find(3, Some(false), "logits").filter(|&place| outputs[place].shape[2] > 1) {
        return Some((boxes, Form::Centred { logits }));
    }
    let (scores, classes) = (find(2, Some(false), "score")?, find(2, None, "label")?);
    (scores != classes).then_some((boxes, Form::Listed { scores, classes }))
}

/// The probability of the likeliest class but the last, which is "no object", and that class.
fn best_of_softmax(row: &[f64]) -> (f64, i64) {
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = row.iter().map(|logit| (logit - largest).exp()).sum();
    let (logit, class) = best(&row[..row.len() - 1]);
    ((logit - largest).exp() / sum, class)
}

fn best_independent(row: &[f64]) -> (f64, i64) {
    let (logit, class) = best(row);
    (1.0 / (1.0 + (-logit).exp()), class)
}

fn best(row: &[f64]) -> (f64, i64) {
    let places = row.iter().enumerate();
    let (class, logit) =
        places.fold((0, f64::NEG_INFINITY), |best, (place, &logit)| if logit > best.1 { (place, logit) } else { best });
    (logit, class as i64)
}

fn corners_of_centred([x, y, width, height]: [f64; 4]) -> [f64; 4] {
    [x - width / 2.0, y - height / 2.0, x + width / 2.0, y + height / 2.0]
}

/// The boxes of a label, in the form of the model's own.
pub fn labelled_boxes(label: &[([f32; 4], i64)], model: &Model, outputs: &[HostTensor]) -> Vec<FoundBox> {
    let form = form_of_boxes(&model.output_names(Phase::Forward), outputs);
    let is_centred = matches!(form, Some((_, Form::Centred { .. })));
    let of_label = |&(sides, class): &([f32; 4], i64)| {
        let corners = if is_centred { corners_of_centred(sides.map(f64::from)).map(|side| side as f32) } else { sides };
        FoundBox { corners, class, score: 1.0 }
    };
    label.iter().map(of_label).collect()
}

/// The places of outputs that hold a vector per sample: of those that are called so, or else all.
pub fn vectors(names: &[String], outputs: &[HostTensor], is_vector: impl Fn(&HostTensor) -> bool) -> Vec<usize> {
    let places: Vec<usize> = (0..outputs.len()).filter(|&place| is_vector(&outputs[place])).collect();
    let is_called = |place: &usize| names.get(*place).is_some_and(|name| is_embedding(name));
    let called: Vec<usize> = places.iter().copied().filter(is_called).collect();
    if called.is_empty() { places } else { called }
}

/// What `vocab.json` and `config.json` beside a model say of its tokens.
#[derive(Default)]
pub struct Vocabulary {
    /// The texts of tokens, if there is a `vocab.json`.
    texts: Option<HashMap<i64, String>>,
    /// The token that stands for nothing, in connectionist temporal classification.
    blank: i64,
    /// The tokens that end a text.
    ends: Vec<i64>,
}

impl Vocabulary {
    /// Reads what there is beside the model.
    pub fn beside(model: &Model) -> Self {
        let folder = match &model.origin {
            Origin::Packaged { folder, .. } => Some(folder.as_path()),
            Origin::Files { onnx, torchscript, .. } => {
                onnx.as_ref().or(torchscript.as_ref()).and_then(|file| file.parent())
            }
        };
        folder.map(Self::read).unwrap_or_default()
    }

    fn read(folder: &Path) -> Self {
        let config: Value = files::read_json(&folder.join("config.json")).unwrap_or_default();
        let ids: Option<HashMap<String, i64>> = files::read_json(&folder.join("vocab.json")).ok();
        let named =
            |names: [&str; 3]| ids.as_ref().and_then(|ids| names.iter().find_map(|name| ids.get(*name)).copied());
        let ends = match &config["eos_token_id"] {
            Value::Array(ends) => ends.iter().filter_map(Value::as_i64).collect(),
            end => end.as_i64().into_iter().collect(),
        };
        Vocabulary {
            blank: named(["<pad>", "[PAD]", "<blank>"]).or(config["pad_token_id"].as_i64()).unwrap_or(0),
            ends,
            texts: ids.map(|ids| ids.into_iter().map(|(text, id)| (id, text)).collect()),
        }
    }

    /// Tokens up to the one that ends them.
    pub fn transcript(&self, tokens: &[i64]) -> Transcript {
        let end = tokens.iter().position(|token| self.ends.contains(token)).unwrap_or(tokens.len());
        let tokens = tokens[..end].to_vec();
        Transcript { words: self.words(&tokens), tokens }
    }

    /// The words of tokens; `|`, `Ġ` and `▁` are between words. Tokens such as `<unk>` and `[PAD]` are no text.
    fn words(&self, tokens: &[i64]) -> Option<Vec<String>> {
        let texts = self.texts.as_ref()?;
        let is_special = |text: &&String| {
            [("<", ">"), ("[", "]")].iter().any(|(first, last)| text.starts_with(first) && text.ends_with(last))
        };
        let said = tokens.iter().filter_map(|token| texts.get(token)).filter(|text| !is_special(text));
        let text: String =
            said.flat_map(|text| text.chars()).map(|c| if "|Ġ▁".contains(c) { ' ' } else { c }).collect();
        Some(text.split_whitespace().map(str::to_owned).collect())
    }

    /// What is said by logits `[batch, frames, tokens]`: the likeliest token of each frame, those in a row that are the same
    /// once, without blanks (Graves et al. 2006, "Connectionist temporal classification"). Returns `None` if no output has
    /// this shape.
    pub fn greedy(&self, outputs: &[HostTensor]) -> Option<Vec<Transcript>> {
        let logits = outputs.iter().find(|output| output.shape.len() == 3 && !output.is_integer())?;
        let [batch, frames, width] = logits.shape[..] else { return None };
        let likeliest: Vec<i64> = logits.to_f64().chunks_exact(width.max(1)).map(|row| best(row).1).collect();
        let transcript = |sample: usize| {
            let mut tokens = likeliest[sample * frames..(sample + 1) * frames].to_vec();
            tokens.dedup();
            tokens.retain(|token| *token != self.blank);
            Transcript { words: self.words(&tokens), tokens }
        };
        Some((0..batch).map(transcript).collect())
    }
}

/// Adds the answers of a batch, which may have fewer samples than the outputs have rows, to what is judged. Outputs that are none
/// of this judge are left out.
///
/// # Errors
/// The outputs do not fit, and there are labels or the definition names this judge.
pub fn add(
    judged: &mut Option<Judged>,
    (judge, model, vocabulary): (Judge, &Model, &Vocabulary),
    outputs: &[HostTensor],
    batch: &[Sample],
) -> Result<(), CaseFailure> {
    let has_labels = batch.iter().any(|sample| sample.label.is_some());
    let misfit = |what: &str| match has_labels || model.judge.is_some() {
        true => {
            let shapes: Vec<String> = outputs.iter().map(|output| format!("{:?}", output.shape)).collect();
            Err(CaseFailure::unsupported(format!("the outputs have no {what}; there are {}", shapes.join(", "))))
        }
        false => Ok(()),
    };
    match judge {
        Judge::Boxes => {
            let Some(rows) = boxes(model, outputs) else { return misfit("boxes with a score per class") };
            let labels = batch.iter().filter_map(|sample| match &sample.label {
                Some(Label::Boxes(label)) => Some(labelled_boxes(label, model, outputs)),
                _ => None,
            });
            let new = Judged::Boxes { found: Vec::new(), right: has_labels.then(Vec::new) };
            if let Judged::Boxes { found, right } = judged.get_or_insert(new) {
                found.extend(rows.into_iter().take(batch.len()));
                right.iter_mut().for_each(|right| right.extend(labels.clone()));
            }
        }
        Judge::Speech => {
            let Some(rows) = vocabulary.greedy(outputs) else { return misfit("logits of frames") };
            add_transcripts(judged, vocabulary, rows, batch);
        }
        Judge::Classes | Judge::Embedding | Judge::Text => {}
    }
    Ok(())
}

/// Adds the transcripts of a batch and those of its labels.
pub fn add_transcripts(judged: &mut Option<Judged>, vocabulary: &Vocabulary, rows: Vec<Transcript>, batch: &[Sample]) {
    let has_labels = batch.iter().any(|sample| sample.label.is_some());
    let new = Judged::Transcripts { said: Vec::new(), right: has_labels.then(Vec::new) };
    if let Judged::Transcripts { said, right } = judged.get_or_insert(new) {
        said.extend(rows.into_iter().take(batch.len()));
        let labels = batch.iter().filter_map(|sample| match &sample.label {
            Some(Label::Tokens(tokens)) => Some(vocabulary.transcript(tokens)),
            _ => None,
        });
        right.iter_mut().for_each(|right| right.extend(labels.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::TensorData;

    fn floats(shape: &[usize], values: &[f32]) -> HostTensor {
        HostTensor { shape: shape.to_vec(), data: TensorData::F32(values.to_vec()) }
    }

    #[test]
    fn repeated_frames_and_blanks_say_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let vocabulary = r#"{"<pad>": 0, "<unk>": 1, "|": 2, "A": 3, "B": 4}"#;
        std::fs::write(folder.path().join("vocab.json"), vocabulary).unwrap();
        let vocabulary = Vocabulary::read(folder.path());
        let frames = [0, 3, 3, 0, 3, 2, 2, 1, 4, 0];
        let mut values = vec![0.0; frames.len() * 5];
        frames.iter().enumerate().for_each(|(frame, token)| values[frame * 5 + token] = 1.0);
        let said = vocabulary.greedy(&[floats(&[1, frames.len(), 5], &values)]).unwrap();
        assert_eq!(said[0].tokens, [3, 3, 2, 1, 4]);
        assert_eq!(said[0].words.as_deref(), Some(&["AA".to_owned(), "B".to_owned()][..]));
        assert_eq!(Vocabulary::default().transcript(&[5, 6]).words, None);
    }

    #[test]
    fn a_text_ends_at_its_end() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), r#"{"eos_token_id": [7, 9]}"#).unwrap();
        std::fs::write(folder.path().join("vocab.json"), r#"{"Ġthe": 1, "Ġc": 2, "at": 3, "<|end|>": 9}"#).unwrap();
        let said = Vocabulary::read(folder.path()).transcript(&[1, 2, 3, 9, 1]);
        assert_eq!(
            (said.tokens.as_slice(), said.words.unwrap()),
            (&[1, 2, 3][..], vec!["the".to_owned(), "cat".into()])
        );
    }

    #[test]
    fn boxes_of_both_forms_have_corners_and_the_best_class() {
        let names = ["logits", "pred_boxes"].map(str::to_owned);
        let logits = floats(&[1, 2, 3], &[0.0, 2.0, 1.0, 3.0, 0.0, 9.0]);
        let centred = floats(&[1, 2, 4], &[0.5, 0.5, 0.2, 0.4, 0.25, 0.25, 0.5, 0.5]);
        let Some((1, Form::Centred { logits: 0 })) = form_of_boxes(&names, &[logits.clone(), centred.clone()]) else {
            panic!()
        };
        let (score, class) = best_of_softmax(&[0.0, 2.0, 1.0]);
        let all = 1.0 + 2.0_f64.exp() + 1.0_f64.exp();
        assert!((score - 2.0_f64.exp() / all).abs() < 1e-12 && class == 1);
        // "No object" is likelier than every class.
        assert!(best_of_softmax(&[3.0, 0.0, 9.0]).0 < 0.01);
        let corners = corners_of_centred([0.5, 0.5, 0.2, 0.4]);
        assert!(corners.iter().zip([0.4, 0.3, 0.6, 0.7]).all(|(one, other)| (one - other).abs() < 1e-12));
        let names = ["boxes", "labels", "scores"].map(str::to_owned);
        let classes = HostTensor { shape: vec![1, 2], data: TensorData::I64(vec![5, 6]) };
        let listed = [centred, classes, floats(&[1, 2], &[0.5, 0.25])];
        let Some((0, Form::Listed { scores: 2, classes: 1 })) = form_of_boxes(&names, &listed) else { panic!() };
    }
}
