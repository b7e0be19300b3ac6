//! Preparing models: several processes at once, a full disk, an end in the middle, and which files a record is of.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use inferbench::definition::Status;

use crate::outcomes::flip_signs;
use crate::support::{Finished, Run, Workplace, wait_for};

const DIGITS: &str = "digits/candle-cpu-f32/1";

fn digits() -> Workplace {
    Workplace::new(&["digits"], &["candle"], &[1])
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.collect();
    names.sort();
    names
}

/// The first word that a shell prints in a folder.
fn shell(folder: &Path, command: &str) -> String {
    let output = Command::new("sh").args(["-c", command]).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{command}");
    String::from_utf8(output.stdout).unwrap().split_whitespace().next().unwrap_or_default().to_owned()
}

/// Every file is what its stamp says.
fn is_whole(folder: &Path) -> bool {
    shell(folder, "tail -n +2 stamp | sha256sum --check --status && echo whole") == "whole"
}

/// `inferbench` in a shell that allows no file above 16 blocks, which the weights of digits are.
fn with_little_room(workplace: &Workplace, before: &str, arguments: &[&str]) -> Finished {
    let inner = workplace.inferbench(arguments);
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{before} ulimit -f 16; exec \"$0\" \"$@\"")]).arg(inner.get_program());
    command.args(inner.get_args()).current_dir(inner.get_current_dir().unwrap());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.finish()
}

#[test]
fn one_that_prepares_makes_another_wait_and_says_so() {
    let workplace = digits();
    fs::create_dir(workplace.path(".prepared")).unwrap();
    let lock = File::create(workplace.path(".prepared/.lock")).unwrap();
    lock.lock().unwrap();
    let log = workplace.path("log.txt");
    let mut waiting = workplace.inferbench(&["prepare"]).start(&log);
    wait_for("what it says", || {
        fs::read_to_string(&log).unwrap().contains("waiting for another inferbench that prepares").then_some(())
    });
    assert_eq!(names(&workplace.path(".prepared")), [".lock"]);
    lock.unlock().unwrap();
    assert!(waiting.wait().success());
    assert!(is_whole(&workplace.path(".prepared/digits")));
}

#[test]
fn many_that_prepare_at_once_leave_whole_files() {
    let workplace = Workplace::new(&["digits", "tenn_eeg"], &["candle"], &[1]);
    let logs: Vec<_> = (0..8).map(|index| workplace.path(&format!("log{index}.txt"))).collect();
    let prepare = ["prepare", "--variant", "original,distilled,pruned-structured", "--dtype", "f32,f16"];
    let running: Vec<_> = logs.iter().map(|log| workplace.inferbench(&prepare).start(log)).collect();
    for (mut running, log) in running.into_iter().zip(&logs) {
        assert!(running.wait().success(), "{}", fs::read_to_string(log).unwrap());
    }
    let expected = [".lock", "digits", "digits.distilled", "digits.pruned-structured", "tenn_eeg"];
    assert_eq!(names(&workplace.path(".prepared")), expected);
    for name in &expected[1..] {
        let folder = workplace.path(".prepared").join(name);
        assert!(is_whole(&folder) && is_whole(&folder.join("f16")), "{name}");
        assert!(names(&folder).iter().all(|name| !name.starts_with('.')), "{:?}", names(&folder));
    }
}

#[test]
fn what_is_left_of_a_process_that_ends_in_the_middle_is_not_trusted() {
    let workplace = digits();
    // The signal of the first byte too many ends it, as `kill -9` would.
    assert_eq!(with_little_room(&workplace, "", &["prepare"]).code, None);
    assert_eq!(names(&workplace.path(".prepared")), [".lock", ".partial-digits"]);
    let left = fs::metadata(workplace.path(".prepared/.partial-digits/weights.safetensors")).unwrap().len();
    assert!(left > 0 && left < 58_920, "{left}");
    workplace.inferbench(&["run", "--noplot"]).finish().with_code(0);
    assert_eq!((workplace.record(DIGITS).status, workplace.record(DIGITS).verified), (Status::Ok, Some(true)));
    assert_eq!(names(&workplace.path(".prepared")), [".lock", "digits"]);

    // The same where other files are to take the place of those.
    flip_signs(&workplace.path("models/trained/digits.safetensors"), "fc2.weight");
    assert_eq!(with_little_room(&workplace, "", &["prepare"]).code, None);
    flip_signs(&workplace.path("models/trained/digits.safetensors"), "fc2.weight");
    workplace.inferbench(&["verify"]).finish().with_code(0);
    assert!(is_whole(&workplace.path(".prepared/digits")));
}

