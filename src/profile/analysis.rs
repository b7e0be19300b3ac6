//! Turns profiled calls into a profile: operators by module, without the profiler's own cost.
//!
//! A profiler makes calls longer, and nobody knows which part of that is in the operators' times and which is between
//! them. So there are bounds ([`Overhead`]). If the operators add up to more than a plain call, at least the difference
//! is in their times. At most, all that a profiled call takes longer is. The least is subtracted from each execution.
//! The operators then add up to a plain call by construction, which proves nothing. The time outside operators has
//! bounds too, and no share if they are far apart.

use std::collections::{HashMap, HashSet};

use super::modules::{Modules, ROOT, common, is_product};
use super::positions::by_position;
use crate::definition::{Case, Cost, Model};
use crate::run_data::{Bound, CaseProfile, OUTSIDE, OperatorCall, OperatorTimes, Peaks, ProfileRow, ProfiledCalls};
use crate::statistics::median;

/// An operator has no share of the call if it takes less than this many times the profiler's cost.
const LEAST_COSTS: f64 = 2.0;

/// The time outside operators is known if its bounds are no further apart than this part of a call.
const NEAR_BOUNDS: f64 = 0.05;

/// The profile of a case. `peaks` are those of the machine on the case's threads.
pub fn analyse(run_id: &str, case: &Case, model: &Model, calls: &ProfiledCalls, peaks: Option<&Peaks>) -> CaseProfile {
    // Without a graph there are the modules that the runtime knows.
    let modules = Modules::read(model, case.phase, case.sizes()).unwrap_or_default();
    let profile = with_modules(run_id, case, &modules, calls, peaks);
    let cached = model.prompt_positions(case.sequence_length).unwrap_or_default();
    let positions = by_position(calls, &profile.rows, cached, profile.cost_per_operator_us);
    CaseProfile { model: model.artifact_folder_name(), positions, ..profile }
}

fn with_modules(
    run_id: &str,
    case: &Case,
    modules: &Modules,
    calls: &ProfiledCalls,
    peaks: Option<&Peaks>,
) -> CaseProfile {
    let of = |times: &[u64]| {
        let times: Vec<f64> = times.iter().map(|&ns| ns as f64 / 1e3).collect();
        median(&times).unwrap_or_default()
    };
    let (plain_us, profiled_us) = (of(&calls.plain_ns), of(&calls.profiled_ns));
    let overhead = Overhead::new(plain_us, profiled_us, &calls.operators);
    let cost_us = overhead.least_us;
    let nodes = nodes_of(&calls.operators, modules);
    let costs = costs_of(&calls.operators, &nodes, modules);
    let named = ProfileRow { run_id: run_id.to_owned(), case_id: case.to_string(), ..ProfileRow::default() };
    let mut rows = Vec::with_capacity(calls.operators.len() + 1);
    let corrected = |operator: &OperatorTimes| (raw_us(operator) - cost_us * operator.executions).max(0.0);
    let corrected: Vec<f64> = calls.operators.iter().map(corrected).collect();
    for (place, (operator, cost)) in calls.operators.iter().zip(costs).enumerate() {
        let OperatorTimes { typical, executions, .. } = operator;
        let (raw_us, corrected_us, node) = (raw_us(operator), corrected[place], nodes[place]);
        let is_above_cost = raw_us >= LEAST_COSTS * cost_us * executions;
        let (lower, upper) = overhead.bounds(raw_us, *executions);
        let module = typical.module.clone().or_else(|| modules.nodes[node?].module.clone());
        let row = ProfileRow {
            module,
            operator: typical.operator.clone(),
            kernel: typical.kernel.clone(),
            node: typical.node.clone(),
            executions: *executions,
            raw_us,
            corrected_us,
            corrected_lower_us: Some(lower),
            corrected_upper_us: Some(upper),
            share: (is_above_cost && plain_us > 0.0).then(|| corrected_us / plain_us),
            start_us: typical.start_ns.map(|ns| ns as f64 / 1e3),
            thread: typical.thread,
            memory_bytes: typical.memory_bytes,
            busy_fraction: typical.busy_fraction,
            ..named.clone()
        };
        // The runtime's own figures count first: a fusion moves fewer bytes than its nodes would one by one.
        let own_cost = typical.flops.zip(typical.bytes).map(|(flops, bytes)| Cost { flops, bytes, ..Cost::default() });
        // Several operators may compute one node: its cost is for all of them together.
        let of_node = || nodes.iter().zip(&corrected).filter(|(other, _)| **other == node).map(|(_, us)| us).sum();
        let node_us = if own_cost.is_none() && node.is_some() { of_node() } else { corrected_us };
        rows.push(with_roofline(row, own_cost.or(cost), node_us, peaks));
    }
    take_modules_of_neighbours(&mut rows);
    let outside_us = (plain_us - rows.iter().map(|row| row.corrected_us).sum::<f64>()).max(0.0);
    let (lower, upper) = overhead.outside();
    let is_known = plain_us > 0.0 && upper - lower <= NEAR_BOUNDS * plain_us;
    rows.push(ProfileRow {
        operator: OUTSIDE.into(),
        executions: 1.0,
        raw_us: outside_us,
        corrected_us: outside_us,
        corrected_lower_us: Some(lower),
        corrected_upper_us: Some(upper),
        share: is_known.then(|| outside_us / plain_us),
        ..named
    });
    CaseProfile {
        case_id: case.to_string(),
        model: case.model.clone(),
        backend: case.backend.clone(),
        calls: calls.profiled_ns.len(),
        plain_us,
        profiled_us,
        cost_per_operator_us: cost_us,
        cost_per_operator_upper_us: overhead.most_us,
        has_timeline: calls.operators.iter().any(|operator| operator.typical.start_ns.is_some()),
        rows,
        ..CaseProfile::default()
    }
}

