//! How much the same program differs from itself between two runs: the noise of a case on a host.
//!
//! It is what comparisons rest on: the process is the unit of replication (Kalibera & Jones 2013, "Rigorous benchmarking
//! in reasonable time"), a stored run has one process a case, and one process tells nothing of others. So it comes
//! from earlier runs of equal code, or from the self-test, or, where there is neither, is assumed.

use std::collections::HashMap;

use serde::Serialize;

use crate::definition::{Case, Status};
use crate::history;
use crate::record::Record;
use crate::statistics::pooled_variance;

/// Assumed of the standard deviation between runs where nothing is known: what shared machines are like.
pub const ASSUMED_DEVIATION: f64 = 0.05;

/// Degrees of freedom from which what is seen of a case replaces what is known or assumed of the machine; below, it
/// can only add to it. Four runs of one commit have three.
pub const ENOUGH_FREEDOM: f64 = 3.0;

/// Where a deviation comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Runs of this case with equal code: earlier ones, and those of the comparison where a side has several.
    Runs,
    /// `inferbench selftest`, of a model of its own.
    Selftest,
    /// [`ASSUMED_DEVIATION`].
    Assumed,
}

/// The standard deviation of the logarithm of a run's median, which for small ones is that relative to the mean.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Noise {
    pub deviation: f64,
    /// Degrees of freedom that the deviation was estimated with; absent where it is assumed.
    pub freedom: Option<f64>,
    pub source: Source,
    /// What 95 % of the changes from one run of equal code to the next did not exceed, in logarithms.
    pub usual_step: f64,
}

impl Noise {
    /// Of a machine of which nothing is known.
    pub fn assumed() -> Self {
        Noise { deviation: ASSUMED_DEVIATION, freedom: None, source: Source::Assumed, usual_step: 0.0 }
    }

    /// As a self-test of so many processes has found it.
    pub fn of_selftest(deviation: f64, processes: usize) -> Self {
        let freedom = Some(processes.saturating_sub(1).max(1) as f64);
        Noise { deviation, freedom, source: Source::Selftest, usual_step: 0.0 }
    }

    /// Of a case, from groups of runs of equal code; `otherwise` is what is known without them.
    ///
    /// The variance is pooled over the groups, so that what differs between commits is not in it:
    /// `s² = Σ (nᵢ - 1) sᵢ² / Σ (nᵢ - 1)`. From too few runs it can only be above `otherwise`, never below.
    pub fn of_groups(groups: &[Vec<f64>], otherwise: Noise) -> Self {
        let (variance, freedom) = pooled_variance(groups);
        if freedom == 0.0 {
            return otherwise;
        }
        let deviation = variance.sqrt();
        let usual_step = usual_step(groups);
        if freedom >= ENOUGH_FREEDOM {
            return Noise { deviation, freedom: Some(freedom), source: Source::Runs, usual_step };
        }
        Noise { deviation: deviation.max(otherwise.deviation), ..otherwise }
    }
}

/// The 95 % quantile (nearest rank) of the changes between neighbours; the largest, below twenty of them.
fn usual_step(groups: &[Vec<f64>]) -> f64 {
    let mut steps: Vec<f64> =
        groups.iter().flat_map(|group| group.windows(2)).map(|pair| (pair[1] - pair[0]).abs()).collect();
    steps.sort_by(f64::total_cmp);
    let rank = (0.95 * steps.len() as f64).ceil() as usize;
    steps.get(rank.max(1) - 1).copied().unwrap_or(0.0)
}

/// The runs that were stored, by case.
#[derive(Default)]
pub struct History {
    records: HashMap<Case, Vec<Record>>,
}

impl History {
    /// Reads every run of a history but these. A run that cannot be read is left out.
    pub fn read(history: &history::History, but: &[&str]) -> Self {
        let records = history.runs().iter().filter_map(|run| run.records().ok()).flatten();
        History::of(records.filter(|record| !but.contains(&record.run_id.as_str())))
    }

    /// Of records in any order.
    pub fn of(records: impl Iterator<Item = Record>) -> Self {
        let mut history = History::default();
        let is_measured = |record: &Record| record.latency_p50_ms.is_some_and(|ms| ms > 0.0 && ms.is_finite());
        for record in records.filter(|record| record.status == Status::Ok && is_measured(record)) {
            history.records.entry(record.case()).or_default().push(record);
        }
        for records in history.records.values_mut() {
            records.sort_by(|one, other| (one.timestamp, &one.run_id).cmp(&(other.timestamp, &other.run_id)));
            // A run that is stored twice, as a copy of its folder, is one run.
            records.dedup_by(|one, other| one.run_id == other.run_id);
        }
        history
    }

