//! Which row is the best for a goal. Times within the noise are equal; then size decides, then the answers.

use super::{Goal, Measure, Row, own_memory};

/// How rows are compared.
#[derive(Clone, Copy)]
pub struct Rules {
    pub goal: Goal,
    pub measure: Measure,
    /// Times that differ by at most this part are equal.
    pub floor: f64,
    /// Times that are better by more than this part are shown to be.
    pub least_gain: f64,
}

/// Sizes and memory that differ by at most this part are equal: nobody decides by less.
const LITTLE: f64 = 0.05;

impl Rules {
    /// The best of the candidates that are shown to be ahead of the baseline, or else of those that are no worse and
    /// smaller, or else the baseline. Ties are broken among those only: what is level with the best need not be ahead.
    pub fn choose<'a>(self, candidates: &[&'a Row], baseline: &'a Row) -> &'a Row {
        let those =
            |is_wanted: &dyn Fn(&Row) -> bool| candidates.iter().copied().filter(|row| is_wanted(row)).collect();
        let ahead = those(&|row| self.is_ahead(self.goal, row, baseline));
        let smaller =
            those(&|row| self.is_no_worse(self.goal, row, baseline) && self.is_ahead(Goal::Size, row, baseline));
        self.best(ahead).or_else(|| self.best(smaller)).unwrap_or(baseline)
    }

    fn best(self, candidates: Vec<&Row>) -> Option<&Row> {
        let level = self.level(self.goal, candidates);
        let small = self.smallest_or_all(level);
        let right = self.most_right(small);
        let latency = |row: &&Row| row.record.latency_p50_ms.unwrap_or(f64::INFINITY);
        right.into_iter().min_by(|one, other| latency(one).total_cmp(&latency(other)))
    }

    fn floor_of(self, goal: Goal) -> f64 {
        if goal.is_time() { self.floor } else { LITTLE }
    }

    pub fn least_gain_of(self, goal: Goal) -> f64 {
        if goal.is_time() { self.least_gain } else { LITTLE }
    }

    /// Whether a row is shown to be better than another. Of times that is not shown where the slower row was as fast as the
    /// median of the faster one at times: processors change their speed in the midst of a measurement.
    pub fn is_ahead(self, goal: Goal, one: &Row, other: &Row) -> bool {
        costs(goal, one, other).is_some_and(|(own, others)| own * (1.0 + self.least_gain_of(goal)) < others)
            && !(goal.is_time() && was_as_fast(other, one))
    }

    /// Whether a row is better than another, or equal.
    pub fn is_no_worse(self, goal: Goal, one: &Row, other: &Row) -> bool {
        costs(goal, one, other).is_some_and(|(own, others)| own <= others * (1.0 + self.floor_of(goal)))
    }

    /// Those whose figure is that of the smallest.
    fn level(self, goal: Goal, rows: Vec<&Row>) -> Vec<&Row> {
        let with_cost = rows.iter().filter_map(|row| Some((*row, cost(goal, row)?)));
        let Some((least, _)) = with_cost.min_by(|(_, one), (_, other)| one.total_cmp(other)) else {
            return Vec::new();
        };
        rows.into_iter().filter(|row| self.is_no_worse(goal, row, least)).collect()
    }

    fn smallest_or_all(self, rows: Vec<&Row>) -> Vec<&Row> {
        let level = self.level(Goal::Size, rows.clone());
        if level.is_empty() { rows } else { level }
    }

    /// Those that answer as well as the best of them, as far as the samples tell.
    fn most_right(self, rows: Vec<&Row>) -> Vec<&Row> {
        let value = |row: &Row| self.measure.value(row);
        let Some(most) = rows.iter().filter_map(|row| value(row)).max_by(f64::total_cmp) else { return rows };
        let is_as_right = |row: &&Row| value(row).is_some_and(|own| most - own <= self.measure.resolution(&row.record));
        rows.into_iter().filter(is_as_right).collect()
    }
}

impl Goal {
    pub fn is_time(self) -> bool {
        matches!(self, Goal::Latency | Goal::Throughput)
    }
}

/// Whether the fastest call of one row was as fast as the other's median.
pub fn was_as_fast(one: &Row, other: &Row) -> bool {
    one.record.latency_min_ms.zip(other.record.latency_p50_ms).is_some_and(|(least, median)| least <= median)
}

fn costs(goal: Goal, one: &Row, other: &Row) -> Option<(f64, f64)> {
    cost(goal, one).zip(cost(goal, other))
}

