//! `inferbench store`: looks at the history of runs, copies it, thins it out, and queries it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use clap::{ArgGroup, Args, Subcommand};
use jiff::Timestamp;
use serde_json::json;

use super::Listing;
use super::history_arguments::HistoryArguments;
use super::store_query::{Query, since};
use crate::compare::measured_backend;
use crate::exit_codes;
use crate::history::{
    History, Imported, LATENCIES, Run, RunFacts, copy_beside, folder_of_load, import, remove, remove_calls,
    write_records, write_whole,
};
use crate::paths::Paths;
use crate::report::Format;
use crate::report::index::{self, RunList};
use crate::report::numbers::plural;
use crate::selection::values::count;

/// Keep a history of runs, copy it, thin it out, query it
#[derive(Args)]
#[command(
    after_help = "The history is the folder of reports. Each run's folder has Parquet files that pandas, Polars and DuckDB read: \
        run.parquet, results.parquet, metrics.parquet, hardware.parquet and latencies.parquet.\n\nExamples:\n  inferbench store runs\n  \
        inferbench store import /mnt/laptop/target-reports\n  \
        inferbench store query --where model=resnet50 --by backend --since 30d"
)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    history: HistoryArguments,
}

#[derive(Subcommand)]
enum Command {
    Import(Import),
    Export(Export),
    Query(Query),
    #[command(alias = "list")]
    Runs(Runs),
    Prune(Prune),
}

pub fn run(Arguments { command, history }: &Arguments) -> Result<u8> {
    let paths = Paths::find();
    let reports = paths.reports();
    match command {
        Command::Import(arguments) => arguments.run(history.only(&reports)?, &paths),
        Command::Export(arguments) => arguments.run(&history.existing(reports)?),
        Command::Query(arguments) => arguments.run(|| history.existing(reports)),
        Command::Runs(arguments) => Ok(arguments.run(&history.existing(reports)?)),
        Command::Prune(arguments) => {
            history.only(&reports)?;
            arguments.run(&history.existing(reports)?, &paths)
        }
    }
}

/// Writes the page of all runs again if the folder has one, or is the folder of reports.
fn write_index(root: &Path, paths: &Paths) -> Result<()> {
    let page = root.join(index::INDEX);
    if page.is_file() || (root.is_dir() && root == paths.reports()) {
        write_whole(&page, index::render(root, &paths.criterion())?.as_bytes())?;
    }
    Ok(())
}

/// List the runs of the history: models, backends, the fastest cases
#[derive(Args)]
#[command(
    after_help = "If a run has one model, its fastest case is the one with the lowest median. If it has several, each backend has the number of models \
        on which it is the fastest.\n\nExamples:\n  inferbench store runs\n  inferbench store runs --model resnet50 --backend ort\n  \
        inferbench store runs --format json | jq '.[].run_id'"
)]
struct Runs {
    /// Only runs of one of these models
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    model: Vec<String>,
    /// Only runs of one of these backends
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", value_parser = measured_backend)]
    backend: Vec<String>,
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

impl Runs {
    /// Lists the oldest run first, so that the newest are at the end, where a terminal's reader looks.
    fn run(&self, history: &History) -> u8 {
        let is_wanted = |facts: &RunFacts| facts.has(&self.model, &self.backend);
        let RunList { table, facts, unread } = RunList::new(history.runs().iter().rev(), is_wanted);
        Listing { table, objects: json!(facts) }.print(self.format);
        if facts.is_empty() && !(self.model.is_empty() && self.backend.is_empty()) {
            eprintln!("no run in {} has what --model and --backend ask for", history.places());
        }
        unread.iter().for_each(|line| eprintln!("{line}"));
        if unread.is_empty() { exit_codes::OK } else { exit_codes::USAGE }
    }
}

/// The runs with these names, the oldest first; all runs if there are no names.
fn chosen<'a>(history: &'a History, ids: &[String]) -> Result<Vec<&'a Run>> {
    let runs = history.runs().iter().rev();
    if ids.is_empty() {
        return Ok(runs.collect());
    }
    let named: Vec<(&Run, Vec<String>)> = runs.map(|run| (run, names_of(run))).collect();
    let fitting = |id: &String| named.iter().filter(|(_, names)| names.contains(id)).collect::<Vec<_>>();
    let telling = |(_, names): &&(&Run, Vec<String>)| {
        names.iter().find(|&name| fitting(name).len() == 1).or(names.last()).cloned().unwrap_or_default()
    };
    for id in ids {
        let runs = fitting(id);
        let load = || history.roots().iter().find_map(|root| folder_of_load(root, id));
        if let Some(folder) = runs.is_empty().then(load).flatten() {
            bail!("{id} is a load test, in {}; `--run` chooses runs only", folder.display());
        }
        ensure!(!runs.is_empty(), "no run {id:?} in {}; `inferbench store runs` lists them", history.places());
        let names = || runs.iter().map(telling).collect::<Vec<_>>().join(", ");
        ensure!(runs.len() == 1, "{id:?} fits several runs; name one of {}", names());
    }
    let is_chosen = |(_, names): &&(&Run, Vec<String>)| ids.iter().any(|id| names.contains(id));
    Ok(named.iter().filter(is_chosen).map(|(run, _)| *run).collect())
}

