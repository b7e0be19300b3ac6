//! What the calls of a row compute. A name is not enough: a file changes, and may be run with other sizes.

use std::collections::HashMap;

use super::record::Record;
use crate::definition::{Case, Dtype, ORIGINAL, TimedOn};

/// The identity of work. Rows are pooled, taken for each other, or joined by a line only if they have the same work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    pub case: Case,
    /// The shapes of all inputs, as in the record.
    pub input_shape: Option<String>,
    pub timed_samples: Option<String>,
    /// Steps of decoding after a prompt, before decoding restarts after the prompt.
    pub new_tokens: Option<usize>,
    /// The hash of the model's own files.
    pub model_sha256: Option<String>,
    /// The hash of what the backend has loaded, which it may have made from the model's own files.
    pub artifact_sha256: Option<String>,
}

/// Whether both are equal, or one is unknown.
pub(crate) fn is_no_difference<T: PartialEq>(one: &Option<T>, other: &Option<T>) -> bool {
    one.as_ref().zip(other.as_ref()).is_none_or(|(one, other)| one == other)
}

impl Work {
    /// The work of a case of which nothing else is known.
    pub fn named(case: &Case) -> Self {
        Work {
            case: case.clone(),
            input_shape: None,
            timed_samples: None,
            new_tokens: None,
            model_sha256: None,
            artifact_sha256: None,
        }
    }

    /// The work of a row.
    pub fn of(record: &Record) -> Self {
        Work {
            case: record.case(),
            input_shape: record.input_shape.clone(),
            timed_samples: record.timed_samples.clone(),
            new_tokens: record.new_tokens,
            model_sha256: record.model_sha256.clone(),
            artifact_sha256: record.artifact_sha256.clone(),
        }
    }

    /// Whether two rows computed the same: they have the same case, inputs and network. An unknown fact is no
    /// difference: rows of older versions have no hash of the model, and a case that failed before it was loaded has no
    /// shape.
    pub fn is_same(&self, other: &Self) -> bool {
        self.case == other.case && self.has_same_inputs(other) && self.has_same_network(other)
    }

    /// As [`Self::is_same`], but the shapes and the model's hash have to be known. If both rows know what the backend
    /// has loaded, that has to be the same, too.
    pub fn is_surely_same(&self, other: &Self) -> bool {
        let is_known = |it: &Self| it.input_shape.is_some() && it.model_sha256.is_some();
        let is_one_artifact = is_no_difference(&self.artifact_sha256, &other.artifact_sha256);
        self.is_same(other) && is_one_artifact && is_known(self) && is_known(other)
    }

    /// Whether the inputs have the same shapes and samples, and are followed by the same number of new tokens.
    pub fn has_same_inputs(&self, other: &Self) -> bool {
        is_no_difference(&self.input_shape, &other.input_shape)
            && is_no_difference(&self.timed_samples, &other.timed_samples)
            && is_no_difference(&self.new_tokens, &other.new_tokens)
    }

    /// Whether the model's own files are the same. If these are unknown, whether the same backend, device and dtype
    /// have loaded the same. Files that different backends loaded show no difference.
    pub fn has_same_network(&self, other: &Self) -> bool {
        fn loader(it: &Work) -> (&str, &str, Dtype) {
            (&it.case.backend, &it.case.device, it.case.dtype)
        }
        match (&self.model_sha256, &other.model_sha256) {
            (Some(own), Some(others)) => own == others,
            _ if loader(self) == loader(other) => is_no_difference(&self.artifact_sha256, &other.artifact_sha256),
            _ => true,
        }
    }

    /// The same work without the backend, device and dtype that compute it.
    #[must_use]
    pub fn on_any_runtime(mut self) -> Self {
        (self.case.backend, self.case.device) = (String::new(), String::new());
        (self.case.dtype, self.artifact_sha256) = (Dtype::default(), None);
        self
    }

