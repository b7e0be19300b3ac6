//! What becomes of a case that cannot be measured: a record that says why, and the rest of the run.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use inferbench::definition::Status;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use crate::support::{Run, Workplace, data_folder};

const DIGITS: &str = "digits/candle-cpu-f32/1";
const WEIGHTS: &str = "models/trained/digits.safetensors";
const REFERENCE: &str = "models/zoo/digits/reference.safetensors";

fn digits() -> Workplace {
    Workplace::new(&["digits"], &["candle"], &[1])
}

/// Changes the sign of every value of an f32 tensor in the file.
pub fn flip_signs(path: &Path, tensor: &str) {
    let mut bytes = fs::read(path).unwrap();
    let (header_bytes, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let (begin, end) = header.info(tensor).unwrap().data_offsets;
    let data = 8 + header_bytes;
    for sign in (data + begin..data + end).skip(3).step_by(4) {
        bytes[sign] ^= 0x80;
    }
    fs::write(path, bytes).unwrap();
}

#[test]
fn wrong_weights_are_found_out_and_never_measured() {
    let workplace = Workplace::new(&["digits", "tenn_eeg"], &["candle"], &[1, 8]);
    flip_signs(&workplace.path(WEIGHTS), "fc2.weight");
    let run = workplace.inferbench(&["run", "--noplot"]).finish().with_code(1);
    assert!(!run.stdout.contains("digits/candle-cpu-f32/1 time:"), "{}", run.stdout);
    for id in [DIGITS, "digits/candle-cpu-f32/8"] {
        let record = workplace.record(id);
        assert_eq!((record.status, record.verified, record.iterations), (Status::WrongOutput, Some(false), None));
        assert_eq!((record.latency_p50_ms, record.throughput_ips), (None, None));
        assert!(record.max_rel_error.unwrap() > 1e-2);
        let message = record.message.unwrap();
        for part in [
            "differ from the reference",
            " times as much as the outputs of different samples differ, which is ",
            "times what rounding explains",
        ] {
            assert!(message.contains(part), "{message}");
        }
    }
    assert_eq!(workplace.measured(), ["tenn_eeg/candle-cpu-f32/1", "tenn_eeg/candle-cpu-f32/8"]);
}

#[test]
fn larger_batches_are_not_tried_after_one_for_which_memory_ran_out() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1, 20_000_000, 40_000_000]);
    // The second batch has inputs of 5.1 GB.
    let script = "ulimit -v 4000000; exec \"$0\" \"$@\"";
    let inner = workplace.inferbench(&["run", "--noplot", "--iterations", "20"]);
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(inner.get_program()).args(inner.get_args());
    command.current_dir(inner.get_current_dir().unwrap());
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.finish().with_code(0);
    assert_eq!(workplace.measured(), [DIGITS]);
    let [tried, left_out] =
        [20_000_000, 40_000_000].map(|batch| workplace.record(&format!("digits/candle-cpu-f32/{batch}")));
    assert_eq!((tried.status, left_out.status), (Status::OutOfMemory, Status::OutOfMemory));
    assert!(tried.message.as_ref().unwrap().contains("memory allocation of "), "{:?}", tried.message);
    assert_eq!(left_out.message.as_deref(), Some("not tried: memory ran out at batch 20000000"));
}

#[test]
fn another_reference_is_a_wrong_output_too() {
    let workplace = digits();
    flip_signs(&workplace.path(REFERENCE), "output.logits");
    workplace.inferbench(&["verify"]).finish().with_code(1).saying(&["wrong-output: the outputs differ"]);
}

#[test]
fn benchmark_only_measures_what_nobody_has_verified() {
    let workplace = digits();
    flip_signs(&workplace.path(WEIGHTS), "fc2.weight");
    let run = workplace.inferbench(&["run", "--noplot", "--benchmark-only"]).finish().with_code(0);
    run.saying(&[", outputs not compared, "]);
    let record = workplace.record(DIGITS);
    assert_eq!((record.status, record.verified, record.max_rel_error), (Status::Ok, None, None));
    assert!(record.latency_p50_ms.is_some());
}

#[test]
fn damaged_files_are_records_with_their_paths() {
    let workplace = digits();
    let whole = fs::read(data_folder().join("models/two_inputs.onnx")).unwrap();
    workplace.write("models/exported/cut.onnx", &whole[..whole.len() / 2]);
    workplace.write("models/exported/empty.onnx", "");
    workplace.write("models/exported/notes.onnx", "This is a text and no model.\n");
    workplace.inferbench(&["run", "--noplot"]).finish().with_code(5);
    for name in ["cut", "empty", "notes"] {
        let record = workplace.record(&format!("{name}/candle-cpu-f32/1"));
        let message = record.message.unwrap();
        assert_eq!((record.status, record.latency_p50_ms), (Status::Failed, None));
        assert!(message.contains(&format!("models/exported/{name}.onnx: ")), "{message}");
    }
    assert_eq!(workplace.record(DIGITS).status, Status::Ok);
    let listed = workplace.inferbench(&["models"]).finish().with_code(0).stdout;
    assert!(listed.contains("notes") && listed.contains("unusable"), "{listed}");
}

