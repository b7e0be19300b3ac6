//! Modules of PyTorch in its own Python: packaged and imported models, settings, and what a record says of them.

mod compiled;
mod environments;
mod files;

use std::process::Command;

use inferbench::definition::Status;

use crate::support::{Run, Workplace, checkout};
use crate::workers::{environment, has_environment};

/// Lets PyTorch's Python make files in a workplace.
fn make(workplace: &Workplace, program: &str) {
    let mut python = Command::new(environment("torch").join("bin/python"));
    python.args(["-c", program]).current_dir(workplace.path("")).finish().with_code(0);
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

/// The lines of a Python file with a module whose `forward` has this body, and of its inputs.
fn module_with(initial: &str, forward: &str) -> String {
    format!(
        "import time\nimport torch\n\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        \
         self.fc = torch.nn.Linear(8, 4)\n        {initial}\n\n    def forward(self, x):\n        {forward}\n\n\
         def make():\n    return Net().eval(), (torch.randn(2, 8),)\n"
    )
}

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
        let has_cache = id.contains("decode") || id.contains("prefill");
        assert_eq!(says.contains("growing cache"), has_cache, "{id}: {says}");
        assert!(says.contains("1 thread between operators"), "{id}: {says}");
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

#[test]
fn the_first_call_is_the_first_that_the_worker_makes() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&[], &["torch"], &[1]);
    let waits = "if self.is_new:\n            time.sleep(0.5)\n        self.is_new = False\n        return self.fc(x)";
    std::fs::write(workplace.path("net.py"), module_with("self.is_new = True", waits)).unwrap();
    workplace.inferbench(&["run", "net.py", "--noplot"]).finish().with_code(0);
    let record = workplace.record("net/torch-cpu-f32/1");
    assert!(record.first_inference_ms.unwrap() >= 500.0, "{:?}", record.first_inference_ms);
}

/// Puts a packaged model where `inferbench import` puts its own, with these weights and these lines in place of its source.
fn put_as_imported(workplace: &Workplace, model: &str, name: &str, weights: &std::path::Path, lines: &str) {
    let folder = workplace.path(&format!("models/exported/{name}"));
    std::fs::create_dir(&folder).unwrap();
    for entry in std::fs::read_dir(workplace.path(&format!("models/zoo/{model}"))).unwrap().flatten() {
        if entry.path().is_file() {
            std::fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
        }
    }
    std::fs::copy(weights, folder.join("weights.safetensors")).unwrap();
    let toml = std::fs::read_to_string(folder.join("model.toml")).unwrap();
    let own = toml.split("[[variants]]").next().unwrap().lines();
    let own = own.filter(|line| !["data_source", "source", "weights"].iter().any(|key| line.starts_with(key)));
    let own = own.collect::<Vec<_>>().join("\n");
    std::fs::write(folder.join("model.toml"), format!("weights = \"weights.safetensors\"\n{lines}\n{own}\n")).unwrap();
}

#[test]
fn imported_models_own_weights_and_variants_run_by_their_architecture() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&["digits", "llama-small"], &["torch"], &[1]);
    workplace.inferbench(&["prepare", "--model", "llama-small"]).finish().with_code(0);
    let prepared = walkdir::WalkDir::new(workplace.path(".prepared")).into_iter().flatten();
    let mut weights = prepared.filter(|entry| entry.path().ends_with("llama-small/weights.safetensors"));
    let weights = weights.next().unwrap().into_path();
    let digits = workplace.path("models/trained/digits.safetensors");
    let source = |of: &str| format!("source = \"{of}; imported from net\"");
    put_as_imported(&workplace, "llama-small", "mine", &weights, &source("transformers 5.23.0, LlamaForCausalLM"));
    let told = format!("{}\narchitecture = \"digits\"", source("inferbench, scripts/export/zoo/digits.py"));
    put_as_imported(&workplace, "digits", "numbers", &digits, &told);
    put_as_imported(&workplace, "digits", "riddle", &digits, &source("inferbench, scripts/export/zoo/digits.py"));
    std::fs::copy(&digits, workplace.path("own.safetensors")).unwrap();
    workplace.write("own.toml", "architecture = \"digits\"\n");
    let ran = |arguments: &[&str], ids: &[&str]| {
        workplace.inferbench(&[&["run", "--noplot", "--allow-failed"], arguments].concat()).finish();
        for id in ids {
            let record = workplace.record(id);
            assert_eq!(record.status, Status::Ok, "{id}: {:?}", record.message);
            assert_eq!(record.verified, (*id != "own/torch-cpu-f32/1").then_some(true), "{id}");
        }
    };
    ran(&["models/exported/mine"], &["mine-seq32-prefill/torch-cpu-f32/1", "mine-seq32-decode/torch-cpu-f32/1"]);
    ran(&["models/exported/numbers"], &["numbers/torch-cpu-f32/1"]);
    ran(&["own.safetensors"], &["own/torch-cpu-f32/1"]);
    ran(
        &["--model", "digits", "--variant", "pruned-structured,distilled"],
        &["digits-pruned-structured/torch-cpu-f32/1", "digits-distilled/torch-cpu-f32/1"],
    );
    ran(&["models/exported/riddle"], &[]);
    let says = workplace.record("riddle/torch-cpu-f32/1").message.unwrap();
    assert!(says.contains("model.toml does not say its architecture: import the model again"), "{says}");
}

