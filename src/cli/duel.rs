//! `inferbench duel`: two programs against each other, interleaved on this machine.

use std::time::Duration;

use clap::Args;

use super::{print, round};
use crate::definition::Selection;
use crate::duel::{self, Duel, Ending, Length, Terms};
use crate::exit_codes;
use crate::harness::{is_interrupted, keep_others_out};
use crate::places::Places;

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
    #[arg(long, value_name = "PERCENT", default_value = "3%", value_parser = percent)]
    tolerance: f64,
    /// Make the candidate slower by this, to see whether it is found
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
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
    let places = Places::find();
    let _lock = keep_others_out(&places)?;
    // From here on Ctrl-C is asked for, and does not end the process where it is.
    is_interrupted();
    let Some([base, candidate]) = duel::resolve_both(&places, &arguments.base, &arguments.candidate)? else {
        eprintln!("interrupted: no round was fought");
        return Ok(exit_codes::INTERRUPTED);
    };
    if cfg!(debug_assertions) && [&base, &candidate].iter().any(|ready| ready.side.commit.is_none()) {
        eprintln!("this inferbench is a debug build: its own times are not those of `cargo build --release`");
    }
    match duel::between(&places, &base.side, &candidate.side, &terms(arguments))? {
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

/// `5%`, `5 %` or `5` → 0.05.
fn percent(text: &str) -> Result<f64, String> {
    let number: f64 = text.trim_end_matches('%').trim().parse().map_err(|_| "not a percentage".to_owned())?;
    if (0.0..=10_000.0).contains(&number) { Ok(number / 100.0) } else { Err("not from 0% to 10000%".into()) }
}

fn minutes(text: &str) -> Result<f64, String> {
    let minutes: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if minutes > 0.0 && minutes <= 24.0 * 60.0 { Ok(minutes) } else { Err("not above 0 and up to a day".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_may_have_its_sign() {
        assert_eq!((percent("5%"), percent("2.5 %"), percent("1")), (Ok(0.05), Ok(0.025), Ok(0.01)));
        assert!(percent("-1%").is_err() && percent("much").is_err() && percent("nan").is_err());
    }
}
