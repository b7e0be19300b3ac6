//! The installed program: any folder, no checkout, the runtimes of Python environments.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use inferbench::definition::Status;
use inferbench::history::History;
use inferbench::run_data::Record;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Run, checkout, data_folder, has_onnxruntime, peaks, wait_for};

/// An empty folder with a network in it, a cache folder and a home folder, and nothing else.
struct Elsewhere(TempDir);

impl Elsewhere {
    fn new() -> Self {
        let elsewhere = Elsewhere(tempfile::tempdir().unwrap());
        for folder in ["work", "home"] {
            fs::create_dir(elsewhere.path(folder)).unwrap();
        }
        fs::copy(data_folder().join("models/two_inputs.onnx"), elsewhere.path("work/net.onnx")).unwrap();
        elsewhere
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.0.path().join(relative)
    }

    /// The program, with a path that has no Python.
    fn inferbench(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_inferbench"));
        command.args(arguments).current_dir(self.path("work")).env_clear().env("PATH", "");
        command.env("HOME", self.path("home")).env("XDG_CACHE_HOME", self.path("cache"));
        command.env("INFERBENCH_PEAKS", peaks::file());
        command
    }

    fn run(&self, arguments: &[&str]) -> Command {
        let quick = ["--noplot", "--threads", "1", "--batch-sizes", "1", "--iterations", "20"];
        self.inferbench(&[&["run", "net.onnx"], &quick[..], arguments].concat())
    }

    fn records(&self) -> Vec<Record> {
        let history = History::open(&[self.path("work/target-reports")]).unwrap();
        history.latest().unwrap().records().unwrap()
    }

