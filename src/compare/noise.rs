//! How much the same program differs from itself between two runs: the noise of a case on a host.
//!
//! Comparisons rest on it: the process is the unit of replication (Kalibera & Jones 2013, "Rigorous benchmarking in
//! reasonable time"), and one process says nothing about others. So the noise comes from earlier runs of identical code, from the
//! processes of the compared rows if each has several, or from the self-test, or is assumed if there is none of them.
//!
//! Runs with mostly disturbed samples are left out, and a run that is far from the others of its build counts only up
//! to a limit: one bad hour must not hide every change for ever.

use std::collections::{BTreeSet, HashMap};

use indexmap::IndexMap;
use serde::Serialize;

use super::conditions::{Build, build, is_like};
use crate::definition::{Case, Status};
use crate::history::History;
use crate::run_data::Record;
use crate::statistics::{StudentT, mean, median, pooled_variance};

/// The standard deviation between runs that is assumed if nothing is known: shared machines are like that.
pub const ASSUMED_DEVIATION: f64 = 0.05;

/// From so many degrees of freedom on, the runs of a case replace what is known or assumed about the machine; with
/// fewer, they can only increase it. Four runs of one commit have three.
pub const ENOUGH_FREEDOM: f64 = 3.0;

/// Runs with more disturbed samples than this fraction say nothing about the program.
const MOST_DISTURBED: f64 = 0.5;

/// The largest distance from its group's median with which a run counts, in robust standard deviations.
const REACH: f64 = 5.0;
/// That distance is at least this, in logarithms: the other runs of the group may be alike by chance.
const LEAST_REACH: f64 = 0.01;
/// Far runs that occur more often than once in so many runs are no accident.
const RUNS_PER_EPISODE: usize = 20;
/// The standard deviation over the median absolute deviation, for normal figures.
pub(super) const DEVIATION_OVER_MAD: f64 = 1.4826;

/// Where a deviation comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Runs of this case with identical code: earlier ones, and those of the comparison where a side has several.
    Runs,
    /// The processes of each row, in runs of several processes per case.
    Processes,
    /// `inferbench selftest`, of a model of its own.
    Selftest,
    /// [`ASSUMED_DEVIATION`].
    Assumed,
}

/// The standard deviation of the logarithm of a run's median. A small one is about the standard deviation relative to
/// the mean.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Noise {
    pub deviation: f64,
    /// Degrees of freedom that the deviation was estimated with; absent if it is assumed.
    pub freedom: Option<f64>,
    /// Runs, or processes of the rows or of a self-test, that the deviation was estimated from.
    pub runs: usize,
    pub source: Source,
    /// The step from one run of identical code to the next that 95 % of the steps did not exceed, in logarithms.
    pub usual_step: f64,
}

impl Noise {
    /// The noise of a machine about which nothing is known.
    pub fn assumed() -> Self {
        Noise { deviation: ASSUMED_DEVIATION, freedom: None, runs: 0, source: Source::Assumed, usual_step: 0.0 }
    }

    /// The one with the larger deviation; this one if they are equal.
    pub fn or_larger(self, other: Self) -> Self {
        if other.deviation > self.deviation { other } else { self }
    }

    /// The noise that a self-test of so many processes has found.
    pub fn of_selftest(deviation: f64, processes: usize) -> Self {
        let freedom = Some(processes.saturating_sub(1).max(1) as f64);
        Noise { deviation, freedom, runs: processes, source: Source::Selftest, usual_step: 0.0 }
    }

    /// The noise of rows that have an interval between their own processes: the standard error of the median, `s / √n`
    /// for `n` processes with the standard deviation `s`, and for several rows its quadratic mean. Returns `None`
    /// unless every row has such an interval.
    pub fn of_processes<'a>(rows: impl IntoIterator<Item = &'a Record>) -> Option<Self> {
        let rows: Vec<(f64, usize)> = rows.into_iter().map(between_processes).collect::<Option<_>>()?;
        let variance = mean(&rows.iter().map(|(error, _)| error.powi(2)).collect::<Vec<f64>>());
        let runs: usize = rows.iter().map(|(_, processes)| processes).sum();
        let freedom = Some((runs - rows.len()) as f64);
        let noise = Noise { deviation: variance.sqrt(), freedom, runs, source: Source::Processes, usual_step: 0.0 };
        (!rows.is_empty()).then_some(noise)
    }

    /// The noise of a case, from groups of runs of identical code; `otherwise` is what is known without them.
    ///
    /// The variance is pooled over the groups, so that a change between commits is not in it:
    /// `s² = Σ (nᵢ - 1) sᵢ² / Σ (nᵢ - 1)`. With too few runs, the noise is at least `otherwise`. The variance is
    /// robust: a run counts at most `REACH` robust deviations from its group's median (winsorising; Tukey 1962, "The
    /// future of data analysis"), which are taken from the median absolute deviation of all groups.
    pub fn of_groups(groups: &[Vec<f64>], otherwise: Noise) -> Self {
        let groups = winsorised(groups);
        let (variance, freedom) = pooled_variance(&groups);
        if freedom == 0.0 {
            return otherwise;
        }
        let deviation = variance.sqrt();
        if freedom >= ENOUGH_FREEDOM {
            let runs = groups.iter().map(Vec::len).sum();
            let usual_step = usual_step(&groups);
            return Noise { deviation, freedom: Some(freedom), runs, source: Source::Runs, usual_step };
        }
        if deviation > otherwise.deviation {
            return Noise { deviation, freedom: Some(freedom), ..otherwise };
        }
        otherwise
    }
}