/// The nodes that operators compute. Operators come in the order of a call, whose parts run one after the other: a name
/// that comes again belongs to the next part if its node is far before the furthest node so far. Several operators in a
/// row may compute one node.
fn nodes_of(operators: &[OperatorTimes], modules: &Modules) -> Vec<Option<usize>> {
    let (mut from, mut furthest, mut seen) = (0, 0_usize, HashSet::new());
    let mut nodes = Vec::with_capacity(operators.len());
    for OperatorTimes { typical, .. } in operators {
        let OperatorCall { node: name, operator: kind, .. } = typical;
        let has_name = |next: &usize| modules.find(name, kind, *next).is_some_and(|place| place >= *next);
        let goes_back = || {
            let place = modules.find(name, kind, from);
            place.is_some_and(|place| 2 * place.saturating_sub(from) < furthest.saturating_sub(from))
        };
        let is_repeated = seen.contains(&(name, kind)) && goes_back();
        if let Some(next) = modules.next_part(from).filter(|next| is_repeated && has_name(next)) {
            (from, furthest, seen) = (next, next, HashSet::new());
        }
        let found = node_of(typical, modules, from);
        if let Some(begin) = found.map(|place| modules.part_of(place)).filter(|begin| *begin > from) {
            (from, furthest, seen) = (begin, begin, HashSet::new());
        }
        if let Some(place) = found {
            furthest = furthest.max(place);
            seen.insert((name, kind));
        }
        nodes.push(found);
    }
    nodes
}

/// The node that an operator computes: by its name, or else the product of the module that the runtime says.
fn node_of(operator: &OperatorCall, modules: &Modules, from: usize) -> Option<usize> {
    let of_module = || modules.product_of(operator.module.as_deref().filter(|_| is_product(&operator.operator))?);
    modules.find(&operator.node, &operator.operator, from).or_else(of_module)
}

fn raw_us(operator: &OperatorTimes) -> f64 {
    operator.mean_ns * operator.executions / 1e3
}

/// What the profiler adds to calls, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Overhead {
    plain_us: f64,
    profiled_us: f64,
    /// The raw times of all operators.
    sum_us: f64,
    /// The least and the most that the profiler adds to an execution of an operator.
    least_us: f64,
    most_us: f64,
}

impl Overhead {
    fn new(plain_us: f64, profiled_us: f64, operators: &[OperatorTimes]) -> Self {
        let executions: f64 = operators.iter().map(|operator| operator.executions).sum();
        let sum_us: f64 = operators.iter().map(raw_us).sum();
        let longer_us = (profiled_us - plain_us).max(0.0);
        let least_us = cost_that_leaves(sum_us - (sum_us - plain_us).clamp(0.0, longer_us), operators);
        let most_us = (longer_us / executions.max(1.0)).max(least_us);
        Overhead { plain_us, profiled_us, sum_us, least_us, most_us }
    }

    /// The bounds of an operator's time in a plain call. The profiler may add the same to each execution, or more to
    /// longer ones: where threads come to rest or data leave the caches, long operators are slowed down more.
    fn bounds(&self, raw_us: f64, executions: f64) -> (f64, f64) {
        let less = |cost_us: f64| (raw_us - cost_us * executions).max(0.0);
        let part = |whole_us: f64| if whole_us > self.plain_us { raw_us * self.plain_us / whole_us } else { raw_us };
        let lower = less(self.most_us).min(part(self.profiled_us));
        (lower, less(self.least_us).max(part(self.sum_us)).max(lower))
    }

