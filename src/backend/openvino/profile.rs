//! OpenVINO's profiler: how long the nodes of compiled graphs took.
//!
//! The `openvino` crate lacks this call of OpenVINO's C interface. OpenVINO reports the mean of all runs since a graph
//! was compiled, over all of the graph's requests. It counts whole microseconds and rounds down twice: each time, and
//! the mean. This would lose much of a small graph's call. So times come from [`Tasks`] where that tracer exists, and
//! only the names of operators and kernels from the profiler.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Instant;

use anyhow::bail;
use openvino::InferRequest;
use openvino_sys as sys;
use openvino_sys::ov_status_e;

use super::graph::Requests;
use super::tasks::{Execution, Tasks};
use crate::backend::interface::Session;
use crate::backend::native_library::text_of;
use crate::backend::recorder::Tape;
use crate::definition::CaseFailure;
use crate::run_data::{OperatorCall, RecordedCall};

/// The graphs that are compiled with the profiler. A clone shares them.
#[derive(Clone, Default)]
pub(super) struct Profiled(Rc<RefCell<State>>);

/// A call as the tracer notes it.
#[derive(Default)]
struct Call {
    executions: Vec<Execution>,
    /// The graphs that ran, each with its begin in nanoseconds.
    ran: Vec<(u64, usize)>,
}

#[derive(Default)]
struct State {
    graphs: Vec<Rc<RefCell<Requests>>>,
    /// Calls since the recording began.
    calls: usize,
    /// The times of each graph until the recording began.
    before: Vec<Times>,
    tasks: Option<&'static Tasks>,
    /// Each call since the recording began, if there is a tracer.
    traced: Vec<Call>,
    /// This program's work around OpenVINO's inferences in the running call, and the graphs that ran in it.
    running: Call,
    /// When the running call began.
    call_begin: Option<Instant>,
}

/// The times of a graph's nodes, in the order in which they run.
#[derive(Default)]
struct Times {
    runs: u64,
    nodes: Vec<Node>,
}

struct Node {
    name: String,
    operator: String,
    kernel: String,
    is_executed: bool,
    mean_us: u64,
}

impl Profiled {
    /// A list whose times come from the process's tracer.
    pub fn traced() -> Self {
        Profiled(Rc::new(RefCell::new(State { tasks: Tasks::of_process(), ..State::default() })))
    }

    /// Adds a graph that was just compiled.
    pub fn add(&self, requests: &Rc<RefCell<Requests>>) {
        self.0.borrow_mut().graphs.push(Rc::clone(requests));
    }

    /// Notes that a graph runs now.
    pub fn runs(&self, requests: &Rc<RefCell<Requests>>) {
        let mut state = self.0.borrow_mut();
        let graph = state.graphs.iter().position(|own| Rc::ptr_eq(own, requests));
        if let Some((call, graph)) = state.call_begin.zip(graph) {
            state.running.ran.push((call.elapsed().as_nanos() as u64, graph));
        }
    }

    /// Runs and notes work of this program within a call. The nodes that OpenVINO executes meanwhile are subtracted
    /// later.
    pub fn time<O>(&self, operator: &'static str, run: impl FnOnce() -> O) -> O {
        let begin = Instant::now();
        let output = run();
        let duration_ns = begin.elapsed().as_nanos() as u64;
        let mut state = self.0.borrow_mut();
        if let Some(call) = state.call_begin {
            let start_ns = begin.saturating_duration_since(call).as_nanos() as u64;
            let (operator, node) = (operator.to_owned(), String::new());
            state.running.executions.push(Execution { operator, node, start_ns, duration_ns, thread: 0 });
        }
        output
    }

    /// The operators that were executed so far, and the kernel of each.
    ///
    /// # Errors
    /// OpenVINO's profiler fails.
    pub fn operators(&self) -> anyhow::Result<Vec<(String, String)>> {
        let nodes = self.times()?.into_iter().flat_map(|graph| graph.nodes);
        Ok(nodes.filter(|node| node.is_executed).map(|node| (node.operator, node.kernel)).collect())
    }

    /// The times of each graph so far.
    fn times(&self) -> anyhow::Result<Vec<Times>> {
        let times = |requests: &Rc<RefCell<Requests>>| {
            let Requests { all, runs } = &*requests.borrow();
            let nodes = all.first().map_or_else(|| Ok(Vec::new()), |request| nodes(request))?;
            Ok(Times { runs: *runs, nodes })
        };
        self.0.borrow().graphs.iter().map(times).collect()
    }
}