    /// Logarithms of medians of runs like this one: same case, host, library, boundary and threads; a group for each
    /// build, the oldest run first. A build is a commit without changes, with its compiler and model file: of a tree
    /// with changes, or of none, nobody knows whether the code was equal.
    pub fn groups_like(&self, like: &Record) -> Vec<Vec<f64>> {
        let mut groups: Vec<(Build, Vec<f64>)> = Vec::new();
        for record in self.records.get(&like.case()).into_iter().flatten().filter(|record| is_like(record, like)) {
            let (Some(build), Some(ms)) = (build(record), record.latency_p50_ms) else { continue };
            match groups.iter_mut().find(|(known, _)| *known == build) {
                Some((_, medians)) => medians.push(ms.ln()),
                None => groups.push((build, vec![ms.ln()])),
            }
        }
        groups.into_iter().map(|(_, medians)| medians).collect()
    }
}

/// Whether two records of a case differ by noise only: same host, library, boundary, threads and build. Of a tree with
/// changes, or of none, nobody knows.
pub(crate) fn is_repetition(one: &Record, other: &Record) -> bool {
    is_like(one, other) && is_same_build(one, other)
}

/// Whether two records are known to be of one build: of the same commit without changes, compiler and model file.
pub(super) fn is_same_build(one: &Record, other: &Record) -> bool {
    build(one).is_some_and(|own| build(other) == Some(own))
}

/// Whether two records have the same host, library, boundary and threads.
pub(crate) fn is_like(one: &Record, other: &Record) -> bool {
    one.host_id == other.host_id
        && one.library_version == other.library_version
        && one.backend_version == other.backend_version
        && one.boundary == other.boundary
        && one.threads == other.threads
}

type Build<'a> = (&'a str, &'a str, Option<&'a str>);

fn build(record: &Record) -> Option<Build<'_>> {
    if record.git_dirty != Some(false) {
        return None;
    }
    Some((record.git_commit.as_deref()?, &record.rustc_version, record.artifact_sha256.as_deref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::simulation::{empty_record, normal};

    fn run(index: usize, commit: &str, ms: f64) -> Record {
        Record {
            run_id: format!("run{index:03}"),
            git_commit: Some(commit.into()),
            git_dirty: Some(false),
            latency_p50_ms: Some(ms),
            ..empty_record()
        }
    }

    #[test]
    fn what_differs_between_commits_is_no_noise() {
        let z = normal(1, "z", 60);
        let level = |index: usize| if index < 30 { 1.0 } else { 2.0 };
        let runs = (0..60).map(|index| {
            run(index, if index < 30 { "before" } else { "after" }, level(index) * (0.02 * z[index]).exp())
        });
        let groups = History::of(runs).groups_like(&run(0, "", 1.0));
        assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [30, 30]);
        let noise = Noise::of_groups(&groups, Noise::assumed());
        assert!((noise.deviation - 0.02).abs() < 0.004, "{noise:?}");
        assert_eq!((noise.freedom, noise.source), (Some(58.0), Source::Runs));
        assert!(noise.usual_step > 0.03 && noise.usual_step < 0.09, "{noise:?}");
    }

    #[test]
    fn another_host_or_library_and_a_changed_tree_are_no_history() {
        let like = run(0, "c", 1.0);
        let others = [
            Record { host_id: "other".into(), ..run(1, "c", 1.0) },
            Record { library_version: Some("2".into()), ..run(2, "c", 1.0) },
            Record { git_dirty: Some(true), ..run(3, "c", 1.0) },
            Record { git_dirty: None, git_commit: None, ..run(4, "c", 1.0) },
            Record { threads: Some(7), ..run(5, "c", 1.0) },
            Record { status: Status::WrongOutput, ..run(6, "c", 1.0) },
        ];
        assert_eq!(History::of(others.into_iter()).groups_like(&like), Vec::<Vec<f64>>::new());
        let twice = [run(1, "c", 1.0), run(1, "c", 1.0), run(2, "c", 1.0)];
        assert_eq!(History::of(twice.into_iter()).groups_like(&like), [vec![0.0, 0.0]]);
    }

    #[test]
    fn a_repetition_is_of_the_same_build() {
        let one = run(1, "c", 1.0);
        assert!(is_repetition(&one, &run(2, "c", 2.0)));
        let dirty = Record { git_dirty: Some(true), ..one.clone() };
        let others = [
            run(2, "d", 1.0),
            Record { backend_version: Some("2".into()), ..one.clone() },
            Record { artifact_sha256: Some("ab".into()), ..one.clone() },
            Record { rustc_version: "rustc 2".into(), ..one.clone() },
            dirty.clone(),
        ];
        assert!(others.iter().all(|other| !is_repetition(&one, other)));
        assert!(!is_repetition(&dirty, &dirty));
    }

    #[test]
    fn too_few_runs_can_only_add_to_what_is_assumed() {
        let assumed = Noise::assumed();
        assert_eq!(Noise::of_groups(&[vec![0.0], vec![]], assumed), assumed);
        assert_eq!(Noise::of_groups(&[vec![0.0, 0.001, 0.0]], assumed), assumed);
        let noisy = Noise::of_groups(&[vec![0.0, 0.3, -0.3]], Noise::of_selftest(0.01, 8));
        assert!(noisy.deviation > 0.29 && noisy.source == Source::Selftest && noisy.freedom == Some(7.0));
        assert_eq!(Noise::of_groups(&[vec![0.0; 4]], assumed).source, Source::Runs);
    }
}
