//! Calls of a case with and without a profiler, by turns, so that both meet the same machine.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use indexmap::IndexMap;

use super::call_times::nanoseconds;
use super::timed_calls::TimedSession;
use crate::backend::ProfiledSession;
use crate::definition::CaseFailure;
use crate::run_data::{OperatorCall, OperatorTimes, ProfiledCalls, RecordedCall};
use crate::statistics::mean;

/// Profiled calls that there are at least and at most.
const LEAST_CALLS: usize = 30;
const MOST_CALLS: usize = 200;
/// Seconds after which no further calls are made, if there are the least.
const PATIENCE_SECONDS: f64 = 4.0;
/// Calls of a session before it is the other's turn.
const LEAST_TURN: usize = 8;
/// The threads of a session look for work for a while after a call, and would take processors from the other session.
const PAUSE: Duration = Duration::from_millis(30);
/// Calls that come before, for the profiled session's own warm-up.
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
        thread::sleep(PAUSE);
        plain_ns.extend(plain.call((rows * row) as u64)?);
        thread::sleep(PAUSE);
        for round in turn * rows..(turn + 1) * rows {
            profiled_ns.extend(row_of_calls(profiled, round % ring, row)?);
        }
        let made = profiled_ns.len();
        let is_enough = made >= MOST_CALLS || begin.elapsed().as_secs_f64() > PATIENCE_SECONDS;
        if made >= LEAST_CALLS && is_enough {
            break;
        }
    }
    let operators = over_all_calls(&profiled.end()?, &profiled_ns)?;
    Ok(ProfiledCalls { plain_ns, profiled_ns, operators })
}

/// The calls of a binding that belong together, in nanoseconds each.
fn row_of_calls(session: &mut dyn ProfiledSession, binding: usize, row: usize) -> Result<Vec<u64>, CaseFailure> {
    session.rewind(binding);
    let call = |_| {
        let begin = Instant::now();
        session.run(binding)?;
        session.sync()?;
        Ok(nanoseconds(begin.elapsed()))
    };
    (0..row).map(call).collect()
}

/// The operators in the order in which the median call executes them, and then those that it does not execute. Their times are
/// means over the middle third of the calls.
fn over_all_calls(recorded: &[RecordedCall], profiled_ns: &[u64]) -> anyhow::Result<Vec<OperatorTimes>> {
    let calls: usize = recorded.iter().map(|call| call.calls).sum();
    anyhow::ensure!(calls == profiled_ns.len(), "the profile has {calls} calls, and {} were made", profiled_ns.len());
    let mut by_time: Vec<usize> = (0..profiled_ns.len()).collect();
    by_time.sort_by_key(|&call| profiled_ns[call]);
    let middle = &by_time[by_time.len() / 3..by_time.len() - by_time.len() / 3];
    let is_each_recorded = recorded.len() == profiled_ns.len();
    let (middle, scale): (Vec<&RecordedCall>, f64) = match is_each_recorded {
        true => (middle.iter().map(|&call| &recorded[call]).collect(), 1.0),
        // A runtime that adds calls up tells their mean, which the longest calls make longer than a typical call.
        false => {
            let mean_of =
                |calls: &[usize]| mean(&calls.iter().map(|&call| profiled_ns[call] as f64).collect::<Vec<_>>());
            (recorded.iter().collect(), mean_of(middle) / mean_of(&by_time))
        }
    };
    let typical = *middle.get(middle.len() / 2).context("no call was profiled")?;
    // An operator is known by its name and by how many of the same name ran before it in the call.
    let mut durations: IndexMap<(&str, &str, usize), (&OperatorCall, Vec<f64>)> = IndexMap::new();
    for call in std::iter::once(typical).chain(middle.iter().copied()) {
        let is_typical = durations.is_empty();
        let mut seen: IndexMap<(&str, &str), usize> = IndexMap::new();
        for operator in &call.operators {
            let place = seen.entry((&operator.node, &operator.operator)).or_default();
            let key = (operator.node.as_str(), operator.operator.as_str(), *place);
            *place += 1;
            let (_, found) = durations.entry(key).or_insert((operator, Vec::new()));
            if !is_typical {
                found.push(operator.duration_ns as f64);
            }
        }
    }
    anyhow::ensure!(!durations.is_empty(), "the profile names no operator");
    let over = |(typical, durations): (&OperatorCall, Vec<f64>)| OperatorTimes {
        typical: typical.clone(),
        executions: durations.len() as f64 / middle.len() as f64,
        mean_ns: scale * mean(&durations),
    };
    Ok(durations.into_values().map(over).collect())
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
        let operators = over_all_calls(&recorded, &[111, 2700, 229, 224]).unwrap();
        let found: Vec<_> = operators.iter().map(|it| (it.typical.operator.as_str(), it.mean_ns)).collect();
        assert_eq!(found, [("a", 3.0), ("b", 20.0), ("a", 200.0), ("c", 7.0)], "of the two in the middle");
        assert_eq!(operators[2].typical.duration_ns, 200, "of the median call");
        assert_eq!((operators[0].executions, operators[3].executions), (1.0, 0.5));
    }

    #[test]
    fn a_profile_of_other_calls_is_refused() {
        let error = over_all_calls(&[call(&[("a", 1)])], &[1, 2]).unwrap_err().to_string();
        assert_eq!(error, "the profile has 1 calls, and 2 were made");
        assert!(over_all_calls(&[call(&[])], &[1]).is_err());
        let summed = |calls: usize| RecordedCall { calls, ..call(&[("a", 50)]) };
        let mean_ns = |times: &[u64]| over_all_calls(&[summed(times.len())], times).unwrap()[0].mean_ns;
        assert_eq!(mean_ns(&[1, 2]), 50.0);
        // The mean call takes 50 ns, and the typical one 20.
        assert_eq!(mean_ns(&[110, 20, 20]), 20.0);
    }
}
