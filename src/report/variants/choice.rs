//! Which row is the best for a goal. Times within the noise are equal; then size decides, then the answers.

use super::{Goal, Measure, Row};

/// How rows are compared.
#[derive(Clone, Copy)]
pub struct Rules {
    pub goal: Goal,
    pub measure: Measure,
    /// Times that differ by at most this part are equal.
    pub floor: f64,
}

/// Sizes and memory that differ by at most this part are equal: nobody decides by less.
const LITTLE: f64 = 0.05;

impl Rules {
    /// The best candidate, or the baseline where nothing is better than it: ahead in the goal, or level and smaller.
    /// `None` where no candidate has a figure for the goal.
    pub fn choose<'a>(self, candidates: &[&'a Row], baseline: &'a Row) -> Option<&'a Row> {
        let best = self.best(candidates)?;
        let is_ahead = !self.is_level(self.goal, best, baseline);
        let is_smaller = match (size(best), size(baseline)) {
            (Some(own), Some(other)) => own < other && !self.is_level(Goal::Size, best, baseline),
            _ => false,
        };
        Some(if is_ahead || is_smaller { best } else { baseline })
    }

    fn best<'a>(self, candidates: &[&'a Row]) -> Option<&'a Row> {
        let level = self.level(self.goal, candidates.to_vec());
        let small = self.smallest_or_all(level);
        let right = self.most_right(small);
        let latency = |row: &&Row| row.record.latency_p50_ms.unwrap_or(f64::INFINITY);
        right.into_iter().min_by(|one, other| latency(one).total_cmp(&latency(other)))
    }

    /// By how much figures have to differ.
    pub fn floor_of(self, goal: Goal) -> f64 {
        match goal {
            Goal::Latency | Goal::Throughput => self.floor,
            Goal::Size | Goal::Memory => LITTLE,
        }
    }

    /// Whether two rows differ by no more than the floor. Times are level, too, where the slower row has been as fast as the
    /// median of the other at times: processors change their speed in the midst of a measurement.
    pub fn is_level(self, goal: Goal, one: &Row, other: &Row) -> bool {
        let Some((own, others)) = cost(goal, one).zip(cost(goal, other)) else { return false };
        let (slower, faster) = if own > others { (one, other) } else { (other, one) };
        let was_as_fast = match (slower.record.latency_min_ms, faster.record.latency_p50_ms) {
            (Some(least), Some(median)) => matches!(goal, Goal::Latency | Goal::Throughput) && least <= median,
            _ => false,
        };
        was_as_fast || own.max(others) <= own.min(others) * (1.0 + self.floor_of(goal))
    }

    /// Those whose figure is that of the smallest.
    fn level(self, goal: Goal, rows: Vec<&Row>) -> Vec<&Row> {
        let figure = |row: &Row| cost(goal, row).unwrap_or(f64::INFINITY);
        let with_figure = rows.iter().filter(|row| cost(goal, row).is_some());
        let Some(&least) = with_figure.min_by(|one, other| figure(one).total_cmp(&figure(other))) else {
            return Vec::new();
        };
        rows.into_iter().filter(|row| self.is_level(goal, row, least)).collect()
    }

    fn smallest_or_all(self, rows: Vec<&Row>) -> Vec<&Row> {
        let level = self.level(Goal::Size, rows.clone());
        if level.is_empty() { rows } else { level }
    }

    /// Those that answer as well as the best of them, as far as the samples tell.
    fn most_right(self, rows: Vec<&Row>) -> Vec<&Row> {
        let value = |row: &Row| self.measure.value(&row.record);
        let Some(most) = rows.iter().filter_map(|row| value(row)).max_by(f64::total_cmp) else { return rows };
        let is_as_right = |row: &&Row| value(row).is_some_and(|own| most - own <= self.measure.resolution(&row.record));
        rows.into_iter().filter(is_as_right).collect()
    }
}

/// What is to be small for a goal.
pub fn cost(goal: Goal, row: &Row) -> Option<f64> {
    let cost = match goal {
        Goal::Latency => row.record.latency_p50_ms,
        Goal::Throughput => row.rate().map(f64::recip),
        Goal::Size => row.record.model_size_mb,
        Goal::Memory => row.record.memory_mb,
    };
    cost.filter(|cost| cost.is_finite() && *cost > 0.0)
}

