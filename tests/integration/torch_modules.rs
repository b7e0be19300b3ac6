//! Modules of PyTorch in its own Python: packaged models, users' files and folders, settings, and what is compiled.

use std::process::Command;

use inferbench::definition::Status;
use inferbench::run_data::Profile;

use crate::support::{Run, Workplace};
use crate::workers::{environment, has_environment};

#[test]
fn modules_of_all_kinds_are_right_and_decoding_says_which_cache_it_has() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&["digits", "llama-small", "t5-tiny"], &["torch"], &[1, 3]);
    workplace.inferbench(&["run", "--noplot"]).finish().with_code(0);
    let records = workplace.records();
    assert_eq!(records.len(), 12, "digits, prefill and decode of llama-small, all phases of t5-tiny");
    for record in records {
        let id = record.case().to_string();
        assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{id}: {:?}", record.message);
        assert!(record.max_rel_error.unwrap() < 1e-4, "{id}");
        assert_eq!((record.threads, record.providers.as_deref()), (Some(1), Some("PyTorch eager")), "{id}");
        assert!(record.library_version.unwrap().starts_with("torch 2."), "{id}");
        let says = record.message.unwrap_or_default();
        assert_eq!(says.contains("growing cache"), id.contains("decode"), "{id}: {says}");
    }
}

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
fn a_setting_is_a_part_of_the_name_and_the_profile_shows_what_computed() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&["digits", "llama-small"], &["torch"], &[1]);
    let arguments = [
        "run",
        "--noplot",
        "--dtype",
        "bf16",
        "--torch-mode",
        "default,autocast.channels-last,static-cache",
        "--allow-failed",
    ];
    workplace.inferbench(&arguments).finish().with_code(0);
    for (name, provider) in
        [("torch", "PyTorch eager"), ("torch.autocast.channels-last", "PyTorch eager autocast channels-last")]
    {
        let record = workplace.record(&format!("digits/{name}-cpu-bf16/1"));
        assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{:?}", record.message);
        assert_eq!((record.providers.as_deref(), record.backend.as_str()), (Some(provider), name));
        let says = record.message.unwrap();
        assert!(says.contains("4 of 4 products in bf16 by PyTorch's profile"), "{says}");
    }
    assert_eq!(workplace.record("digits/torch.static-cache-cpu-bf16/1").status, Status::Unsupported);
    let decode = workplace.record("llama-small-seq32-decode/torch.static-cache-cpu-bf16/1");
    assert_eq!((decode.status, decode.verified), (Status::Ok, Some(true)), "{:?}", decode.message);
    assert!(decode.message.unwrap().contains("transformers' static cache of "));
    let wrong = workplace.inferbench(&["run", "--backend", "torch.fast"]).finish().with_code(2);
    wrong.saying(&["PyTorch has no setting \"fast\"; there are default, autocast"]);
}

#[test]
fn integers_of_torchao_are_computed_in_integers() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&["bert-small"], &["torch"], &[1]);
    workplace.inferbench(&["run", "--noplot", "--variant", "int8-dynamic"]).finish().with_code(0);
    let record = workplace.record("bert-small-int8-dynamic-seq32/torch-cpu-i8/1");
    assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{:?}", record.message);
    let says = record.message.unwrap();
    assert!(says.contains("torchao 0.") && says.contains("13 of 17 products in i8 by PyTorch's profile"), "{says}");
}

/// Lets PyTorch's Python make files in a workplace.
fn make(workplace: &Workplace, program: &str) {
    let mut python = Command::new(environment("torch").join("bin/python"));
    python.args(["-c", program]).current_dir(workplace.path("")).finish().with_code(0);
}

#[test]
fn a_folder_of_a_model_hub_runs_by_the_class_of_its_configuration() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&[], &["torch"], &[2]);
    let sizes = "hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, vocab_size=99";
    make(
        &workplace,
        &format!("from transformers import *\nBertModel(BertConfig({sizes})).save_pretrained('tiny-bert')"),
    );
    workplace.inferbench(&["run", "tiny-bert/", "--noplot", "--seq-lens", "16"]).finish().with_code(0);
    let record = workplace.record("tiny-bert-seq16/torch-cpu-f32/2");
    assert_eq!(record.status, Status::Ok, "{:?}", record.message);
    assert_eq!(record.input_shape.as_deref(), Some("2x16 2x16"));
    assert!(record.message.unwrap().contains("BertModel in a forward pass; transformers with attention sdpa"));
    std::fs::write(workplace.path("tiny-bert/config.json"), "{}").unwrap();
    let refused = workplace.inferbench(&["run", "tiny-bert/"]).finish().with_code(2);
    refused.saying(&["config.json lacks model_type"]);
}

#[test]
fn a_pickle_runs_code_only_if_it_is_trusted() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&[], &["torch"], &[1]);
    std::fs::write(workplace.path("parts.py"), NET).unwrap();
    let program = "import parts, torch\ntorch.save(parts.Net().conv, 'conv.pt')\ntorch.save(parts.Net(), 'net.pt')";
    make(&workplace, program);
    let arguments = ["run", "net.pt", "--input", "pixels:f32[batch,3,16,16];ids:i64[batch,7]<100", "--noplot"];
    let refused = workplace.inferbench(&arguments).finish().with_code(2);
    refused.saying(&["which would run code when it is read", "or allow it by `--trust`"]);
    workplace.inferbench(&[&arguments[..], &["--trust"]].concat()).finish().with_code(0);
    let record = workplace.record("net/torch-cpu-f32/1");
    let says = record.message.unwrap();
    assert!(
        record.status == Status::Ok && says.contains("`--trust` allowed") && says.contains("training mode"),
        "{says}"
    );
}

