//! Slurm: an array job with a node per part, and a job that merges the results.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::catalogue::shell_word;
use crate::definition::Shard;

const PART: &str = include_str!("../../scripts/slurm/part");
const MERGE: &str = include_str!("../../scripts/slurm/merge");

/// The jobs of a suite that was divided.
pub struct Array<'a> {
    pub shard: &'a Shard,
    /// The folder of the suite files of all parts, on storage that all nodes share.
    pub plan: &'a Path,
    /// The root of the project, on the same storage.
    pub root: &'a Path,
    /// The feature of nodes that a kind of device needs.
    pub constraints: &'a BTreeMap<String, String>,
    /// Further arguments of `sbatch`.
    pub arguments: &'a [String],
    /// Whether the merge exits with 0 even if a case failed.
    pub may_fail: bool,
}

impl Array<'_> {
    /// The arguments of each array job. There is one for each kind of device.
    fn jobs(&self) -> Vec<Vec<String>> {
        let mut kinds: BTreeMap<Option<&str>, Vec<String>> = BTreeMap::new();
        for (place, part) in self.shard.parts.iter().enumerate() {
            kinds.entry(part.device.as_deref()).or_default().push((place + 1).to_string());
        }
        let job = |(kind, numbers): (Option<&str>, Vec<String>)| {
            let constraint = kind.and_then(|kind| self.constraints.get(kind));
            let own = [
                format!("--array={}", numbers.join(",")),
                "--nodes=1".into(),
                "--ntasks=1".into(),
                "--exclusive".into(),
                "--requeue".into(),
                "--open-mode=append".into(),
                format!("--output={}", self.plan.join("part-%a.log").display()),
            ];
            let constraint = constraint.map(|feature| format!("--constraint={feature}"));
            let script = [self.plan.join("part").display().to_string()];
            own.into_iter().chain(constraint).chain(self.arguments.iter().cloned()).chain(script).collect()
        };
        kinds.into_iter().map(job).collect()
    }

    fn merge_job(&self, after: &[String]) -> Vec<String> {
        let own = [
            format!("--dependency=afterany:{}", after.join(":")),
            "--ntasks=1".into(),
            format!("--output={}", self.plan.join("merge.log").display()),
        ];
        let script = [self.plan.join("merge").display().to_string()];
        let flag = self.may_fail.then(|| "--allow-failed".to_owned());
        own.into_iter().chain(self.arguments.iter().cloned()).chain(script).chain(flag).collect()
    }

    /// The environment variables of the jobs.
    fn variables(&self) -> Result<[(&'static str, PathBuf); 4]> {
        let executable = std::env::current_exe().context("the path of this executable")?;
        Ok([
            ("INFERBENCH_EXECUTABLE", executable),
            ("INFERBENCH_ROOT", std::path::absolute(self.root)?),
            ("INFERBENCH_PLAN", std::path::absolute(self.plan)?),
            ("INFERBENCH_PART_COUNT", self.shard.parts.len().to_string().into()),
        ])
    }

    /// The commands that [`submit`] runs; `JOB` stands for the number that Slurm gives to a job.
    pub fn commands(&self) -> Result<String> {
        let jobs = self.jobs();
        let after: Vec<String> = jobs.iter().map(|_| "JOB".to_owned()).collect();
        let mut text = "# INFERBENCH_PLAN and its files do not exist until the jobs are submitted, without `--dry-run`. JOB stands for \
                        the number that Slurm gives to a job.\n"
            .to_owned();
        for (name, value) in self.variables()? {
            text.push_str(&format!("export {name}={}\n", shell_word(&value.to_string_lossy())));
        }
        for arguments in jobs.iter().chain([&self.merge_job(&after)]) {
            let words: Vec<String> = arguments.iter().map(|word| shell_word(word)).collect();
            text.push_str(&format!("sbatch --parsable {}\n", words.join(" ")));
        }
        Ok(text)
    }
}

/// Writes the jobs' scripts beside the plan and submits them. Returns the numbers of the arrays, and that of the merge.
///
/// # Errors
/// Slurm is not installed, or refuses a job. The message has its reason and the jobs that were submitted before.
pub fn submit(array: &Array<'_>) -> Result<(Vec<String>, String)> {
    for (name, text) in [("part", PART), ("merge", MERGE)] {
        fs_err::write(array.plan.join(name), text)?;
    }
    let variables = array.variables()?;
    let sbatch = |arguments: &[String]| -> Result<String> {
        let mut command = Command::new("sbatch");
        command.arg("--parsable").args(arguments).envs(variables.iter().map(|(name, value)| (name, value)));
        let output = command.output().context("sbatch: Slurm's commands are not on this machine")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "sbatch {}: {}", arguments.join(" "), said.trim());
        // The name of the cluster may follow after a semicolon.
        let number = String::from_utf8_lossy(&output.stdout);
        Ok(number.trim().split(';').next().unwrap_or_default().to_owned())
    };
    let mut parts: Vec<String> = Vec::new();
    for job in array.jobs() {
        let number = after(&parts, sbatch(&job))?;
        parts.push(number);
    }
    let merge = after(&parts, sbatch(&array.merge_job(&parts)))?;
    Ok((parts, merge))
}

/// The number of a job. If Slurm does not take it, the error says how to remove the jobs that were submitted before.
fn after(submitted: &[String], number: Result<String>) -> Result<String> {
    match submitted {
        [] => number,
        jobs => number.with_context(|| format!("`scancel {}` removes what was submitted before", jobs.join(" "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{Fingerprint, ShardCases};

    #[test]
    fn failed_cases_fail_the_merge_unless_they_are_allowed() {
        let shard = Shard {
            index: 1,
            suite: "small".into(),
            planned: None,
            anchor: None,
            fingerprint: Fingerprint::default(),
            parts: vec![ShardCases::default()],
        };
        let place = Path::new("/shared");
        let merge_job = |may_fail| {
            let array = Array {
                shard: &shard,
                plan: place,
                root: place,
                constraints: &BTreeMap::new(),
                arguments: &[],
                may_fail,
            };
            array.merge_job(&["12".into()])
        };
        let script = "/shared/merge".to_owned();
        assert_eq!(merge_job(false).last(), Some(&script));
        assert_eq!(merge_job(true)[merge_job(false).len() - 1..], [script, "--allow-failed".to_owned()]);
        assert!(MERGE.trim_end().ends_with("--partial \"$@\""), "the script passes the flag on");
    }

    #[test]
    fn a_job_that_is_refused_names_those_before_it() {
        let refused = |submitted: &[String]| {
            format!("{:#}", after(submitted, Err(anyhow::anyhow!("no such partition"))).unwrap_err())
        };
        assert_eq!(refused(&[]), "no such partition");
        assert!(refused(&["12".into(), "13".into()]).starts_with("`scancel 12 13` removes"));
    }
}