fn size(row: &Row) -> Option<f64> {
    cost(Goal::Size, row)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{SAME, measured, with};
    use super::*;
    use crate::record::Record;

    /// What is recommended beside an original of 10 MB and 2 ms on ort.
    fn chosen(goal: Goal, others: Vec<Record>) -> String {
        let mut records = vec![measured("original", "ort", 10.0, 2.0, SAME)];
        records.extend(others);
        with(records, |options| options.goal = goal).recommendation.case_id.unwrap()
    }

    #[test]
    fn each_goal_has_its_best() {
        let memory = |memory, record: Record| Record { memory_mb: Some(memory), ..record };
        let rate = |rate, record: Record| Record { throughput_ips: Some(rate), ..record };
        let others = || {
            vec![
                memory(90.0, rate(800.0, measured("fast", "ort", 8.0, 1.0, SAME))),
                memory(90.0, rate(900.0, measured("parallel", "ort", 8.0, 1.5, SAME))),
                memory(90.0, rate(500.0, measured("small", "ort", 2.0, 1.8, SAME))),
                memory(30.0, rate(500.0, measured("lean", "ort", 8.0, 1.8, SAME))),
            ]
        };
        assert_eq!(chosen(Goal::Latency, others()), "m-fast/ort-cpu-f32/1");
        assert_eq!(chosen(Goal::Throughput, others()), "m-parallel/ort-cpu-f32/1");
        assert_eq!(chosen(Goal::Size, others()), "m-small/ort-cpu-f32/1");
        assert_eq!(chosen(Goal::Memory, others()), "m-lean/ort-cpu-f32/1");
    }

    #[test]
    fn a_tie_is_decided_by_size_and_then_by_the_answers() {
        let by_size = vec![measured("large", "ort", 8.0, 1.0, SAME), measured("small", "ort", 2.0, 1.04, SAME)];
        assert_eq!(chosen(Goal::Latency, by_size), "m-small/ort-cpu-f32/1");
        let not_level = vec![measured("large", "ort", 8.0, 1.0, SAME), measured("small", "ort", 2.0, 1.06, SAME)];
        assert_eq!(chosen(Goal::Latency, not_level), "m-large/ort-cpu-f32/1");
        let better = (0.6, 0.0, 1.2);
        let by_answers = vec![measured("one", "ort", 2.0, 1.0, SAME), measured("two", "ort", 2.01, 1.03, better)];
        assert_eq!(chosen(Goal::Latency, by_answers), "m-two/ort-cpu-f32/1");
        // One answer more of 450 says nothing.
        let one_more = (0.22, -0.3, 0.7);
        let level = vec![measured("one", "ort", 2.0, 1.0, SAME), measured("two", "ort", 2.01, 1.03, one_more)];
        assert_eq!(chosen(Goal::Latency, level), "m-one/ort-cpu-f32/1");
    }

    #[test]
    fn what_was_as_fast_at_times_is_level() {
        let slow_at_times = |least| {
            let original = Record { latency_min_ms: Some(least), ..measured("original", "ort", 10.0, 2.0, SAME) };
            let table = with(vec![original, measured("pruned", "ort", 10.0, 1.0, SAME)], |_| ());
            table.recommendation.case_id.unwrap()
        };
        assert_eq!(slow_at_times(0.9), "m/ort-cpu-f32/1");
        assert_eq!(slow_at_times(1.8), "m-pruned/ort-cpu-f32/1");
    }

    #[test]
    fn the_baseline_stays_unless_something_is_ahead_or_level_and_smaller() {
        let other = |size, ms| vec![measured("int8", "ort", size, ms, SAME)];
        assert_eq!(chosen(Goal::Latency, other(10.0, 1.95)), "m/ort-cpu-f32/1");
        assert_eq!(chosen(Goal::Latency, other(9.8, 1.95)), "m/ort-cpu-f32/1");
        assert_eq!(chosen(Goal::Latency, other(20.0, 1.5)), "m-int8/ort-cpu-f32/1");
        assert_eq!(chosen(Goal::Latency, other(5.0, 2.05)), "m-int8/ort-cpu-f32/1");
        assert_eq!(chosen(Goal::Latency, other(5.0, 2.2)), "m/ort-cpu-f32/1");
    }

    #[test]
    fn an_original_on_another_backend_may_win() {
        let lean = Record { memory_mb: Some(40.0), ..measured("original", "candle", 10.0, 6.0, SAME) };
        let others = vec![lean, measured("int8", "ort", 5.0, 2.5, SAME)];
        assert_eq!(chosen(Goal::Memory, others), "m/candle-cpu-f32/1");
    }
}
