//! Why a case became slower: profiles of it by the base and by the candidate.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::planning::plan_arguments;
use super::terms::Terms;
use crate::backend::use_environment;
use crate::compare::{Duel, Program, Verdict};
use crate::run_data::Profile;

/// How often a pair of programs is profiled at the most.
const MOST_ATTEMPTS: usize = 3;

/// A profile for each case that became slower, with two cases: by the base, and by the candidate.
///
/// # Errors
/// A program cannot be started or has no profile of the case, or its answer cannot be read.
pub fn profile_slower(duel: &Duel, terms: &Terms) -> Result<Vec<Profile>> {
    let is_slower = |verdict: Option<Verdict>| verdict == Some(Verdict::Slower);
    let slower = duel.cases.iter().filter(|case| is_slower(case.comparison.as_ref().map(|found| found.verdict)));
    slower.map(|case| profile_pair(&duel.base, &duel.candidates[case.candidate], terms, &case.id)).collect()
}

/// Profiles by both programs, one after the other: once more if a disturbance has hidden that the candidate is slower.
fn profile_pair(base: &Program, candidate: &Program, terms: &Terms, id: &str) -> Result<Profile> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let (base, candidate) = (profile_by(base, terms, id)?, profile_by(candidate, terms, id)?);
        let profile = Profile { cases: [base.cases, candidate.cases].concat(), ..base };
        if shows_slow_down(&profile) || attempts == MOST_ATTEMPTS {
            return Ok(profile);
        }
    }
}

/// Whether the second case's plain calls take longer than the first's.
pub fn shows_slow_down(profile: &Profile) -> bool {
    matches!(profile.cases.as_slice(), [base, candidate] if candidate.plain_us > base.plain_us)
}

fn profile_by(program: &Program, terms: &Terms, id: &str) -> Result<Profile> {
    eprintln!("profiling {id} by {}", program.name);
    let folder = tempfile::tempdir()?;
    let mut arguments = plan_arguments(folder.path(), program, terms, &[])?;
    arguments[0] = "profile".into();
    let mut command = Command::new(&program.executable);
    if let Some(folder) = &program.environment {
        use_environment(&mut command, folder);
    }
    let output = command
        .arg("arm")
        .args(arguments)
        .args(["--case", id])
        .env("INFERBENCH_ROOT", &program.root)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .with_context(|| program.name.clone())?;
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    if words.contains("unrecognized subcommand") {
        bail!("{} is older than profiles, so that nothing can say which of its operators became slower", program.name);
    }
    let last = || words.lines().last().unwrap_or_default().to_owned();
    ensure!(output.status.success(), "{} ended with {}; its last words: {}", program.name, output.status, last());
    // Libraries may print before it.
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().rfind(|line| line.starts_with('{')).unwrap_or_default();
    let profile: Profile = serde_json::from_str(line).with_context(|| format!("the profile by {}", program.name))?;
    match profile.failures.first() {
        Some(failure) => Err(anyhow!("{}: {}: {}", program.name, failure.case_id, failure.message)),
        None => Ok(profile),
    }
}