    /// The same work for one sample of a batch of any size.
    #[must_use]
    pub fn of_any_batch(mut self) -> Self {
        self.input_shape = self.sample_shape();
        self.case.batch_size = 0;
        self
    }

    /// The same work whatever the variant and its files are.
    #[must_use]
    pub fn of_any_variant(mut self) -> Self {
        self.case.variant = ORIGINAL.into();
        (self.model_sha256, self.artifact_sha256) = (None, None);
        self
    }

    /// The shapes of the inputs with `N` in front in place of the batch size. In each shape, `N` stands for the first
    /// size that equals the batch size, or else for the first 1, because some inputs are the same for every batch. A
    /// state of one layer, `1x1x64` or `1x8x64`, has the batch at another position, and becomes `Nx1x64`. Texts and
    /// sounds that are timed in their own lengths become `N`; pictures keep their shape.
    pub fn sample_shape(&self) -> Option<String> {
        let batch = self.case.batch_size.to_string();
        let of_input = |shape: &str| {
            let mut sizes: Vec<&str> = shape.split('x').collect();
            if self.case.timed_on == TimedOn::Samples && sizes.len() < 3 {
                return "N".to_owned();
            }
            let place = sizes.iter().position(|size| *size == batch);
            if let Some(place) = place.or_else(|| sizes.iter().position(|size| *size == "1")) {
                sizes.remove(place);
                sizes.insert(0, "N");
            }
            sizes.join("x")
        };
        Some(self.input_shape.as_ref()?.split(' ').map(of_input).collect::<Vec<_>>().join(" "))
    }

    /// Takes in what another row of the same work knows.
    fn learn(&mut self, other: Self) {
        let Work { case: _, input_shape, timed_samples, new_tokens, model_sha256, artifact_sha256 } = other;
        self.input_shape = self.input_shape.take().or(input_shape);
        self.timed_samples = self.timed_samples.take().or(timed_samples);
        self.new_tokens = self.new_tokens.or(new_tokens);
        self.model_sha256 = self.model_sha256.take().or(model_sha256);
        self.artifact_sha256 = self.artifact_sha256.take().or(artifact_sha256);
    }
}

/// Numbers works in the order in which they are found. A row with too few known facts belongs to the work of the last
/// row of its case before it: rows come in the order of time.
#[derive(Clone, Debug, Default)]
pub struct Works {
    found: Vec<Work>,
    /// The numbers of each case's works; the number that was asked for last comes last.
    by_case: HashMap<Case, Vec<usize>>,
}

impl Works {
    /// The number of a work.
    pub fn number(&mut self, work: Work) -> usize {
        let of_case = self.by_case.entry(work.case.clone()).or_default();
        match of_case.iter().rposition(|&number| self.found[number].is_same(&work)) {
            Some(place) => {
                let number = of_case.remove(place);
                of_case.push(number);
                self.found[number].learn(work);
                number
            }
            None => {
                of_case.push(self.found.len());
                self.found.push(work);
                self.found.len() - 1
            }
        }
    }

    /// The works of the same case and inputs with other files, which the files of this work have replaced if it is the
    /// newest.
    pub fn replaced_by(&self, number: usize) -> Vec<usize> {
        let own = &self.found[number];
        let of_case = self.by_case.get(&own.case).into_iter().flatten().copied();
        of_case.filter(|&other| other != number && self.found[other].has_same_inputs(own)).collect()
    }