/// The names of a run: its own name, its id with its machine, its id (which runs of several machines may share), and
/// its folder.
fn names_of(run: &Run) -> Vec<String> {
    let mut names = vec![run.name().to_owned()];
    if let Ok(RunFacts { run_id, host_id, .. }) = run.facts() {
        names.extend([format!("{run_id}-{host_id}"), run_id]);
    }
    names.push(run.folder().display().to_string());
    names
}

/// Copy runs into the history, each whole or not at all
#[derive(Args)]
#[command(
    after_help = "A run that the history already has, by host and id, is not copied again. If a run cannot be read, or the \
        history has more of it, the run is named and left out, and the exit code is 2. Load tests and profiles come along with the runs of a \
        whole folder.\n\nExamples:\n  \
        inferbench store import /mnt/laptop/target-reports exported.csv history.duckdb\n  \
        inferbench store import 20260101T120000Z --history /mnt/share/reports"
)]
struct Import {
    /// Run ids, folders of runs, CSV files of records, or .duckdb exports [default: every run in target-reports]
    sources: Vec<String>,
    /// Take a run even if the history has more of it
    #[arg(long)]
    replace: bool,
}

impl Import {
    fn run(&self, root: &Path, paths: &Paths) -> Result<u8> {
        let own = History::open(&[paths.reports()])?;
        let (mut runs, mut folders) = (Vec::new(), Vec::new());
        if self.sources.is_empty() {
            own.latest()?;
            runs.extend(own.runs().to_vec());
            folders.push(paths.reports());
        }
        for source in &self.sources {
            let path = PathBuf::from(source);
            if path.exists() {
                let found = History::open(std::slice::from_ref(&path))?.runs().to_vec();
                ensure!(!found.is_empty(), "{source} is neither a run nor a folder of runs");
                runs.extend(found);
                folders.push(path);
            } else {
                runs.push(own.get(source)?);
            }
        }
        let mut code = exit_codes::OK;
        // The oldest first.
        for run in runs.iter().rev() {
            let imported = import(run, root, self.replace).and_then(|imported| {
                let word = match imported {
                    Imported::Added => "added",
                    Imported::Replaced => "replaced",
                    Imported::Unchanged => "there already",
                    Imported::Refused(reason) => bail!(reason),
                };
                let facts = run.facts()?;
                let cases = plural(facts.cases, "case", "cases");
                Ok(format!("{word}: {} ({cases}, {})", facts.run_id, plural(facts.calls, "call", "calls")))
            });
            match imported {
                Ok(said) => eprintln!("{said}"),
                Err(error) => {
                    eprintln!("not imported: {}: {error:#}", run.name());
                    code = exit_codes::USAGE;
                }
            }
        }
        folders.iter().try_for_each(|folder| copy_others(folder, root))?;
        write_index(root, paths)?;
        println!("{}", root.display());
        Ok(code)
    }
}

