//! Near-copies of one network count as one family, whatever they are called.

use std::collections::{BTreeMap, BTreeSet};

use super::example::{Example, Subject};

/// Near-copies share at least this part of all operators of both.
const SHARED_OPERATORS: f64 = 0.9;
/// The numbers of nodes of near-copies differ at most by this factor.
const MOST_NODES: f64 = 1.1;
/// The operations and bytes per sample of near-copies differ at most by this factor.
const MOST_COST: f64 = 1.5;

/// Gives the families of near-copies one name, the alphabetically first. Otherwise, versions of a user's file would be
/// predicted from each other when errors are measured, and the errors of new models would be larger than these.
pub fn join_near_copies(examples: &mut [Example]) {
    // Each network once: its rows on other runtimes and machines say nothing new.
    let mut networks: Vec<&Subject> = Vec::new();
    for Example { subject, .. } in examples.iter() {
        let is_known = |it: &&&Subject| {
            it.family == subject.family && it.cost == subject.cost && it.operators == subject.operators
        };
        let is_network = !subject.operators.is_empty() && !subject.is_of_operators();
        if is_network && !networks.iter().any(|it| is_known(&it)) {
            networks.push(subject);
        }
    }
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for (place, one) in networks.iter().enumerate() {
        for other in networks[..place].iter().filter(|other| is_near_copy(one, other)) {
            let [own, others] = [one, *other].map(|it| name_of(&names, &it.family));
            if own != others {
                names.insert(own.clone().max(others.clone()), own.min(others));
            }
        }
    }
    for example in examples {
        example.subject.family = name_of(&names, &example.subject.family);
    }
}

/// The name that a family has among those that were joined.
fn name_of(names: &BTreeMap<String, String>, family: &str) -> String {
    let mut name = family;
    while let Some(first) = names.get(name) {
        name = first;
    }
    name.to_owned()
}

fn is_near_copy(one: &Subject, other: &Subject) -> bool {
    let is_within = |one: f64, other: f64, factor: f64| one.max(other) <= factor * one.min(other);
    let per_sample = |it: &Subject, amount: u64| amount as f64 / it.batch_size.max(1) as f64;
    let is_like = |amount: fn(&Subject) -> u64| {
        is_within(per_sample(one, amount(one)), per_sample(other, amount(other)), MOST_COST)
    };
    is_within(one.cost.nodes as f64, other.cost.nodes as f64, MOST_NODES)
        && is_like(|it| it.cost.flops)
        && is_like(|it| it.cost.node_bytes)
        && shared(&one.operators, &other.operators) >= SHARED_OPERATORS
}

/// The share of all operators of both that both have.
fn shared(one: &BTreeSet<String>, other: &BTreeSet<String>) -> f64 {
    one.intersection(other).count() as f64 / one.union(other).count().max(1) as f64
}
