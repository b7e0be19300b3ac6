//! `inferbench duel`: two programs against each other, interleaved on this machine.

use std::time::Duration;

use clap::Args;

use super::values::{minutes, part, part_of_whole};
use super::{print, round};
use crate::definition::Selection;
use crate::duel::{self, Duel, Ending, Length, Terms};
use crate::exit_codes;
use crate::harness::{is_interrupted, keep_others_out};
use crate::paths::Paths;

/// Compare two revisions, executables or suites in turn on this machine; exit code 1 on a regression
#[derive(Args)]
#[command(after_help = "Examples:\n  inferbench duel main HEAD --model digits\n  \
        inferbench duel HEAD~1 . --backend ort --minutes 10\n  inferbench duel ort.toml candle.toml\n  \
        inferbench duel . . --null-slowdown 5%")]
pub struct Arguments {
    /// The base: a git revision, an executable, a suite file, or `.` for the running inferbench
    #[arg(value_name = "BASE")]
    base: String,
    /// What may be slower than the base
    #[arg(value_name = "CANDIDATE")]
    candidate: String,
    #[command(flatten)]
    selection: Selection,
    /// Threads of every backend
    #[arg(long, env = "INFERBENCH_THREADS", value_name = "N")]
    threads: Option<usize>,
    /// Seconds of measured calls a case and process
    #[arg(long, value_name = "S", default_value = "0.1", value_parser = round::seconds)]
    seconds: Duration,
    /// Minutes that all rounds take, about
    #[arg(long, value_name = "N", value_parser = minutes)]
    minutes: Option<f64>,
    /// This many rounds, of six processes each [default: 40, or more for very many cases]
    #[arg(long, value_name = "N", conflicts_with = "minutes", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: Option<u16>,
    /// Stop as soon as every case has a verdict, by a test that allows to look after every round
    #[arg(long)]
    sequential: bool,
    /// Changes up to this do not matter
    #[arg(long, value_name = "PART", default_value = "3%", value_parser = part_of_whole)]
    tolerance: f64,
    /// Make the candidate slower by this, to see whether it is found
    #[arg(long, value_name = "PART", value_parser = part)]
    null_slowdown: Option<f64>,
    /// The seed of the order [default: from the clock]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Go on with the last duel of the same question where it was stopped
    #[arg(long)]
    resume: bool,
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// How the result is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For a terminal
    #[default]
    Table,
    /// For a pull request
    Markdown,
    /// For scripts
    Json,
}

pub fn run(arguments: &Arguments) -> Result<u8, String> {
    let paths = Paths::find();
    let _lock = keep_others_out(&paths).map_err(|error| format!("{error:#}"))?;
    // From here on Ctrl-C is asked for, and does not end the process where it is.
    is_interrupted();
    let Some([base, candidate]) = duel::resolve_both(&paths, &arguments.base, &arguments.candidate)? else {
        eprintln!("interrupted: no round was fought");
        return Ok(exit_codes::INTERRUPTED);
    };
    if cfg!(debug_assertions) && [&base, &candidate].iter().any(|ready| ready.side.commit.is_none()) {
        eprintln!("this inferbench is a debug build: its own times are not those of `cargo build --release`");
    }
    match duel::between(&paths, &base.side, &candidate.side, &terms(arguments))? {
        Ending::Complete(duel) => {
            print(&render(&duel, arguments.format)?)?;
            Ok(duel.exit_code)
        }
        Ending::Interrupted { rounds, planned } => {
            let of = planned.map_or(String::new(), |planned| format!(" of {planned}"));
            let how = if planned.is_some() { "; go on with the same command and `--resume`" } else { "" };
            eprintln!("interrupted: {rounds}{of} rounds are kept{how}");
            Ok(exit_codes::INTERRUPTED)
        }
    }
}

fn terms(arguments: &Arguments) -> Terms {
    let length = match (arguments.rounds, arguments.minutes) {
        (Some(rounds), _) => Length::Rounds(rounds.into()),
        (None, Some(minutes)) => Length::Minutes(minutes),
        (None, None) => Length::AtLeast(duel::ROUNDS),
    };
    Terms {
        selection: arguments.selection.clone(),
        threads: arguments.threads,
        duration: arguments.seconds,
        length,
        is_sequential: arguments.sequential,
        seed: arguments.seed,
        tolerance: arguments.tolerance,
        null_slowdown: arguments.null_slowdown,
        resume: arguments.resume,
        is_silent: false,
    }
}

fn render(duel: &Duel, format: Format) -> Result<String, String> {
    match format {
        Format::Table => Ok(duel::table(duel)),
        Format::Markdown => Ok(duel::markdown(duel)),
        Format::Json => Ok(serde_json::to_string_pretty(duel).map_err(|error| error.to_string())? + "\n"),
    }
}