/// The standard error of the logarithm of a row's median between its processes, and their number.
fn between_processes(row: &Record) -> Option<(f64, usize)> {
    let (lower, upper) = row.latency_p50_interval_lower_ms.zip(row.latency_p50_interval_upper_ms)?;
    let processes = row.processes.filter(|processes| *processes > 1)?;
    let confidence = row.confidence_level.filter(|level| *level > 0.0 && *level < 1.0)?;
    let error = (upper / lower).ln() / 2.0 / StudentT::new((processes - 1) as f64).two_sided_quantile(confidence);
    (error.is_finite() && error >= 0.0).then_some((error, processes))
}

/// The groups of more than one run. Runs that are too far from their group's median are moved nearer, unless such runs
/// keep coming back.
fn winsorised(groups: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let groups: Vec<(&Vec<f64>, f64)> =
        groups.iter().filter(|group| group.len() > 1).filter_map(|group| Some((group, median(group)?))).collect();
    let distances: Vec<f64> =
        groups.iter().flat_map(|(group, middle)| group.iter().map(move |run| (run - middle).abs())).collect();
    let reach = (REACH * DEVIATION_OVER_MAD * median(&distances).unwrap_or_default()).max(LEAST_REACH);
    let drawn: Vec<Vec<f64>> = groups
        .iter()
        .map(|(group, middle)| group.iter().map(|run| run.clamp(middle - reach, middle + reach)).collect())
        .collect();
    // One bad hour is moved nearer. If it comes back, the machine is like that.
    let is_far = |(group, drawn): (&(&Vec<f64>, f64), &Vec<f64>)| -> Vec<bool> {
        group.0.iter().zip(drawn).map(|(run, drawn)| run != drawn).collect()
    };
    let episodes =
        |is_far: Vec<bool>| usize::from(is_far[0]) + is_far.windows(2).filter(|pair| !pair[0] && pair[1]).count();
    let found: usize = groups.iter().zip(&drawn).map(is_far).map(episodes).sum();
    let runs: usize = drawn.iter().map(Vec::len).sum();
    let is_usual = found > (runs / RUNS_PER_EPISODE).max(1);
    if is_usual { groups.into_iter().map(|(group, _)| group.clone()).collect() } else { drawn }
}

/// The 95 % quantile (nearest rank) of the steps between neighbours; the largest if there are fewer than twenty.
fn usual_step(groups: &[Vec<f64>]) -> f64 {
    let mut steps: Vec<f64> =
        groups.iter().flat_map(|group| group.windows(2)).map(|pair| (pair[1] - pair[0]).abs()).collect();
    steps.sort_by(f64::total_cmp);
    let rank = (0.95 * steps.len() as f64).ceil() as usize;
    steps.get(rank.max(1) - 1).copied().unwrap_or(0.0)
}

/// The valid measurements of earlier runs, by case.
pub struct EarlierRuns(HashMap<Case, Vec<Record>>);

impl EarlierRuns {
    /// Reads every run of a history except these. A run that cannot be read is left out.
    pub fn read(history: &History, but: &BTreeSet<&str>) -> Self {
        let records = history.runs().iter().filter_map(|run| run.records().ok()).flatten();
        EarlierRuns::of(records.filter(|record| !but.contains(record.run_id.as_str())))
    }

    /// The valid measurements among these records, which may be in any order.
    pub fn of(records: impl Iterator<Item = Record>) -> Self {
        let mut by_case: HashMap<Case, Vec<Record>> = HashMap::new();
        let is_measured = |record: &Record| record.latency_p50_ms.is_some_and(|ms| ms > 0.0 && ms.is_finite());
        for record in records.filter(|record| record.status == Status::Ok && is_measured(record)) {
            by_case.entry(record.case()).or_default().push(record);
        }
        for records in by_case.values_mut() {
            records.sort_by_cached_key(|record| (record.timestamp, record.run_id.clone(), record.host_id.clone()));
            // A run that is stored twice, as a copy of its folder, is one run. A merged run has a row of each machine.
            records.dedup_by(|one, other| (&one.run_id, &one.host_id) == (&other.run_id, &other.host_id));
        }
        EarlierRuns(by_case)
    }

