//! `inferbench predict --anchor`: measures again a few cases of the history.

use anyhow::{Context, Result, ensure};

use crate::catalogue::operators;
use crate::convert::convert;
use crate::decision::prediction::{Anchor, Example, Lessons, Runtime, Site};
use crate::definition::{Suite, SuiteModel};
use crate::fixture::work_of;
use crate::harness::{self, Request, make_plan};
use crate::machine::Machine;
use crate::paths::Paths;
use crate::selection::{EffortArguments, Selection};

/// How many cases are measured, and for at most how many seconds and calls each.
const CASES: usize = 3;
const BUDGET: f64 = 2.0;
const MOST_CALLS: usize = 5000;
/// Cases with unchanged files are looked for in at most this many models.
const MOST_MODELS: usize = 24;
/// Neither plots nor Criterion's intervals are shown.
const CRITERION: [&str; 4] = ["--bench", "--noplot", "--nresamples", "1000"];

/// # Errors
/// The predictions are for another machine than this one.
pub fn check_machine(site: &Site) -> Result<()> {
    let host_id = Machine::read().host_id;
    ensure!(
        site.host_id == host_id,
        "`--anchor` measures this machine, {host_id}, but the predictions are for {}: leave it out",
        site.host_id
    );
    Ok(())
}

/// The command that fills a history with cases of a runtime that can be measured again.
pub fn filled_by(runtime: &Runtime) -> String {
    let Runtime { backend, device, dtype, .. } = runtime;
    format!("inferbench run --suite operators --backend {backend} --device {device} --dtype {dtype}")
}

/// Measures the anchors of a runtime.
///
/// # Errors
/// The history has no case that can be measured again, or none of them could be measured.
pub fn measure(paths: &Paths, lessons: &Lessons, runtime: &Runtime, site: &Site) -> Result<Anchor> {
    let none = || {
        let Runtime { backend, device, dtype, .. } = runtime;
        format!(
            "for `--anchor`, the history has no case of {backend} on {device} in {dtype} of this machine whose files are here and unchanged"
        )
    };
    let effort = EffortArguments {
        iterations: Some(MOST_CALLS),
        budget: Some(BUDGET),
        threads: site.threads,
        ..EffortArguments::default()
    };
    let candidates: Vec<&Example> = lessons.anchors(runtime, site).into_iter().take(MOST_MODELS).collect();
    ensure!(!candidates.is_empty(), none());
    let chosen = again(paths, &candidates, &effort)?;
    ensure!(!chosen.is_empty(), none());
    let _lock = harness::keep_others_out(paths)?;
    let names: Vec<String> = chosen.iter().map(|it| it.subject.work.case.to_string()).collect();
    eprintln!("measuring again, for {BUDGET:.0} s each: {}", names.join(", "));
    let folder = paths.selftest().with_file_name("anchor");
    let apart = paths.apart(folder.clone());
    let request = Request {
        own_suite: Some(suite_of(paths, &chosen)?),
        effort,
        criterion_arguments: CRITERION.map(str::to_owned).to_vec(),
        is_silent: true,
        ..Request::default()
    };
    let measured = || {
        let finished = harness::run(&apart, &request)?;
        let run = finished.folder.context("no case was measured")?;
        Ok::<_, anyhow::Error>(convert(&run, &apart.criterion(), "new", |_, _| Ok(()))?.records)
    };
    let records = measured();
    // The results have been read, and their files are no longer needed.
    let _ = std::fs::remove_dir_all(&folder);
    let records = records.context("`--anchor`")?;
    let now = |(case_id, example): (&String, &&Example)| {
        let ms = records.iter().find(|it| it.case_id == *case_id)?.latency_p50_ms?;
        Some((case_id.clone(), ms, example.ms))
    };
    let times: Vec<(String, f64, f64)> = names.iter().zip(&chosen).filter_map(now).collect();
    Anchor::of(&times).with_context(|| format!("`--anchor`: none of {} could be measured again", names.join(", ")))
}

/// The first of these whose work is surely the same here, so that their files are unchanged.
fn again<'a>(paths: &Paths, candidates: &[&'a Example], effort: &EffortArguments) -> Result<Vec<&'a Example>> {
    let plan = make_plan(paths, Some(&suite_of(paths, candidates)?), &Selection::default(), effort)?;
    let is_here = |example: &&Example| {
        plan.cases.iter().any(|planned| {
            let work = planned.model.as_ref().ok().map(|model| work_of(&planned.case, model));
            work.is_some_and(|work| work.is_surely_same(&example.subject.work))
        })
    };
    Ok(candidates.iter().copied().filter(is_here).take(CASES).collect())
}

/// A suite with nothing but these cases, of different models.
fn suite_of(paths: &Paths, examples: &[&Example]) -> Result<Suite> {
    let has_chain = examples.iter().any(|example| example.subject.is_of_operators());
    let chains = if has_chain { operators(&paths.operators())? } else { Vec::new() };
    let model = |example: &&Example| {
        let case = &example.subject.work.case;
        let chain = chains.iter().find(|chain| chain.name == case.model).cloned();
        SuiteModel {
            batch_sizes: Some(vec![case.batch_size]),
            phases: Some(vec![case.phase]),
            seq_lens: case.sequence_length.map(|length| vec![length]),
            variants: chain.is_none().then(|| vec![case.variant.clone()]),
            ..chain.unwrap_or_else(|| SuiteModel { name: case.model.clone(), ..SuiteModel::default() })
        }
    };
    let runtime = examples.first().map(|example| &example.subject.runtime).context("no case")?;
    Ok(Suite {
        models: examples.iter().map(model).collect(),
        allows_unknown_models: true,
        devices: vec![runtime.device.clone()],
        dtypes: vec![runtime.dtype],
        ..Suite::new("anchor", vec![runtime.backend.clone()])
    })
}