    /// The bounds of the time that a plain call spends outside its operators.
    fn outside(&self) -> (f64, f64) {
        let lower = (self.plain_us - self.sum_us).max(0.0);
        (lower, (self.profiled_us - self.sum_us).clamp(lower, self.plain_us.max(lower)))
    }
}

/// The cost of one execution that has to be subtracted so that the operators together take `left_us`. An operator with
/// a shorter execution is left with nothing. The cost is 0 if they take no more than `left_us`.
fn cost_that_leaves(left_us: f64, operators: &[OperatorTimes]) -> f64 {
    let each_us = |operator: &OperatorTimes| raw_us(operator) / operator.executions;
    let mut longest_first: Vec<&OperatorTimes> = operators.iter().filter(|it| it.executions > 0.0).collect();
    longest_first.sort_by(|one, other| each_us(other).total_cmp(&each_us(one)));
    let (mut sum_us, mut executions, mut cost_us) = (0.0, 0.0, 0.0_f64);
    for operator in longest_first {
        if each_us(operator) <= cost_us {
            break;
        }
        (sum_us, executions) = (sum_us + raw_us(operator), executions + operator.executions);
        cost_us = ((sum_us - left_us) / executions).max(0.0);
    }
    cost_us
}

/// The cost of the node that each operator computes. If several operators compute one node, the product has it, or else
/// the longest.
fn costs_of(operators: &[OperatorTimes], nodes: &[Option<usize>], modules: &Modules) -> Vec<Option<Cost>> {
    let rank = |place: usize| (is_product(&operators[place].typical.operator), operators[place].mean_ns);
    let mut main: HashMap<usize, usize> = HashMap::new();
    for (place, node) in nodes.iter().enumerate().filter_map(|(place, node)| Some((place, (*node)?))) {
        let known = main.entry(node).or_insert(place);
        if rank(*known) < rank(place) {
            *known = place;
        }
    }
    let cost = |(place, node): (usize, &Option<usize>)| {
        let node = (*node).filter(|node| main.get(node) == Some(&place))?;
        modules.nodes[node].cost
    };
    nodes.iter().enumerate().map(cost).collect()
}

/// Adds the cost of the node, which took `node_us`, and what part of the machine's peaks it reached.
fn with_roofline(row: ProfileRow, cost: Option<Cost>, node_us: f64, peaks: Option<&Peaks>) -> ProfileRow {
    let Some(cost) = cost else { return row };
    let row = ProfileRow { flops: Some(cost.flops), bytes: Some(cost.bytes), ..row };
    if row.share.is_none() || node_us <= 0.0 {
        return row;
    }
    // The time is per call, and the cost is per execution, which not every call has.
    let per_second = |count: u64| count as f64 * row.executions / node_us / 1e3;
    let (gflops, gigabytes) = (per_second(cost.flops), per_second(cost.bytes));
    let intensity = cost.intensity();
    let is_compute = |peaks: &Peaks| {
        intensity.is_some_and(|intensity| intensity * peaks.copy_gb_per_second >= peaks.product_gflops_per_second)
    };
    let fraction = |peaks: &Peaks| match is_compute(peaks) {
        true => gflops / peaks.product_gflops_per_second,
        false => gigabytes / peaks.copy_gb_per_second,
    };
    ProfileRow {
        gflops_per_second: (cost.flops > 0).then_some(gflops),
        roofline_fraction: peaks.map(fraction).filter(|fraction| fraction.is_finite()),
        bound: peaks.map(|peaks| if is_compute(peaks) { Bound::Compute } else { Bound::Memory }),
        ..row
    }
}

/// An operator without a module, between two that have one, belongs to the innermost module around both. If that is the
/// whole model, a product stays without a module: it has weights of some module, whose name was lost.
fn take_modules_of_neighbours(rows: &mut [ProfileRow]) {
    let known: Vec<Option<String>> = rows.iter().map(|row| row.module.clone()).collect();
    for (place, row) in rows.iter_mut().enumerate().filter(|(_, row)| row.module.is_none()) {
        let before = known[..place].iter().rev().flatten().next();
        let after = known[place..].iter().flatten().next();
        let root = || (!is_product(&row.operator)).then(|| ROOT.to_owned());
        row.module = before.zip(after).and_then(|(before, after)| common(before, after).or_else(root));
    }
}

