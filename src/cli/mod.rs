//! The command line: one file per subcommand, all with the same shape: `Arguments`, and `run`, which returns an exit code.
//!
//! It takes the words of the command line. It gives what is printed, and an exit code. A command puts other rooms
//! together; what could be asked without a command line is in them.

mod anchor;
mod arm;
mod compare;
mod completions;
mod convert;
mod devices;
mod duel;
mod fleet;
mod history_arguments;
mod import;
mod load;
mod load_terms;
mod load_url;
mod machines;
mod merge;
mod models;
mod package_bench;
mod predict;
mod prepare;
mod profile;
mod recommend;
mod report;
mod run;
mod selftest;
mod serve;
mod setup;
mod shard;
mod store;
mod store_query;
mod variants;
mod verify;

pub use package_bench::Harness;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Arg, Parser, Subcommand};

use crate::backend::registry;
use crate::definition::Dtype;
use crate::history::write_whole;
use crate::machine::processes::ending_signal;
use crate::paths::{OUTPUT_DIR, put_output_dir};
use crate::printing::is_printed;
use crate::report::table::{Table, fit_to_terminal, left_out, wrapped};
use crate::report::{Format, json};
use crate::selection::parse_with_variables;
use crate::{exit_codes, harness};

/// Machine-learning inference benchmarks with Criterion
#[derive(Parser)]
#[command(
    name = "inferbench",
    version,
    help_template = help_page(),
    after_help = "Exit codes: 0 no problem found; 1 a regression, a wrong output, or a load test above its latency bound; 2 bad usage or a bad file; \
        3 nothing could be measured; 4 undecided, usually because the machine is too noisy; 5 a case failed or took too long; \
        130 interrupted.\n\nExamples:\n  inferbench devices\n  inferbench run --model resnet50 --backend ort,candle\n  inferbench report --format markdown\n  inferbench compare main new"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Folder of the reports and the history [default: target-reports]
    #[arg(long, global = true, env = OUTPUT_DIR, value_name = "FOLDER", display_order = 998)]
    output_dir: Option<PathBuf>,
    /// Show all columns of tables, even if the terminal (or a pipe, of 100 columns) is too narrow for them
    #[arg(long, global = true, display_order = 999)]
    wide: bool,
}

#[derive(Subcommand)]
enum Command {
    Devices(devices::Arguments),
    Setup(setup::Arguments),
    Models(models::Arguments),
    Import(import::Arguments),
    Prepare(prepare::Arguments),
    Verify(verify::Arguments),
    Profile(profile::Arguments),
    Run(run::Arguments),
    Shard(shard::Arguments),
    Merge(merge::Arguments),
    Fleet(fleet::Arguments),
    Load(Box<load::Arguments>),
    Variants(variants::Arguments),
    Convert(convert::Arguments),
    Report(report::Arguments),
    Recommend(recommend::Arguments),
    Predict(predict::Arguments),
    Compare(compare::Arguments),
    Duel(duel::Arguments),
    #[command(hide = true)]
    Arm(arm::Arguments),
    Selftest(selftest::Arguments),
    Store(store::Arguments),
    Serve(serve::Arguments),
    Completions(completions::Arguments),
}

/// The subcommands in the groups of `--help`, which are also those of the guide's first page. Clap has only one list.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Measure", &["run", "verify", "load", "profile", "duel"]),
    ("Models", &["models", "import", "prepare", "variants"]),
    ("Results", &["report", "compare", "recommend", "predict", "store", "convert"]),
    ("Machines", &["setup", "devices", "selftest", "shard", "fleet", "merge", "serve", "completions"]),
];

/// The template of `--help`, with the description of each subcommand.
fn help_page() -> String {
    let commands = Command::augment_subcommands(clap::Command::new("inferbench"));
    let mut page = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    for (group, names) in GROUPS {
        page += &format!("\n{group}:\n");
        for name in names {
            let about = commands.find_subcommand(name).and_then(clap::Command::get_about);
            page += &format!("  {name:<11} {}\n", about.map(ToString::to_string).unwrap_or_default());
        }
    }
    page + "\nOptions:\n{options}{after-help}"
}

/// `main` of the command.
pub fn main() -> ExitCode {
    if let Some(code) = harness::run_as_worker() {
        return ExitCode::from(code);
    }
    let Cli { command, output_dir, wide } = parse_with_variables(std::env::args_os());
    if !wide {
        fit_to_terminal();
    }
    if let Some(folder) = output_dir {
        put_output_dir(&folder);
    }
    if let Err(error) = registry::check_outside() {
        return exit_code(Err(error)).into();
    }
    let result = match command {
        Command::Devices(arguments) => devices::run(&arguments),
        Command::Setup(arguments) => setup::run(&arguments),
        Command::Models(arguments) => models::run(&arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Prepare(arguments) => prepare::run(&arguments),
        Command::Profile(arguments) => profile::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Shard(arguments) => shard::run(&arguments),
        Command::Merge(arguments) => merge::run(&arguments),
        Command::Fleet(arguments) => fleet::run(&arguments),
        Command::Load(arguments) => load::run(&arguments, None),
        Command::Variants(arguments) => variants::run(&arguments),
        Command::Convert(arguments) => convert::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Recommend(arguments) => recommend::run(&arguments),
        Command::Predict(arguments) => predict::run(&arguments),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Duel(arguments) => duel::run(&arguments),
        Command::Arm(arguments) => arm::run(&arguments, None),
        Command::Selftest(arguments) => selftest::run(&arguments),
        Command::Store(arguments) => store::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments),
    };
    exit_code(result).into()
}

