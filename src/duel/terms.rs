//! What a duel is asked for, besides its programs: the flags of `inferbench duel`.

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::compare::FEWEST_GENERATIONS;
use crate::selection::Selection;
use crate::selection::values::{fraction_below_one, fraction_of_one, minutes};

/// How a duel is measured.
#[derive(Args, Clone, Debug, Default)]
pub struct Terms {
    #[command(flatten)]
    pub selection: Selection,
    /// Threads of every backend
    #[arg(long, env = "INFERBENCH_THREADS", value_name = "N")]
    pub threads: Option<usize>,
    #[command(flatten)]
    pub rules: Rules,
    /// Seed of every random order [default: from the clock]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Continue the last duel of the same question where it was stopped
    #[arg(long)]
    pub resume: bool,
    /// Exit with 0 even if some cases are open, as long as one is decided
    #[arg(long)]
    pub allow_undecided: bool,
    /// True if the duel prints no progress.
    #[arg(skip)]
    pub is_silent: bool,
}

/// The settings that must be unchanged when a duel is resumed.
#[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// Leave the choice of processors to the scheduler; intervals get wider
    #[arg(long)]
    pub no_pin: bool,
    /// Milliseconds of calls per slice, the time that one arm runs before the next [default: 2; one to three calls if a call takes more than 0.3 ms]
    #[arg(long = "slice", value_name = "MS", value_parser = slice)]
    pub slice_ms: Option<f64>,
    /// Minutes that all cases may take together [default: 3 minutes for up to twelve]
    #[arg(long, value_name = "N", value_parser = minutes)]
    pub minutes: Option<f64>,
    /// Whether to use all minutes, even if the interval is narrow enough before.
    #[arg(skip)]
    pub are_minutes_used_up: bool,
    /// Measure exactly this many generations of processes, without early looks at the result
    #[arg(long, value_name = "N", conflicts_with = "minutes", value_parser = clap::value_parser!(u16).range(FEWEST_GENERATIONS as i64..=1000))]
    pub generations: Option<u16>,
    /// Changes up to this fraction do not matter
    #[arg(long, value_name = "FRACTION", default_value = "1%", allow_hyphen_values = true, value_parser = fraction_below_one)]
    pub tolerance: f64,
    /// State that different executables have the same machine code, such as a program and a script that starts it. Otherwise, changes up to 1 % may come from different code addresses
    #[arg(long)]
    pub same_code: bool,
    /// Slow the candidate down by this fraction, to see whether the change is found
    #[arg(long, value_name = "FRACTION", value_parser = fraction_of_one)]
    pub null_slowdown: Option<f64>,
    /// Let every call take at least this many nanoseconds, so that the null backend has something to slow down
    #[arg(long = "least-call", value_name = "NS", default_value = "0", hide = true)]
    pub least_call_ns: u64,
}

fn slice(text: &str) -> Result<f64, String> {
    let milliseconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.1..=10_000.0).contains(&milliseconds) { Ok(milliseconds) } else { Err("not from 0.1 to 10000".into()) }
}
