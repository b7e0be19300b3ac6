//! Near-copies of one network count as one family, whatever they are called.

use std::collections::{BTreeMap, BTreeSet};

use super::example::{Example, Subject};

/// Two networks are near-copies if so much of the operators of both are of either, if their numbers of nodes differ by no more than this
/// factor, and their operations and bytes per sample by no more than that.
const SHARED_OPERATORS: f64 = 0.9;
const MOST_NODES: f64 = 1.1;
const MOST_COST: f64 = 1.5;

/// Gives the families of near-copies one name: the first of theirs. Versions of a user's file would otherwise be what each of them is
/// predicted from when errors are counted, and errors of new models would be larger.
pub fn join_near_copies(examples: &mut [Example]) {
    // One of each network: its other runtimes, machines and batch sizes say nothing new.
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

/// The part of the operators of both that each has.
fn shared(one: &BTreeSet<String>, other: &BTreeSet<String>) -> f64 {
    one.intersection(other).count() as f64 / one.union(other).count().max(1) as f64
}
