//! Why a case became slower: profiles of it by the base and by the candidate.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::planning::plan_arguments;
use super::terms::Terms;
use crate::backend::use_environment;
use crate::compare::{CaseOutcome, Duel, Program, Verdict};
use crate::harness::wait_for;
use crate::run_data::Profile;

/// How often a pair of programs is profiled at the most.
const MOST_ATTEMPTS: usize = 3;

/// A profile for each case that became slower, with two cases: by the base, and by the candidate. Each is made when it is asked for.
///
/// # Errors
/// A program cannot be started or has no profile of the case, its answer cannot be read, or the user stops it
/// ([`Interrupted`](crate::harness::Interrupted)).
pub fn profile_slower(duel: &Duel, terms: &Terms) -> impl Iterator<Item = Result<Profile>> {
    let is_slower =
        |case: &&CaseOutcome| case.comparison.as_ref().is_some_and(|found| found.verdict == Verdict::Slower);
    duel.cases.iter().filter(is_slower).map(move |case| profile_pair(duel, case, terms))
}

/// Profiles by both programs, one after the other: once more if a disturbance has hidden that the candidate is slower.
fn profile_pair(duel: &Duel, case: &CaseOutcome, terms: &Terms) -> Result<Profile> {
    let [of_base, of_candidate] = case.own_ids.as_ref().map_or([&case.id; 2], |ids| ids.each_ref());
    let mut attempts = 0;
    loop {
        attempts += 1;
        let base = profile_by(&duel.base, terms, of_base)?;
        let candidate = profile_by(&duel.candidates[case.candidate], terms, of_candidate)?;
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
    let [answer, log] = ["answer", "log"].map(|name| folder.path().join(name));
    let file = |path: &Path| fs_err::File::create(path).map(|file| file.into_parts().0);
    let child = command
        .arg("arm")
        .args(arguments)
        .args(["--case", id])
        .env("INFERBENCH_ROOT", &program.root)
        .stdin(Stdio::null())
        .stdout(file(&answer)?)
        .stderr(file(&log)?)
        .spawn()
        .with_context(|| program.name.clone())?;
    let status = wait_for(child)?;
    let words = String::from_utf8_lossy(&fs_err::read(&log)?).into_owned();
    if words.contains("unrecognized subcommand") {
        bail!("{} is older than profiles, so that nothing can say which of its operators became slower", program.name);
    }
    let last = || words.lines().last().unwrap_or_default().to_owned();
    ensure!(status.success(), "{} ended with {status}; its last words: {}", program.name, last());
    // Libraries may print before it.
    let text = String::from_utf8_lossy(&fs_err::read(&answer)?).into_owned();
    let line = text.lines().rfind(|line| line.starts_with('{')).unwrap_or_default();
    let profile: Profile = serde_json::from_str(line).with_context(|| format!("the profile by {}", program.name))?;
    match profile.failures.first() {
        Some(failure) => Err(anyhow!("{}: {}: {}", program.name, failure.case_id, failure.message)),
        None => Ok(profile),
    }
}
