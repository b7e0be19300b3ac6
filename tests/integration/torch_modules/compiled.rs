//! Modules that `torch.compile` compiles, or AOTInductor ahead of time.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use inferbench::definition::Status;

use super::{NET, make};
use crate::support::{Run, Workplace, checkout};
use crate::workers::has_environment;

#[test]
fn a_compiled_module_says_how_long_it_was_compiled_and_of_how_many_graphs_it_is() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&["digits"], &["torch-compile"], &[1]);
    workplace.inferbench(&["run", "--noplot", "--timeout", "600"]).finish().with_code(0);
    let record = workplace.record("digits/torch-compile-cpu-f32/1");
    assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{:?}", record.message);
    assert!(record.compilation_time_ms.unwrap() > 0.0 && record.trace_time_ms.unwrap() > 0.0);
    assert!(record.message.unwrap().contains("1 graph, 0 graph breaks, 0 recompilations"));
}

#[test]
fn a_module_that_was_compiled_ahead_of_time_says_how_long_its_package_takes_to_load() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&["digits", "llama-small"], &["torch-aot"], &[1]);
    workplace.inferbench(&["run", "--noplot", "--timeout", "600", "--allow-failed"]).finish().with_code(0);
    let record = workplace.record("digits/torch-aot-cpu-f32/1");
    assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{:?}", record.message);
    assert!(record.compilation_time_ms.unwrap() > 0.0 && record.trace_time_ms.unwrap() > 0.0);
    assert_eq!(record.providers.as_deref(), Some("PyTorch aot"));
    let says = record.message.unwrap();
    assert!(says.contains("a package of ") && says.contains(" ms without compiling"), "{says}");
    let decode = workplace.record("llama-small-seq32-decode/torch-aot-cpu-f32/1");
    assert_eq!(decode.status, Status::Unsupported);
    let arguments = ["run", "--noplot", "--timeout", "600", "--model", "digits", "--dtype", "bf16"];
    workplace.inferbench(&arguments).finish().with_code(0);
    let says = workplace.record("digits/torch-aot-cpu-bf16/1").message.unwrap();
    assert!(
        says.contains("it does not tell the types of 4 products; in Inductor's graphs, 4 of 4 are given bf16"),
        "{says}"
    );
}

#[test]
fn without_a_c_compiler_a_compiled_case_is_unavailable() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&["digits"], &["torch-compile", "torch-aot"], &[1]);
    let mut command = workplace.inferbench(&["run", "--noplot"]);
    command.env("CXX", workplace.path("no-compiler")).finish().with_code(3);
    for backend in ["torch-compile", "torch-aot"] {
        let record = workplace.record(&format!("digits/{backend}-cpu-f32/1"));
        let says = record.message.unwrap();
        assert!(record.status == Status::Unavailable && says.contains("no C++ compiler"), "{says}");
    }
}

#[test]
fn code_that_does_not_compile_is_unsupported_with_the_error_of_the_compiler() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&["digits"], &["torch-compile"], &[1]);
    let compiler = workplace.path("compiler");
    let program = "#!/bin/sh\ncase \"$*\" in *--version*) exec c++ --version ;; esac\n\
        echo 'main.cpp:3:5: error: no such kernel' >&2\nexit 1\n";
    fs::write(&compiler, program).unwrap();
    fs::set_permissions(&compiler, Permissions::from_mode(0o755)).unwrap();
    workplace.inferbench(&["run", "--noplot"]).env("CXX", compiler).finish().with_code(3);
    let record = workplace.record("digits/torch-compile-cpu-f32/1");
    let says = record.message.unwrap();
    assert!(record.status == Status::Unsupported && says.ends_with("C++ compile error: no such kernel"), "{says}");
}

#[test]
fn what_is_not_compiled_is_not_shown_as_compiled() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&["t5-tiny"], &["torch-compile"], &[1]);
    workplace.inferbench(&["run", "--noplot", "--timeout", "600", "--phase", "encoder"]).finish().with_code(0);
    let record = workplace.record("t5-tiny-seq32-encoder/torch-compile-cpu-f32/1");
    assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{:?}", record.message);
    assert!(record.message.unwrap().contains("1 graph, 0 graph breaks, 0 recompilations"));
    let disabled = NET.replace("    def forward", "    @torch._dynamo.disable\n    def forward");
    std::fs::write(workplace.path("net.py"), disabled).unwrap();
    workplace.inferbench(&["run", "net.py", "--noplot", "--allow-failed"]).finish();
    let record = workplace.record("net/torch-compile-cpu-f32/1");
    let says = record.message.unwrap();
    assert!(record.status == Status::Unsupported && says.contains("torch.compile has compiled no graph"), "{says}");
}

