//! `inferbench duel`: a paired benchmark of two programs on this machine.

use anyhow::Result;
use clap::Args;

use crate::duel::{BuildFlags, Terms, duel_between, package_folder, profile_slower, resolve_all, shows_slow_down};
use crate::harness::{Interrupted, is_interrupted, keep_others_out};
use crate::history::{PAGE, write_profile};
use crate::paths::Paths;
use crate::report::Format;
use crate::report::checks::AnyFormat;
use crate::report::duel::{checks, render};
use crate::report::profile::{Form, Options, page, render as render_profile};
use crate::run_data::Profile;

/// The most candidates of a duel.
const MOST_CANDIDATES: usize = 8;

/// Compare revisions, executables or files in a paired benchmark
#[derive(Args)]
#[command(after_help = "Examples:\n  inferbench duel main HEAD --model digits\n  \
        inferbench duel HEAD~1 . --backend ort --minutes 10\n  inferbench duel ort.toml candle.toml tract.toml\n  \
        inferbench duel . . --null-slowdown 2%\n  \
        inferbench duel net.onnx net-int8.onnx --backend ort\n  \
        inferbench duel main . --model digits --profile\n  \
        inferbench duel main HEAD --format junit > duel.xml\n\n\
        Exit codes: 0 a slow-down beyond the tolerance is excluded for every case, 1 a case became slower or wrong, or no longer runs, \
        2 bad usage, 3 nothing could be measured, 4 a case is open.\n\n\
        In the folder of a package that has inferbench as a dependency, revisions are those of that package, and its bench \
        is built.")]
pub struct Arguments {
    /// The base: a git revision, also with a path (`main:net.onnx`), an executable, a suite file, a model's file, the folder of a Python environment, or `.` for the running inferbench (in a package of your own, the working tree)
    #[arg(value_name = "BASE")]
    base: String,
    /// The candidate, which may be slower than the base; several are measured side by side
    #[arg(value_name = "CANDIDATE", required = true, num_args = 1..=MOST_CANDIDATES)]
    candidates: Vec<String>,
    #[command(flatten)]
    build: BuildFlags,
    /// The package of a workspace whose bench is built [default: that of the current folder]
    #[arg(long, value_name = "NAME")]
    package: Option<String>,
    #[command(flatten)]
    terms: Terms,
    /// Afterwards, profile the cases that became slower with both programs, and show which operators take longer
    #[arg(long, conflicts_with = "null_slowdown")]
    profile: bool,
    #[arg(long, value_enum, default_value_t = AnyFormat::Text(Format::Table))]
    format: AnyFormat,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let paths = match &arguments.package {
        Some(name) => Paths::of(package_folder(name)?),
        None => Paths::find(),
    };
    let _lock = keep_others_out(&paths)?;
    // From here on, Ctrl-C is only noted, and does not end the process at once.
    is_interrupted();
    let names: Vec<String> = [&arguments.base].into_iter().chain(&arguments.candidates).cloned().collect();
    let (programs, _worktrees) = resolve_all(&paths, &names, &arguments.build)?;
    if cfg!(debug_assertions) && programs.iter().any(|program| program.commit.is_none()) {
        eprintln!("this inferbench is a debug build: its own times are not those of `cargo build --release`");
    }
    let (duel, _) = duel_between(&paths, &programs[0], &programs[1..], &arguments.terms)?;
    match arguments.format {
        AnyFormat::Text(format) => print!("{}", render(&duel, format)),
        AnyFormat::Checks(format) => print!("{}", checks(&duel).render(format)),
    }
    if arguments.profile {
        for profile in profile_slower(&duel, &arguments.terms, &paths) {
            match profile.and_then(|profile| show_profile(&profile, &paths)) {
                // The exit code follows from the verdict, which needs no profile.
                Err(error) if !error.is::<Interrupted>() => eprintln!("inferbench: no profile: {error:#}"),
                shown => shown?,
            }
        }
    }
    Ok(duel.exit_code)
}

/// Shows where the time of a slower case goes, and keeps the profile.
fn show_profile(profile: &Profile, paths: &Paths) -> Result<()> {
    let options = Options { depth: None, most_rows: Some(10) };
    let compared = profile.cases.first().zip(profile.cases.get(1)).map(|(base, candidate)| [base, candidate]);
    eprintln!("\n{}", render_profile(profile, compared, Form::Table, &options)?.trim_end());
    if !shows_slow_down(profile) {
        eprintln!("these profiles do not show the slow-down: the machine was disturbed while they were made");
    }
    let folder = write_profile(&paths.reports(), profile, &page(profile, Some((0, 1)))?)?;
    eprintln!("page        {}", folder.join(PAGE).display());
    Ok(())
}
