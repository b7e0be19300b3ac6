//! Profiles a case that became slower, by the base and by the candidate, to find out why.

use std::process::Command;

use anyhow::{Context, Result, anyhow};

use super::planning::{answer_of, last_object, plan_arguments, prepared_by};
use super::terms::Terms;
use crate::backend::use_environment;
use crate::compare::{CaseOutcome, Duel, Program, Verdict};
use crate::paths::{PREPARED, Paths};
use crate::run_data::Profile;

/// How often a pair of programs is profiled at most.
const MOST_ATTEMPTS: usize = 3;

/// A profile for each case that became slower. Its two cases are by the base and by the candidate. It is made when the
/// iterator reaches it.
///
/// # Errors
/// A program cannot be started or has no profile of the case, its answer cannot be read, or the user stops it
/// ([`Interrupted`](crate::harness::Interrupted)).
pub fn profile_slower(duel: &Duel, terms: &Terms, paths: &Paths) -> impl Iterator<Item = Result<Profile>> {
    let is_slower =
        |case: &&CaseOutcome| case.comparison.as_ref().is_some_and(|found| found.verdict == Verdict::Slower);
    duel.cases.iter().filter(is_slower).map(move |case| profile_pair(duel, case, terms, paths))
}

/// Profiles by both programs, one after the other, and repeats this if a disturbance has hidden that the candidate is
/// slower.
fn profile_pair(duel: &Duel, case: &CaseOutcome, terms: &Terms, paths: &Paths) -> Result<Profile> {
    let [of_base, of_candidate] = case.own_ids.as_ref().map_or([&case.id; 2], |ids| ids.each_ref());
    let mut attempts = 0;
    loop {
        attempts += 1;
        let base = profile_by(&duel.base, terms, paths, of_base)?;
        let candidate = profile_by(&duel.candidates[case.candidate], terms, paths, of_candidate)?;
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

fn profile_by(program: &Program, terms: &Terms, paths: &Paths, id: &str) -> Result<Profile> {
    eprintln!("profiling {id} by {}", program.name);
    let folder = tempfile::tempdir()?;
    let mut arguments = plan_arguments(folder.path(), program, terms, &[])?;
    arguments[0] = "profile".into();
    let mut command = Command::new(&program.executable);
    command.arg("arm").args(arguments).args(["--case", id]).env("INFERBENCH_ROOT", &program.root);
    command.env(PREPARED, prepared_by(program, &paths.duels()));
    if let Some(folder) = &program.environment {
        use_environment(&mut command, folder);
    }
    let too_old = "is older than profiles, so that nothing can say which of its operators became slower";
    let text = answer_of(command, program, &folder.path().join("log"), too_old)?;
    let profile: Profile =
        serde_json::from_str(last_object(&text)).with_context(|| format!("the profile by {}", program.name))?;
    match profile.failures.first() {
        Some(failure) => Err(anyhow!("{}: {}: {}", program.name, failure.case_id, failure.message)),
        None => Ok(profile),
    }
}
