//! `inferbench fleet`: a suite over many machines, by Slurm or ssh.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::thread;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

use super::shard::{DivisionArguments, write};
use super::{merge, parse_pair};
use crate::catalogue::read_suite;
use crate::definition::{DataSource, Shard, Status, Suite};
use crate::exit_codes;
use crate::fleet::{Array, Host, measure, submit};
use crate::harness::exit_code_of;
use crate::paths::Paths;

/// Measure a suite on many machines by Slurm or ssh, and merge
#[derive(Args)]
#[command(
    after_help = "Examples:\n  inferbench fleet slurm --suite small --nodes 4 --dry-run\n  inferbench fleet ssh alpha beta --suite small"
)]
pub struct Arguments {
    #[command(subcommand)]
    by: By,
}

#[derive(Subcommand)]
enum By {
    Slurm(Slurm),
    Ssh(Ssh),
}

/// Submit the parts as a Slurm array job with one node per part, and a job that merges them
#[derive(Args)]
#[command(
    after_help = "The project's folder has to be on storage that the nodes share. Run `inferbench prepare` first, so that the nodes do not \
        prepare the same files at the same time.\n\n\
        Examples:\n  inferbench fleet slurm --suite small --nodes 4 --dry-run\n  \
        inferbench fleet slurm --suite key --nodes 8 --sbatch=--partition=bench --sbatch=--time=4:00:00\n  \
        inferbench fleet slurm --suite key --nodes 8 --by machine-kind --constraint cuda=gpu"
)]
struct Slurm {
    /// The number of parts; each has a node to itself
    #[arg(long, value_name = "N", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    nodes: usize,
    /// With `--by machine-kind`: the node feature that a kind of device needs
    #[arg(long, value_name = "DEVICE=FEATURE", value_parser = parse_pair, requires = "by")]
    constraint: Vec<(String, String)>,
    /// A further argument of sbatch
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    sbatch: Vec<String>,
    /// Print the commands and submit nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    of: DivisionArguments,
}

/// Copy the program and its files to machines, measure a part on each, and fetch the results
#[derive(Args)]
#[command(
    after_help = "A machine needs Linux on the same processor architecture, sha256sum, tar, and a login without a password. \
        INFERBENCH_SSH replaces the command `ssh`. Exit code 3: a machine did not finish, and the parts of the others were \
        merged. Otherwise the exit code is that of `inferbench run`.\n\n\
        Examples:\n  inferbench fleet ssh alpha beta --suite small\n  inferbench fleet ssh alpha beta --suite small --resume"
)]
struct Ssh {
    /// The machines, as ssh knows them
    #[arg(required = true, value_name = "HOST")]
    hosts: Vec<String>,
    /// The folder for inferbench on the machines, relative to the home folder there
    #[arg(long, value_name = "FOLDER", default_value = ".cache/inferbench/fleet")]
    folder: String,
    /// Continue the last measurement of this suite
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    of: DivisionArguments,
}

pub fn run(arguments: &Arguments) -> Result<u8> {
    match &arguments.by {
        By::Slurm(slurm) => slurm.run(),
        By::Ssh(ssh) => ssh.run(),
    }
}

/// The folder of the suite files of a measurement's parts.
const PLAN: &str = "plan";

fn plan_of(paths: &Paths, shard: &Shard) -> PathBuf {
    paths.parts().join(shard.measurement()).join(PLAN)
}

impl Slurm {
    fn run(&self) -> Result<u8> {
        let paths = Paths::find();
        let (suite, shard) = self.of.divide(&paths, self.nodes)?;
        let kinds: BTreeSet<&str> = shard.parts.iter().filter_map(|part| part.device.as_deref()).collect();
        if let Some((kind, _)) = self.constraint.iter().find(|(kind, _)| !kinds.contains(kind.as_str())) {
            let known = Vec::from_iter(kinds).join(", ");
            bail!("`--constraint {kind}=…`: no part is for the kind of device {kind:?}; there are parts for {known}");
        }
        let plan = plan_of(&paths, &shard);
        let constraints: BTreeMap<String, String> = self.constraint.iter().cloned().collect();
        let (root, arguments, may_fail) = (paths.root(), self.sbatch.as_slice(), self.of.effort.allow_failed);
        let array = Array { shard: &shard, plan: &plan, root, constraints: &constraints, arguments, may_fail };
        if self.dry_run {
            print!("{}", array.commands()?);
            return Ok(exit_codes::OK);
        }
        write(&suite, &shard, &plan)?;
        let (parts, merge) = submit(&array)?;
        println!("parts  {}\nmerge  {merge}\nplan   {}", parts.join(" "), plan.display());
        Ok(exit_codes::OK)
    }
}

