//! Groups the rows of a profile by module and operator.

use indexmap::IndexMap;

use crate::run_data::{CaseProfile, OUTSIDE, ProfileRow};

/// The module and the operator that the rows of a group share, and the row's index if it is a group by itself.
type Key<'a> = (Option<String>, &'a str, Option<usize>);

/// The rows of a case by corrected time, the largest first, and the rest of the call last. With a depth, operators of
/// the same name in the same module are one row. Modules' names are cut to that many parts, and at depth 0 there are
/// only operators.
pub fn grouped(case: &CaseProfile, depth: Option<usize>) -> Vec<ProfileRow> {
    let mut groups: IndexMap<Key<'_>, Vec<&ProfileRow>> = IndexMap::new();
    for (index, row) in case.rows.iter().enumerate() {
        let module = row.module.as_deref().map(|module| match depth {
            Some(depth) => module.split('.').take(depth).collect::<Vec<_>>().join("."),
            None => module.to_owned(),
        });
        let own = depth.is_none().then_some(index);
        groups.entry((module.filter(|module| !module.is_empty()), &row.operator, own)).or_default().push(row);
    }
    let merge =
        |((module, ..), rows): (Key<'_>, Vec<&ProfileRow>)| ProfileRow { module, ..merged(&rows, case.plain_us) };
    let mut rows: Vec<ProfileRow> = groups.into_iter().map(merge).collect();
    let is_outside = |row: &ProfileRow| row.operator == OUTSIDE;
    rows.sort_by(|a, b| is_outside(a).cmp(&is_outside(b)).then(b.corrected_us.total_cmp(&a.corrected_us)));
    rows
}

/// Rows of one operator as one row. It has a share if most of its time is in rows that have one.
fn merged(rows: &[&ProfileRow], plain_us: f64) -> ProfileRow {
    let first = match rows {
        [] => return ProfileRow::default(),
        [only] => return (*only).clone(),
        [first, ..] => first,
    };
    let sum = |value: fn(&ProfileRow) -> f64| rows.iter().map(|row| value(row)).sum::<f64>();
    let time_if = |is_known: fn(&ProfileRow) -> bool| -> f64 {
        rows.iter().filter(|row| is_known(row)).map(|row| row.corrected_us).sum()
    };
    // The mean over the rows with a value, weighted by time, if these rows have most of the time.
    let corrected_us = sum(|row| row.corrected_us);
    let mean = |value: fn(&ProfileRow) -> Option<f64>| {
        let known = || rows.iter().filter_map(|row| Some((value(row)?, row.corrected_us)));
        let time: f64 = known().map(|(_, us)| us).sum();
        (time > 0.0 && 2.0 * time > corrected_us).then(|| known().map(|(value, us)| value * us).sum::<f64>() / time)
    };
    let total =
        |value: fn(&ProfileRow) -> Option<u64>| rows.iter().filter_map(|row| value(row)).reduce(u64::saturating_add);
    let total_us = |value: fn(&ProfileRow) -> Option<f64>| rows.iter().map(|row| value(row)).sum::<Option<f64>>();
    let mut kernels: Vec<&str> = rows.iter().filter_map(|row| row.kernel.as_deref()).collect();
    kernels.sort_unstable();
    kernels.dedup();
    let longest = rows.iter().max_by(|a, b| a.corrected_us.total_cmp(&b.corrected_us));
    ProfileRow {
        kernel: match kernels[..] {
            [] => None,
            [one] => Some(one.to_owned()),
            _ => Some(format!("{} kernels", kernels.len())),
        },
        node: String::new(),
        executions: sum(|row| row.executions),
        raw_us: sum(|row| row.raw_us),
        corrected_us,
        corrected_lower_us: total_us(|row| row.corrected_lower_us),
        corrected_upper_us: total_us(|row| row.corrected_upper_us),
        share: (2.0 * time_if(|row| row.share.is_some()) > corrected_us).then_some(corrected_us / plain_us),
        flops: total(|row| row.flops),
        bytes: total(|row| row.bytes),
        gflops_per_second: mean(|row| row.gflops_per_second),
        roofline_fraction: mean(|row| row.roofline_fraction),
        bound: longest.and_then(|row| row.bound),
        memory_bytes: rows.iter().filter_map(|row| row.memory_bytes).max(),
        busy_fraction: mean(|row| row.busy_fraction),
        ..(*first).clone()
    }
}
