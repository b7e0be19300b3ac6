//! A profiled session of ONNX Runtime: each graph writes its profile into a folder of its own when its session ends.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context, ensure};
use tempfile::TempDir;

use super::profile::{GraphRun, read_runs};
use crate::backend::interface::Session;
use crate::backend::recorder::Tape;
use crate::definition::CaseFailure;
use crate::run_data::{OperatorCall, RecordedCall};

/// Which graph ran when, in the order of the runs. A clone shares it.
pub type RunLog = Rc<RefCell<Vec<Logged>>>;

/// An entry of the log.
pub enum Logged {
    /// A run of a graph, by the index of its part.
    Run(usize, Instant),
    CallBegins(Instant),
    CallEnds,
    /// The recording begins here: earlier entries do not count.
    Begin,
}

/// The tape: the log, and the folder with a subfolder for each graph's profile.
pub struct OrtTape {
    pub log: RunLog,
    pub folder: TempDir,
    pub graphs: usize,
}

/// The folder of a graph's profile.
pub fn folder_of(folder: &Path, graph: usize) -> PathBuf {
    folder.join(graph.to_string())
}

impl Tape for OrtTape {
    fn call_begins(&mut self) -> Result<(), CaseFailure> {
        self.log.borrow_mut().push(Logged::CallBegins(Instant::now()));
        Ok(())
    }
    fn call_ends(&mut self) -> Result<(), CaseFailure> {
        self.log.borrow_mut().push(Logged::CallEnds);
        Ok(())
    }
    fn begin(&mut self) -> Result<(), CaseFailure> {
        self.log.borrow_mut().push(Logged::Begin);
        Ok(())
    }
    fn end(&mut self, session: Box<dyn Session>) -> Result<Vec<RecordedCall>, CaseFailure> {
        // Writes the profiles.
        drop(session);
        let runs = (0..self.graphs).map(|graph| read_runs(&folder_of(self.folder.path(), graph)));
        Ok(calls_of(&self.log.borrow(), runs.collect::<anyhow::Result<Vec<_>>>()?)?)
    }
}

/// The calls of the log since the last [`Logged::Begin`]. `runs` has the operators of each run of each graph.
fn calls_of(log: &[Logged], runs: Vec<Vec<GraphRun>>) -> anyhow::Result<Vec<RecordedCall>> {
    let mut runs: Vec<_> = runs.into_iter().map(Vec::into_iter).collect();
    let mut calls: Vec<RecordedCall> = Vec::new();
    let mut call_began = None;
    for entry in log {
        match entry {
            Logged::Begin => calls.clear(),
            Logged::CallBegins(at) => {
                call_began = Some(*at);
                calls.push(RecordedCall { calls: 1, operators: Vec::new() });
            }
            Logged::CallEnds => call_began = None,
            Logged::Run(graph, at) => {
                let run = runs.get_mut(*graph).and_then(Iterator::next);
                let run = run.context(
                    "the profile has fewer runs than there were: ONNX Runtime keeps at most 1,000,000 events; if the \
                     case is a decode step, set a smaller `new_tokens`",
                )?;
                let Some((begin, call)) = call_began.zip(calls.last_mut()) else { continue };
                let before = at.saturating_duration_since(begin).as_nanos() as u64;
                call.operators.extend(run.into_iter().map(|operator| OperatorCall {
                    start_ns: operator.start_ns.map(|start| start + before),
                    ..operator
                }));
            }
        }
    }
    ensure!(runs.iter_mut().all(|runs| runs.next().is_none()), "the profile has more runs than there were");
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn runs_go_to_the_calls_that_made_them() {
        let operator = |node: &str| OperatorCall { node: node.into(), start_ns: Some(5), ..OperatorCall::default() };
        let runs = || {
            vec![vec![vec![operator("prefill")], vec![operator("a")], vec![operator("c")]], vec![vec![operator("b")]]]
        };
        let now = Instant::now();
        let log = || {
            vec![
                Logged::Run(0, now),
                Logged::Begin,
                Logged::CallBegins(now),
                Logged::Run(0, now),
                Logged::Run(1, now + Duration::from_nanos(100)),
                Logged::CallEnds,
                Logged::CallBegins(now),
                Logged::Run(0, now),
                Logged::CallEnds,
            ]
        };
        let calls = calls_of(&log(), runs()).unwrap();
        let names = |call: &RecordedCall| call.operators.iter().map(|it| it.node.clone()).collect::<Vec<_>>();
        assert_eq!(calls.iter().map(names).collect::<Vec<_>>(), [vec!["a", "b"], vec!["c"]]);
        assert_eq!(calls[0].operators[1].start_ns, Some(105));
        assert!(calls_of(&log()[1..], runs()).is_err(), "one run too many");
        let lost = calls_of(&log(), vec![Vec::new(), Vec::new()]).unwrap_err();
        assert!(lost.to_string().contains("set a smaller `new_tokens`"), "{lost}");
    }
}