    /// Logarithms of the medians of undisturbed runs like this one, with as many processes, since more of them have
    /// less noise. Each known build has a group, with the oldest run first.
    pub fn groups_like(&self, like: &Record) -> Vec<Vec<f64>> {
        let mut groups: IndexMap<Build, Vec<f64>> = IndexMap::new();
        for record in self.like(like).filter(|record| !is_disturbed(record)) {
            let (Some(build), Some(ms)) = (build(record), record.latency_p50_ms) else { continue };
            groups.entry(build).or_default().push(ms.ln());
        }
        groups.into_values().collect()
    }

    /// The number of runs like this one that are left out, since most of their samples were disturbed.
    pub fn disturbed_like(&self, like: &Record) -> usize {
        self.like(like).filter(|record| is_disturbed(record) && build(record).is_some()).count()
    }

    fn like<'a>(&'a self, like: &'a Record) -> impl Iterator<Item = &'a Record> {
        let processes = |record: &Record| record.processes.unwrap_or(1);
        let is_like = move |record: &&Record| is_like(record, like) && processes(record) == processes(like);
        self.0.get(&like.case()).into_iter().flatten().filter(is_like)
    }
}

/// Returns true if other work disturbed most samples of the run.
pub fn is_disturbed(record: &Record) -> bool {
    record.disturbed_share.is_some_and(|share| share > MOST_DISTURBED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tests::simulation::{empty_record, normal};

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
    fn a_merged_run_has_a_row_of_each_machine() {
        let on = |host: &str, index: usize| Record { host_id: host.into(), ..run(index, "c", 1.0) };
        let stored = [on("a", 1), on("b", 1), on("a", 2), on("b", 2), on("a", 2)];
        let earlier = EarlierRuns::of(stored.into_iter());
        let runs = |host: &str| earlier.groups_like(&on(host, 9)).concat().len();
        assert_eq!([runs("a"), runs("b")], [2, 2]);
    }

    #[test]
    fn what_differs_between_commits_is_no_noise() {
        let z = normal(1, "z", 60);
        let level = |index: usize| if index < 30 { 1.0 } else { 2.0 };
        let runs = (0..60).map(|index| {
            run(index, if index < 30 { "before" } else { "after" }, level(index) * (0.02 * z[index]).exp())
        });
        let groups = EarlierRuns::of(runs).groups_like(&run(0, "", 1.0));
        assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [30, 30]);
        let noise = Noise::of_groups(&groups, Noise::assumed());
        assert!((noise.deviation - 0.02).abs() < 0.004, "{noise:?}");
        assert_eq!((noise.freedom, noise.source), (Some(58.0), Source::Runs));
        assert!(noise.usual_step > 0.03 && noise.usual_step < 0.09, "{noise:?}");
    }

    #[test]
    fn runs_that_were_disturbed_throughout_are_left_out() {
        let with = |index: usize, ms, share| Record { disturbed_share: Some(share), ..run(index, "c", ms) };
        let runs = [(1.0, 0.1), (1.01, 0.0), (5.0, 0.9), (0.99, 0.2), (7.0, 1.0), (1.0, 0.5)];
        let runs = runs.into_iter().enumerate().map(|(index, (ms, share))| with(index, ms, share));
        let history = EarlierRuns::of(runs);
        let like = run(0, "c", 1.0);
        assert_eq!((history.groups_like(&like)[0].len(), history.disturbed_like(&like)), (4, 2));
    }

    #[test]
    fn a_machine_of_two_speeds_is_not_taken_for_a_quiet_one() {
        let z = normal(5, "z", 40);
        let two_speeds: Vec<f64> = (0..40).map(|run| 0.01 * z[run] + if run % 4 == 3 { 0.4 } else { 0.0 }).collect();
        let noise = Noise::of_groups(&[two_speeds], Noise::assumed());
        assert!(noise.deviation > 0.15 && noise.usual_step > 0.35, "{noise:?}");
        // Two bad hours of forty are moved nearer.
        let twice: Vec<f64> = (0..40).map(|run| 0.01 * z[run] + if run / 3 % 6 == 5 { 0.4 } else { 0.0 }).collect();
        assert!(Noise::of_groups(&[twice], Noise::assumed()).deviation < 0.05);
    }

    #[test]
    fn one_slow_run_of_ten_does_not_hide_every_change() {
        let z = normal(3, "z", 10);
        let mut group: Vec<f64> = z.iter().map(|z| 0.02 * z).collect();
        let alone = Noise::of_groups(std::slice::from_ref(&group), Noise::assumed());
        group[4] = 5.0_f64.ln();
        let noise = Noise::of_groups(&[group], Noise::assumed());
        assert!(noise.deviation < 4.0 * alone.deviation && noise.usual_step < 0.25, "{noise:?} {alone:?}");
        assert_eq!((noise.runs, noise.source), (10, Source::Runs));
        // Runs that always differ are noise, and remain noise.
        let noisy: Vec<f64> = z.iter().map(|z| 0.5 * z).collect();
        assert!(Noise::of_groups(&[noisy], Noise::assumed()).deviation > 0.3);
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
        assert_eq!(EarlierRuns::of(others.into_iter()).groups_like(&like), Vec::<Vec<f64>>::new());
        let of =
            |index, program: &str| Record { git_commit: None, program: Some(program.into()), ..run(index, "", 1.0) };
        let by_program = EarlierRuns::of([of(1, "a"), of(2, "a"), of(3, "b")].into_iter());
        assert_eq!(by_program.groups_like(&like), [vec![0.0, 0.0], vec![0.0]]);
        let twice = [run(1, "c", 1.0), run(1, "c", 1.0), run(2, "c", 1.0)];
        assert_eq!(EarlierRuns::of(twice.into_iter()).groups_like(&like), [vec![0.0, 0.0]]);
    }

    #[test]
    fn rows_of_several_processes_bring_their_noise_and_have_a_history_of_their_own() {
        // s = 0.02 of 4 processes: t(0.975; 3) = 3.18245.
        let half_width: f64 = 3.182_446 * 0.02 / 2.0;
        let row = |index| Record {
            processes: Some(4),
            latency_p50_interval_lower_ms: Some((-half_width).exp()),
            latency_p50_interval_upper_ms: Some(half_width.exp()),
            confidence_level: Some(0.95),
            ..run(index, "c", 1.0)
        };
        let (one, two) = (row(0), row(1));
        let noise = Noise::of_processes([&one]).unwrap();
        assert!((noise.deviation - 0.01).abs() < 1e-6, "{noise:?}");
        assert_eq!((noise.freedom, noise.runs, noise.source), (Some(3.0), 4, Source::Processes));
        assert_eq!(Noise::of_processes([&one, &two]).unwrap().freedom, Some(6.0));
        assert_eq!(Noise::of_processes([&one, &run(2, "c", 1.0)]), None);
        assert_eq!(Noise::of_processes([]), None);
        let history = EarlierRuns::of((0..7).map(|index| if index < 3 { row(index) } else { run(index, "c", 1.0) }));
        assert_eq!([&one, &run(9, "c", 1.0)].map(|like| history.groups_like(like)[0].len()), [3, 4]);
    }

    #[test]
    fn too_few_runs_can_only_add_to_what_is_assumed() {
        let assumed = Noise::assumed();
        assert_eq!(Noise::of_groups(&[vec![0.0], vec![]], assumed), assumed);
        assert_eq!(Noise::of_groups(&[vec![0.0, 0.001, 0.0]], assumed), assumed);
        let noisy = Noise::of_groups(&[vec![0.0, 0.3, -0.3]], Noise::of_selftest(0.01, 8));
        assert!(noisy.deviation > 0.29 && noisy.source == Source::Selftest && noisy.freedom == Some(2.0));
        assert_eq!(Noise::of_groups(&[vec![0.0; 4]], assumed).source, Source::Runs);
    }

    #[test]
    fn the_larger_noise_counts_and_a_build_with_one_run_says_nothing() {
        let (assumed, quiet, noisy) = (Noise::assumed(), Noise::of_selftest(0.01, 8), Noise::of_selftest(0.1, 8));
        assert_eq!([assumed.or_larger(quiet), assumed.or_larger(noisy)], [assumed, noisy]);
        let group = vec![0.03, -0.03, 0.03, -0.03];
        let alone = Noise::of_groups(std::slice::from_ref(&group), assumed);
        assert_eq!(Noise::of_groups(&[vec![vec![0.0]; 10], vec![group]].concat(), assumed), alone);
        let drawn = winsorised(&[vec![-0.02, -0.01, 0.0, 0.0, 0.01, 0.02, 1.0]]);
        assert!((drawn[0][6] - REACH * DEVIATION_OVER_MAD * 0.01).abs() < 1e-9, "{drawn:?}");
    }
}