/// Write runs as another history, a CSV file, or a DuckDB database
#[derive(Args)]
#[command(
    after_help = "Load tests and profiles come along into a folder if all runs do.\n\nExamples:\n  inferbench store export /mnt/share/reports\n  inferbench store export results.csv\n  \
        inferbench store export history.duckdb\n  inferbench store export one.csv --run 20260101T120000Z"
)]
struct Export {
    /// A folder, which becomes a history or is added to; a .csv file, for all results; or a
    /// .duckdb file, for a database with the tables, which needs a build with `--features duckdb`
    target: PathBuf,
    /// Only these runs
    #[arg(long = "run", value_name = "ID", value_delimiter = ',')]
    runs: Vec<String>,
}

impl Export {
    fn run(&self, history: &History) -> Result<u8> {
        let target = &self.target;
        let runs = chosen(history, &self.runs)?;
        ensure!(!runs.is_empty(), "nothing to export: there is no run in {}", history.places());
        match target.extension().and_then(|extension| extension.to_str()) {
            Some("csv") => {
                let mut bytes = Vec::new();
                write_records(&[], &mut bytes)?;
                let header = bytes.len();
                // The records of a large history are many times as large as their text.
                for run in runs {
                    let mut own = Vec::new();
                    write_records(&run.records()?, &mut own)?;
                    bytes.extend_from_slice(&own[header..]);
                }
                write_whole(target, &bytes)?;
            }
            Some("duckdb") => crate::history::write_database(&runs.into_iter().cloned().collect::<Vec<_>>(), target)?,
            Some(other @ ("json" | "parquet" | "tsv" | "xlsx" | "db")) if !target.is_dir() => {
                bail!("{}: no .{other} is written: name a .csv file, a .duckdb file or a folder", target.display())
            }
            _ => {
                export_folders(&runs, target)?;
                if self.runs.is_empty() {
                    history.roots().iter().try_for_each(|root| copy_others(root, target))?;
                }
            }
        }
        println!("{}", target.display());
        Ok(exit_codes::OK)
    }
}

/// Copies what a history has besides runs.
fn copy_others(from: &Path, to: &Path) -> Result<()> {
    let is_same = to.exists() && from.canonicalize()? == to.canonicalize()?;
    let count = if is_same { 0 } else { copy_beside(from, to)? };
    if count > 0 {
        eprintln!("copied besides the runs: {}", plural(count, "load test or profile", "load tests and profiles"));
    }
    Ok(())
}

fn export_folders(runs: &[&Run], target: &Path) -> Result<()> {
    for run in runs {
        let is_same = run.folder().parent().and_then(|root| root.canonicalize().ok()) == target.canonicalize().ok();
        ensure!(!is_same || !target.exists(), "{} is the history itself", target.display());
        if let Imported::Refused(reason) = import(run, target, false)? {
            bail!("{}: {reason}", target.display());
        }
    }
    Ok(())
}

/// Remove runs, or only their calls, which are most of the history
#[derive(Args)]
#[command(after_help = "A run is removed if all given conditions hold. At least one is needed.\n\nExamples:\n  \
        inferbench store prune --keep 20 --only-calls\n  inferbench store prune --before 2026-01-01 --dry-run\n  \
        inferbench store prune --run 20260101T120000Z")]
#[command(group = ArgGroup::new("which").required(true).multiple(true))]
struct Prune {
    /// Remove these runs
    #[arg(long = "run", value_name = "ID", value_delimiter = ',', group = "which")]
    runs: Vec<String>,
    /// Remove all runs but the latest COUNT of each machine
    #[arg(long, value_name = "COUNT", group = "which", value_parser = count)]
    keep: Option<usize>,
    /// Remove the runs that began longer ago than this time, or before this day: 30d, 12h, 6mo, or a day such as 2026-01-31 (UTC)
    #[arg(long, value_name = "TIME", group = "which", value_parser = since)]
    before: Option<Timestamp>,
    /// Remove only the calls of these runs, and keep the results
    #[arg(long)]
    only_calls: bool,
    /// List what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
}

