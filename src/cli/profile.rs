//! `inferbench profile`: where the time of a call goes, by module and operator, and what differs between two cases.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use super::{OF_TIMED_CALLS, without, write_or_print};
use crate::definition::Status;
use crate::exit_codes;
use crate::harness::{self, Request};
use crate::history::{PAGE, find_profile, write_profile};
use crate::paths::Paths;
use crate::report::profile::{Form, Options, page, render};
use crate::run_data::{CaseProfile, Profile};
use crate::selection::{EffortArguments, Selection};

const LENGTH: &str = "a profile makes as many calls as it needs, of one case after the other: leave it out";

/// Show where the time of a call goes, by module and operator
#[derive(Args)]
#[command(
    mut_args(|flag| without(flag, &OF_TIMED_CALLS, LENGTH)),
    after_help = "Plain and profiled calls alternate, so that the table can say what the profiler itself costs. Two cases are also \
        compared: the operators of different runtimes are matched by the modules of the model.\n\n\
        Examples:\n  inferbench profile --model resnet50 --backend ort\n  inferbench profile net.onnx --backend ort,openvino\n  \
        inferbench profile resnet50/ort-cpu-f32/1 resnet50/tch-cpu-f32/1\n  \
        inferbench profile --model llama-small --phase decode --backend candle --module-depth 3\n  \
        inferbench profile --model bert-small --backend tch --cpu --format stacks --output bert.folded\n  \
        inferbench profile 20260101T120000Z 20260102T120000Z\n  \
        inferbench profile --model bert-small --backend tch --format trace --output bert.json"
)]
pub struct Arguments {
    /// Files and folders of models, regular expressions that the ids of cases have to match, or one or two earlier profiles
    #[arg(value_name = "FILE|FOLDER|FILTER|PROFILE")]
    words: Vec<String>,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    effort: EffortArguments,
    /// Also sample the stacks of the threads for five seconds of calls, and draw them as a flame graph on the page; needs a build
    /// with the feature `cpu-stacks`
    #[arg(long)]
    cpu: bool,
    #[arg(long, value_enum, default_value = "table")]
    format: Form,
    /// Add up operators of one name within the first N parts of the modules' names [default: each operator is a row]
    #[arg(long, value_name = "N")]
    module_depth: Option<usize>,
    /// Rows of the table, the longest first; 0 shows all
    #[arg(long, value_name = "N", default_value_t = 20)]
    rows: usize,
    /// Write to this file instead of the terminal
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<u8> {
    let paths = Paths::find();
    let reports = paths.reports();
    let kept: Vec<Option<Profile>> =
        arguments.words.iter().map(|word| find_profile(&reports, word)).collect::<Result<_>>()?;
    let is_kept = kept.iter().any(Option::is_some);
    let mut written = Ok(());
    let (profile, compared) = if is_kept {
        ensure!(!arguments.cpu, "`--cpu` samples stacks when a case is profiled, and not of an earlier profile");
        let found = arguments.words.iter().zip(kept).map(|(word, kept)| {
            kept.with_context(|| format!("{word} is not a profile, but other arguments are profiles"))
        });
        of_kept(found.collect::<Result<_>>()?)?
    } else {
        let pair = |profile: &Profile| (profile.cases.len() == 2).then_some((0, 1));
        let write = |profile: &Profile| write_profile(&reports, profile, &page(profile, pair(profile))?);
        // If the profile cannot be kept, as on a full disk, the last attempt below reports it.
        let profile = measured(arguments, &paths, |so_far| drop(write(so_far)))?;
        written = write(&profile).map(|folder| {
            eprintln!("profile     {}\npage        {}", folder.display(), folder.join(PAGE).display());
        });
        let compared = pair(&profile);
        (profile, compared)
    };
    let most_rows = (arguments.rows > 0).then_some(arguments.rows);
    let options = Options { depth: arguments.module_depth, most_rows };
    let mut text = String::new();
    // Readers need the two tables before their difference. Scripts get one table: the difference if two profiles are
    // named.
    let is_text = matches!(arguments.format, Form::Table | Form::Markdown);
    let compared = compared.filter(|_| is_text || is_kept && arguments.words.len() == 2);
    if compared.is_none() || is_text {
        text.push_str(&render(&profile, None, arguments.format, &options)?);
    }
    if let Some((a, b)) = compared {
        text.push_str(&render(&profile, Some([&profile.cases[a], &profile.cases[b]]), arguments.format, &options)?);
    }
    write_or_print(arguments.output.as_deref(), &text)?;
    // The profile is shown even if it cannot be kept.
    written?;
    // The failures in an earlier profile are those of an earlier command.
    let failed = profile.failures.iter().filter(|_| !is_kept).map(|failure| failure.status);
    let statuses: Vec<Status> = failed.chain(profile.cases.iter().map(|_| Status::Ok)).collect();
    let code = harness::exit_code_of(&statuses, arguments.effort.allow_failed);
    Ok(if harness::is_interrupted() { exit_codes::INTERRUPTED } else { code })
}

fn measured(arguments: &Arguments, paths: &Paths, keep: impl Fn(&Profile)) -> Result<Profile> {
    let mut selection = arguments.selection.clone();
    let filter = selection.take_filter(&arguments.words);
    let request = Request::of(selection, &arguments.effort, Some(filter));
    paths.check_writable()?;
    let _lock = harness::keep_others_out(paths)?;
    harness::profile(paths, &request, arguments.cpu, keep)
}

/// The cases of earlier profiles. Two profiles are compared: the first case that both have, or else their only cases.
fn of_kept(profiles: Vec<Profile>) -> Result<(Profile, Option<(usize, usize)>)> {
    let mut profiles = profiles.into_iter();
    let (Some(mut first), second, None) = (profiles.next(), profiles.next(), profiles.next()) else {
        bail!("one profile is shown and two are compared; more are not");
    };
    let Some(mut second) = second else {
        let compared = (first.cases.len() == 2).then_some((0, 1));
        return Ok((first, compared));
    };
    let place = |cases: &[CaseProfile], id: &str| cases.iter().position(|case| case.case_id == id);
    let both = first.cases.iter().enumerate().find_map(|(a, case)| Some((a, place(&second.cases, &case.case_id)?)));
    let only = (first.cases.len() == 1 && second.cases.len() == 1).then_some((0, 0));
    let (a, b) = both.or(only).context("the two profiles have no case in common")?;
    let cases = vec![first.cases.swap_remove(a), second.cases.swap_remove(b)];
    Ok((Profile { cases, ..Profile::default() }, Some((0, 1))))
}
