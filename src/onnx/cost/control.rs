//! Nodes that have graphs inside: which of them run, how often, and what that costs.

use anyhow::{Context, Result, bail, ensure};
use prost::Message;
use rten_shape_inference::SymTensor;

use super::graph::{Body, Scope, walk_body};
use super::shapes::{Inputs, input, known_number, of_sizes, scalar, sizes};
use crate::onnx::flat::DEEPEST;
use crate::onnx::proto::{GraphProto, NodeProto, place_of_axis};

/// A loop whose sizes change from run to run is counted up to this number of runs.
const MOST_CHANGING: i64 = 1000;
const OPEN: &str = "how often its body runs depends on the values of the inputs";
/// Exporters write the largest number for "no limit"; the shape rules clamp it to this.
const NO_LIMIT: i64 = i32::MAX as i64;

/// The total cost of the graphs inside an `If`, `Loop` or `Scan`. Returns `None` for any other node.
///
/// # Errors
/// Which graph runs, or how often, depends on the values of inputs; a node inside cannot be counted; or the graphs are
/// not whole or are nested too deeply.
pub(super) fn bodies(node: &NodeProto, inputs: &Inputs, scope: &Scope) -> Result<Option<Body>> {
    if !node.has_subgraph() || !node.is_standard() {
        return Ok(None);
    }
    ensure!(scope.graphs.len() < DEEPEST, "graphs are nested too deeply: there are {DEEPEST} around this one");
    match node.op_type.as_str() {
        "If" => branch(node, inputs, scope).map(Some),
        "Loop" => repeated(node, inputs, scope).map(Some),
        "Scan" => scanned(node, inputs, scope).map(Some),
        _ => Ok(None),
    }
}

fn graph_of(node: &NodeProto, name: &str) -> Result<GraphProto> {
    let bytes = node.attribute(name).and_then(|attribute| attribute.g.clone());
    let bytes = bytes.with_context(|| format!("it has no {name}"))?;
    GraphProto::decode(bytes).with_context(|| format!("its {name} is not whole"))
}

/// The branch that runs, or both if they cost the same.
fn branch(node: &NodeProto, inputs: &Inputs, scope: &Scope) -> Result<Body> {
    let walked = |name: &str| walk_body(&graph_of(node, name)?, Vec::new(), scope).with_context(|| name.to_owned());
    match known_number(input(inputs, 0)?) {
        Some(0) => walked("else_branch"),
        Some(_) => walked("then_branch"),
        None => {
            let (mut then, otherwise) = (walked("then_branch")?, walked("else_branch")?);
            let shapes = |body: &Body| body.outputs.iter().map(sizes).collect::<Result<Vec<_>>>();
            let same = shapes(&then)?;
            let (one, other) = (then.cost.flops, otherwise.cost.flops);
            ensure!(
                then.cost == otherwise.cost && same == shapes(&otherwise)?,
                "which branch runs depends on the values of the inputs, and they do not cost the same: {one} and {other} operations"
            );
            then.operators.extend(otherwise.operators);
            then.outputs = without_values(&then.outputs)?;
            Ok(then)
        }
    }
}

/// A `Loop`. The inputs of its body are the number of the run, the condition and the state; its outputs are the
/// condition, the state, and one row of each of the loop's other outputs.
fn repeated(node: &NodeProto, inputs: &Inputs, scope: &Scope) -> Result<Body> {
    let graph = graph_of(node, "body")?;
    let known = |place: usize| match inputs.get(place).and_then(Option::as_ref) {
        Some(value) => known_number(value).map(Some).context(OPEN),
        None => Ok(None),
    };
    let mut runs = known(0)?.filter(|&runs| runs < NO_LIMIT).context(OPEN)?.max(0);
    if known(1)? == Some(0) {
        runs = 0;
    }
    let left = inputs.get(2..).unwrap_or_default().iter().cloned().collect::<Option<Vec<_>>>();
    let left = left.context("an input is missing")?;
    ensure!(
        graph.inputs.len() == left.len() + 2 && graph.outputs.len() > left.len(),
        "its body has other inputs than the loop"
    );
    let run = |number: SymTensor, left: &[SymTensor]| -> Result<(Body, Vec<SymTensor>)> {
        let values = [number, scalar(1)].into_iter().chain(left.iter().cloned());
        let mut body = walk_body(&graph, named(&graph, values), scope)?;
        let rows = body.outputs.split_off(left.len() + 1);
        Ok((body, rows))
    };
    // If sizes do not depend on the number of the run, all runs cost the same.
    let same = without_values(&left)?;
    if let Ok((body, rows)) = run(of_sizes(&[])?, &same)
        && without_values(&body.outputs[1..]).is_ok_and(|left| left == same)
        && let Some(goes_on) = known_number(&body.outputs[0])
    {
        let runs = if goes_on == 0 { runs.min(1) } else { runs };
        let mut all = times(body, runs as u64)?;
        all.outputs = if runs == 0 { left } else { same };
        all.outputs.extend(rows.iter().map(|row| with_runs(row, 0, runs as usize)).collect::<Result<Vec<_>>>()?);
        return Ok(all);
    }
    ensure!(runs > 0, "its body does not run, and what it would make is not known");
    ensure!(runs <= MOST_CHANGING, "its body runs {runs} times with other sizes each time");
    let (mut all, mut left, mut done) = (Body::default(), left, 0);
    let mut last_rows = Vec::new();
    while done < runs {
        let (mut body, rows) = run(scalar(done), &left)?;
        let goes_on = known_number(&body.outputs[0]).context(OPEN)?;
        ensure!(done == 0 || without_values(&rows)? == last_rows, "the rows that it makes have several sizes");
        last_rows = without_values(&rows)?;
        left = body.outputs.split_off(1);
        all = plus(all, body)?;
        done += 1;
        if goes_on == 0 {
            break;
        }
    }
    all.outputs = left;
    all.outputs.extend(last_rows.iter().map(|row| with_runs(row, 0, done as usize)).collect::<Result<Vec<_>>>()?);
    Ok(all)
}