/// The newest `count` runs of each machine. Runs of unknown machines count as runs of one machine.
fn latest_of_each_machine(history: &History, count: usize) -> Vec<&Run> {
    let mut kept: BTreeMap<Option<String>, usize> = BTreeMap::new();
    let is_kept = |run: &&Run| {
        // A merged run is of several machines. The facts of a run that cannot be read, such as one of a newer version,
        // may still have its machine.
        let hosts: Vec<Option<String>> = match run.host_ids() {
            Ok(hosts) if !hosts.is_empty() => hosts.into_iter().map(Some).collect(),
            _ => vec![run.facts().ok().map(|facts| facts.host_id)],
        };
        let ranks = hosts.into_iter().map(|host| {
            let of_machine = kept.entry(host).or_default();
            *of_machine += 1;
            *of_machine
        });
        // `min` counts the run for each of its machines.
        ranks.min().is_some_and(|least| least <= count)
    };
    if count == 0 { Vec::new() } else { history.runs().iter().filter(is_kept).collect() }
}

impl Prune {
    fn run(&self, history: &History, paths: &Paths) -> Result<u8> {
        let latest = latest_of_each_machine(history, self.keep.unwrap_or(0));
        let is_removed = |run: &&Run| {
            latest.iter().all(|kept| kept.folder() != run.folder())
                && self.before.is_none_or(|before| run.started().is_some_and(|started| started < before))
                && (!self.only_calls || run.folder().join(LATENCIES).is_file())
        };
        let runs: Vec<&Run> = chosen(history, &self.runs)?.into_iter().filter(is_removed).collect();
        let what = if self.dry_run { "would remove" } else { "removed" };
        let calls = if self.only_calls { " (the calls)" } else { "" };
        let mut code = exit_codes::OK;
        for run in &runs {
            let done = match (self.dry_run, self.only_calls) {
                (true, _) => Ok(()),
                (false, true) => remove_calls(run),
                (false, false) => remove(run),
            };
            match done {
                Ok(()) => println!("{what} {}{calls}", run.name()),
                Err(why) => {
                    eprintln!("inferbench: not removed: {}{calls}: {why:#}", run.name());
                    code = exit_codes::USAGE;
                }
            }
        }
        if runs.is_empty() {
            eprintln!("nothing to remove");
        } else if !self.dry_run {
            history.roots().iter().try_for_each(|root| write_index(root, paths))?;
        }
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Case;
    use crate::history::RESULTS;
    use crate::run_data::Record;

    #[test]
    fn a_run_is_known_by_its_folder_and_its_id_unless_these_fit_several() {
        let root = tempfile::tempdir().unwrap();
        for (name, run_id, host_id) in [("one", "r", "a"), ("r", "r", "b"), ("mine", "s", "a")] {
            let folder = root.path().join(name);
            fs_err::create_dir(&folder).unwrap();
            let run = Record {
                run_id: run_id.into(),
                host_id: host_id.into(),
                suite: "small".into(),
                rustc_version: "rustc 1".into(),
                ..Record::default()
            };
            let file = fs_err::File::create(folder.join(RESULTS)).unwrap();
            write_records(&[run.about(&Case::new("m", "ort", 1))], file).unwrap();
        }
        let history = History::open(&[root.path().to_owned()]).unwrap();
        let found = |id: &str| {
            let runs = chosen(&history, &[id.to_owned()])?;
            Ok::<_, anyhow::Error>(runs.iter().map(|run| run.name()).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(["one", "r-b", "mine", "s"].map(|id| found(id).unwrap()), ["one", "r", "mine", "mine"]);
        assert_eq!(found("r").unwrap_err().to_string(), "\"r\" fits several runs; name one of one, r-b");
        assert!(found("t").unwrap_err().to_string().contains("no run \"t\""));
        // The newest are counted on each machine.
        let kept = |count| latest_of_each_machine(&history, count).iter().map(|run| run.name().to_owned()).collect();
        let kept = [0, 1, 2].map(|count| -> Vec<String> { kept(count) });
        assert_eq!(kept.each_ref().map(Vec::len), [0, 2, 3], "{kept:?}");
        assert!(kept[1].contains(&"r".to_owned()), "{kept:?}");
    }
}