impl CaseProfile {
    /// The bounds of the part of a plain call that is in operators.
    pub fn operator_fractions(&self) -> (f64, f64) {
        let outside = self.rows.iter().find(|row| row.operator == OUTSIDE);
        let bound = |bound: fn(&ProfileRow) -> Option<f64>| {
            let us = outside.map_or(0.0, |row| bound(row).unwrap_or(row.corrected_us));
            (1.0 - us / self.plain_us).max(0.0)
        };
        (bound(|row| row.corrected_upper_us), bound(|row| row.corrected_lower_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::proto::{GraphProto, NodeProto, TensorProto};

    fn times(microseconds: &[f64]) -> Vec<OperatorTimes> {
        let one = |&us: &f64| OperatorTimes { mean_ns: us * 1e3, executions: 1.0, ..OperatorTimes::default() };
        microseconds.iter().map(one).collect()
    }

    #[test]
    fn operators_of_the_second_part_are_not_taken_for_those_of_the_first() {
        let part = |module: &str| {
            let node = |place: usize| NodeProto {
                name: format!("node_{place}"),
                inputs: vec![format!("{module}.{place}.weight")],
                ..NodeProto::new("MatMul", &[], &format!("out_{place}"))
            };
            let weight =
                |place: usize| TensorProto { name: format!("{module}.{place}.weight"), ..TensorProto::default() };
            let (nodes, initializers) = ((0..3).map(node).collect(), (0..3).map(weight).collect());
            GraphProto { nodes, initializers, ..GraphProto::default() }
        };
        let mut modules = Modules::default();
        modules.add(&part("encoder"), &[]);
        modules.add(&part("decoder"), &[]);
        let call = |name: &str| OperatorTimes {
            typical: OperatorCall { node: name.into(), operator: "MatMul".into(), ..OperatorCall::default() },
            ..OperatorTimes::default()
        };
        let calls = ["node_0", "node_1", "node_2", "node_0", "node_1", "node_2"].map(call);
        let of = |places: &[OperatorTimes]| nodes_of(places, &modules).into_iter().flatten().collect::<Vec<usize>>();
        assert_eq!(of(&calls), [0, 1, 2, 3, 4, 5]);
        assert_eq!(of(&calls[..3]), [0, 1, 2]);
    }

    #[test]
    fn what_is_taken_off_is_at_most_what_a_profiled_call_takes_longer() {
        let costs = |plain, profiled, us: &[f64]| {
            let found = Overhead::new(plain, profiled, &times(us));
            (found.least_us, found.most_us)
        };
        // 300 µs of operators in a call of 200: 50 of each.
        assert_eq!(costs(200.0, 400.0, &[100.0, 200.0]), (50.0, 100.0));
        // The profiled call is only 20 µs longer: the operators overlap.
        assert_eq!(costs(200.0, 220.0, &[100.0, 200.0]), (10.0, 10.0));
        assert_eq!(costs(400.0, 420.0, &[100.0, 200.0]), (0.0, 10.0));
        assert_eq!(costs(400.0, 300.0, &[500.0]), (0.0, 0.0));
        // 60 µs cannot be subtracted from 20: the short operator is left with nothing, and the long one gets 100 µs
        // shorter.
        assert_eq!(costs(200.0, 400.0, &[20.0, 300.0]), (100.0, 100.0));
    }

    #[test]
    fn what_the_profiler_hides_is_between_bounds() {
        // A call of 200 µs that takes 500 under the profiler; its operators add up to 300.
        let found = Overhead::new(200.0, 500.0, &times(&[100.0, 200.0]));
        assert_eq!(found.outside(), (0.0, 200.0));
        let near = |found: (f64, f64), expected: (f64, f64)| {
            let is_near = |one: f64, other: f64| (one - other).abs() < 1e-9;
            assert!(is_near(found.0, expected.0) && is_near(found.1, expected.1), "{found:?} is not {expected:?}");
        };
        // The profiler adds at most 150 µs to each, or three fifths of the time, and at least 50 µs, or a third.
        near(found.bounds(200.0, 1.0), (50.0, 150.0));
        near(found.bounds(100.0, 1.0), (0.0, 200.0 / 3.0));
        // Without a cost there is nothing to hide.
        let free = Overhead::new(200.0, 190.0, &times(&[100.0, 80.0]));
        assert_eq!((free.bounds(100.0, 1.0), free.outside()), ((100.0, 100.0), (20.0, 20.0)));
    }

    #[test]
    fn small_operators_have_no_share_and_the_rest_of_the_call_is_a_row() {
        let operators = times(&[400.0, 30.0, 130.0]);
        let calls = ProfiledCalls {
            plain_ns: vec![500_000; 3],
            profiled_ns: vec![700_000; 3],
            operators: operators.clone(),
            ..ProfiledCalls::default()
        };
        let case = Case::new("none", "ort", 1);
        let profile = with_modules("run", &case, &Modules::default(), &calls, None);
        assert_eq!(profile.cost_per_operator_us, 20.0);
        let rows: Vec<_> = profile.rows.iter().map(|row| (row.corrected_us, row.share)).collect();
        assert_eq!(rows, [(380.0, Some(0.76)), (10.0, None), (110.0, Some(0.22)), (0.0, None)]);
        // 140 µs of a profiled call are in no operator, and nobody knows how many of them are in a plain call.
        assert_eq!(profile.rows[3].operator, OUTSIDE);
        assert_eq!((profile.rows[3].corrected_lower_us, profile.rows[3].corrected_upper_us), (Some(0.0), Some(140.0)));
        let (least, most) = profile.operator_fractions();
        assert!((least - 0.72).abs() < 1e-9 && most == 1.0, "{least} {most}");
        let cheap = ProfiledCalls { profiled_ns: vec![565_000; 3], operators, ..calls };
        let profile = with_modules("run", &case, &Modules::default(), &cheap, None);
        assert_eq!(profile.rows[3].share, Some(0.0), "5 µs are next to nothing");
    }

    #[test]
    fn what_a_node_costs_is_divided_by_the_time_of_all_its_operators() {
        let cost = Cost { flops: 30_000_000, bytes: 1000, ..Cost::default() };
        let graph = GraphProto { nodes: vec![NodeProto::new("LSTM", &["x", "w"], "y")], ..GraphProto::default() };
        let mut modules = Modules::default();
        modules.add(&graph, &[cost]);
        let mut operators = times(&[100.0, 200.0]);
        for (operator, name) in operators.iter_mut().zip(["OptMatMul", "Scan"]) {
            operator.typical.operator = name.into();
            operator.typical.node = format!("LSTM_y.{name}");
        }
        let times = vec![300_000; 3];
        let calls =
            ProfiledCalls { plain_ns: times.clone(), profiled_ns: times, operators, ..ProfiledCalls::default() };
        let profile = with_modules("run", &Case::new("none", "tract", 1), &modules, &calls, None);
        let rows: Vec<_> = profile.rows.iter().map(|row| (row.flops, row.gflops_per_second)).collect();
        assert_eq!(rows, [(Some(30_000_000), Some(100.0)), (None, None), (None, None)]);
    }

    #[test]
    fn an_operator_belongs_to_what_is_around_its_neighbours() {
        let row = |module: Option<&str>| ProfileRow { module: module.map(str::to_owned), ..ProfileRow::default() };
        let mut rows = [None, Some("a.b.c"), None, None, Some("a.b.d"), None, Some("e"), None].map(row);
        take_modules_of_neighbours(&mut rows);
        let modules = rows.each_ref().map(|row| row.module.as_deref());
        let (within, root) = (Some("a.b"), Some(ROOT));
        assert_eq!(modules, [None, Some("a.b.c"), within, within, Some("a.b.d"), root, Some("e"), None]);
        let product = ProfileRow { operator: "Convolution".into(), ..ProfileRow::default() };
        let mut rows = [row(Some("a")), product, row(Some("b"))];
        take_modules_of_neighbours(&mut rows);
        assert_eq!(rows[1].module, None);
    }

    #[test]
    fn an_operation_is_bound_by_what_it_needs_more_of() {
        let peaks =
            Peaks { threads: 2, product_gflops_per_second: 100.0, copy_gb_per_second: 10.0, ..Peaks::default() };
        let of = |executions, cost| {
            let row = ProfileRow { corrected_us: 1000.0, executions, share: Some(1.0), ..ProfileRow::default() };
            let row = with_roofline(row, Some(cost), 1000.0, Some(&peaks));
            (row.bound, row.roofline_fraction, row.gflops_per_second)
        };
        let row = |cost| of(1.0, cost);
        let product = Cost { flops: 50_000_000, bytes: 1_000_000, ..Cost::default() };
        assert_eq!(row(product), (Some(Bound::Compute), Some(0.5), Some(50.0)));
        // Every other call executes it.
        assert_eq!(of(0.5, product), (Some(Bound::Compute), Some(0.25), Some(25.0)));
        let sum = Cost { bytes: 4_000_000, ..Cost::default() };
        assert_eq!(row(sum), (Some(Bound::Memory), Some(0.4), None));
    }
}