    /// All of them, by number.
    pub fn all(&self) -> &[Work] {
        &self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(shape: &str, model: Option<&str>, artifact: &str) -> Work {
        Work {
            input_shape: (!shape.is_empty()).then(|| shape.to_owned()),
            model_sha256: model.map(str::to_owned),
            artifact_sha256: Some(artifact.to_owned()),
            ..Work::named(&Case::new("net", "ort", 1))
        }
    }

    #[test]
    fn another_shape_file_or_case_is_other_work() {
        let one = work("1x3x32x32", Some("a"), "a");
        assert!(one.is_same(&one) && one.is_surely_same(&one));
        for other in [work("1x3x256x256", Some("a"), "a"), work("1x3x32x32", Some("b"), "b")] {
            assert!(!one.is_same(&other) && !other.is_same(&one));
        }
        let on_samples = Work { timed_samples: Some("texts 12".into()), ..one.clone() };
        assert!(!on_samples.is_same(&Work { timed_samples: Some("texts 34".into()), ..one.clone() }));
        let decoding = |new_tokens| Work { new_tokens, ..one.clone() };
        assert!(!decoding(Some(32)).is_same(&decoding(Some(1024))) && decoding(Some(32)).is_same(&decoding(None)));
        let case = Case { backend: "tch".into(), ..one.case.clone() };
        assert!(!one.is_same(&Work { case, ..one.clone() }));
        // What a backend makes of one file may change with the program.
        let made_again = work("1x3x32x32", Some("a"), "other");
        assert!(one.is_same(&made_again) && !one.is_surely_same(&made_again));
    }

    #[test]
    fn what_is_unknown_is_no_difference_and_no_proof() {
        let (old, new) = (work("1x8", None, "a"), work("1x8", Some("m"), "a"));
        assert!(old.is_same(&new) && !old.is_surely_same(&new));
        assert!(!old.is_same(&work("1x8", None, "b")), "two older rows are told apart by what was loaded");
        let on_tch = |it: Work| Work { case: Case { backend: "tch".into(), ..it.case.clone() }, ..it };
        assert!(old.has_same_network(&on_tch(work("1x8", None, "archive"))));
        assert!(!new.has_same_network(&on_tch(work("1x8", Some("n"), "archive"))));
    }

    #[test]
    fn the_shape_of_a_sample_is_that_of_every_batch() {
        let shape = |batch_size, shape: &str| {
            let it = work(shape, None, "");
            Work { case: Case { batch_size, ..it.case.clone() }, ..it }.sample_shape().unwrap()
        };
        assert_eq!([shape(1, "1x1x8x8 1"), shape(8, "8x1x8x8 1")], ["Nx1x8x8 N", "Nx1x8x8 N"]);
        assert_eq!([shape(1, "128x1"), shape(4, "128x4")], ["Nx128", "Nx128"]);
        let stateful = [shape(1, "1x16x32 1x1x64"), shape(8, "8x16x32 1x8x64")];
        assert_eq!(stateful, ["Nx16x32 Nx1x64", "Nx16x32 Nx1x64"]);
        assert_ne!(shape(1, "1x3x32x32"), shape(1, "1x3x256x256"));
        let samples = |batch_size, shape: &str| {
            let it = work(shape, None, "");
            let case = Case { batch_size, timed_on: TimedOn::Samples, ..it.case.clone() };
            Work { case, ..it }.sample_shape().unwrap()
        };
        assert_eq!(samples(1, "1x6..16 1x6..16"), samples(4, "4x16 4x16"));
        assert_ne!(samples(1, "1x3x32x32"), samples(4, "4x3x64x64"));
    }

    #[test]
    fn a_row_of_which_little_is_known_belongs_to_the_one_before_it() {
        let mut works = Works::default();
        let unknown = || Work::named(&Case::new("net", "ort", 1));
        let order = [unknown(), work("1x8", Some("a"), "a"), work("1x16", Some("a"), "a"), unknown()];
        assert_eq!(order.map(|work| works.number(work)), [0, 0, 1, 1]);
        assert_eq!(works.number(work("1x8", Some("a"), "a")), 0);
        assert_eq!(works.number(unknown()), 0);
        // Two works that both match a row with few known facts stay two.
        assert_eq!(works.number(work("1x8", Some("b"), "b")), 2);
        assert_eq!((works.all().len(), works.replaced_by(2)), (3, vec![0]));
    }
}
