//! The share of an unseen family's rows that are within the interval, if the rows of a family partly miss together. The
//! figures are in the chapter `validation`.

use std::collections::BTreeMap;

use crate::decision::prediction::fitted::{COVERAGE, hierarchical_quantile};
use crate::fixture::seeded::{Fill, values};

#[derive(Clone, Copy)]
struct History {
    families: usize,
    /// The part of the variance of misses that all rows of a family share.
    shared: f64,
    /// Near-copies of the first family, with other names.
    near_copies: usize,
}

const HISTORIES: u64 = 4000;
/// A family has between one and this many rows.
const MOST_ROWS: f64 = 30.0;
/// The miss of a near-copy whose copies are not left out with it.
const MISS_OF_COPIES: f64 = 0.1;

type Quantile = fn(&[(String, f64)]) -> f64;

/// The quantile of the previous method, in which the unseen row, not its family, counts as one more.
fn of_rows(misses: &[(String, f64)]) -> f64 {
    let mut misses: Vec<&(String, f64)> = misses.iter().collect();
    misses.sort_by(|one, other| one.1.total_cmp(&other.1));
    let mut counts: BTreeMap<&str, f64> = BTreeMap::new();
    misses.iter().for_each(|(unit, _)| *counts.entry(unit).or_default() += 1.0);
    let wanted = COVERAGE * counts.len() as f64 * (1.0 + 1.0 / misses.len() as f64);
    let mut held = 0.0;
    let found = misses.iter().find(|(unit, _)| {
        held += 1.0 / counts[unit.as_str()];
        held >= wanted - 1e-9
    });
    found.or(misses.last()).unwrap().1
}

fn of_units(misses: &[(String, f64)]) -> f64 {
    hierarchical_quantile(misses.iter().map(|(unit, miss)| (unit.as_str(), *miss))).unwrap()
}

/// The share of the rows of one more family that are within each quantile, over many histories. If `are_joined`,
/// near-copies have the name of their original, and miss as much as it does when all of them are left out.
fn coverage<const N: usize>(history: History, quantiles: [Quantile; N], are_joined: bool) -> [f64; N] {
    let History { families, shared, near_copies } = history;
    let held = |seed: u64| {
        let normal = |name: &str, count: usize| values(seed, name, Fill::Normal(1.0), 0, count).map(f64::from);
        let of_families: Vec<f64> = normal("families", families + 1).collect();
        let sizes: Vec<f64> = values(seed, "sizes", Fill::Uniform(0.0, 1.0), 0, families + 1).map(f64::from).collect();
        let misses_of = |family: usize| {
            let rows = 1 + (sizes[family] * MOST_ROWS) as usize;
            let (common, own) = (of_families[family], normal(&format!("rows of {family}"), rows));
            own.map(|own| (shared.sqrt() * common + (1.0 - shared).sqrt() * own).abs()).collect::<Vec<f64>>()
        };
        let mut misses: Vec<(String, f64)> = Vec::new();
        let all: Vec<Vec<f64>> = (0..=families).map(misses_of).collect();
        for (family, of_family) in all[..families].iter().enumerate() {
            misses.extend(of_family.iter().map(|miss| (family.to_string(), *miss)));
        }
        for copy in 0..near_copies {
            let (name, factor) =
                if are_joined { ("0".to_owned(), 1.0) } else { (format!("copy {copy}"), MISS_OF_COPIES) };
            misses.extend(all[0].iter().map(|miss| (name.clone(), factor * miss)));
        }
        let asked = &all[families];
        quantiles.map(|quantile| {
            let bound = quantile(&misses);
            asked.iter().filter(|miss| **miss <= bound).count() as f64 / asked.len() as f64
        })
    };
    let mut sums = [0.0; N];
    for held in (0..HISTORIES).map(held) {
        sums.iter_mut().zip(held).for_each(|(sum, held)| *sum += held);
    }
    sums.map(|sum| sum / HISTORIES as f64)
}

#[test]
fn intervals_hold_what_they_promise_where_a_family_misses_as_one() {
    for families in [6, 7, 11, 17, 26] {
        let by_part = [0.0, 0.5, 1.0].map(|shared| {
            let history = History { families, shared, near_copies: 0 };
            coverage(history, [of_rows, of_units], true)
        });
        println!("{families:>2} families: {by_part:.3?}");
        let [independent, half, whole] = by_part;
        // Allow for chance: 4,000 histories have a standard error of at most 0.6 points.
        for [_, now] in [independent, half, whole] {
            assert!(now >= COVERAGE - 0.01, "{families} families: {now}");
        }
        assert!((0.7..0.79).contains(&whole[0]), "{families} families had {} before", whole[0]);
    }
}

#[test]
fn near_copies_do_not_make_intervals_narrow() {
    let history = History { families: 8, shared: 0.5, near_copies: 12 };
    let [[apart], [joined]] = [false, true].map(|are_joined| coverage(history, [of_units], are_joined));
    println!("8 families and 12 near-copies: {apart:.3} apart, {joined:.3} as one family");
    assert!(apart < 0.7 && joined >= COVERAGE - 0.01, "{apart} and {joined}");
}

#[test]
fn few_units_promise_nothing_and_get_twice_the_largest_miss() {
    let of = |units: &[(&'static str, f64)]| hierarchical_quantile(units.iter().copied());
    assert_eq!(of(&[]), None);
    assert_eq!(of(&[("a", 0.1), ("a", 0.3), ("b", 0.2)]), Some(0.6));
    assert_eq!(of(&[("a", 0.1), ("b", 0.4), ("c", 0.2), ("d", 0.3)]), Some(0.4));
}
