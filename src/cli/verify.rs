//! `inferbench verify`: compares the outputs of each case; the compatibility matrix.

use clap::Args;

use super::{OF_TIMED_CALLS, without};
use crate::harness::{self, Purpose, Request};
use crate::paths::Paths;
use crate::report::Format;
use crate::report::compatibility::Matrix;
use crate::selection::{EffortArguments, Selection};
use crate::{convert, exit_codes};

const LENGTH: &str = "`verify` makes only a few calls of each case: leave it out";

/// Compare the outputs of each case; time only a few calls
#[derive(Args)]
#[command(
    mut_args(|flag| without(flag, &[&OF_TIMED_CALLS[..], &["warmup", "budget"]].concat(), LENGTH)),
    after_help = "Examples:\n  inferbench verify\n  inferbench verify net.onnx --reference outputs.npz\n  inferbench verify --suite small --device cpu,openvino --format md"
)]
pub struct Arguments {
    /// Files and folders of models to verify instead of the suite's, and a regular expression that the ids of cases have to match
    #[arg(value_name = "FILE|FOLDER|FILTER")]
    words: Vec<String>,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    effort: EffortArguments,
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let mut selection = arguments.selection.clone();
    let filter = selection.take_words(&arguments.words)?;
    let request = Request { purpose: Purpose::Verify, ..Request::of(selection, &arguments.effort, filter) };
    let finished = harness::run(&Paths::find(), &request)?;
    let Some(folder) = &finished.folder else { return Ok(exit_codes::NOTHING_MEASURED) };
    let outcomes = folder.read_outcomes()?;
    let matrix = Matrix::new(convert::verified(&folder.read_manifest()?, &outcomes), &outcomes);
    print!("{}", matrix.render(arguments.format));
    Ok(finished.exit_code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_a_measurement_are_refused_and_the_others_are_taken() {
        let parsed = |flag: &str| {
            let command = Arguments::augment_args(clap::Command::new("verify"));
            command.try_get_matches_from(["verify", flag, "3"]).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!((parsed("--threads"), parsed("--timeout")), (Ok(()), Ok(())));
        for flag in ["--iterations", "--warmup", "--budget", "--until-interval"] {
            assert!(parsed(flag).unwrap_err().contains("`verify` makes only a few calls"), "{flag}");
        }
    }
}