impl Ssh {
    fn run(&self) -> Result<u8> {
        let paths = Paths::find();
        let (planned, shard) = self.of.divide(&paths, self.hosts.len())?;
        let of_file = planned.models.iter().find(|model| model.path.is_some());
        if let Some(model) = of_file {
            bail!("{}: only models of the folder `models` are copied; put its file into models/exported", model.name);
        }
        let is_elsewhere = |source: &Option<DataSource>| !matches!(source, None | Some(DataSource::Synthetic));
        let mut models = planned.models.iter();
        if is_elsewhere(&planned.data_source)
            || models.any(|model| model.weights.is_some() || is_elsewhere(&model.data_source))
        {
            bail!("samples (`--data-source`, `--text`) and `weights` are not copied to the machines: leave them out");
        }
        let (suite, first) = if self.resume { last_like(&paths, &shard)? } else { (planned, shard) };
        let plan = plan_of(&paths, &first);
        write(&suite, &first, &plan)?;
        let failures: Vec<String> = thread::scope(|scope| {
            let start = |(place, name): (usize, &String)| {
                let host = Host { name: name.clone(), folder: self.folder.clone() };
                let shard = Shard { index: place + 1, ..first.clone() };
                let (paths, plan) = (&paths, &plan);
                scope.spawn(move || measure(&host, paths, &shard, plan))
            };
            let running: Vec<_> = self.hosts.iter().enumerate().map(start).collect();
            let ended =
                running.into_iter().map(|machine| machine.join().unwrap_or_else(|_| bail!("a thread panicked")));
            ended.filter_map(|ended| ended.err().map(|why| format!("{why:#}"))).collect()
        });
        failures.iter().for_each(|why| eprintln!("inferbench: {why}"));
        let measurement = paths.parts().join(first.measurement());
        if failures.len() == self.hosts.len() {
            eprintln!("inferbench: no machine finished, and nothing was merged");
            return Ok(exit_codes::NOTHING_MEASURED);
        }
        let (_, records) = merge::merge_parts(&merge::Arguments::of(measurement))?;
        // The merged run lacks the cases of a machine that has failed.
        let statuses: Vec<Status> = records.iter().map(|record| record.status).collect();
        let code = exit_code_of(&statuses, self.of.effort.allow_failed);
        Ok(if failures.is_empty() { code } else { exit_codes::NOTHING_MEASURED })
    }
}

/// The last measurement that was planned for the same suite, files and number of parts, and its first part.
fn last_like(paths: &Paths, wanted: &Shard) -> Result<(Suite, Shard)> {
    let same = |shard: &Shard| (shard.fingerprint.clone(), shard.parts.len(), shard.anchor.clone());
    let models = paths.models()?;
    let folders = fs_err::read_dir(paths.parts()).into_iter().flatten().flatten();
    let name = Shard { index: 1, ..wanted.clone() }.name();
    let suites = folders.filter_map(|entry| {
        let file = entry.path().join(PLAN).join(format!("{name}.toml"));
        let suite = read_suite(file.to_str().filter(|_| file.is_file())?, &models).ok()?;
        let shard = suite.shard.clone().filter(|shard| same(shard) == same(wanted))?;
        Some((suite, shard))
    });
    let last = suites.max_by_key(|(_, shard)| shard.planned);
    last.context("there is no measurement to continue of this suite with these files and this number of machines")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn a_suite_over_machines_ends_as_a_run_of_all_of_it() {
        use Status::{Failed, Ok, Suspicious, Unavailable, WrongOutput};
        assert_eq!(exit_code_of(&[Ok, Unavailable], false), exit_codes::OK);
        assert_eq!(exit_code_of(&[Suspicious, Failed], false), exit_codes::CASE_FAILED);
        assert_eq!(exit_code_of(&[Suspicious, Failed], true), exit_codes::OK);
        assert_eq!(exit_code_of(&[Ok, Failed, WrongOutput], true), exit_codes::REGRESSION_OR_WRONG);
        assert_eq!(exit_code_of(&[Unavailable, Failed], true), exit_codes::NOTHING_MEASURED);
    }

    #[test]
    fn a_kind_of_nodes_is_for_parts_of_one_kind_of_device() {
        let words = ["inferbench", "fleet", "slurm", "--nodes", "4", "--constraint", "cuda=gpu"];
        assert!(Cli::try_parse_from(words).is_err());
        assert!(Cli::try_parse_from([&words[..], &["--by", "machine-kind"]].concat()).is_ok());
    }
}
