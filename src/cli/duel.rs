//! `inferbench duel`: a paired benchmark of two programs on this machine.

use std::time::Duration;

use clap::Args;

use super::values::{fraction, fraction_below_one, minutes};
use crate::compare::Program;
use crate::duel::{self, DuelEnd, Length, Terms};
use crate::exit_codes;
use crate::harness::{is_interrupted, keep_others_out};
use crate::paths::Paths;
use crate::report::Format;
use crate::report::duel::render;
use crate::selection::Selection;

/// Candidates that one duel can have.
const MOST_CANDIDATES: usize = 8;

/// Compare revisions, executables or suites by a paired (duet) benchmark; exit code 1 on a regression
#[derive(Args)]
#[command(after_help = "Examples:\n  inferbench duel main HEAD --model digits\n  \
        inferbench duel HEAD~1 . --backend ort --minutes 10\n  inferbench duel ort.toml candle.toml tract.toml\n  \
        inferbench duel . . --null-slowdown 2%")]
pub struct Arguments {
    /// The base: a git revision, an executable, a suite file, or `.` for the running inferbench
    #[arg(value_name = "BASE")]
    base: String,
    /// The candidate, which may be slower than the base; several are measured side by side
    #[arg(value_name = "CANDIDATE", required = true, num_args = 1..=MOST_CANDIDATES)]
    candidates: Vec<String>,
    #[command(flatten)]
    selection: Selection,
    /// Threads of every backend
    #[arg(long, env = "INFERBENCH_THREADS", value_name = "N")]
    threads: Option<usize>,
    /// Let the scheduler choose the threads' processors; intervals get wider
    #[arg(long)]
    no_pin: bool,
    /// The least milliseconds of calls per slice, for which one arm runs at a time; slices of long calls take longer
    #[arg(long, value_name = "MS", default_value = "2", value_parser = slice)]
    slice: Duration,
    /// Minutes that all cases may take together [default: 40 seconds for one case, 3 minutes for up to twelve]
    #[arg(long, value_name = "N", value_parser = minutes)]
    minutes: Option<f64>,
    /// Measure exactly this many generations of processes, without looking at the result before
    #[arg(long, value_name = "N", conflicts_with = "minutes", value_parser = clap::value_parser!(u16).range(1..=1000))]
    generations: Option<u16>,
    /// Changes up to this fraction do not matter
    #[arg(long, value_name = "FRACTION", default_value = "1%", value_parser = fraction_below_one)]
    tolerance: f64,
    /// Slow the candidate down by this fraction, to see whether the change is found
    #[arg(long, value_name = "FRACTION", value_parser = fraction)]
    null_slowdown: Option<f64>,
    /// Let every call take at least so many nanoseconds, so that the null backend has something to slow down
    #[arg(long, value_name = "NS", default_value = "0", hide = true)]
    least_call: u64,
    /// Seed of every random order [default: from the clock]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Continue the last duel of the same question where it was stopped
    #[arg(long)]
    resume: bool,
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let paths = Paths::find();
    let _lock = keep_others_out(&paths)?;
    // From here on Ctrl-C is noted and asked for, and does not end the process at once.
    is_interrupted();
    let names: Vec<String> = [&arguments.base].into_iter().chain(&arguments.candidates).cloned().collect();
    // Their worktrees stay as long as this.
    let Some(ready) = duel::resolve_all(&paths, &names)? else {
        eprintln!("interrupted: nothing was measured");
        return Ok(exit_codes::INTERRUPTED);
    };
    let programs: Vec<Program> = ready.iter().map(|ready| ready.program.clone()).collect();
    if cfg!(debug_assertions) && programs.iter().any(|program| program.commit.is_none()) {
        eprintln!("this inferbench is a debug build: its own times are not those of `cargo build --release`");
    }
    match duel::duel_between(&paths, &programs[0], &programs[1..], &terms(arguments))? {
        DuelEnd::Complete(duel) => {
            print!("{}", render(&duel, arguments.format));
            Ok(duel.exit_code)
        }
        DuelEnd::Interrupted { kept } => {
            match kept {
                Some((kept, planned)) => eprintln!(
                    "interrupted: {kept} of {planned} generations are kept; go on with the same command and `--resume`"
                ),
                None => eprintln!("interrupted: nothing was measured"),
            }
            Ok(exit_codes::INTERRUPTED)
        }
    }
}

fn terms(arguments: &Arguments) -> Terms {
    let length = match (arguments.generations, arguments.minutes) {
        (Some(generations), _) => Length::Generations(generations.into()),
        (None, Some(minutes)) => Length::Minutes(minutes),
        (None, None) => Length::Usual,
    };
    Terms {
        selection: arguments.selection.clone(),
        threads: arguments.threads,
        is_pinned: !arguments.no_pin,
        slice: arguments.slice,
        length,
        seed: arguments.seed,
        tolerance: arguments.tolerance,
        null_slowdown: arguments.null_slowdown,
        least_call_ns: arguments.least_call,
        resume: arguments.resume,
        is_silent: false,
    }
}

fn slice(text: &str) -> Result<Duration, String> {
    let milliseconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.1..=10_000.0).contains(&milliseconds) {
        Ok(Duration::from_secs_f64(milliseconds / 1e3))
    } else {
        Err("not from 0.1 to 10000".into())
    }
}