#[test]
fn the_record_has_a_dtype_only_if_all_products_were_seen_in_it() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&["digits"], &["torch"], &[1]);
    let run = |forward: &str| {
        std::fs::write(workplace.path("net.py"), module_with("pass", forward)).unwrap();
        workplace.inferbench(&["run", "net.py", "--noplot", "--dtype", "bf16"]).finish().with_code(0);
        let record = workplace.record("net/torch-cpu-bf16/1");
        (record.effective_dtype.map(|dtype| dtype.name()), record.message.unwrap())
    };
    let (computed, says) = run("return self.fc(x)");
    assert!(computed == Some("bf16") && says.contains("1 of 1 product in bf16"), "{computed:?} {says}");
    let (computed, says) = run("return self.fc(x) + x.float() @ self.fc.weight.float().T");
    assert!(computed.is_none() && says.contains("1 of 2 products in bf16"), "{computed:?} {says}");
    let (computed, says) = run("return x.sin()");
    assert!(computed.is_none() && says.contains("no product was seen"), "{computed:?} {says}");
    workplace.inferbench(&["run", "--noplot", "--model", "digits", "--variant", "int8-torch"]).finish().with_code(0);
    let record = workplace.record("digits-int8-torch/torch-cpu-i8/1");
    let says = record.message.unwrap();
    assert!(says.contains("4 of 4 products in i8 by PyTorch's profile"), "{says}");
    assert_eq!(record.effective_dtype.map(|dtype| dtype.name()), Some("i8"));
}

#[test]
fn complex_weights_stay_complex() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&[], &["torch"], &[2]);
    let turn = "self.register_buffer('turn', torch.tensor([1 + 2j, 1, 1j, 0]))";
    let net = module_with(turn, "return torch.view_as_real(self.fc(x) * self.turn)");
    std::fs::write(workplace.path("net.py"), net).unwrap();
    let program = "import net, safetensors.torch, torch\ntorch.manual_seed(0)\nmodule, (x,) = net.make()\n\
                   found = {'input.x': x, 'output.output_0': module(x).detach()}\n\
                   safetensors.torch.save_file(found, 'net.safetensors')";
    make(&workplace, program);
    workplace.inferbench(&["run", "net.py", "--noplot"]).finish().with_code(0);
    let record = workplace.record("net/torch-cpu-f32/2");
    assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{:?}", record.message);
}

#[test]
fn devices_of_pytorch_are_known_and_only_those_that_its_profiler_times_are_profiled() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&["digits"], &["torch"], &[1]);
    workplace.inferbench(&["run", "--noplot", "--device", "xpu"]).finish().with_code(3).saying(&["here has no xpu"]);
    let outside = checkout().join("src/backend/outside");
    let program = format!(
        "import os, sys, types, torch\nsys.path[:0] = [{:?}, {:?}]\nos.environ['TORCH_WORKER_MODE'] = 'eager'\nimport profiles\n\
         try:\n    profiles.Profiler(types.SimpleNamespace(device=torch.device('mps')))\n\
         except profiles.Refused as why:\n    assert 'does not time the operators of mps' in str(why), why\n\
         else:\n    raise AssertionError\n\
         import sessions\nseen, xpu = [], torch.device('xpu', 1)\n\
         torch.xpu.synchronize = lambda device=None: seen.append(device)\n\
         sessions.Session.wait(types.SimpleNamespace(device=xpu))\nassert seen == [xpu], seen",
        outside.join("torch"),
        outside.join("python"),
    );
    make(&workplace, &program);
}