/// A `Scan`: its body runs once per row of the scanned inputs, which are the last ones. The inputs before them are the
/// state.
fn scanned(node: &NodeProto, inputs: &Inputs, scope: &Scope) -> Result<Body> {
    let graph = graph_of(node, "body")?;
    let given = inputs.iter().cloned().collect::<Option<Vec<_>>>().context("an input is missing")?;
    let scanned = node.int("num_scan_inputs").and_then(|count| usize::try_from(count).ok());
    let kept = scanned.and_then(|count| given.len().checked_sub(count)).context("it has no scanned inputs")?;
    ensure!(
        graph.inputs.len() == given.len() && graph.outputs.len() >= kept && kept < given.len(),
        "its body has other inputs than the scan"
    );
    let axes = |name: &str| node.attribute(name).map(|axes| axes.ints.clone()).unwrap_or_default();
    let (of_inputs, of_outputs) = (axes("scan_input_axes"), axes("scan_output_axes"));
    let mut runs = None;
    let mut values = without_values(&given[..kept])?;
    for (place, value) in given[kept..].iter().enumerate() {
        let mut shape = sizes(value)?;
        let axis = axis_of(&of_inputs, place, shape.len())?;
        let size = shape.remove(axis);
        ensure!(*runs.get_or_insert(size) == size, "its inputs have different lengths");
        values.push(of_sizes(&shape)?);
    }
    let runs = runs.unwrap_or(0);
    let same = values[..kept].to_vec();
    let body = walk_body(&graph, named(&graph, values.into_iter()), scope)?;
    ensure!(without_values(&body.outputs[..kept])? == same, "what its body leaves to the next run has another size");
    let mut outputs = same;
    for (place, row) in body.outputs[kept..].iter().enumerate() {
        let axis = axis_of(&of_outputs, place, sizes(row)?.len() + 1)?;
        outputs.push(with_runs(row, axis, runs)?);
    }
    Ok(Body { outputs, ..times(body, runs as u64)? })
}

/// The values of a graph's inputs by their names.
fn named(graph: &GraphProto, values: impl Iterator<Item = SymTensor>) -> Vec<(&str, SymTensor)> {
    graph.inputs.iter().map(|input| input.name.as_str()).zip(values).collect()
}

/// The axis of a scanned input or output: 0 by default, and counted from the end if it is negative.
fn axis_of(axes: &[i64], place: usize, rank: usize) -> Result<usize> {
    let said = axes.get(place).copied().unwrap_or(0);
    place_of_axis(said, rank).with_context(|| format!("there is no axis {said} of {rank}"))
}

/// A tensor of `runs` such rows, stacked along the axis.
fn with_runs(row: &SymTensor, axis: usize, runs: usize) -> Result<SymTensor> {
    let mut shape = sizes(row)?;
    shape.insert(axis, runs);
    of_sizes(&shape)
}

/// Tensors of the same sizes, without their values.
fn without_values(values: &[SymTensor]) -> Result<Vec<SymTensor>> {
    values.iter().map(|value| of_sizes(&sizes(value)?)).collect()
}

