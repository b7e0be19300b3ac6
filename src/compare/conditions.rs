//! The conditions that must be equal before two records can be compared, and the build of a record.

use serde::Serialize;

use crate::definition::TimedOn;
use crate::run_data::{Record, Work};

/// A condition that must be equal, so that a ratio says something about the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum, strum::Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Condition {
    /// The machine
    Host,
    /// The version of the backend or of its native library
    Library,
    /// The work inside the timed call
    Boundary,
    /// The inputs of the timed calls: seeded, or which samples
    Inputs,
    /// The number of threads that the runtime uses
    Threads,
    /// The device or dtype that was actually used
    Device,
    /// The shapes of the inputs, and the number of new tokens
    Shape,
    /// The file that was loaded: if it has changed, the case is compared all the same, and a line names both files
    Artifact,
}

/// A condition that is not the same on both sides, or within one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub condition: Condition,
    pub base: String,
    pub candidate: String,
}

/// Digits of a hash that are shown.
const SHOWN: usize = 12;

impl Condition {
    /// Whether the two sides may differ in this condition: a model that was exported again or pruned does the same work
    /// in another way, as changed code does.
    pub fn may_change(self) -> bool {
        self == Condition::Artifact
    }

    /// The condition in a run. Returns `None` if it is unknown.
    pub fn of(self, record: &Record) -> Option<String> {
        let known = Vec::from_iter(self.parts(record).into_iter().flatten());
        (!known.is_empty()).then(|| known.join(" "))
    }

    /// The parts of the condition in a run. An unknown part is not a difference.
    pub(super) fn parts(self, record: &Record) -> [Option<String>; 2] {
        let whole = match self {
            Condition::Library => {
                let library = record.library_version.clone().filter(|version| !version.is_empty());
                return [record.backend_version.clone(), library];
            }
            Condition::Device => {
                let dtype = record.effective_dtype.map(|dtype| dtype.name().to_owned());
                return [record.effective_device.clone(), dtype];
            }
            Condition::Host => Some(record.host_id.clone()),
            Condition::Boundary => Some(record.boundary.to_string()),
            Condition::Inputs => match record.timed_on {
                TimedOn::Seeded => Some(record.timed_on.to_string()),
                TimedOn::Samples => Some(record.timed_samples.clone().unwrap_or_else(|| record.timed_on.to_string())),
            },
            Condition::Threads => record.threads.map(|threads| threads.to_string()),
            Condition::Shape => {
                return [record.input_shape.clone(), record.new_tokens.map(|count| format!("{count} new tokens"))];
            }
            Condition::Artifact => record.artifact_sha256.as_deref().map(|hash| hash.chars().take(SHOWN).collect()),
        };
        [whole, None]
    }
}

/// Whether two records have the same host, library, boundary, inputs with their shapes, and threads. Their devices,
/// dtypes and model files may differ.
pub(crate) fn is_like(one: &Record, other: &Record) -> bool {
    let conditions = [Condition::Host, Condition::Library, Condition::Boundary, Condition::Inputs, Condition::Threads];
    conditions.into_iter().all(|condition| condition.of(one) == condition.of(other))
        && Work::of(one).has_same_inputs(&Work::of(other))
}

/// Whether two records of a case differ by noise only: they are alike, and of the same build.
pub(crate) fn is_repetition(one: &Record, other: &Record) -> bool {
    is_like(one, other) && is_same_build(one, other)
}

/// Returns true if both records are known to come from one build.
pub(super) fn is_same_build(one: &Record, other: &Record) -> bool {
    let is_of_one_program =
        one.program.is_some() && one.program == other.program && one.artifact_sha256 == other.artifact_sha256;
    is_of_one_program || build(one).is_some_and(|own| build(other) == Some(own))
}

/// A commit without changes or an executable, the compiler, and the model file.
pub type Build<'a> = (&'a str, &'a str, Option<&'a str>);

/// The build of a record. If the tree had changes or no commit, only the executable identifies the code. Returns `None`
/// if that is unknown, too, as in older records.
pub fn build(record: &Record) -> Option<Build<'_>> {
    let commit = record.git_commit.as_deref().filter(|_| record.git_dirty == Some(false));
    Some((commit.or(record.program.as_deref())?, &record.rustc_version, record.artifact_sha256.as_deref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tests::simulation::empty_record;

    fn run(index: usize, commit: &str) -> Record {
        Record {
            run_id: format!("run{index:03}"),
            git_commit: Some(commit.into()),
            git_dirty: Some(false),
            ..empty_record()
        }
    }

    #[test]
    fn a_repetition_is_of_the_same_build() {
        let one = run(1, "c");
        assert!(is_repetition(&one, &run(2, "c")));
        let dirty = Record { git_dirty: Some(true), ..one.clone() };
        let others = [
            run(2, "d"),
            Record { backend_version: Some("2".into()), ..one.clone() },
            Record { artifact_sha256: Some("ab".into()), ..one.clone() },
            Record { rustc_version: "rustc 2".into(), ..one.clone() },
            dirty.clone(),
        ];
        let sized = |shape: &str| Record { input_shape: Some(shape.into()), ..one.clone() };
        assert!(is_repetition(&sized("1x8"), &sized("1x8")) && !is_repetition(&sized("1x8"), &sized("1x16")));
        assert!(others.iter().all(|other| !is_repetition(&one, other)));
        assert!(!is_repetition(&dirty, &dirty));
        let of_program = |record: &Record| Record { program: Some("1 bytes of 2".into()), ..record.clone() };
        let pruned = Record { artifact_sha256: Some("ab".into()), ..dirty.clone() };
        assert!(is_repetition(&of_program(&dirty), &of_program(&run(2, "d"))));
        assert!(
            !is_repetition(&of_program(&dirty), &of_program(&pruned)) && !is_repetition(&of_program(&dirty), &dirty)
        );
    }
}