#[test]
fn two_revisions_of_a_python_file_are_the_programs_of_a_duel() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&[], &["torch"], &[1]);
    std::fs::write(workplace.path("parts.py"), NET).unwrap();
    let net = "from parts import make\n";
    std::fs::write(workplace.path("net.py"), net).unwrap();
    let git = |arguments: &[&str]| {
        let who = ["-c", "user.name=a", "-c", "user.email=a@localhost"];
        Command::new("git").args(who).args(arguments).current_dir(workplace.path("")).finish().with_code(0);
    };
    git(&["init", "--quiet"]);
    git(&["add", "net.py", "parts.py"]);
    git(&["commit", "--quiet", "--message", "a"]);
    std::fs::write(workplace.path("parts.py"), NET.replace("relu()", "relu().sqrt().square()")).unwrap();
    let arguments = ["duel", "HEAD:net.py", "net.py:make", "--batch-sizes", "1", "--generations", "12"];
    let duel = workplace.inferbench(&arguments).finish();
    assert!(matches!(duel.code, Some(0 | 1 | 4)), "{}", duel.stderr);
    assert!(duel.stdout.contains("net/torch-cpu-f32/1"), "{}", duel.stdout);
    let wrong = workplace.inferbench(&["duel", "HEAD:other.py", "net.py"]).finish().with_code(2);
    wrong.saying(&["the revision HEAD has no file other.py"]);
}

/// A module whose outputs are nested, in training mode.
const NET: &str = "import torch
from dataclasses import dataclass

@dataclass
class Out:
    logits: torch.Tensor
    hidden: torch.Tensor

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.drop, self.fc = torch.nn.Conv2d(3, 8, 3), torch.nn.Dropout(0.5), torch.nn.Linear(8, 4)

    def forward(self, pixels, ids):
        hidden = self.conv(pixels).relu().mean((2, 3)) + ids.float().mean(1, keepdim=True)
        return {'out': Out(self.fc(self.drop(hidden)), hidden), 'pair': (hidden, hidden + 1)}

def make():
    return Net(), (torch.randn(2, 3, 16, 16), torch.randint(100, (2, 7)))
";

#[test]
fn a_python_file_is_a_model_whose_modules_are_profiled() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&[], &["torch"], &[1]);
    std::fs::write(workplace.path("net.py"), NET).unwrap();
    workplace.inferbench(&["run", "net.py:make", "--noplot", "--batch-sizes", "1,3"]).finish().with_code(0);
    let records = workplace.records();
    assert_eq!(records.len(), 2);
    for record in records {
        assert_eq!(record.status, Status::Ok, "{:?}", record.message);
        let batch = record.batch_size;
        assert_eq!(record.input_shape, Some(format!("{batch}x3x16x16 {batch}x7")));
        assert!(record.message.unwrap().contains("returned in training mode"));
    }
    let arguments = ["profile", "net.py", "--format", "json"];
    let profile = workplace.inferbench(&arguments).finish().with_code(0);
    let profile: Profile = serde_json::from_str(&profile.stdout).unwrap();
    let rows = &profile.cases[0].rows;
    let conv = rows.iter().find(|row| row.module.as_deref() == Some("conv")).unwrap();
    assert!(conv.operator == "aten::conv2d" && conv.kernel.as_ref().unwrap().contains("8×3×3×3"), "{conv:?}");
    // Two for each weight at each of 14 × 14 places.
    assert_eq!(conv.flops, Some(2 * 8 * 27 * 14 * 14));
}

#[test]
fn archives_compute_what_libtorch_computes() {
    if !has_environment("torch") {
        return;
    }
    let backends: &[&str] = if cfg!(feature = "tch") { &["torch", "tch"] } else { &["torch"] };
    let workplace = Workplace::new(&[], backends, &[1, 2]);
    workplace.add_model("scaled.pt", "scaled.pt");
    let input = ["scaled.pt", "--input", "x:f32[batch,3];scale:f32[1,1]"];
    workplace.inferbench(&[&["run", "--noplot"], &input[..]].concat()).finish().with_code(0);
    let records = workplace.records();
    assert_eq!(records.len(), 2 * backends.len());
    for record in records {
        assert_eq!(record.status, Status::Ok, "{}: {:?}", record.case_id, record.message);
    }
}

#[test]
fn what_is_no_module_is_said_in_a_sentence() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&[], &["torch"], &[1]);
    let refused = |name: &str, text: &str, message: &str| {
        std::fs::write(workplace.path(name), text).unwrap();
        workplace.inferbench(&["run", name]).finish().with_code(2).saying(&[message]);
    };
    let raises = "def inner():\n    raise ValueError('no such layer')\ndef make():\n    return inner()\n";
    refused("raises.py", raises, "line 4, in make (`return inner()`): raises.py, line 2, in inner");
    refused("three.py", "def make(): return 3\n", "`make` of three.py returns int, and not a torch.nn.Module");
    refused("none.py", "", "none.py has no function `make`");
    refused("wrong.pt2", "text", "wrong.pt2 is not what torch.export.save writes");
    let other = workplace.inferbench(&["run", "three.py:net"]).finish().with_code(2);
    other.saying(&["the function of a Python file is called `make`"]);
}

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
