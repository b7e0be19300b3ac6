//! `inferbench variants`: measures a model beside the f16, int8 and int4 variants that are made from it.

use std::path::PathBuf;

use clap::Args;

use super::run::run_and_show;
use crate::catalogue::ALL;
use crate::definition::DataSource;
use crate::harness::Request;
use crate::paths::Paths;
use crate::selection::{EffortArguments, Selection};

/// Make f16, int8 and int4 variants of ONNX files, and measure all
#[derive(Args)]
#[command(
    after_help = "The variants are f16, int8-dynamic (the ranges of activations are found in each call) and int8-static (the ranges are \
        measured in advance, over up to 100 of the samples). Those of a language model are int4, int4-asym, int4-128, int4-128-asym and \
        int8-block: weights in blocks of 32 or 128, symmetric or with a zero point; for other files, name them with `--variant` of \
        `inferbench run`. The command is short for `inferbench run FILE --variant all --data-source SAMPLES`.\n\n\
        Examples:\n  inferbench variants net.onnx --samples images\n  inferbench variants decoder --backend ort,openvino\n  \
        inferbench variants net.onnx --samples held-out.safetensors --backend ort,openvino --batch-sizes 1"
)]
pub struct Arguments {
    /// Files and folders of models
    #[arg(value_name = "FILE|FOLDER", required = true)]
    files: Vec<String>,
    /// A folder with one folder of images per class, a `.txt` file with one text per line, or a safetensors or `.npz` file with `input.<name>`
    /// and perhaps `label` [default: seeded samples, on which outputs are compared with those of the original]
    #[arg(long, value_name = "DIR|FILE", conflicts_with_all = ["data_source", "text"])]
    samples: Option<PathBuf>,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    effort: EffortArguments,
    /// Continue the last run where it was stopped, and measure again the cases that failed; the other finished cases are not measured again
    #[arg(long)]
    resume: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    // A word that is neither a file nor a folder is not a filter here, since the suite would be measured instead of it.
    let mut selection = Selection { files: arguments.files.clone(), ..arguments.selection.clone() };
    if selection.variant.is_empty() {
        selection.variant = vec![ALL.to_owned()];
    }
    selection.data_source = arguments.samples.clone().map(DataSource::of_path).or(selection.data_source);
    let request =
        Request { resume: arguments.resume, can_resume: true, ..Request::of(selection, &arguments.effort, None) };
    Ok(run_and_show(&Paths::find(), &request)?.0)
}
