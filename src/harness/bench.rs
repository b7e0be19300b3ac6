//! `main` of the bench executables, which `cargo bench` starts.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{Arg, Command, CommandFactory, Parser};

use super::asked_cases::NoCase;
use super::plan::Request;
use super::protocol::{JOB, Purpose};
use super::run::run;
use super::supervisor::Interrupted;
use super::worker;
use crate::backend;
use crate::catalogue::ask_for_module_inputs;
use crate::exit_codes;
use crate::fixture;
use crate::paths::{OUTPUT_DIR, Paths};
use crate::run_data::{CriterionArguments, RunFolder};
use crate::selection::{EffortArguments, Selection, parse_with_variables};

/// Does the job that a supervisor has started this process for, and returns its exit code. Returns `None` in a process
/// that a user has started. Every `main` begins with it.
pub fn run_as_worker() -> Option<u8> {
    ask_for_module_inputs(backend::inputs_of_module);
    fixture::quantise_gguf_by(backend::quantise_gguf);
    if let Some(asked) = backend::asked_by_probe() {
        return Some(backend::answer_probe(&asked));
    }
    let job = std::env::var_os(JOB)?;
    Some(worker::run(Path::new(&job)))
}

/// The flags of a bench executable, read from the environment: on its command line `cargo bench` passes only Criterion's.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct BenchVariables {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    effort: EffortArguments,
}

/// The environment variables without a flag: paths of files and libraries, and settings of backends.
pub const PATH_VARIABLES: [(&str, &str); 16] = [
    (
        "INFERBENCH_ROOT",
        "The project's folder [default: the nearest folder, from the current one upwards, that is a checkout of inferbench or a package that uses it, or else the current folder]",
    ),
    ("INFERBENCH_MODELS_DIR", "Instead of the project's `models`"),
    (OUTPUT_DIR, "The folder of the reports and the history, instead of `target-reports`"),
    (
        "INFERBENCH_HOST_ID",
        "The identity of this machine, where each container or runner would otherwise count as another machine",
    ),
    ("INFERBENCH_PEAKS", "The file that keeps the measured peaks of this machine"),
    (
        backend::ENVIRONMENT,
        "The Python environment whose runtimes are used, or `none` [default: the active one, or the one of `python3`]",
    ),
    ("INFERBENCH_OPENVINO_LIBRARY", "The library openvino_c, instead of one that is found"),
    ("INFERBENCH_LLAMA_LIBRARY", "A folder with the libraries of llama.cpp, instead of that of `inferbench setup`"),
    ("INFERBENCH_LLAMA_SETTINGS", "Settings of llama.cpp, as cache=q8_0,flash-attention=on"),
    ("INFERBENCH_JAX_PYTHON", "A Python that has jax and onnx, instead of one that is found"),
    ("INFERBENCH_TORCH_PYTHON", "A Python that has torch, instead of one that is found"),
    ("INFERBENCH_BROWSER", "A Chromium, instead of the one of `inferbench setup browser`"),
    ("INFERBENCH_WORKER", "External workers that are backends: `name:command`, several separated by `;`"),
    ("INFERBENCH_QNN_OPTIONS", "A TOML file with the options of QNN's chip"),
    ("ORT_DYLIB_PATH", "The library onnxruntime, instead of one that is found"),
    ("CRITERION_HOME", "The root of Criterion's tree, instead of `target/criterion`"),
];

/// Criterion's command line, whose help also names every environment variable of a bench executable.
fn command_line() -> Command {
    let line = |name: &str, text: &str| format!("  {name:<28} {text}\n");
    let variables = BenchVariables::command();
    let help = |flag: &Arg| flag.get_help().map(ToString::to_string).unwrap_or_default();
    let flags = variables.get_arguments().filter_map(|flag| Some(line(flag.get_env()?.to_str()?, &help(flag))));
    let flags: String = flags.collect();
    let paths: String = PATH_VARIABLES.iter().map(|(name, text)| line(name, text)).collect();
    let command = CriterionArguments::command();
    let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    command.after_help(format!(
        "Environment variables with the names of the flags of `inferbench run`:\n{flags}\n\
         Environment variables for files and libraries:\n{paths}\n{examples}"
    ))
}

/// `main` of the bench executable `inference`.
pub fn bench_main() -> ExitCode {
    run_benchmarks(Purpose::Measure, |_| Ok(()))
}