/// `main` of the bench executable `serving`, whose command line is that of `inferbench load`.
pub fn serving_main() -> ExitCode {
    if let Some(code) = harness::run_as_worker() {
        return ExitCode::from(code);
    }
    fit_to_terminal();
    exit_code(load::run_bench(None)).into()
}

/// Prints the error of a command, and returns its exit code.
fn exit_code(result: anyhow::Result<u8>) -> u8 {
    if let Some(line) = left_out() {
        eprintln!("{}", wrapped(&line, 0).trim_end());
    }
    let ended = |code| if is_printed() { code } else { exit_codes::USAGE };
    result.map(ended).unwrap_or_else(|error| {
        eprintln!("inferbench: {error:#}");
        match () {
            () if error.is::<harness::Interrupted>() => exit_codes::INTERRUPTED,
            () if error.is::<harness::NoCase>() => exit_codes::NOTHING_MEASURED,
            () => exit_codes::USAGE,
        }
    })
}

/// The flags about timed calls. Commands that choose the number of calls themselves do not have them.
const OF_TIMED_CALLS: [&str; 6] = ["iterations", "processes", "until_percentile", "until_interval", "shuffle", "debug"];

/// Takes flags of [`Selection`](crate::selection::Selection) and [`EffortArguments`](crate::selection::EffortArguments) away from a command
/// for which they mean nothing: `why` refuses them, and their variables, which may be exported for `cargo bench`, are not read.
fn without(flag: Arg, names: &[&str], why: &'static str) -> Arg {
    let name = flag.get_id().as_str().to_owned();
    if !names.contains(&name.as_str()) {
        return flag;
    }
    let flag = flag.env(None::<&str>).hide(true);
    match name.as_str() {
        "iterations" | "processes" | "warmup" | "batch_sizes" => flag.value_parser(move |_: &str| Err::<usize, _>(why)),
        "backend" | "torch_mode" | "device" => flag.value_parser(move |_: &str| Err::<String, _>(why)),
        "dtype" => flag.value_parser(move |_: &str| Err::<Dtype, _>(why)),
        "shuffle" => flag.value_parser(move |_: &str| Err::<u64, _>(why)),
        // An absent flag has the value `false`.
        "debug" => flag.value_parser(move |text: &str| if text == "false" { Ok(false) } else { Err(why) }),
        _ => flag.value_parser(move |_: &str| Err::<f64, _>(why)),
    }
}

/// `NAME=VALUE`.
fn parse_pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty());
    pair.map(|(name, value)| (name.to_owned(), value.to_owned())).ok_or_else(|| format!("{text:?} is not NAME=VALUE"))
}

/// Writes a text into the file of `--output`, or prints it if there is none or it is `-`.
fn write_or_print(output: Option<&Path>, text: &str) -> anyhow::Result<()> {
    match output.filter(|file| file.as_os_str() != "-") {
        Some(file) => write_whole(file, text.as_bytes())?,
        None => print!("{text}"),
    }
    Ok(())
}

/// Runs a Python script, and returns the exit code that follows from its own.
fn run_python(command: &mut std::process::Command, least_version: &str) -> anyhow::Result<u8> {
    let python = command.get_program().display().to_string();
    let status = command.status().with_context(|| {
        format!("Python does not start as {python}: install Python {least_version} or later, or name it by `--python`")
    })?;
    match (status.code(), ending_signal(status)) {
        (Some(0), _) => Ok(exit_codes::OK),
        (Some(130), _) | (None, Some((_, "SIGINT" | "SIGTERM"))) => Ok(exit_codes::INTERRUPTED),
        (None, Some((signal, name))) => {
            anyhow::bail!(
                "{python} was ended by signal {signal} ({name}); the kernel ends a process if memory runs out"
            )
        }
        _ => Ok(exit_codes::USAGE),
    }
}

/// A listing: a table for a person, and the same as objects for a script.
struct Listing {
    table: Table,
    objects: serde_json::Value,
}

impl Listing {
    fn print(&self, format: Format) {
        match format {
            Format::Table => print!("{}", self.table.terminal()),
            Format::Markdown => print!("{}", self.table.markdown()),
            Format::Json => print!("{}", json(&self.objects)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_flag_of_a_command_has_one_meaning() {
        // A release build of clap does not check this.
        fn check(command: &clap::Command) {
            let (mut names, mut flags) = (BTreeSet::new(), BTreeSet::new());
            for argument in command.get_arguments() {
                let what = format!("{} {}", command.get_name(), argument.get_id());
                assert!(names.insert(argument.get_id().as_str()), "{what}");
                assert!(argument.get_long().is_none_or(|flag| flags.insert(flag)), "{what}");
                // It panics if a conflicting flag does not exist.
                command.get_arg_conflicts_with(argument);
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }

    #[test]
    fn a_minus_is_no_file() {
        write_or_print(Some(Path::new("-")), "").unwrap();
        assert!(!Path::new("-").exists());
    }

    #[test]
    fn every_subcommand_is_in_one_group_of_the_help_on_a_line_that_any_terminal_holds() {
        let help = Cli::command().render_help().to_string();
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            let groups = GROUPS.iter().filter(|(_, names)| names.contains(&name));
            assert_eq!(groups.count(), 1, "{name}");
            let line = help.lines().find(|line| line.starts_with(&format!("  {name} "))).unwrap();
            assert!(line.ends_with(&command.get_about().unwrap().to_string()) && line.len() <= 80, "{line}");
        }
        for (group, names) in GROUPS {
            assert!(help.contains(&format!("\n{group}:\n  {} ", names[0])), "{help}");
            assert!(names.iter().all(|name| Cli::command().find_subcommand(name).is_some()), "{names:?}");
        }
    }
}