    /// A Python environment with this file as its ONNX Runtime.
    fn environment(&self, name: &str, library: &Path) -> PathBuf {
        let folder = self.path(name).join("lib/python3.11/site-packages/onnxruntime/capi");
        fs::create_dir_all(&folder).unwrap();
        symlink(library, folder.join("libonnxruntime.so.1.31.1")).unwrap();
        self.path(name)
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn onnxruntime() -> PathBuf {
    checkout().join(".native/onnxruntime/libonnxruntime.so")
}

#[test]
fn own_models_of_the_current_folder_have_names() {
    let elsewhere = Elsewhere::new();
    let exported = elsewhere.path("work/models/exported");
    fs::create_dir_all(&exported).unwrap();
    fs::rename(elsewhere.path("work/net.onnx"), exported.join("own.onnx")).unwrap();
    elsewhere.inferbench(&["verify", "--model", "own", "--backend", "candle"]).finish().with_code(0);
    let listed = elsewhere.inferbench(&["models", "--format", "json"]).finish().with_code(0).stdout;
    assert!(listed.contains("\"own\"") && listed.contains("\"digits\""), "{listed}");
}

#[test]
fn a_network_is_measured_in_any_folder_and_nothing_is_written_elsewhere() {
    let elsewhere = Elsewhere::new();
    let finished = elsewhere.run(&["--backend", "candle,tract"]).finish().with_code(0);
    assert!(finished.stdout.contains("history        target-reports"), "{}", finished.stdout);
    assert_eq!(names(&elsewhere.path("work")), ["net.onnx", "target-reports"]);
    assert_eq!(names(&elsewhere.path("home")), [""; 0]);
    assert_eq!(names(&elsewhere.path("cache/inferbench")), ["program"]);
    let inside = names(&elsewhere.path("work/target-reports"));
    assert!(["criterion", "inferbench"].iter().all(|name| inside.contains(&(*name).to_owned())), "{inside:?}");
    assert!(elsewhere.records().iter().any(|record| record.status == Status::Ok));
    // Each finds the run.
    for (command, code, said) in [
        (&["report"][..], 0, "the original on candle"),
        (&["compare", "new", "new"], 3, "net/candle-cpu-f32/1: not compared: both sides have its measurement"),
        (&["store", "runs"], 0, "candle, tract"),
        (&["convert"], 0, "results.csv"),
    ] {
        let finished = elsewhere.inferbench(command).finish().with_code(code);
        assert!(finished.stdout.contains(said), "{command:?}: {}\n{}", finished.stdout, finished.stderr);
    }
    // Packaged models are there, too.
    let packaged = ["run", "--model", "digits", "--backend", "candle", "--iterations", "20", "--noplot"];
    elsewhere.inferbench(&packaged).finish().with_code(0);
    assert_eq!(names(&elsewhere.path("cache/inferbench")), ["prepared", "program"]);
}

#[test]
fn another_folder_of_output_is_read_by_the_others_too() {
    let elsewhere = Elsewhere::new();
    elsewhere.run(&["--backend", "candle", "--output-dir", "results"]).finish().with_code(0);
    assert_eq!(names(&elsewhere.path("work")), ["net.onnx", "results"]);
    assert!(elsewhere.path("work/results/criterion").is_dir());
    elsewhere.inferbench(&["report", "--output-dir", "results"]).finish().with_code(0);
    elsewhere.inferbench(&["report"]).env("INFERBENCH_OUTPUT_DIR", "results").finish().with_code(0);
    elsewhere.inferbench(&["report"]).finish().with_code(2);
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error_before_anything_is_measured() {
    let elsewhere = Elsewhere::new();
    fs::write(elsewhere.path("work/taken"), "").unwrap();
    let refused = elsewhere.run(&["--backend", "candle", "--output-dir", "taken/results"]).finish().with_code(2);
    refused.saying(&["taken/results cannot be written; set `--output-dir` to another folder"]);
    let refused = elsewhere.run(&[]).env("XDG_CACHE_HOME", elsewhere.path("work/taken")).finish().with_code(2);
    refused.saying(&["the program's own files", "set XDG_CACHE_HOME to another cache folder"]);
    assert_eq!(names(&elsewhere.path("work")), ["net.onnx", "taken"]);
}

#[test]
#[cfg(feature = "ort")]
fn the_active_environment_has_the_runtime_and_the_record_says_so() {
    if !has_onnxruntime() {
        return;
    }
    let elsewhere = Elsewhere::new();
    let environment = elsewhere.environment("environment", &onnxruntime());
    let missing = elsewhere.run(&["--backend", "ort,candle"]).finish().with_code(0);
    missing.saying(&["ONNX Runtime is not at", "inferbench setup ort", "pip install onnxruntime"]);
    for variable in ["VIRTUAL_ENV", "CONDA_PREFIX", "INFERBENCH_ENVIRONMENT"] {
        elsewhere.run(&["--backend", "ort"]).env(variable, &environment).finish().with_code(0);
        let record = &elsewhere.records()[0];
        assert_eq!(record.status, Status::Ok, "{variable}: {record:?}");
        let path = record.library_path.as_deref().unwrap();
        assert!(Path::new(path).starts_with(&environment) && path.ends_with("libonnxruntime.so.1.31.1"), "{path}");
    }
    // A variable that names the library comes first.
    let mut named = elsewhere.run(&["--backend", "ort"]);
    named.env("VIRTUAL_ENV", &environment).env("ORT_DYLIB_PATH", onnxruntime()).finish().with_code(0);
    assert_eq!(elsewhere.records()[0].library_path.as_deref(), onnxruntime().to_str());

    let devices = elsewhere.inferbench(&["devices", "--format", "json"]).env("VIRTUAL_ENV", &environment).finish();
    let listed: Value = serde_json::from_str(&devices.with_code(0).stdout).unwrap();
    let cpu = listed["devices"].as_array().unwrap().iter().find(|it| it["backend"] == "ort" && it["device"] == "cpu");
    let path = cpu.unwrap()["library_path"].as_str().unwrap();
    assert!(Path::new(path).starts_with(&environment), "{path}");
}

#[test]
#[cfg(feature = "jax")]
fn a_worker_has_all_packages_that_the_python_of_the_path_has() {
    let elsewhere = Elsewhere::new();
    let packages = elsewhere.path("packages");
    for package in ["jaxlib", "onnx", "numpy", "jax-98.7.dist-info"] {
        fs::create_dir_all(packages.join(package)).unwrap();
    }
    fs::write(packages.join("numpy/__init__.py"), "raise ImportError('this numpy is that of the path')").unwrap();
    let mut devices = elsewhere.inferbench(&["devices", "--format", "json"]);
    devices.env("PATH", std::env::var_os("PATH").unwrap()).env("PYTHONPATH", &packages);
    let listed: Value = serde_json::from_str(&devices.finish().with_code(0).stdout).unwrap();
    let cpu = listed["devices"].as_array().unwrap().iter().find(|it| it["backend"] == "jax" && it["device"] == "cpu");
    let cpu = cpu.unwrap();
    let found = ["detail", "library_version"].map(|name| cpu[name].as_str().unwrap());
    assert_eq!(found, ["this numpy is that of the path", "jax 98.7"]);
}

#[test]
#[cfg(feature = "ort")]
fn two_environments_are_two_backends_of_one_run() {
    if !has_onnxruntime() {
        return;
    }
    let elsewhere = Elsewhere::new();
    elsewhere.environment("work/old", &onnxruntime());
    elsewhere.environment("work/new/.venv", &onnxruntime());
    elsewhere.run(&["--backend", "ort@old,onnxruntime@new/.venv"]).finish().with_code(0);
    let records = elsewhere.records();
    let backends: Vec<&str> = records.iter().map(|record| record.backend.as_str()).collect();
    assert_eq!(backends, ["ort@old", "ort@new"]);
    for (record, folder) in records.iter().zip(["work/old", "work/new/.venv"]) {
        assert_eq!((record.status, record.framework.as_str()), (Status::Ok, "onnxruntime"), "{record:?}");
        let folder = elsewhere.path(folder).canonicalize().unwrap();
        assert!(Path::new(record.library_path.as_deref().unwrap()).starts_with(folder));
    }
    let refuse = |backend: &str| elsewhere.run(&["--backend", backend]).finish().with_code(2);
    refuse("ort@nowhere").saying(&["there is no environment \"nowhere\""]);
    refuse("candle@old")
        .saying(&["candle has no runtime in a Python environment; ort, openvino, jax and torch have one"]);
    fs::create_dir(elsewhere.path("work/empty")).unwrap();
    let empty = elsewhere.run(&["--backend", "ort@empty"]).finish().with_code(3);
    empty.saying(&["ONNX Runtime is not in", "install the package onnxruntime there"]);
}

#[test]
#[cfg(feature = "ort")]
fn a_library_that_is_broken_too_old_or_missing_in_its_package_is_said_in_a_sentence() {
    let elsewhere = Elsewhere::new();
    fs::write(elsewhere.path("broken.so"), "no library").unwrap();
    let source = "const char *version(void) { return \"1.16.3\"; }\n\
        static struct { void *api; const char *(*version)(void); } base = { 0, version };\n\
        void *OrtGetApiBase(void) { return &base; }\n";
    fs::write(elsewhere.path("old.c"), source).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(elsewhere.path("old.so")).arg(elsewhere.path("old.c"));
    assert!(compiler.status().unwrap().success());
    let said = |library: &str, sentence: &str| {
        let environment = elsewhere.environment(&format!("of-{library}"), &elsewhere.path(library));
        let finished = elsewhere.run(&["--backend", "ort"]).env("VIRTUAL_ENV", environment).finish();
        finished.with_code(3).saying(&["left out: ort on cpu (1 case): unavailable: ", sentence]);
    };
    said("broken.so", "libonnxruntime.so.1.31.1");
    said("old.so", "ONNX Runtime 1.16.3 at ");
    said("absent.so", "has no library of ONNX Runtime: packages for Linux have it since 1.19");
}

#[test]
#[cfg(feature = "ort")]
fn an_environment_that_goes_in_the_middle_of_a_run_is_not_replaced_by_another_runtime() {
    if !has_onnxruntime() {
        return;
    }
    let elsewhere = Elsewhere::new();
    // Candle is busy with it until the environment is gone.
    fs::copy(data_folder().join("models/product.onnx"), elsewhere.path("work/net.onnx")).unwrap();
    let environment = elsewhere.environment("environment", &onnxruntime());
    // What `inferbench setup` got.
    let of_setup = elsewhere.path("cache/inferbench/native/onnxruntime");
    fs::create_dir_all(&of_setup).unwrap();
    symlink(onnxruntime(), of_setup.join("libonnxruntime.so")).unwrap();
    let mut run = elsewhere.run(&["--backend", "candle,ort"]);
    let mut running = run.env("VIRTUAL_ENV", &environment).start(&elsewhere.path("log"));
    let runs = elsewhere.path("work/target-reports/inferbench/runs");
    wait_for("the run", || fs::read_dir(&runs).ok()?.next()).unwrap();
    fs::remove_dir_all(&environment).unwrap();
    assert!(running.wait().success());
    let records = elsewhere.records();
    let ort = records.iter().find(|record| record.backend == "ort").unwrap();
    assert_eq!(ort.status, Status::Unavailable, "{ort:?}");
    assert!(ort.message.as_deref().unwrap().contains("ONNX Runtime is not at"), "{ort:?}");
}

#[test]
fn the_python_module_has_the_records_of_a_run_in_which_a_case_failed() {
    let elsewhere = Elsewhere::new();
    // As `pip install --target` puts them.
    for folder in ["site", "site/bin", "site/inferbench"] {
        fs::create_dir(elsewhere.path(folder)).unwrap();
    }
    let module = checkout().join("scripts/wheel/python/inferbench/__init__.py");
    fs::copy(module, elsewhere.path("site/inferbench/__init__.py")).unwrap();
    let program = "#!/bin/sh\necho \"$@\" >>said\ncase $1 in\n\
        run) echo 'CSV            runs/one/results.csv'; exit 5;;\n\
        report) echo '[{\"status\": \"ok\"}, {\"status\": \"failed\"}]';;\nesac\n";
    fs::write(elsewhere.path("site/bin/inferbench"), program).unwrap();
    fs::set_permissions(elsewhere.path("site/bin/inferbench"), fs::Permissions::from_mode(0o755)).unwrap();
    let script = "import inferbench\n\
        try:\n    inferbench.run('net.onnx', frame='table')\n\
        except ValueError:\n    print('refused')\n\
        dim = {'height': [64, 96], 'width': 32}\n\
        records = inferbench.run('net.onnx', input=['x:f32[1,3]', 'y:f32[2]'], dim=dim, frame='list', quiet=True)\n\
        print([record['status'] for record in records])";
    let mut python = Command::new("python3");
    python.args(["-c", script]).current_dir(elsewhere.path("work")).env("PYTHONPATH", elsewhere.path("site"));
    assert_eq!(python.finish().with_code(0).stdout.trim(), "refused\n['ok', 'failed']");
    let said = fs::read_to_string(elsewhere.path("work/said")).unwrap();
    let flags = "run net.onnx --input=x:f32[1,3] --input=y:f32[2] --dim=height=64,96 --dim=width=32\n";
    assert!(said.starts_with(flags), "{said}");
}

#[test]
fn the_python_module_of_a_user_starts_the_program_that_was_installed_with_it() {
    let elsewhere = Elsewhere::new();
    let python = |script: &str, path: &Path| {
        let mut python = Command::new("python3");
        python.args(["-c", script]).env("PYTHONUSERBASE", elsewhere.path("user")).env("PYTHONPATH", path);
        python.finish().with_code(0).stdout.trim().to_owned()
    };
    let find = "import os, sysconfig; print(sysconfig.get_path('platlib', f'{os.name}_user'))";
    let packages = PathBuf::from(python(find, Path::new("")));
    fs::create_dir_all(packages.join("inferbench")).unwrap();
    let module = checkout().join("scripts/wheel/python/inferbench/__init__.py");
    fs::copy(module, packages.join("inferbench/__init__.py")).unwrap();
    for folder in ["user/bin", "system"] {
        fs::create_dir_all(elsewhere.path(folder)).unwrap();
        fs::write(elsewhere.path(folder).join("inferbench"), "").unwrap();
    }
    // An administrator has installed another version for all users.
    let script = format!(
        "import sysconfig\nreal = sysconfig.get_path\n\
        sysconfig.get_path = lambda name, *scheme: real(name, *scheme) if name != 'scripts' or scheme else {:?}\n\
        import inferbench\nprint(inferbench.executable())",
        elsewhere.path("system")
    );
    assert_eq!(Path::new(&python(&script, &packages)), elsewhere.path("user/bin/inferbench"));
}

#[test]
fn setup_that_was_interrupted_ends_with_the_code_of_interruptions() {
    let folder = tempfile::tempdir().unwrap();
    // Ctrl-C comes when the script looks at the machine.
    let script = "import platform, runpy, sys\n\
        def stop():\n    raise KeyboardInterrupt\n\
        platform.system, path = stop, sys.argv.pop()\n\
        sys.argv.append('ort')\n\
        runpy.run_path(path, run_name='__main__')";
    let mut python = Command::new("python3");
    python.args(["-c", script]).arg(checkout().join("scripts/setup"));
    python.env("INFERBENCH_NATIVE", folder.path()).env_remove("INFERBENCH_SETUP");
    python.finish().with_code(130).saying(&["interrupted; run `scripts/setup ort` again to go on"]);
}

#[test]
fn setup_lists_what_it_can_get_without_a_checkout() {
    let elsewhere = Elsewhere::new();
    let path = std::env::var_os("PATH").unwrap();
    let listed = elsewhere.inferbench(&["setup", "--list"]).env("PATH", &path).finish().with_code(0).stdout;
    assert!(
        listed.starts_with("part ") && listed.contains("\nort ") && listed.contains(" MB") && !listed.contains("ready"),
        "{listed}"
    );
    let unknown = elsewhere.inferbench(&["setup", "abacus"]).env("PATH", &path).finish().with_code(2);
    unknown.saying(&["unknown part 'abacus'; the parts are ort, tch"]);
    let without = elsewhere.inferbench(&["setup", "ort"]).finish().with_code(2);
    without.saying(&["Python does not start as python3"]);
    fs::write(elsewhere.path("file"), "").unwrap();
    let mut no_folder = elsewhere.inferbench(&["setup", "ort"]);
    no_folder.env("PATH", &path).env("XDG_CACHE_HOME", elsewhere.path("file"));
    no_folder.finish().with_code(2).saying(&["cannot be put into", "set XDG_CACHE_HOME to another cache folder"]);
    assert_eq!(names(&elsewhere.path("work")), ["net.onnx"]);
}
