//! The Python that PyTorch is in, and what it lacks.

use std::process::Command;

use inferbench::definition::Status;

use super::{NET, module_with};
use crate::support::{Run, Workplace, checkout};
use crate::workers::{environment, has_environment};

#[test]
fn without_its_environment_it_says_what_adds_it() {
    let workplace = Workplace::new(&["digits"], &["torch"], &[1]);
    std::fs::write(workplace.path("net.py"), NET).unwrap();
    let mut command = workplace.inferbench(&["run", "net.py"]);
    let absent = command.env("XDG_CACHE_HOME", workplace.path("")).env("INFERBENCH_ENVIRONMENT", "none");
    absent.finish().with_code(3).saying(&["PyTorch is not here; get it with"]);
    let mut command = workplace.inferbench(&["run"]);
    let absent = command.env("XDG_CACHE_HOME", workplace.path("")).env("INFERBENCH_ENVIRONMENT", "none");
    absent.finish().with_code(3).saying(&[
        "left out: torch on cpu (1 case): unavailable: PyTorch is not here; get it with `scripts/setup torch`",
    ]);
}

/// The `site-packages` of PyTorch's environment, by its entries but for those that begin so, in an environment of its own.
fn environment_without(workplace: &Workplace, left_out: &[&str]) {
    let original = environment("torch");
    let folder = workplace.path("own");
    std::fs::create_dir_all(folder.join("bin")).unwrap();
    let python = std::fs::canonicalize(original.join("bin/python")).unwrap();
    std::os::unix::fs::symlink(python, folder.join("bin/python3")).unwrap();
    std::fs::copy(original.join("pyvenv.cfg"), folder.join("pyvenv.cfg")).unwrap();
    let lib = std::fs::read_dir(original.join("lib")).unwrap().flatten().next().unwrap().file_name();
    let packages = folder.join("lib").join(&lib).join("site-packages");
    std::fs::create_dir_all(&packages).unwrap();
    for entry in std::fs::read_dir(original.join("lib").join(&lib).join("site-packages")).unwrap().flatten() {
        let name = entry.file_name();
        if !left_out.iter().any(|beginning| name.to_string_lossy().starts_with(beginning)) {
            std::os::unix::fs::symlink(entry.path(), packages.join(name)).unwrap();
        }
    }
}

#[test]
fn pytorch_and_numpy_are_enough_for_a_python_file_and_a_package_that_is_missing_is_named() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&["digits"], &["torch"], &[1]);
    environment_without(
        &workplace,
        &["safetensors", "transformers", "torchvision", "torchao", "tokenizers", "hugging"],
    );
    let net = module_with("pass", "return self.fc(x)");
    std::fs::write(workplace.path("net.py"), &net).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = workplace.inferbench(&[&["run", "--noplot"], arguments].concat());
        command.env("INFERBENCH_ENVIRONMENT", workplace.path("own")).finish()
    };
    run(&["net.py"]).with_code(0);
    assert_eq!(workplace.record("net/torch-cpu-f32/1").status, Status::Ok);
    run(&["--model", "digits"]).with_code(3);
    let says = workplace.record("digits/torch-cpu-f32/1").message.unwrap();
    assert!(says.contains("needs a package that this Python lacks: No module named 'transformers'"), "{says}");
    std::fs::remove_dir_all(workplace.path("own")).unwrap();
    environment_without(&workplace, &["numpy"]);
    run(&["net.py"]).with_code(3).saying(&["lacks the package numpy: install it by `", " -m pip install numpy`"]);
}

#[test]
fn a_pytorch_that_is_too_old_is_refused_by_its_version() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&["digits"], &["torch"], &[1]);
    std::fs::create_dir_all(workplace.path("old/torch")).unwrap();
    workplace.write("old/torch/__init__.py", "__version__ = '2.3.1+cpu'\n");
    // The program finds no folders of packages among its arguments, and keeps the path that it has.
    let path = format!("import sys; sys.path.insert(0, {:?}); exec(sys.argv.pop(1))", workplace.path("old"));
    let python = environment("torch").join("bin/python");
    workplace.write("python", format!("#!/bin/sh\nexec {} -I -c '{path}' \"$3\"\n", python.display()));
    std::fs::set_permissions(workplace.path("python"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = workplace.inferbench(&["run", "--noplot"]);
    let refused = command.env("INFERBENCH_TORCH_PYTHON", workplace.path("python")).finish().with_code(3);
    refused.saying(&["PyTorch 2.3.1+cpu is too old: 2.4 or later is needed"]);
}

/// Specifications of nested values as newer and older releases of PyTorch have them.
const SPECIFICATIONS: &str = r#"
import sys
sys.path[:0] = sys.argv[1:]
from exported_program import arguments_of
from types import SimpleNamespace
for spec in [SimpleNamespace(children=lambda: [1, 2]), SimpleNamespace(children_specs=[1, 2])]:
    assert arguments_of(SimpleNamespace(call_spec=SimpleNamespace(in_spec=spec))) == [1, 2]
"#;

#[test]
fn programs_of_older_releases_say_which_inputs_they_take() {
    if !has_environment("torch") {
        return;
    }
    let mut python = Command::new(environment("torch").join("bin/python"));
    python.args(["-c", SPECIFICATIONS]).arg(checkout().join("scripts/import")).finish().with_code(0);
}

#[test]
fn the_environment_of_the_importer_serves_where_there_is_no_other() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&["digits"], &["torch"], &[1]);
    let cache = workplace.path("cache/inferbench");
    std::fs::create_dir_all(&cache).unwrap();
    std::os::unix::fs::symlink(environment("torch").canonicalize().unwrap(), cache.join("import")).unwrap();
    let mut command = workplace.inferbench(&["run", "--noplot"]);
    command.env("XDG_CACHE_HOME", workplace.path("cache")).finish().with_code(0);
    let record = workplace.record("digits/torch-cpu-f32/1");
    assert_eq!(record.status, Status::Ok, "{:?}", record.message);
    assert!(record.library_path.unwrap().ends_with("cache/inferbench/import/bin/python"));
}
