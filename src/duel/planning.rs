//! Asks each program of a duel what it can measure, once, before the first slice.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::{Value, json};

use super::build::short_sha256;
use super::terms::Terms;
use crate::backend::use_environment;
use crate::compare::{Program, Role};
use crate::harness::{ARM_PROTOCOL, ArmPlan, wait_for};
use crate::machine::files::link;
use crate::paths::{PREPARED, Paths};
use crate::selection::Selection;

/// The name of a program's Python environment in the folder of its arm.
const OWN_ENVIRONMENT: &str = "environment";
/// The name of the folder of a program's prepared files there.
const OWN_PREPARED: &str = "prepared";

/// The folder in which a duel's processes run.
///
/// Every arm has its executable, its project and its jobs there under names of one length: the lengths of arguments and
/// variables move what a process has on its stack, and that alone can make it faster or slower (Mytkowicz et al. 2009,
/// "Producing wrong data without doing anything obviously wrong!").
#[derive(Clone, Debug)]
pub struct Arena(PathBuf);

impl Arena {
    pub fn lay_out(folder: PathBuf, base: &Program, candidates: &[Program]) -> Result<Self> {
        // A duel that was killed has left its arena.
        let _ = std::fs::remove_dir_all(&folder);
        let duels = folder.parent().unwrap_or(&folder).to_owned();
        let arena = Arena(folder);
        for role in Role::all(candidates.len()) {
            let program = if let Role::Candidate(number) = role { &candidates[number] } else { base };
            let own = arena.of(role);
            fs_err::create_dir_all(own.join("jobs"))?;
            let prepared = prepared_by(program, &duels);
            fs_err::create_dir_all(&prepared)?;
            let links = [(&program.executable, "inferbench"), (&program.root, "root"), (&prepared, OWN_PREPARED)];
            let environment = program.environment.iter().map(|folder| (folder, OWN_ENVIRONMENT));
            for (target, name) in links.into_iter().chain(environment) {
                link(target, &own.join(name)).with_context(|| own.display().to_string())?;
            }
        }
        Ok(arena)
    }

    pub fn of(&self, role: Role) -> PathBuf {
        self.0.join(char::from(b'a' + role.place() as u8).to_string())
    }

    /// A process of an arm, with the arguments that come after `inferbench arm`.
    pub fn command(&self, role: Role, arguments: impl IntoIterator<Item = String>) -> Command {
        let own = self.of(role);
        let mut command = Command::new(own.join("inferbench"));
        command.arg("arm").args(arguments).env("INFERBENCH_ROOT", own.join("root"));
        command.env("CRITERION_HOME", self.0.join("scratch/criterion")).env(PREPARED, own.join(OWN_PREPARED));
        if own.join(OWN_ENVIRONMENT).exists() {
            use_environment(&mut command, &own.join(OWN_ENVIRONMENT));
        }
        command
    }

    /// The file for the error stream of an arm's process. A pipe would have to be read.
    pub fn log(&self, role: Role) -> PathBuf {
        self.of(role).join("log")
    }

