//! `inferbench duel`: a paired benchmark of two programs on this machine.

use clap::Args;

use crate::duel::{Terms, duel_between, resolve_all};
use crate::harness::{is_interrupted, keep_others_out};
use crate::paths::Paths;
use crate::report::Format;
use crate::report::duel::render;

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
    /// The candidate, which may be slower than the base; several are measured beside each other
    #[arg(value_name = "CANDIDATE", required = true, num_args = 1..=MOST_CANDIDATES)]
    candidates: Vec<String>,
    #[command(flatten)]
    terms: Terms,
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let paths = Paths::find();
    let _lock = keep_others_out(&paths)?;
    // From here on Ctrl-C is asked for, and does not end the process where it is.
    is_interrupted();
    let names: Vec<String> = [&arguments.base].into_iter().chain(&arguments.candidates).cloned().collect();
    let (programs, _worktrees) = resolve_all(&paths, &names)?;
    if cfg!(debug_assertions) && programs.iter().any(|program| program.commit.is_none()) {
        eprintln!("this inferbench is a debug build: its own times are not those of `cargo build --release`");
    }
    let (duel, _) = duel_between(&paths, &programs[0], &programs[1..], &arguments.terms)?;
    print!("{}", render(&duel, arguments.format));
    Ok(duel.exit_code)
}
