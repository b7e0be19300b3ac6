//! What each program of a duel can measure: asked once, before the first slice.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};

use super::process::wait;
use crate::compare::{Program, Role};
use crate::harness::{ARM_PROTOCOL, ArmPlan};
use crate::selection::Selection;

/// What every program of a duel is told.
#[derive(Clone, Debug)]
pub struct Instructions {
    pub selection: Selection,
    pub threads: Option<usize>,
    /// The processors that an arm's threads are pinned to; none if it is empty.
    pub processors: Vec<usize>,
}

/// The folder in which a duel's processes run.
///
/// Every arm has its executable, its project and its jobs there under names of one length: the lengths of arguments and
/// variables move what a process has on its stack, and that alone can make it faster or slower (Mytkowicz et al. 2009,
/// "Producing wrong data without doing anything obviously wrong!").
#[derive(Clone, Debug)]
pub struct Arena(PathBuf);

impl Arena {
    /// Lays out the arms of all programs.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn lay_out(folder: PathBuf, base: &Program, candidates: &[Program]) -> Result<Self> {
        // A duel that was killed has left its own.
        let _ = std::fs::remove_dir_all(&folder);
        let arena = Arena(folder);
        for role in Role::all(candidates.len()) {
            let program = if let Role::Candidate(number) = role { &candidates[number] } else { base };
            let own = arena.of(role);
            fs_err::create_dir_all(own.join("jobs"))?;
            for (target, link) in [(&program.executable, "inferbench"), (&program.root, "root")] {
                symlink(target, own.join(link)).with_context(|| own.display().to_string())?;
            }
        }
        Ok(arena)
    }

    /// The folder of an arm.
    pub fn of(&self, role: Role) -> PathBuf {
        self.0.join(char::from(b'a' + role.place() as u8).to_string())
    }

    /// A process of an arm, with the arguments that come after `inferbench arm`.
    pub fn command(&self, role: Role, arguments: impl IntoIterator<Item = String>) -> Command {
        let own = self.of(role);
        let mut command = Command::new(own.join("inferbench"));
        command.arg("arm").args(arguments).env("INFERBENCH_ROOT", own.join("root"));
        command.env("CRITERION_HOME", self.0.join("scratch/criterion"));
        command
    }

    /// The last lines of what a process of an arm complained of.
    pub fn last_words(&self, role: Role) -> String {
        const LINES: usize = 5;
        let text = std::fs::read(self.log(role)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n  ")
    }

    /// Where a process of an arm complains: a file and not a pipe, which somebody would have to read.
    pub fn log(&self, role: Role) -> PathBuf {
        self.of(role).join("log")
    }

    pub fn remove(&self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Asks a program what it can measure: it prepares its artifacts, compares its outputs with the reference, and leaves a job
/// for each case. Returns `None` if the user stopped it.
///
/// # Errors
/// It cannot be started, it refuses, or its answer is not a plan.
pub fn ask(arena: &Arena, role: Role, program: &Program, instructions: &Instructions) -> Result<Option<ArmPlan>> {
    let answer = arena.of(role).join("plan.json");
    let file = |path: &Path| fs_err::File::create(path).map(|file| file.into_parts().0);
    let child = arena
        .command(role, plan_arguments(&arena.of(role).join("jobs"), program, instructions))
        .stdin(Stdio::null())
        .stdout(file(&answer)?)
        .stderr(file(&arena.log(role))?)
        .spawn()
        .with_context(|| format!("{} ({})", program.name, program.executable.display()))?;
    let Some(status) = wait(child)? else { return Ok(None) };
    if !status.success() {
        bail!("{} ended with {status}; its last words:\n  {}", program.name, arena.last_words(role));
    }
    read_plan(&String::from_utf8_lossy(&fs_err::read(&answer)?)).with_context(|| program.name.clone()).map(Some)
}

/// The arguments of `inferbench arm` that ask for a plan.
pub fn plan_arguments(jobs: &Path, program: &Program, instructions: &Instructions) -> Vec<String> {
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
        input,
        dim,
        reference,
        // Words of the command line are programs.
        files: _,
        // A duel evaluates no answers: it compares outputs with the reference only.
        data_source: _,
    } = &instructions.selection;
    let suite = program.suite.as_ref().map_or_else(|| suite.clone(), |file| file.display().to_string());
    let mut arguments = vec!["plan".to_owned(), "--folder".into(), jobs.display().to_string(), "--suite".into(), suite];
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
    input.iter().for_each(|input| add("--input", vec![input.clone()]));
    add("--dim", dim.iter().map(|(name, size)| format!("{name}={size}")).collect());
    add("--reference", reference.iter().map(|path| path.display().to_string()).collect());
    add("--threads", instructions.threads.iter().map(usize::to_string).collect());
    add("--processors", numbers(&instructions.processors));
    arguments
}

fn read_plan(text: &str) -> Result<ArmPlan> {
    // Libraries may print before it.
    let line = text.lines().rfind(|line| line.starts_with('{')).unwrap_or_default();
    let value: serde_json::Value =
        serde_json::from_str(line).map_err(|error| anyhow!("`inferbench arm plan` printed no plan: {error}"))?;
    match value["protocol"].as_u64() {
        Some(protocol) if protocol == u64::from(ARM_PROTOCOL) => Ok(serde_json::from_value(value)?),
        protocol => bail!(
            "it speaks version {} of the protocol of arms, and this inferbench speaks {ARM_PROTOCOL}: start the duel with \
             the newer one of the two",
            protocol.map_or("unknown".into(), |protocol| protocol.to_string())
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_of_another_protocol_is_refused_by_its_number() {
        assert!(read_plan(r#"{"protocol": 9}"#).unwrap_err().to_string().contains("version 9"));
        assert!(read_plan("oh").unwrap_err().to_string().contains("printed no plan"));
        assert!(read_plan("a library's banner\n{\"protocol\":2,\"cases\":[]}\n").unwrap().cases.is_empty());
    }
}