    pub fn remove(&self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The folder of a program's prepared files. Two suites, or two revisions of a package, may have models of the same
/// name: the files made from one must not replace those made from the other.
pub fn prepared_by(program: &Program, duels: &Path) -> PathBuf {
    let paths = Paths::of(program.root.clone());
    let own = match (&program.suite, &program.commit) {
        (Some(suite), _) => short_sha256(&format!("{} {:?}", suite.display(), program.suite_sha256)),
        (None, Some(commit)) if paths.is_of_other_package() => commit.clone(),
        _ => return paths.prepared(),
    };
    duels.join("prepared").join(own)
}

/// The last lines of an arm's error stream.
pub fn last_words(log: &Path) -> String {
    const LINES: usize = 5;
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n  ")
}

/// Asks a program what it can measure: it prepares its artifacts, compares its outputs with the reference, and leaves a job
/// for each case.
///
/// # Errors
/// The program cannot be started, it refuses, its answer is not a plan, or
/// [`Interrupted`](crate::harness::Interrupted).
pub fn ask(arena: &Arena, role: Role, program: &Program, terms: &Terms, processors: &[usize]) -> Result<ArmPlan> {
    let command = arena.command(role, plan_arguments(&arena.of(role).join("jobs"), program, terms, processors)?);
    let too_old = "has no `inferbench arm`, which times the slices of a duel: it is older than paired benchmarks. Take a later \
         revision, or compare two runs with baselines (`inferbench run --save-baseline`, `--baseline`)";
    let text = answer_of(command, program, &arena.log(role), too_old)?;
    read_plan(&text).with_context(|| program.name.clone())
}

/// What a program prints when it is started by this command. `log` is for its error stream. `too_old` completes the
/// message about a program that does not know the subcommand.
///
/// # Errors
/// The program cannot be started, it refuses, or [`Interrupted`](crate::harness::Interrupted).
pub fn answer_of(mut command: Command, program: &Program, log: &Path, too_old: &str) -> Result<String> {
    let answer = log.with_file_name("answer");
    let file = |path: &Path| fs_err::File::create(path).map(|file| file.into_parts().0);
    command.stdin(Stdio::null()).stdout(file(&answer)?).stderr(file(log)?);
    let child = command.spawn().with_context(|| format!("{} ({})", program.name, program.executable.display()))?;
    let status = wait_for(child)?;
    let words = last_words(log);
    ensure!(!words.contains("unrecognized subcommand"), "{} {too_old}", program.name);
    ensure!(status.success(), "{} ended with {status}; its last words:\n  {words}", program.name);
    Ok(String::from_utf8_lossy(&fs_err::read(&answer)?).into_owned())
}

/// The JSON object of an answer, before which libraries may print.
pub fn last_object(text: &str) -> &str {
    text.lines().rfind(|line| line.starts_with('{')).unwrap_or_default()
}

/// The arguments of `inferbench arm` that ask for a plan: the flags of the selection by their names, one for each value.
pub fn plan_arguments(jobs: &Path, program: &Program, terms: &Terms, processors: &[usize]) -> Result<Vec<String>> {
    let suite = program.suite.as_ref().map(|file| file.display().to_string()).or(terms.selection.suite.clone());
    let selection = serde_json::to_value(Selection { suite, ..terms.selection.clone() })?;
    let threads: Vec<usize> = terms.threads.into_iter().collect();
    let others = json!({ "threads": threads, "processors": processors });
    let mut arguments = vec!["plan".to_owned(), "--folder".into(), jobs.display().to_string()];
    for (name, value) in [&selection, &others].into_iter().filter_map(Value::as_object).flatten() {
        for value in value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice) {
            if !value.is_null() {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                arguments.extend([format!("--{}", name.replace('_', "-")), text]);
            }
        }
    }
    arguments.extend(terms.selection.trust.iter().map(|said| format!("--trust={said}")));
    Ok(arguments)
}

fn read_plan(text: &str) -> Result<ArmPlan> {
    let value: Value = serde_json::from_str(last_object(text))
        .map_err(|error| anyhow!("`inferbench arm plan` printed no plan: {error}"))?;
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
    use std::collections::BTreeSet;

    use super::*;

    /// A program in a folder that is a checkout.
    fn program(folder: &Path) -> Program {
        fs_err::create_dir_all(folder.join("models/suites")).unwrap();
        Program {
            name: "a".into(),
            commit: None,
            suite: None,
            suite_sha256: None,
            executable: folder.join("inferbench"),
            sha256: String::new(),
            root: folder.into(),
            environment: None,
            libraries: BTreeSet::new(),
        }
    }

    #[test]
    fn models_of_one_name_in_two_suites_are_prepared_apart() {
        let folder = tempfile::tempdir().unwrap();
        let of_suite = |suite: &str| Program { suite: Some(suite.into()), ..program(folder.path()) };
        let candidates = [of_suite("one.toml"), of_suite("two.toml")];
        let arena = Arena::lay_out(folder.path().join("arena"), &program(folder.path()), &candidates).unwrap();
        let prepared = |role: Role| {
            let command = arena.command(role, Vec::new());
            let place = command.get_envs().find_map(|(name, value)| value.filter(|_| name == PREPARED));
            fs_err::canonicalize(place.unwrap()).unwrap()
        };
        let all = [Role::Base, Role::Candidate(0), Role::Candidate(1)].map(prepared);
        assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2], "{all:?}");
    }

    #[test]
    fn an_arm_with_an_environment_uses_no_runtime_that_a_variable_names() {
        let folder = tempfile::tempdir().unwrap();
        let candidates = [Program { environment: Some(folder.path().into()), ..program(folder.path()) }];
        let arena = Arena::lay_out(folder.path().join("arena"), &program(folder.path()), &candidates).unwrap();
        let is_removed = |role: Role| {
            let command = arena.command(role, Vec::new());
            command.get_envs().any(|(name, value)| name == "INFERBENCH_TORCH_PYTHON" && value.is_none())
        };
        assert!(!is_removed(Role::Base) && is_removed(Role::Candidate(0)));
    }

    #[test]
    fn a_plan_of_another_protocol_is_refused_by_its_number() {
        assert!(read_plan(r#"{"protocol": 9}"#).unwrap_err().to_string().contains("version 9"));
        assert!(read_plan("oh").unwrap_err().to_string().contains("printed no plan"));
        assert!(read_plan("a library's banner\n{\"protocol\":3,\"cases\":[]}\n").unwrap().cases.is_empty());
    }
}