#[test]
fn a_full_disk_is_an_error_that_names_the_file_and_leaves_nothing() {
    let workplace = digits();
    let full = "trap '' XFSZ;";
    let refused = with_little_room(&workplace, full, &["prepare"]).with_code(2);
    refused.saying(&["digits in f32: ", ".prepared/.partial-digits/weights.safetensors`: File too large"]);
    assert_eq!(names(&workplace.path(".prepared")), [".lock"]);

    workplace.inferbench(&["prepare"]).finish().with_code(0);
    let before = names(&workplace.path(".prepared/digits"));
    let refused = with_little_room(&workplace, full, &["prepare", "--dtype", "f16"]).with_code(2);
    refused.saying(&["digits in f16: ", "model.data`: File too large"]);
    assert_eq!(names(&workplace.path(".prepared/digits")), before);

    // What was there stays where it cannot be replaced.
    flip_signs(&workplace.path("models/trained/digits.safetensors"), "fc2.weight");
    with_little_room(&workplace, full, &["prepare"]).with_code(2);
    assert!(
        names(&workplace.path(".prepared")) == [".lock", "digits"] && is_whole(&workplace.path(".prepared/digits"))
    );
}

#[test]
fn weights_that_are_not_there_are_an_error_of_their_preparation() {
    let workplace = digits();
    fs::remove_file(workplace.path("models/trained/digits.safetensors")).unwrap();
    let refused = workplace.inferbench(&["prepare"]).finish().with_code(2);
    refused.saying(&["digits.safetensors: No such file"]);
}

#[test]
fn a_record_is_of_the_graph_and_its_weights() {
    let workplace = digits();
    let own = workplace.path("own.safetensors");
    fs::copy(workplace.path("models/trained/digits.safetensors"), &own).unwrap();
    let suite = fs::read_to_string(workplace.path("models/suites/quick.toml")).unwrap();
    let own_suite = suite.replace("\"digits\"", "\"digits\", weights = 'own.safetensors'");
    workplace.write("own.toml", own_suite);
    let hash = |arguments: &[&str], folder: &str| {
        workplace.inferbench(&[&["run", "--noplot"], arguments].concat()).finish().with_code(0);
        let sum = shell(&workplace.path(folder), "sha256sum model.onnx weights.safetensors | sha256sum");
        let hash = workplace.record(DIGITS).artifact_sha256.unwrap();
        assert_eq!(hash, sum);
        hash
    };
    let packaged = hash(&[], ".prepared/digits");
    assert_eq!(hash(&["--suite", "own.toml"], ".prepared/digits@own"), packaged, "it is a copy");
    flip_signs(&own, "fc2.weight");
    assert_ne!(hash(&["--suite", "own.toml"], ".prepared/digits@own"), packaged);
    assert_eq!(hash(&[], ".prepared/digits"), packaged);
}

#[test]
fn a_record_of_a_users_file_has_the_sum_that_the_shell_prints() {
    let workplace = Workplace::new(&[], &["candle"], &[1]);
    workplace.add_model("two_inputs.onnx", "models/exported/net.onnx");
    workplace.inferbench(&["run", "--noplot"]).finish().with_code(0);
    let record = workplace.record("net/candle-cpu-f32/1");
    let sum = shell(&workplace.path("models/exported"), "sha256sum net.onnx");
    assert_eq!(record.artifact_sha256, Some(sum));
}