/// A body that runs this often; its constants are read once.
fn times(body: Body, runs: u64) -> Result<Body> {
    let cost = body.cost.times(runs);
    let more = |elements: Option<u64>| elements.and_then(|elements| elements.checked_mul(runs));
    let read = body.read.into_iter().filter(|_| runs > 0).map(|(name, elements)| (name, more(elements))).collect();
    let constant_bytes = if runs == 0 { 0 } else { body.constant_bytes };
    Ok(Body { cost: cost.context("more than can be counted")?, nodes: Vec::new(), read, constant_bytes, ..body })
}

/// Two bodies, one after the other; their constants are read once.
fn plus(mut all: Body, body: Body) -> Result<Body> {
    let Some(cost) = all.cost.plus(body.cost) else { bail!("more than can be counted") };
    all.cost = cost;
    body.read.iter().for_each(|(name, elements)| all.add_read(name, *elements));
    all.operators.extend(body.operators);
    all.constant_bytes = all.constant_bytes.max(body.constant_bytes);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::definition::Cost;
    use crate::onnx::cost::graph::{Walked, walk};
    use crate::onnx::proto::{AttributeProto, TensorProto, ValueInfoProto};

    fn number(name: &str, number: i64) -> TensorProto {
        let bytes = number.to_le_bytes().to_vec();
        TensorProto { name: name.into(), data_type: 7, raw_data: Some(bytes.into()), ..TensorProto::default() }
    }

    fn graph(nodes: Vec<NodeProto>, inputs: &[&str], outputs: &[&str], initializers: Vec<TensorProto>) -> GraphProto {
        let values = |names: &[&str]| names.iter().map(|name| ValueInfoProto::tensor(name, 1, None)).collect();
        GraphProto { nodes, inputs: values(inputs), outputs: values(outputs), initializers, ..GraphProto::default() }
    }

    fn with_body(mut node: NodeProto, name: &str, body: &GraphProto) -> NodeProto {
        let g = Some(body.encode_to_vec().into());
        node.attributes.push(AttributeProto { name: name.into(), g, ..AttributeProto::default() });
        node
    }

    fn weights() -> TensorProto {
        TensorProto { name: "w".into(), dims: vec![4, 4], data_type: 1, ..TensorProto::default() }
    }

    fn walked(node: NodeProto, more: Vec<TensorProto>) -> Result<Walked> {
        let graph = graph(vec![node], &["x"], &["y"], [vec![weights()], more].concat());
        walk(&graph, &BTreeMap::from([("x".to_owned(), vec![3, 4])]), None)
    }

    const PRODUCT: u64 = 2 * 3 * 4 * 4;

    /// A loop whose body has these nodes. They compute `out` from `state`; `go` is a copy of `on`.
    fn repeated_by(runs: i64, nodes: Vec<NodeProto>) -> Result<Walked> {
        let goes_on = NodeProto::new("Identity", &["on"], "go");
        let body = graph([nodes, vec![goes_on]].concat(), &["i", "on", "state"], &["go", "out"], Vec::new());
        let node = with_body(NodeProto::new("Loop", &["runs", "", "x"], "y"), "body", &body);
        walked(node, vec![number("runs", runs)])
    }

    #[test]
    fn a_loop_costs_its_body_so_many_times() {
        let product = || vec![NodeProto::new("MatMul", &["state", "w"], "out")];
        let counted = |runs| repeated_by(runs, product()).map(|walked| (walked.cost.flops, walked.cost.nodes));
        assert_eq!(counted(7).unwrap(), (7 * PRODUCT, 7));
        assert_eq!(counted(0).unwrap(), (0, 0));
        let all = repeated_by(7, product()).unwrap();
        assert_eq!((all.outputs["y"].as_slice(), all.nodes.len()), (&[3, 4][..], 1));
        assert!(all.operators.contains("MatMul") && all.operators.contains("Loop"));
        // The weights, which only the body reads, count once.
        assert_eq!(all.cost.bytes, 8 + 4 * (16 + 2 * 12));
        let without_end = format!("{:#}", counted(i64::MAX).unwrap_err());
        assert_eq!(without_end, format!("Loop \"Loop_y\": {OPEN}"));
        assert!(counted(1 << 30).is_ok(), "runs that cost the same are not walked one by one");
    }

    #[test]
    fn a_loop_whose_state_grows_costs_the_sum_of_its_runs() {
        let mut grown = NodeProto::new("Concat", &["state", "x"], "out");
        grown.attributes.push(AttributeProto::int("axis", 0));
        let nodes = || vec![grown.clone(), NodeProto::new("MatMul", &["state", "w"], "made")];
        let counted = repeated_by(3, nodes()).unwrap();
        assert_eq!((counted.cost.flops, counted.outputs["y"].as_slice()), ((1 + 2 + 3) * PRODUCT, &[12, 4][..]));
        let many = format!("{:#}", repeated_by(1_000_000, nodes()).unwrap_err());
        assert!(many.ends_with("its body runs 1000000 times with other sizes each time"), "{many}");
    }

    #[test]
    fn a_loop_that_ends_by_itself_is_not_counted_and_one_that_ends_at_once_runs_once() {
        let ends = |goes_on: Vec<NodeProto>| {
            let nodes = [vec![NodeProto::new("MatMul", &["state", "w"], "out")], goes_on].concat();
            let body = graph(nodes, &["i", "on", "state"], &["go", "out"], vec![number("no", 0)]);
            let node = with_body(NodeProto::new("Loop", &["runs", "", "x"], "y"), "body", &body);
            walked(node, vec![number("runs", 9)]).map(|walked| walked.cost.flops)
        };
        assert_eq!(ends(vec![NodeProto::new("Identity", &["no"], "go")]).unwrap(), PRODUCT);
        let why = format!("{:#}", ends(vec![NodeProto::new("Less", &["i", "no"], "go")]).unwrap_err());
        assert!(why.ends_with(OPEN), "{why}");
    }

    #[test]
    fn a_branch_counts_if_it_is_known_or_if_both_cost_the_same() {
        let branch = |nodes: Vec<NodeProto>| graph(nodes, &[], &["out"], Vec::new());
        let product = branch(vec![NodeProto::new("MatMul", &["x", "w"], "out")]);
        let other = branch(vec![NodeProto::new("MatMul", &["x", "w"], "out")]);
        let nothing = branch(vec![NodeProto::new("Identity", &["x"], "out")]);
        let counted = |condition: &str, then: &GraphProto, otherwise: &GraphProto| {
            let node = with_body(NodeProto::new("If", &[condition], "y"), "then_branch", then);
            let node = with_body(node, "else_branch", otherwise);
            walked(node, vec![number("yes", 1), number("no", 0)]).map(|walked| walked.cost.flops)
        };
        assert_eq!(counted("yes", &product, &nothing).unwrap(), PRODUCT);
        assert_eq!(counted("no", &product, &nothing).unwrap(), 0);
        assert_eq!(counted("x", &product, &other).unwrap(), PRODUCT);
        let why = format!("{:#}", counted("x", &product, &nothing).unwrap_err());
        assert!(
            why.contains("which branch runs depends on the values of the inputs") && why.contains("96 and 0"),
            "{why}"
        );
    }

    #[test]
    fn branches_inside_of_branches_are_followed_for_a_while_only() {
        let nested = |depth: usize| {
            let innermost = graph(vec![NodeProto::new("MatMul", &["x", "w"], "out")], &[], &["out"], Vec::new());
            let node = |inner: &GraphProto, output: &str| {
                let node = with_body(NodeProto::new("If", &["x"], output), "then_branch", inner);
                with_body(node, "else_branch", inner)
            };
            let around = |inner: GraphProto, _| graph(vec![node(&inner, "out")], &[], &["out"], Vec::new());
            walked(node(&(1..depth).fold(innermost, around), "y"), Vec::new()).map(|walked| walked.cost.flops)
        };
        assert_eq!(nested(5).unwrap(), PRODUCT);
        let why = format!("{:#}", nested(15).unwrap_err());
        assert!(why.ends_with("its graphs run more often than can be followed"), "{why}");
    }

    #[test]
    fn a_scan_runs_once_per_row_along_its_axis() {
        let nodes = vec![NodeProto::new("MatMul", &["row", "w"], "out")];
        let scanned = |axis: i64| {
            let body = graph(nodes.clone(), &["row"], &["out"], Vec::new());
            let mut node = with_body(NodeProto::new("Scan", &["x"], "y"), "body", &body);
            let axes = |name: &str| AttributeProto::ints(name, &[axis]);
            node.attributes.extend([AttributeProto::int("num_scan_inputs", 1), axes("scan_input_axes")]);
            node.attributes.push(axes("scan_output_axes"));
            walked(node, Vec::new())
        };
        let counted = scanned(0).unwrap();
        assert_eq!((counted.cost.flops, counted.outputs["y"].as_slice()), (3 * 2 * 4 * 4, &[3, 4][..]));
        assert_eq!(counted.cost.nodes, 3);
        let why = format!("{:#}", scanned(1).unwrap_err());
        assert!(why.contains("MatMul") && why.contains("do not fit"), "a column has 3 numbers: {why}");
        assert!(format!("{:#}", scanned(5).unwrap_err()).contains("there is no axis 5"));
        assert_eq!(Cost::default().times(3), Some(Cost::default()));
    }
}