/// Work of this program without the nodes that were executed meanwhile.
fn without(work: Execution, executions: &[Execution]) -> Execution {
    let end_ns = work.start_ns + work.duration_ns;
    let within = executions.iter().filter(|it| (work.start_ns..end_ns).contains(&it.start_ns));
    let others_ns: u64 = within.map(|it| it.duration_ns).sum();
    Execution { duration_ns: work.duration_ns.saturating_sub(others_ns), ..work }
}

impl Tape for Profiled {
    fn call_begins(&mut self) -> Result<(), CaseFailure> {
        let mut state = self.0.borrow_mut();
        state.calls += 1;
        if let Some(tasks) = state.tasks {
            tasks.call_begins();
        }
        state.running = Call::default();
        state.call_begin = Some(Instant::now());
        Ok(())
    }

    fn call_ends(&mut self) -> Result<(), CaseFailure> {
        let mut state = self.0.borrow_mut();
        state.call_begin = None;
        if let Some(tasks) = state.tasks {
            let mut executions = tasks.call_ends()?;
            let Call { executions: own, ran } = std::mem::take(&mut state.running);
            if !executions.is_empty() {
                let own: Vec<_> = own.into_iter().map(|work| without(work, &executions)).collect();
                executions.extend(own);
                executions.sort_by_key(|execution| execution.start_ns);
            }
            state.traced.push(Call { executions, ran });
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<(), CaseFailure> {
        let before = self.times()?;
        let mut state = self.0.borrow_mut();
        (state.calls, state.before) = (0, before);
        state.traced.clear();
        Ok(())
    }

    fn end(&mut self, _: Box<dyn Session>) -> Result<Vec<RecordedCall>, CaseFailure> {
        let after = self.times()?;
        let State { calls, before, traced, .. } = &*self.0.borrow();
        if traced.iter().any(|call| !call.executions.is_empty()) {
            return Ok(named(traced, &after));
        }
        let nothing = Times::default();
        let before = before.iter().chain(std::iter::repeat(&nothing));
        let operators = after.iter().zip(before).flat_map(|(after, before)| between(before, after, *calls));
        Ok(vec![RecordedCall { calls: *calls, operators: operators.collect() }])
    }
}

/// The nodes of calls as the tracer noted them, with the profiler's names of operators and kernels. Nodes of two graphs
/// may have the same name.
fn named(calls: &[Call], graphs: &[Times]) -> Vec<RecordedCall> {
    let nodes = graphs.iter().map(|graph| graph.nodes.iter().filter(|node| node.is_executed));
    let by_name: Vec<HashMap<&str, &Node>> =
        nodes.map(|nodes| nodes.map(|node| (node.name.as_str(), node)).collect()).collect();
    let operator = |ran: &[(u64, usize)], execution: &Execution| {
        let graph = ran.iter().rev().find(|(begin_ns, _)| *begin_ns <= execution.start_ns);
        let node = graph.and_then(|(_, graph)| by_name[*graph].get(execution.node.as_str()));
        OperatorCall {
            node: execution.node.clone(),
            operator: node.map_or_else(|| execution.operator.clone(), |node| node.operator.clone()),
            kernel: node.map(|node| node.kernel.clone()),
            start_ns: Some(execution.start_ns),
            duration_ns: execution.duration_ns,
            thread: execution.thread,
            ..OperatorCall::default()
        }
    };
    let call = |Call { executions, ran }: &Call| {
        let operators = executions.iter().map(|execution| operator(ran, execution)).collect();
        RecordedCall { calls: 1, operators }
    };
    calls.iter().map(call).collect()
}

/// The operators of a graph in the calls between two readings, each with its mean time per call.
fn between(before: &Times, after: &Times, calls: usize) -> Vec<OperatorCall> {
    if after.runs == before.runs {
        return Vec::new();
    }
    let operator = |(place, node): (usize, &Node)| {
        let until = before.runs * before.nodes.get(place).map_or(0, |node| node.mean_us);
        let total_us = (after.runs * node.mean_us).saturating_sub(until);
        OperatorCall {
            node: node.name.clone(),
            operator: node.operator.clone(),
            kernel: Some(node.kernel.clone()),
            duration_ns: total_us * 1000 / calls.max(1) as u64,
            ..OperatorCall::default()
        }
    };
    after.nodes.iter().enumerate().filter(|(_, node)| node.is_executed).map(operator).collect()
}

/// The nodes of a request's graph.
fn nodes(request: &InferRequest) -> anyhow::Result<Vec<Node>> {
    // SAFETY: the pointer is that of a request which lives until the end of this function; the list and its texts live
    // until the list is freed.
    unsafe {
        let mut list = std::mem::zeroed();
        check(sys::ov_infer_request_get_profiling_info(pointer(request), &raw mut list))?;
        let node = |place| {
            let info = &*list.profiling_infos.add(place);
            let kernel = text_of(info.exec_type);
            // The status tells only whether the time is above 0. Nodes that are fused into another have no kernel, and
            // views an unknown one.
            let has_kernel = kernel != "undef" && !kernel.starts_with("unknown");
            Node {
                name: text_of(info.node_name),
                operator: text_of(info.node_type),
                is_executed: has_kernel || info.status == sys::ov_profiling_info_t_Status::EXECUTED,
                kernel,
                mean_us: info.real_time.max(0) as u64,
            }
        };
        let nodes = (0..list.size).map(node).collect();
        sys::ov_profiling_info_list_free(&raw mut list);
        Ok(nodes)
    }
}

/// The request of the C interface, which the crate does not expose.
fn pointer(request: &InferRequest) -> *mut sys::ov_infer_request_t {
    const { assert!(size_of::<InferRequest>() == size_of::<*mut sys::ov_infer_request_t>()) };
    // SAFETY: in the version of the crate that Cargo.toml pins, the pointer is a request's only field, and so lies at
    // its start.
    unsafe { *std::ptr::from_ref(request).cast() }
}

fn check(status: ov_status_e) -> anyhow::Result<()> {
    if status == ov_status_e::OK {
        return Ok(());
    }
    // SAFETY: the text belongs to OpenVINO until its next call in this thread.
    let message = unsafe { text_of(sys::ov_get_last_err_msg()) };
    bail!("OpenVINO's profiler: {}", if message.trim().is_empty() { format!("{status:?}") } else { message })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(runs: u64, means_us: &[u64]) -> Times {
        let node = |&mean_us: &u64| Node {
            name: String::new(),
            operator: "MatMul".into(),
            kernel: String::new(),
            is_executed: mean_us > 0,
            mean_us,
        };
        Times { runs, nodes: means_us.iter().map(node).collect() }
    }

    #[test]
    fn what_is_done_around_an_inference_is_without_its_nodes() {
        let node = |start_ns, duration_ns| Execution {
            operator: "Convolution".into(),
            node: "conv".into(),
            start_ns,
            duration_ns,
            thread: 0,
        };
        let own = without(node(10, 100), &[node(5, 3), node(30, 20), node(60, 40), node(120, 9)]);
        assert_eq!((own.start_ns, own.duration_ns), (10, 40));
    }

    #[test]
    fn a_node_has_the_operator_of_the_graph_that_ran() {
        let graph = |operator: &str| {
            let node = Node { name: "MatMul_1".into(), operator: operator.into(), ..times(1, &[5]).nodes.remove(0) };
            Times { runs: 1, nodes: vec![node] }
        };
        let execution = |start_ns| Execution {
            operator: "Node".into(),
            node: "MatMul_1".into(),
            start_ns,
            duration_ns: 3,
            thread: 0,
        };
        let executions = [10, 110, 210].map(execution).into();
        let calls = [Call { executions, ran: vec![(10, 1), (100, 0), (200, 1)] }];
        let found = named(&calls, &[graph("MatMul"), graph("FullyConnected")]);
        let operators: Vec<&str> = found[0].operators.iter().map(|own| own.operator.as_str()).collect();
        assert_eq!(operators, ["FullyConnected", "MatMul", "FullyConnected"]);
    }

    #[test]
    fn the_mean_of_calls_is_without_the_runs_before_them() {
        let found = |before: Times, after, calls| {
            between(&before, &after, calls).iter().map(|own| own.duration_ns).collect::<Vec<_>>()
        };
        // 3 runs of 100 µs and 30 µs, then 7 runs of 10 µs and 30 µs; the third node is fused into another.
        assert_eq!(found(times(3, &[100, 30, 0]), times(10, &[37, 30, 0]), 7), [10_000, 30_000]);
        assert_eq!(found(times(3, &[100]), times(3, &[100]), 7), [0; 0], "a graph of another phase");
        assert_eq!(found(Times::default(), times(4, &[5]), 4), [5000]);
    }
}