#[test]
fn weights_that_do_not_fit_their_architecture_are_listed() {
    let workplace = digits();
    let zeros = vec![0; 4 * 144];
    let tensor = |shape: Vec<usize>| TensorView::new(Dtype::F32, shape, &zeros).unwrap();
    let tensors = HashMap::from([("conv1.weight", tensor(vec![16, 9])), ("stem.bias", tensor(vec![144]))]);
    workplace.write("models/trained/other.safetensors", safetensors::serialize(tensors, None).unwrap());
    workplace.write("models/trained/other.toml", "architecture = \"digits\"\n");
    let weights = fs::read(workplace.path(WEIGHTS)).unwrap();
    workplace.write("models/trained/cut.safetensors", &weights[..weights.len() - 1]);
    workplace.write("models/trained/cut.toml", "architecture = \"digits\"\n");
    workplace.inferbench(&["run", "--noplot"]).finish().with_code(5);
    let message = |name: &str| {
        let record = workplace.record(&format!("{name}/candle-cpu-f32/1"));
        assert_eq!(record.status, Status::Failed);
        record.message.unwrap()
    };
    for part in [
        "models/trained/other.safetensors: these weights do not fit",
        "conv1.weight has shape [16, 9] instead of [16, 1, 3, 3]",
        "fc2.bias is missing (shape [10])",
        "the file also has stem.bias",
    ] {
        assert!(message("other").contains(part), "no {part:?} in {}", message("other"));
    }
    assert!(message("cut").contains("not a whole safetensors file"), "{}", message("cut"));
    assert_eq!(workplace.record(DIGITS).status, Status::Ok);
}

#[test]
fn a_definition_that_is_missing_is_asked_for_with_the_lines_to_write() {
    let workplace = digits();
    workplace.add_model("open_length.onnx", "models/exported/open.onnx");
    workplace.add_model("scaled.pt", "models/exported/scaled.pt");
    fs::copy(workplace.path(WEIGHTS), workplace.path("models/trained/bare.safetensors")).unwrap();
    fs::copy(workplace.path(WEIGHTS), workplace.path("models/trained/stray.safetensors")).unwrap();
    workplace.write("models/trained/stray.toml", "architecture = \"lenet\"\n");
    workplace.write("models/exported/open.toml", "dimension = { length = 5 }\n");
    for (name, dimension) in [("sizes", "lenght = 5"), ("none", "length = 0")] {
        workplace.add_model("open_length.onnx", &format!("models/exported/{name}.onnx"));
        workplace.write(&format!("models/exported/{name}.toml"), format!("[dimensions]\n{dimension}\n"));
    }
    workplace.inferbench(&["run", "--noplot"]).finish().with_code(5);
    let message = |name: &str| workplace.record(&format!("{name}/candle-cpu-f32/1")).message.unwrap();
    assert!(message("open").contains("models/exported/open.toml: ") && message("open").contains("unknown field"));
    let scaled = message("scaled");
    assert!(
        scaled.starts_with("needs a .onnx file of the same name: ") && scaled.contains("`--backend torch`"),
        "{scaled}"
    );
    let sizes = "models/exported/sizes.toml: [dimensions] lenght = 5: the file leaves no size of this name open; its \
                 inputs are x:f32[batch,length,3]";
    assert!(message("sizes").contains(sizes), "{}", message("sizes"));
    assert!(message("none").contains("[dimensions] length = 0: a size is a number from 1 on"), "{}", message("none"));
    assert!(
        message("bare").contains("models/trained/bare.toml with `architecture = \"<name>\"`, one of digits, tenn_eeg")
    );
    assert!(message("stray").contains("unknown architecture \"lenet\"; there are digits, tenn_eeg"));
}

