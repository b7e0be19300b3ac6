//! A contestant that can be started: its executable, its project, and one process of it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::order::Contestant;
use super::process::wait;
use crate::definition::Selection;
use crate::harness::{ROUND_FORMAT, RoundReport, RoundTerms};

/// One side of a duel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// As it was asked for: `HEAD~1`, `.`, a path.
    pub name: String,
    pub commit: Option<String>,
    /// Instead of the suite that was asked for.
    pub suite: Option<PathBuf>,
    pub suite_sha256: Option<String>,
    pub executable: PathBuf,
    pub sha256: String,
    /// The project's folder that it works with.
    pub root: PathBuf,
}

/// What every process of a duel is told.
#[derive(Clone, Debug)]
pub struct Instructions {
    pub selection: Selection,
    pub threads: Option<usize>,
    pub duration: Duration,
    /// Part by which the candidate is slowed down.
    pub null_slowdown: Option<f64>,
}

/// What came of a process.
pub enum Fought {
    Reported(RoundReport),
    Interrupted,
}

/// Asks an executable whether it can fight at all, before anything else is built or run.
///
/// # Errors
/// It cannot be started, or it is older than duels.
pub fn check_protocol(side: &Side) -> Result<(), String> {
    let output = Command::new(&side.executable).args(["round", "--help"]).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{}: {error}", side.executable.display()))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(refusal(side, &complaint, &output.status.to_string())) }
}

/// Lays out the contestants below `folder`, each with its executable and project under names of one length: the lengths
/// of arguments and variables move what a process has on its stack, and that alone can make it faster or slower
/// (Mytkowicz et al. 2009, "Producing wrong data without doing anything obviously wrong!").
///
/// # Errors
/// The folder cannot be written.
pub fn line_up(folder: &Path, base: &Side, candidate: &Side) -> Result<(), String> {
    // What a killed round has left.
    let _ = fs::remove_dir_all(folder);
    for contestant in Contestant::ALL {
        let side = if contestant == Contestant::Candidate { candidate } else { base };
        let own = folder.join(contestant.letter().to_string());
        let named = |error: std::io::Error| format!("{}: {error}", own.display());
        fs::create_dir_all(&own).map_err(named)?;
        symlink(&side.executable, own.join("inferbench")).map_err(named)?;
        symlink(&side.root, own.join("root")).map_err(named)?;
    }
    Ok(())
}

/// Starts a process of a contestant, and waits for its report.
///
/// # Errors
/// It cannot be started, it refuses, or it says something else than a report.
pub fn fight(
    folder: &Path,
    contestant: Contestant,
    side: &Side,
    instructions: &Instructions,
    ids: &[String],
    is_proven: bool,
) -> Result<Fought, String> {
    let own = folder.join(contestant.letter().to_string());
    let executable = own.join("inferbench");
    let named = |error: std::io::Error| format!("{} ({}): {error}", side.name, side.executable.display());
    // Files and not pipes, of which nobody would read.
    let (said, complained) = (folder.join("stdout"), folder.join("stderr"));
    let file = |path: &Path| fs::File::create(path).map_err(|error| format!("{}: {error}", path.display()));
    let child = Command::new(&executable)
        .args(arguments(contestant, side, instructions, ids, is_proven))
        .env("INFERBENCH_ROOT", own.join("root"))
        .env("CRITERION_HOME", folder.join("scratch/criterion"))
        .stdin(Stdio::null())
        .stdout(file(&said)?)
        .stderr(file(&complained)?)
        .spawn()
        .map_err(named)?;
    let Some(status) = wait(child).map_err(named)? else { return Ok(Fought::Interrupted) };
    let text = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let (answer, complaint) = (text(&said), text(&complained));
    if !status.success() {
        return Err(refusal(side, &complaint, &status.to_string()));
    }
    read_report(&answer).map(Fought::Reported).map_err(|why| format!("{}: {why}", side.name))
}

