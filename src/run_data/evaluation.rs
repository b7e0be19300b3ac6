//! The answers of a case to the samples by which its model is evaluated: `evaluations/<case>.cbor` in the run's folder.
//!
//! The answers are kept as they are; how often they are right and how they differ from the original's is computed when
//! the run is converted.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::files::{read_cbor, write_cbor};
use super::maps::{ClassPixels, MaskForm};
use crate::definition::BenchmarkId;

/// How many of the largest outputs are kept per sample.
const LARGEST: usize = 5;

/// The positions of the five largest numbers, the largest first. Of equal numbers, the first comes first.
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
    /// The right class of each sample. For an embedding model, the group of each sample of `outputs`; for a
    /// recommendation, 1 if it was chosen and 0 if not.
    pub labels: Option<Vec<i64>>,
    /// The indices of the largest outputs of each sample in descending order; empty if outputs are not finite. Absent
    /// if outputs are not classes.
    pub largest: Option<Vec<Vec<i64>>>,
    /// The outputs of samples that are evenly spread.
    pub outputs: Vec<Vec<f32>>,
    /// What the judge for this kind of model needs besides.
    pub judged: Option<Judged>,
    /// The scores of metrics that other packages define.
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
    /// The score of each sample; `None` if it has none.
    pub of_samples: Vec<Option<f64>>,
}

/// Answers in the form in which they are judged, one item per sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Judged {
    Boxes {
        found: Vec<Vec<FoundBox>>,
        /// The boxes of the labels; their scores are 1.
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
        /// The transcripts of the labels.
        right: Option<Vec<Transcript>>,
    },
    Texts {
        read: Vec<ReadText>,
        /// Whether the tokens were recorded, and not seeded.
        is_recorded: bool,
    },
    /// The classes of pixels, which are also in `outputs`.
    Masks {
        form: MaskForm,
        /// The pixels of each class in the mask and in the label. Absent if there are no labels.
        pixels: Option<Vec<Vec<ClassPixels>>>,
    },
    /// The depths of pixels, which are also in `outputs`.
    Depths {
        /// The errors relative to the depths of the labels; `None` if a label has no depth. Absent if there are no
        /// labels.
        relative_errors: Option<Vec<Option<f64>>>,
    },
    /// The scores of items are the last numbers of the rows of `outputs`.
    Recommendations,
    /// Signals, which are also in `outputs`.
    Signals {
        /// The ratios of signal to noise, in decibels; `None` if the label is the same number throughout. Absent if
        /// there are no labels.
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

/// A transcript of speech.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Transcript {
    pub tokens: Vec<i64>,
    /// The words, if there is a vocabulary that knows them.
    pub words: Option<Vec<String>>,
}

/// How a model reads a text that is given to it token by token.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReadText {
    /// The likeliest token at each position of the text.
    pub likeliest: Vec<i64>,
    /// The sum over these positions of the negative logarithm of the probability of the text's own token.
    pub loss: f64,
    /// The logarithms of the probabilities of all tokens at some positions, which are the same in every case of a
    /// model.
    #[serde(default)]
    pub log_probabilities: Vec<(u32, Vec<f32>)>,
}

impl Evaluation {
    /// Writes the answers into the run's folder.
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