#[test]
fn variables_of_the_compilers_change_nothing_and_their_files_are_removed() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&["digits"], &["torch-compile.reduce-overhead", "torch-compile"], &[1]);
    std::fs::create_dir(workplace.path("temporary")).unwrap();
    let mut command = workplace.inferbench(&["run", "--noplot", "--timeout", "600", "--allow-failed"]);
    command
        .env("TORCHDYNAMO_DISABLE", "1")
        .env("TORCH_COMPILE_DISABLE", "1")
        .env("TMPDIR", workplace.path("temporary"));
    command.env("TORCHINDUCTOR_CACHE_DIR", workplace.path("cache")).finish().with_code(0);
    let record = workplace.record("digits/torch-compile-cpu-f32/1");
    assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{:?}", record.message);
    assert!(record.message.unwrap().contains("1 graph, 0 graph breaks"));
    let record = workplace.record("digits/torch-compile.reduce-overhead-cpu-f32/1");
    let says = record.message.unwrap();
    assert!(record.status == Status::Unsupported && says.contains("by CUDA graphs only, and cpu has none"), "{says}");
    let left: Vec<_> = std::fs::read_dir(workplace.path("temporary")).unwrap().flatten().collect();
    assert!(left.is_empty() && !workplace.path("cache").exists(), "{left:?}");
}

#[test]
fn neither_earlier_kernels_of_triton_nor_a_fallback_of_mps_can_be_asked_for() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&[], &["torch"], &[1]);
    let look = "assert not {'TRITON_CACHE_DIR', 'PYTORCH_ENABLE_MPS_FALLBACK'} & set(__import__('os').environ)";
    std::fs::write(workplace.path("net.py"), super::module_with(look, "return self.fc(x)")).unwrap();
    let mut command = workplace.inferbench(&["run", "net.py", "--noplot"]);
    command.env("TRITON_CACHE_DIR", workplace.path("triton")).env("PYTORCH_ENABLE_MPS_FALLBACK", "1");
    command.finish().with_code(0);
}

#[test]
fn compilations_are_counted_beyond_those_that_dynamo_remembers() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&[], &[], &[1]);
    let outside = checkout().join("src/backend/outside");
    let program = format!(
        "import os, sys\nsys.path[:0] = [{:?}, {:?}]\nos.environ['TORCH_WORKER_MODE'] = 'compile'\nimport modes, torch\n\
         torch._dynamo.config.recompile_limit = 100\nsquare = torch.compile(lambda x, n: x * n, backend='eager', dynamic=False)\n\
         for n in range(90):\n    square(torch.ones(2), n)\n\
         assert modes.Compiled().notes() == ['90 graphs, 0 graph breaks, 89 recompilations'], modes.Compiled().notes()",
        outside.join("torch"),
        outside.join("python"),
    );
    make(&workplace, &program);
}

#[test]
fn the_processes_that_compile_have_ended_when_a_batch_is_bound() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&[], &[], &[1]);
    let outside = checkout().join("src/backend/outside");
    let program = format!(
        "import os, sys\nsys.path[:0] = [{:?}, {:?}]\nos.environ['TORCH_WORKER_MODE'] = 'compile'\n\
         import numpy, sessions, torch\n\
         session = sessions.Forward({{'device': 'cpu', 'dtype': 'f32', 'outputs': []}}, ['x'])\n\
         session.of(session.placed(torch.nn.Linear(8, 4)))\n\
         with torch.inference_mode():\n    session.bind(0, {{'x': numpy.zeros((2, 8), numpy.float32)}})\n\
         children = open(f'/proc/self/task/{{os.getpid()}}/children').read()\nassert not children, children",
        outside.join("torch"),
        outside.join("python"),
    );
    make(&workplace, &program);
}

#[test]
fn a_row_says_what_was_read_from_an_earlier_compilation() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&["digits"], &["torch-compile.cache"], &[1]);
    for read in ["0 graphs", "1 graph"] {
        let mut command = workplace.inferbench(&["run", "--noplot", "--timeout", "600"]);
        command.env("TORCHINDUCTOR_CACHE_DIR", workplace.path("cache")).finish().with_code(0);
        let says = workplace.record("digits/torch-compile.cache-cpu-f32/1").message.unwrap();
        assert!(says.contains(&format!("{read} read from an earlier compilation")), "{says}");
    }
}