/// `main` of the bench executable `load`: cold starts. The medians of their parts are printed at the end, separated by
/// tabs.
pub fn load_main() -> ExitCode {
    run_benchmarks(Purpose::Load, |folder| {
        println!("case\tload_time_ms\ttrace_time_ms\tcompilation_time_ms\tfirst_inference_ms");
        for (id, outcome) in folder.read_outcomes()?.finished {
            let cell = |ms: Option<f64>| ms.map(|ms| format!("{ms:.3}")).unwrap_or_default();
            let row = outcome.row;
            let cells =
                [row.load_time_ms, row.trace_time_ms, row.compilation_time_ms, row.first_inference_ms].map(cell);
            println!("{id}\t{}", cells.join("\t"));
        }
        Ok(())
    })
}

/// The request of Criterion's arguments and the environment. Ends the process if one is wrong, and for `--help`.
pub fn bench_request(words: &[OsString]) -> Request {
    // It refuses words that are not UTF-8.
    command_line().get_matches_from(words);
    let criterion_arguments = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    say_misspelled_variables();
    let BenchVariables { selection, effort } = parse_with_variables(std::iter::empty());
    Request { selection, effort, criterion_arguments, ..Request::default() }
}

/// Warns of variables that are nearly those of a flag: a misspelled one has no effect.
pub fn say_misspelled_variables() {
    let flags = BenchVariables::command();
    let flags = flags.get_arguments().filter_map(|flag| flag.get_env()?.to_str());
    let known: Vec<String> = flags.chain(PATH_VARIABLES.iter().map(|(name, _)| *name)).map(str::to_owned).collect();
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if let Some(meant) = meant_by(&name, &known) {
            eprintln!("inferbench: the variable {name} has no effect; did you mean {meant}?");
        }
    }
}

fn meant_by<'a>(name: &str, known: &'a [String]) -> Option<&'a String> {
    const MOST_LETTERS: usize = 2;
    // The build script sets it for the compiler, and so Cargo sets it for what it starts.
    const OF_BUILD: &str = "INFERBENCH_RUSTC";
    let is_near = |other: &&String| strsim::levenshtein(name, other) <= MOST_LETTERS;
    let is_unknown = name.starts_with("INFERBENCH_") && name != OF_BUILD && !known.iter().any(|other| other == name);
    known.iter().filter(|_| is_unknown).find(is_near)
}

fn run_benchmarks(purpose: Purpose, show: impl FnMut(&RunFolder) -> anyhow::Result<()>) -> ExitCode {
    if let Some(code) = run_as_worker() {
        return ExitCode::from(code);
    }
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let request = Request { purpose, ..bench_request(&words) };
    let shown = run(&Paths::find(), &request).and_then(|finished| {
        finished.folder.iter().try_for_each(show)?;
        Ok(finished.exit_code)
    });
    match shown {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("inferbench: {error:#}");
            ExitCode::from(code_of(&error))
        }
    }
}

/// The exit code of a run that ended with an error.
fn code_of(error: &anyhow::Error) -> u8 {
    match () {
        // `cargo bench` passes a filter to each bench, of which not all have such a case.
        () if error.is::<NoCase>() => exit_codes::OK,
        () if error.is::<Interrupted>() => exit_codes::INTERRUPTED,
        () => exit_codes::USAGE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_is_nearly_that_of_a_flag_is_named_with_it() {
        let own = |name: &str| ["INFERBENCH", name].join("_");
        let known = ["BATCH_SIZES", "THREADS", "TRUST"].map(own);
        let of = |name: &str| meant_by(&own(name), &known).cloned().unwrap_or_default();
        assert_eq!([of("BATCH_SIZE"), of("THREAD")], ["BATCH_SIZES", "THREADS"].map(own));
        assert_eq!(["THREADS", "OTHER", "RUSTC"].map(of), [""; 3]);
        assert_eq!(meant_by("THREADS", &known), None);
    }

    #[test]
    fn a_run_that_the_user_stops_while_sizes_are_tried_was_interrupted() {
        assert_eq!(code_of(&Interrupted.into()), exit_codes::INTERRUPTED);
        assert_eq!(code_of(&anyhow::anyhow!("no model \"nothing\"")), exit_codes::USAGE);
    }
}