/// What is to be small for a goal.
pub fn cost(goal: Goal, row: &Row) -> Option<f64> {
    let cost = match goal {
        Goal::Latency => row.record.latency_p50_ms,
        Goal::Throughput => row.rate().map(f64::recip),
        Goal::Size => row.record.model_size_mb,
        Goal::Memory => own_memory(&row.record),
    };
    cost.filter(|cost| cost.is_finite() && *cost > 0.0)
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
    fn what_was_as_fast_at_times_is_not_shown_to_be_slower() {
        let slow_at_times = |least| {
            let original = Record { latency_min_ms: Some(least), ..measured("original", "ort", 10.0, 2.0, SAME) };
            let table = with(vec![original, measured("pruned", "ort", 10.0, 1.0, SAME)], |_| ());
            table.recommendation.case_id.unwrap()
        };
        assert_eq!(slow_at_times(0.9), "m/ort-cpu-f32/1");
        assert_eq!(slow_at_times(1.8), "m-pruned/ort-cpu-f32/1");
    }

    #[test]
    fn what_is_slower_is_not_level_because_one_call_was_fast() {
        let int8 = Record { latency_min_ms: Some(1.95), ..measured("int8", "ort", 3.0, 3.0, SAME) };
        assert_eq!(chosen(Goal::Latency, vec![int8]), "m/ort-cpu-f32/1");
        // Nor in a tie.
        let lucky = Record { latency_min_ms: Some(0.9), ..measured("lucky", "ort", 3.0, 1.5, SAME) };
        let others = vec![measured("fast", "ort", 10.0, 1.0, SAME), lucky];
        assert_eq!(chosen(Goal::Latency, others), "m-fast/ort-cpu-f32/1");
    }

    #[test]
    fn what_is_level_with_the_best_does_not_win_unless_it_is_ahead_itself() {
        let others = || {
            vec![
                measured("original", "ort", 10.0, 1.25, SAME),
                measured("distilled", "ort", 10.0, 1.0, (-0.7, -0.9, -0.5)),
                measured("pruned", "ort", 10.0, 1.14, SAME),
            ]
        };
        let table = with(others(), |options| options.deviation = 0.05);
        assert!((table.floor - 0.149).abs() < 1e-3 && table.least_gain < 0.25, "{} {}", table.floor, table.least_gain);
        assert_eq!(table.recommendation.case_id.as_deref(), Some("m-distilled/ort-cpu-f32/1"));
    }

    #[test]
    fn what_the_best_of_many_needs_does_not_make_a_slower_row_equal() {
        // Of 21 rows of equal code the fastest may be 8.1 % faster by chance, and two of them differ by 5 %.
        let others = |ms| -> Vec<Record> {
            let slow = (0..19).map(|index| measured(&format!("slow{index}"), "ort", 10.0, 9.0, SAME));
            slow.chain([measured("int8", "ort", 3.0, ms, SAME)]).collect()
        };
        assert_eq!(chosen(Goal::Latency, others(2.12)), "m/ort-cpu-f32/1");
        assert_eq!(chosen(Goal::Latency, others(2.08)), "m-int8/ort-cpu-f32/1");
        let larger = |ms| others(ms).into_iter().map(|record| Record { model_size_mb: Some(10.0), ..record }).collect();
        assert_eq!(chosen(Goal::Latency, larger(2.0 / 1.07)), "m/ort-cpu-f32/1");
        assert_eq!(chosen(Goal::Latency, larger(2.0 / 1.09)), "m-int8/ort-cpu-f32/1");
    }

    #[test]
    fn memory_of_a_process_that_others_have_used_is_no_cost() {
        let of_kind = |kind: &str, memory, record: Record| Record {
            memory_kind: Some(kind.into()),
            memory_mb: Some(memory),
            ..record
        };
        let (own, shared) = ("own-process-peak-rss", "shared-process-peak-rss");
        let original = || measured("original", "ort", 10.0, 2.0, SAME);
        let int8 = || measured("int8", "ort", 10.0, 2.0, SAME);
        let chosen = |records| {
            let table = with(records, |options| options.goal = Goal::Memory);
            table.recommendation.case_id
        };
        let found = chosen(vec![of_kind(own, 100.0, original()), of_kind(own, 50.0, int8())]);
        assert_eq!(found.as_deref(), Some("m-int8/ort-cpu-f32/1"));
        let found = chosen(vec![of_kind(own, 100.0, original()), of_kind(shared, 50.0, int8())]);
        assert_eq!(found.as_deref(), Some("m/ort-cpu-f32/1"));
        assert_eq!(chosen(vec![of_kind(shared, 100.0, original()), of_kind(shared, 50.0, int8())]), None);
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
