//! How a case answered the samples by which its model is evaluated, `evaluations/<case>.cbor` in the run's folder.
//!
//! The answers are kept as they are; how often they are right and how they differ from the original's is computed when the
//! run is converted.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::files::{read_cbor, write_cbor};
use super::maps::{ClassPixels, MaskForm};
use crate::definition::BenchmarkId;

/// How many of the largest outputs are kept per sample.
const LARGEST: usize = 5;

/// The places of the five largest numbers, the largest first, and of equal ones the first.
pub fn places_of_largest<T: Copy + Into<f64>>(row: &[T]) -> Vec<usize> {
    let number = |place: usize| -> f64 { row[place].into() };
    let order = |&one: &usize, &other: &usize| number(other).total_cmp(&number(one)).then(one.cmp(&other));
    let mut places: Vec<usize> = (0..row.len()).collect();
    if places.len() > LARGEST {
        places.select_nth_unstable_by(LARGEST - 1, order);
        places.truncate(LARGEST);
    }
    places.sort_unstable_by(order);
    places
}

/// The answers of a case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    pub data_source: String,
    pub samples: usize,
    /// The right class of each sample; of an embedding model the group of each sample of `outputs`, and of a
    /// recommendation whether it was chosen, 1 or 0.
    pub labels: Option<Vec<i64>>,
    /// The indices of the largest outputs of each sample in descending order, and none if outputs are not finite. Absent
    /// if outputs are no classes.
    pub largest: Option<Vec<Vec<i64>>>,
    /// The outputs of samples that lie evenly among all.
    pub outputs: Vec<Vec<f32>>,
    /// What the judge of the model's kind needs besides.
    pub judged: Option<Judged>,
    /// The scores of metrics that are not of this package.
    #[serde(default)]
    pub scores: Vec<Scores>,
    /// Samples that could not be read, and why.
    pub unreadable: Vec<String>,
    /// Samples whose outputs are not finite.
    pub not_finite: usize,
}

/// The scores of a metric.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    pub metric: String,
    pub unit: String,
    /// Those of all samples; `None` where a sample has none.
    pub of_samples: Vec<Option<f64>>,
}

/// Answers in the form in which they are judged, one item per sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Judged {
    Boxes {
        found: Vec<Vec<FoundBox>>,
        /// Those of the labels; their scores are 1.
        right: Option<Vec<Vec<FoundBox>>>,
    },
    /// Vectors per sample, of the same samples as `outputs`.
    Embeddings {
        /// The name of the output that `outputs` has.
        first: String,
        /// The other outputs that are vectors.
        others: Vec<(String, Vec<Vec<f32>>)>,
    },
    Transcripts {
        said: Vec<Transcript>,
        /// Those of the labels.
        right: Option<Vec<Transcript>>,
    },
    Texts {
        read: Vec<ReadText>,
        /// Whether the tokens were recorded, and not seeded.
        is_recorded: bool,
    },
    /// The classes of pixels, which `outputs` has, too.
    Masks {
        form: MaskForm,
        /// The pixels of each class, of the mask and of the label's. Absent if there are no labels.
        pixels: Option<Vec<Vec<ClassPixels>>>,
    },
    /// The depths of pixels, which `outputs` has, too.
    Depths {
        /// The errors relative to the label's; `None` where that has no depth. Absent if there are no labels.
        relative_errors: Option<Vec<Option<f64>>>,
    },
    /// The scores of items are the last numbers of the rows of `outputs`.
    Recommendations,
    /// Signals, which `outputs` has, too.
    Signals {
        /// The ratios of signal to noise, in decibels; `None` where the label is one number throughout. Absent if there
        /// are no labels.
        decibels: Option<Vec<Option<f64>>>,
    },
}

/// A box in a picture.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FoundBox {
    /// Left, top, right and bottom, in any unit.
    pub corners: [f32; 4],
    pub class: i64,
    pub score: f32,
}

/// What is said in a sound.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Transcript {
    pub tokens: Vec<i64>,
    /// The words, if there is a vocabulary that knows them.
    pub words: Option<Vec<String>>,
}

/// How a model reads a text that is given to it token by token.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReadText {
    /// The likeliest token at each place of the text.
    pub likeliest: Vec<i64>,
    /// The sum over these places of the negative logarithm of the probability of the text's own token.
    pub loss: f64,
    /// The logarithms of the probabilities of all tokens, at some of the places; the same ones in every case of a model.
    #[serde(default)]
    pub log_probabilities: Vec<(u32, Vec<f32>)>,
}

impl Evaluation {
    /// Keeps it in the run's folder.
    pub fn write(&self, run_folder: &Path, id: &BenchmarkId) -> Result<()> {
        write_cbor(&path(run_folder, id), self)
    }

    /// Reads the answers of a case. Returns `None` if the case was not evaluated.
    pub fn read(run_folder: &Path, id: &BenchmarkId) -> Result<Option<Self>> {
        read_cbor(&path(run_folder, id))
    }
}

fn path(run_folder: &Path, id: &BenchmarkId) -> PathBuf {
    run_folder.join("evaluations").join(format!("{}-{}-batch{}.cbor", id.group, id.function, id.value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Case;

    #[test]
    fn the_largest_are_in_order() {
        assert_eq!(places_of_largest(&[0.0, 3.0, -1.0, 3.0, -2.0, 2.0, 1.0]), [1, 3, 5, 6, 0]);
        assert_eq!(places_of_largest(&[1.0_f32, 2.0]), [1, 0]);
    }

    #[test]
    fn an_evaluation_comes_back_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let id = Case::new("m", "ort", 2).benchmark_id();
        assert_eq!(Evaluation::read(folder.path(), &id).unwrap(), None);
        let labelled = Evaluation {
            data_source: "held-out".into(),
            samples: 2,
            labels: Some(vec![1, 0]),
            largest: Some(vec![vec![1, 0], vec![]]),
            outputs: vec![vec![0.5, 1.5], vec![0.0, 2.0]],
            judged: None,
            scores: vec![Scores { metric: "m".into(), unit: "s".into(), of_samples: vec![None, Some(0.5)] }],
            unreadable: vec!["a.jpg: cut\nshort".into()],
            not_finite: 1,
        };
        labelled.write(folder.path(), &id).unwrap();
        assert_eq!(Evaluation::read(folder.path(), &id).unwrap(), Some(labelled.clone()));
        let judged =
            Some(Judged::Embeddings { first: "image".into(), others: vec![("text".into(), vec![vec![1.0]; 2])] });
        let embedding = Evaluation { labels: None, largest: None, judged, unreadable: Vec::new(), ..labelled };
        embedding.write(folder.path(), &id).unwrap();
        assert_eq!(Evaluation::read(folder.path(), &id).unwrap(), Some(embedding));
    }
}
