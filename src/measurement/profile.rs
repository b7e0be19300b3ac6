//! Alternates calls of a case with and without a profiler, so that both meet the same conditions.

use std::collections::HashMap;
use std::time::Instant;

use anyhow::Context;
use indexmap::IndexMap;

use super::call_times::nanoseconds;
use super::timed_calls::TimedSession;
use crate::backend::{ProfiledSession, Turn};
use crate::definition::CaseFailure;
use crate::machine::rest;
use crate::run_data::{OperatorCall, OperatorTimes, ProfiledCalls, RecordedCall};
use crate::statistics::{mean, median};

/// The minimum and maximum numbers of profiled calls.
const LEAST_CALLS: usize = 30;
const MOST_CALLS: usize = 200;
/// Seconds after which no further calls are made, once the minimum is reached.
const PATIENCE_SECONDS: f64 = 4.0;
/// The minimum number of calls of a session per turn.
const LEAST_TURN: usize = 8;
/// The minimum number of warm-up calls of the profiled session.
const WARM_UP_CALLS: usize = 5;

/// Makes calls of a warmed-up session and of a profiled session by turns, some calls at a time. `ring` is the number of
/// batches that are bound in each.
///
/// # Errors
/// A call fails, or the runtime's profile is not what is expected.
pub fn profile(
    plain: &mut TimedSession,
    profiled: &mut dyn ProfiledSession,
    ring: usize,
    warm_up_calls: usize,
) -> Result<ProfiledCalls, CaseFailure> {
    let row = profiled.calls_in_a_row().max(1);
    for round in 0..warm_up_calls.max(WARM_UP_CALLS).div_ceil(row) {
        row_of_calls(profiled, round % ring, row)?;
    }
    profiled.begin()?;
    let (mut plain_ns, mut profiled_ns) = (Vec::new(), Vec::new());
    let begin = Instant::now();
    let rows = LEAST_TURN.div_ceil(row);
    for turn in 0.. {
        // After a call, a session's threads spin for a while, and would take processors from the other session.
        rest();
        plain.begin_row();
        plain_ns.extend(plain.call((rows * row) as u64)?);
        rest();
        for round in turn * rows..(turn + 1) * rows {
            profiled_ns.extend(row_of_calls(profiled, round % ring, row)?);
        }
        let made = profiled_ns.len();
        let is_enough = made >= MOST_CALLS || begin.elapsed().as_secs_f64() > PATIENCE_SECONDS;
        if made >= LEAST_CALLS && is_enough {
            break;
        }
    }
    let operators = over_all_calls(&profiled.end()?, &profiled_ns, row)?;
    let at = |position: usize| plain_ns.iter().skip(position).step_by(row).map(|&ns| ns as f64).collect::<Vec<_>>();
    let positions = if row > 1 { 0..row } else { 0..0 };
    let plain_by_position_ns = positions.map(|position| median(&at(position)).unwrap_or_default()).collect();
    Ok(ProfiledCalls { plain_ns, profiled_ns, operators, plain_by_position_ns })
}

/// Makes the calls of a binding that belong together, and returns the nanoseconds of each.
fn row_of_calls(session: &mut dyn ProfiledSession, binding: usize, row: usize) -> Result<Vec<u64>, CaseFailure> {
    let mut turns = (0..row).map(|call| Turn { binding, is_first: call == 0 });
    if let Some(times) = session.run_timed(&mut turns) {
        return times;
    }
    session.rewind(binding);
    let call = |_| {
        let begin = Instant::now();
        session.run(binding)?;
        session.sync()?;
        Ok(nanoseconds(begin.elapsed()))
    };
    (0..row).map(call).collect()
}

/// The operators in the order in which the median call executes them, and then those that it does not execute. Their
/// times are means over the middle third of the calls. `row` is the number of calls that belong together.
fn over_all_calls(recorded: &[RecordedCall], profiled_ns: &[u64], row: usize) -> anyhow::Result<Vec<OperatorTimes>> {
    let calls: usize = recorded.iter().map(|call| call.calls).sum();
    anyhow::ensure!(calls == profiled_ns.len(), "the profile has {calls} calls, and {} were made", profiled_ns.len());
    let all: Vec<usize> = (0..profiled_ns.len()).collect();
    let middle = middle_third(&all, profiled_ns);
    let is_each_recorded = recorded.len() == profiled_ns.len();
    let (middle, scale): (Vec<&RecordedCall>, f64) = match is_each_recorded {
        true => (middle.iter().map(|&call| &recorded[call]).collect(), 1.0),
        // A runtime that only adds calls up reports their mean, which the longest calls raise above a typical call.
        false => {
            let mean_of =
                |calls: &[usize]| mean(&calls.iter().map(|&call| profiled_ns[call] as f64).collect::<Vec<_>>());
            (recorded.iter().collect(), mean_of(&middle) / mean_of(&all))
        }
    };
    let typical = *middle.get(middle.len() / 2).context("no call was profiled")?;
    let is_in_rows = row > 1 && is_each_recorded;
    let by_position: Vec<HashMap<OperatorKey<'_>, f64>> =
        (0..if is_in_rows { row } else { 0 }).map(|position| means_at(recorded, profiled_ns, position, row)).collect();
    let mut durations: IndexMap<OperatorKey<'_>, (&OperatorCall, Vec<f64>)> = IndexMap::new();
    for call in std::iter::once(typical).chain(middle.iter().copied()) {
        let is_typical = durations.is_empty();
        for (key, operator) in keyed(call) {
            let (_, found) = durations.entry(key).or_insert((operator, Vec::new()));
            if !is_typical {
                found.push(operator.duration_ns as f64);
            }
        }
    }
    anyhow::ensure!(!durations.is_empty(), "the profile names no operator");
    let over = |(key, (typical, durations)): (OperatorKey<'_>, (&OperatorCall, Vec<f64>))| OperatorTimes {
        typical: typical.clone(),
        executions: durations.len() as f64 / middle.len() as f64,
        mean_ns: scale * mean(&durations),
        by_position_ns: by_position.iter().map(|means| means.get(&key).copied().unwrap_or_default()).collect(),
    };
    Ok(durations.into_iter().map(over).collect())
}