#[test]
fn a_backend_that_is_not_there_is_unavailable_with_the_reason() {
    let workplace = Workplace::new(&["digits"], &["glow", "candle"], &[1]);
    let planned = workplace.inferbench(&["run", "--dry-run"]).finish().with_code(0).stdout;
    assert!(planned.contains("2 cases (1 cannot run), about"), "{planned}");
    let run = workplace.inferbench(&["run", "--noplot"]).finish().with_code(0);
    run.saying(&["left out: glow on cpu (1 case): unavailable: no backend \"glow\"; there are ort, tch, candle"]);
    let record = workplace.record("digits/glow-cpu-f32/1");
    assert_eq!((record.status, record.verified), (Status::Unavailable, None));
    assert!(record.message.unwrap().contains("there are ort, tch, candle"));
    assert_eq!(workplace.record(DIGITS).status, Status::Ok);

    workplace
        .inferbench(&["run", "--backend", "candle,glow"])
        .finish()
        .with_code(2)
        .saying(&["no backend \"glow\"; there are"]);
    let run = workplace.inferbench(&["run", "--backend", "candl"]).finish().with_code(2);
    run.saying(&["no backend \"candl\" (did you mean candle?); there are"]);
    workplace.inferbench(&["run", "--dtype", "bf16"]).finish().with_code(3);
    assert_eq!(workplace.record("digits/candle-cpu-bf16/1").status, Status::Unsupported);
}

#[test]
#[cfg(not(feature = "tch"))]
fn a_backend_that_is_not_in_this_build_says_what_adds_it() {
    let workplace = digits();
    workplace.inferbench(&["run", "--backend", "tch"]).finish().with_code(3);
    let record = workplace.record("digits/tch-cpu-f32/1");
    assert_eq!(record.status, Status::Unavailable);
    assert!(record.message.unwrap().contains("--features tch"));
}

#[test]
#[cfg(feature = "ort")]
fn onnx_runtime_that_is_missing_or_broken_is_unavailable() {
    let workplace = Workplace::new(&["digits"], &["ort", "candle"], &[1]);
    fs::remove_file(workplace.path(".native")).unwrap();
    let missing = workplace.inferbench(&["run", "--noplot"]).env_remove("ORT_DYLIB_PATH").finish();
    missing.with_code(0).saying(&["ort on cpu (1 case): unavailable: ONNX Runtime is not at", "scripts/setup ort"]);
    workplace.write("broken.so", "not a library");
    let broken = workplace.inferbench(&["run", "--noplot"]).env("ORT_DYLIB_PATH", workplace.path("broken.so")).finish();
    broken.with_code(0);
    let record = workplace.record("digits/ort-cpu-f32/1");
    assert_eq!(record.status, Status::Unavailable);
    assert!(record.message.unwrap().contains("broken.so"));
    assert_eq!(workplace.record(DIGITS).status, Status::Ok);
}

#[test]
fn wrong_usage_is_answered_with_what_there_is() {
    let workplace = digits();
    let refused = |arguments: &[&str], parts: &[&str]| {
        workplace.inferbench(arguments).finish().with_code(2).saying(parts);
    };
    refused(&["run", "--model", "lenet"], &["no model \"lenet\"; there are digits, tenn_eeg"]);
    refused(&["run", "--suite", "nightly"], &["no suite \"nightly\"", "there are quick"]);
    refused(&["run", "--suite", "absent/suite.toml"], &["no suite \"absent/suite.toml\": "]);
    refused(&["run", "--batch-sizes", "0"], &["batch sizes", "are numbers from 1"]);
    refused(&["run", "--batch-sizes", "many"], &["invalid value 'many'"]);
    refused(&["run", "--dtype", "f12"], &["f32, f16, bf16, i8"]);
    refused(&["run", "--iterations", "0"], &["iterations is a number from 1"]);
    refused(&["run", "--budget", "0"], &["budget_s is a number from 0.001 to"]);
    refused(&["run", "--threads", "100000"], &["threads is a number from 1 to"]);
    refused(&["run", "--variant", "pruned"], &["digits has no variant \"pruned\"; there are original, pruned-"]);
    refused(&["run", "("], &["FILTER \"(\" is not a regular expression"]);
    refused(&["run", "--save-baseline", "a", "--baseline", "b"], &["cannot be used with"]);
    refused(&["convert"], &["no run in", "make one with `cargo bench` or `inferbench run`"]);
    refused(&["report"], &["no results in", "inferbench run"]);

    workplace.write("models/suites/broken.toml", "models = [{ name = \"digits\" }]\nbatchsizes = [1]\n");
    refused(&["run", "--suite", "broken"], &["models/suites/broken.toml", "batchsizes"]);
    workplace.bench(&["--no-such-option"]).finish().with_code(2).saying(&["--no-such-option"]);
    workplace.bench(&[]).env("INFERBENCH_MODEL", "lenet").finish().with_code(2).saying(&["there are digits, tenn_eeg"]);
    let bench = workplace.bench(&[]).env("INFERBENCH_BATCH_SIZES", "many").finish().with_code(2);
    bench.saying(&["invalid value 'many' for 'INFERBENCH_BATCH_SIZES (--batch-sizes <N,…>)'"]);
    let few = workplace.inferbench(&["run", "--iterations", "9", "--dry-run"]).finish().with_code(0);
    few.saying(&["`--iterations 9` makes 10 calls of each case"]);
    assert!(!workplace.path("target").exists());
}
