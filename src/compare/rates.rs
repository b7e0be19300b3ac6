//! The highest rates of searches under load, side by side.

use serde::Serialize;

use crate::run_data::LoadResult;

/// A search that two sides have in common.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RateChange {
    pub case_id: String,
    pub instances: usize,
    pub threads: usize,
    pub percentile: f64,
    pub bound_ms: Option<f64>,
    pub ttft_bound_ms: Option<f64>,
    pub tpot_bound_ms: Option<f64>,
    pub base_rate: f64,
    /// Absent if no rate passes any more.
    pub new_rate: Option<f64>,
    /// The new rate in the base's.
    pub ratio: f64,
    /// Whether the lowest rate that fails is below the base's highest rate that passes, by more than the tolerance.
    pub is_lower: bool,
}

/// The searches of `base` whose case, machine, sessions and bounds are also those of a search of `new`. Where a side has one several
/// times, its last counts.
pub fn rate_changes(base: &[LoadResult], new: &[LoadResult], tolerance: f64) -> Vec<RateChange> {
    let change = |(place, before): (usize, &LoadResult)| {
        let is_again = base[place + 1..].iter().any(|row| row.run_id != before.run_id && is_same_search(row, before));
        let last = new.iter().rev().find(|row| is_same_search(row, before)).filter(|_| !is_again)?;
        let mut same = new.iter().filter(|row| row.run_id == last.run_id && is_same_search(row, before));
        let now = same.find(|row| row.is_highest);
        let (base_rate, new_rate) = (before.rate?, now.and_then(|row| row.rate));
        // Without a rate that passes, all fail.
        let failing = now.map_or(Some(0.0), |row| row.lowest_failing_rate);
        Some(RateChange {
            case_id: before.case_id.clone(),
            instances: before.instances,
            threads: before.threads,
            percentile: before.percentile,
            bound_ms: before.bound_ms,
            ttft_bound_ms: before.ttft_bound_ms,
            tpot_bound_ms: before.tpot_bound_ms,
            base_rate,
            new_rate,
            ratio: new_rate.unwrap_or(0.0) / base_rate,
            is_lower: failing.is_some_and(|failing| failing < base_rate * (1.0 - tolerance)),
        })
    };
    base.iter().enumerate().filter(|(_, row)| row.is_highest).filter_map(change).collect()
}

fn is_same_search(one: &LoadResult, other: &LoadResult) -> bool {
    let terms = |row: &LoadResult| {
        let bounds = (row.bound_ms, row.ttft_bound_ms, row.tpot_bound_ms, row.percentile);
        let sessions = (row.instances, row.threads, row.most_batch, row.most_delay_ms);
        (row.case_id.clone(), row.host_id.clone(), row.is_of_search, sessions, bounds, row.lengths.clone())
    };
    terms(one) == terms(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(run_id: &str, highest: Option<f64>) -> Vec<LoadResult> {
        let row = |rate: f64, is_highest: bool| LoadResult {
            run_id: run_id.into(),
            case_id: "m/ort-cpu-f32/1".into(),
            rate: Some(rate),
            bound_ms: Some(20.0),
            is_of_search: true,
            is_highest,
            lowest_failing_rate: is_highest.then_some(1.02 * rate),
            ..LoadResult::default()
        };
        vec![row(highest.unwrap_or(9.0), highest.is_some())]
    }

    #[test]
    fn a_rate_is_lower_if_it_is_so_beyond_the_tolerance() {
        let of = |base, new| rate_changes(&search("1", base), &search("2", new), 0.05);
        let is_lower = |new| of(Some(100.0), new)[0].is_lower;
        assert_eq!([Some(105.0), Some(94.0), Some(92.0), None].map(is_lower), [false, false, true, true]);
        assert_eq!(of(None, Some(1.0)), []);
        let mut other = search("2", Some(50.0));
        other[0].bound_ms = Some(10.0);
        assert_eq!(rate_changes(&search("1", Some(100.0)), &other, 0.05), []);
        // One trial at a rate is no search.
        let single = LoadResult { is_of_search: false, is_highest: false, ..search("2", None).remove(0) };
        assert_eq!(rate_changes(&search("1", Some(100.0)), &[single], 0.05), []);
    }

    #[test]
    fn the_last_search_of_each_side_counts() {
        let base = [search("1", Some(50.0)), search("2", Some(100.0))].concat();
        let new = [search("3", Some(10.0)), search("4", Some(99.0))].concat();
        let found = rate_changes(&base, &new, 0.05);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].base_rate, found[0].new_rate, found[0].is_lower), (100.0, Some(99.0), false));
    }
}