/// The command line of a contestant's process.
pub fn arguments(
    contestant: Contestant,
    side: &Side,
    instructions: &Instructions,
    ids: &[String],
    is_proven: bool,
) -> Vec<String> {
    let Selection {
        suite,
        model,
        variant,
        path,
        backend,
        device,
        dtype,
        boundary,
        phase,
        batch_sizes,
        seq_lens,
        // A duel judges no answers but those of its proof.
        data_source: _,
    } = &instructions.selection;
    let suite = side.suite.as_ref().map_or_else(|| suite.clone(), |file| file.display().to_string());
    let terms = RoundTerms {
        duration: instructions.duration,
        slowdown_ppm: instructions.null_slowdown.map(|part| match contestant {
            Contestant::Candidate => (part * 1e6).round() as u32,
            Contestant::Base | Contestant::Null => 0,
        }),
        is_verified: is_proven,
    };
    let mut arguments = vec!["round".to_owned(), "--suite".into(), suite];
    let mut add = |flag: &str, values: Vec<String>| {
        if !values.is_empty() {
            arguments.extend([flag.to_owned(), values.join(",")]);
        }
    };
    let numbers = |values: &[usize]| values.iter().map(usize::to_string).collect();
    add("--model", model.clone());
    add("--variant", variant.clone());
    add("--path", path.clone());
    add("--backend", backend.clone());
    add("--device", device.clone());
    add("--dtype", dtype.iter().map(ToString::to_string).collect());
    add("--boundary", boundary.iter().map(ToString::to_string).collect());
    add("--phase", phase.iter().map(ToString::to_string).collect());
    add("--batch-sizes", numbers(batch_sizes));
    add("--seq-lens", numbers(seq_lens));
    add("--threads", instructions.threads.iter().map(usize::to_string).collect());
    add("--seconds", vec![terms.duration.as_secs_f64().to_string()]);
    // Of one length, like the paths.
    add("--slowdown-ppm", terms.slowdown_ppm.iter().map(|ppm| format!("{ppm:09}")).collect());
    for id in ids {
        add("--case", vec![id.clone()]);
    }
    if !terms.is_verified {
        arguments.push("--unproven".into());
    }
    arguments
}

fn refusal(side: &Side, complaint: &str, status: &str) -> String {
    let lines: Vec<&str> = complaint.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines[lines.len().saturating_sub(5)..].join("\n  ");
    if complaint.contains("unrecognized subcommand") {
        return format!(
            "{} has no `inferbench round`, by which contestants of a duel are asked for their times: it is older than \
             `inferbench duel`. Take a later revision, or compare two runs with baselines (`inferbench run \
             --save-baseline`, `--baseline`)",
            side.name
        );
    }
    format!("{} ended with {status}; its last words:\n  {last}", side.name)
}

fn read_report(text: &str) -> Result<RoundReport, String> {
    let not_one = |error: serde_json::Error| format!("`inferbench round` printed no report: {error}");
    let value: serde_json::Value = serde_json::from_str(text).map_err(not_one)?;
    match value["format"].as_u64() {
        Some(format) if format == u64::from(ROUND_FORMAT) => serde_json::from_value(value).map_err(not_one),
        format => Err(format!(
            "its reports have the format {}, and this inferbench reads {ROUND_FORMAT}: fight the duel with the newer of \
             the two",
            format.map_or("unknown".into(), |format| format.to_string())
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_another_format_is_refused_by_its_number() {
        assert!(read_report(r#"{"format": 9}"#).unwrap_err().contains("format 9"));
        assert!(read_report("oh").unwrap_err().contains("printed no report"));
    }

    #[test]
    fn only_the_candidate_is_slowed_down_and_nobody_can_tell_from_the_length() {
        let instructions = Instructions {
            selection: Selection { suite: "quick".into(), ..Selection::default() },
            threads: None,
            duration: Duration::from_millis(300),
            null_slowdown: Some(0.05),
        };
        let side = Side {
            name: ".".into(),
            commit: None,
            suite: None,
            suite_sha256: None,
            executable: PathBuf::new(),
            sha256: String::new(),
            root: PathBuf::new(),
        };
        let [base, null, candidate] =
            Contestant::ALL.map(|contestant| arguments(contestant, &side, &instructions, &[], false).join(" "));
        assert!(base == null && base != candidate && base.len() == candidate.len(), "{base} {candidate}");
        assert!(candidate.contains("--slowdown-ppm 000050000"), "{candidate}");
    }
}