/// Identifies an execution by node, operator, and how many of the same names ran before it in the call.
type OperatorKey<'a> = (&'a str, &'a str, usize);

fn keyed(call: &RecordedCall) -> impl Iterator<Item = (OperatorKey<'_>, &OperatorCall)> {
    let mut seen: HashMap<(&str, &str), usize> = HashMap::new();
    call.operators.iter().map(move |operator| {
        let place = seen.entry((&operator.node, &operator.operator)).or_default();
        *place += 1;
        ((operator.node.as_str(), operator.operator.as_str(), *place - 1), operator)
    })
}

/// The calls without the shortest third and the longest third, from the shortest to the longest.
fn middle_third(calls: &[usize], ns: &[u64]) -> Vec<usize> {
    let mut by_time = calls.to_vec();
    by_time.sort_by_key(|&call| ns[call]);
    let third = by_time.len() / 3;
    by_time[third..by_time.len() - third].to_vec()
}

/// The mean times of operators over the middle third of the calls at a position of their rows. An operator that a call does not
/// execute takes no time there.
fn means_at<'a>(
    recorded: &'a [RecordedCall],
    profiled_ns: &[u64],
    position: usize,
    row: usize,
) -> HashMap<OperatorKey<'a>, f64> {
    let calls: Vec<usize> = (position..recorded.len()).step_by(row).collect();
    let middle = middle_third(&calls, profiled_ns);
    let mut means: HashMap<OperatorKey<'_>, f64> = HashMap::new();
    for (key, operator) in middle.iter().flat_map(|&call| keyed(&recorded[call])) {
        *means.entry(key).or_default() += operator.duration_ns as f64 / middle.len() as f64;
    }
    means
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(operators: &[(&str, u64)]) -> RecordedCall {
        let operator = |&(operator, duration_ns): &(&str, u64)| OperatorCall {
            operator: operator.into(),
            duration_ns,
            ..OperatorCall::default()
        };
        RecordedCall { calls: 1, operators: operators.iter().map(operator).collect() }
    }

    #[test]
    fn equal_operators_are_told_apart_by_their_place_in_the_call() {
        let recorded = [
            call(&[("a", 1), ("b", 10), ("a", 100)]),
            call(&[("a", 900), ("b", 900), ("a", 900)]),
            call(&[("a", 2), ("b", 20), ("a", 200), ("c", 7)]),
            call(&[("a", 4), ("b", 20), ("a", 200)]),
        ];
        let operators = over_all_calls(&recorded, &[111, 2700, 229, 224], 1).unwrap();
        let found: Vec<_> = operators.iter().map(|it| (it.typical.operator.as_str(), it.mean_ns)).collect();
        assert_eq!(found, [("a", 3.0), ("b", 20.0), ("a", 200.0), ("c", 7.0)], "of the two in the middle");
        assert_eq!(operators[2].typical.duration_ns, 200, "of the median call");
        assert_eq!((operators[0].executions, operators[3].executions), (1.0, 0.5));
    }

    #[test]
    fn calls_that_follow_one_another_have_means_by_their_position() {
        let recorded = [10, 100, 12, 110, 14, 120].map(|ns| call(&[("a", ns), ("a", 1)]));
        let operators = over_all_calls(&recorded, &[10, 100, 12, 110, 14, 120], 2).unwrap();
        assert_eq!(operators[0].by_position_ns, [12.0, 110.0]);
        assert_eq!(operators[1].by_position_ns, [1.0, 1.0]);
    }

    #[test]
    fn a_profile_of_other_calls_is_refused() {
        let error = over_all_calls(&[call(&[("a", 1)])], &[1, 2], 1).unwrap_err().to_string();
        assert_eq!(error, "the profile has 1 calls, and 2 were made");
        assert!(over_all_calls(&[call(&[])], &[1], 1).is_err());
        let summed = |calls: usize| RecordedCall { calls, ..call(&[("a", 50)]) };
        let mean_ns = |times: &[u64]| over_all_calls(&[summed(times.len())], times, 1).unwrap()[0].mean_ns;
        assert_eq!(mean_ns(&[1, 2]), 50.0);
        // The mean call takes 50 ns, and the typical one 20.
        assert_eq!(mean_ns(&[110, 20, 20]), 20.0);
    }
}
