//! `inferbench verify`: runs each case once and compares its outputs; the compatibility matrix.

use clap::Args;

use crate::harness::{self, Purpose, Request};
use crate::paths::Paths;
use crate::report::Format;
use crate::report::compatibility::Matrix;
use crate::selection::{EffortArguments, Selection};
use crate::{convert, exit_codes};

/// Run each case once and compare its outputs; measure nothing
#[derive(Args)]
#[command(
    after_help = "Examples:\n  inferbench verify\n  inferbench verify net.onnx --reference outputs.npz\n  inferbench verify --suite small --device cpu,openvino --format md"
)]
pub struct Arguments {
    /// Files and folders of models to verify instead of the suite's, and a regular expression that the ids of cases have to match
    #[arg(value_name = "FILE|FOLDER|FILTER")]
    words: Vec<String>,
    #[command(flatten)]
    selection: Selection,
    /// Do not end with 5 if cases failed or took too long
    #[arg(long, env = "INFERBENCH_ALLOW_FAILED", value_parser = clap::builder::BoolishValueParser::new())]
    allow_failed: bool,
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let mut selection = arguments.selection.clone();
    let filter = selection.take_words(&arguments.words)?;
    let effort = EffortArguments { allow_failed: arguments.allow_failed, ..EffortArguments::default() };
    let request = Request { purpose: Purpose::Verify, ..Request::of(selection, &effort, filter) };
    let finished = harness::run(&Paths::find(), &request)?;
    let Some(folder) = &finished.folder else { return Ok(exit_codes::NOTHING_MEASURED) };
    let outcomes = folder.read_outcomes()?;
    let matrix = Matrix::new(convert::verified(&folder.read_manifest()?, &outcomes), &outcomes);
    print!("{}", matrix.render(arguments.format));
    Ok(finished.exit_code)
}
