//! Modules of PyTorch in its own Python: packaged models, users' files and folders, settings, and what is compiled.

use std::process::Command;

use inferbench::definition::Status;
use inferbench::run_data::Profile;

use crate::support::{Run, Workplace, checkout};
use crate::torch_environments::duel;
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
        let has_cache = id.contains("decode") || id.contains("prefill");
        assert_eq!(says.contains("growing cache"), has_cache, "{id}: {says}");
        assert!(says.contains("1 thread between operators"), "{id}: {says}");
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
    // Code of the folder itself is not run.
    let config = r#"{"model_type": "own", "architectures": ["Own"], "auto_map": {"AutoConfig": "own.Own", "AutoModel": "own.Own"}}"#;
    std::fs::write(workplace.path("tiny-bert/config.json"), config).unwrap();
    std::fs::write(workplace.path("tiny-bert/own.py"), "open('ran', 'w')").unwrap();
    let refused = workplace.inferbench(&["run", "tiny-bert/"]).finish().with_code(2);
    refused.saying(&["has no architecture Own"]);
    assert!(!workplace.path("ran").exists());
}

/// A `.pt2`, one whose sizes are code, one with a pickle that is code, and a package of AOTInductor.
const ARCHIVES: &str = r#"import io, os, torch, zipfile

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(8, 4)

    def forward(self, x):
        return self.fc(x).reshape(x.shape[0] * 2, 2)

class Code:
    def __reduce__(self):
        return os.mkdir, ('ran',)

batch = torch.export.Dim('b', min=1, max=64)
torch.export.save(torch.export.export(Net().eval(), (torch.randn(2, 8),), dynamic_shapes=({0: batch},)), 'net.pt2')
pickled = io.BytesIO()
torch.save(Code(), pickled)
source = zipfile.ZipFile('net.pt2')
for name, end, change in [
    ('sizes', 'model.json', lambda text: text.replace(b'"Mul(Integer(2),', b'"open(chr(114), chr(119)) and Mul(Integer(2),')),
    ('pickled', 'sample_inputs/model.pt', lambda _: pickled.getvalue()),
]:
    with zipfile.ZipFile(name + '.pt2', 'w', zipfile.ZIP_STORED) as made:
        for entry in source.namelist():
            text = source.read(entry)
            made.writestr(entry.replace('net/', name + '/', 1), change(text) if entry.endswith(end) else text)
"#;

#[test]
fn an_exported_program_is_right_and_runs_no_code() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&[], &["torch", "torch-compile"], &[1, 3]);
    make(&workplace, ARCHIVES);
    workplace.inferbench(&["run", "net.pt2", "--noplot", "--timeout", "600"]).finish().with_code(0);
    let records = workplace.records();
    assert_eq!(records.len(), 4);
    for record in records {
        assert_eq!(record.status, Status::Ok, "{}: {:?}", record.case_id, record.message);
        // Nothing but the other backend is there to be compared with.
        let other = if record.backend == "torch" { "torch-compile" } else { "torch" };
        assert_eq!(record.verified, Some(true), "{}", record.case_id);
        assert_eq!(record.verified_by.as_deref(), Some(other), "{}", record.case_id);
    }
    for (file, message) in [
        ("sizes.pt2", "sizes.pt2 has a size that is no formula, \"open(chr(114)"),
        ("pickled.pt2", "pickled.pt2 has a pickle that would run code when it is read"),
    ] {
        workplace.inferbench(&["run", file]).finish().with_code(2).saying(&[message]);
    }
    assert!(!workplace.path("r").exists() && !workplace.path("ran").exists());
    let modes = ["run", "net.pt2", "--backend", "torch", "--torch-mode", "sdpa,channels-last", "--allow-failed"];
    workplace.inferbench(&[&modes[..], &["--noplot", "--batch-sizes", "1"]].concat()).finish();
    for setting in ["sdpa", "channels-last"] {
        let record = workplace.record(&format!("net/torch.{setting}-cpu-f32/1"));
        let says = record.message.unwrap();
        assert!(says.contains(&format!("the setting {setting} has no effect on a `.pt2`")), "{says}");
    }
}

#[test]
fn a_package_of_aotinductor_runs_only_if_it_is_trusted() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&[], &["torch-aot"], &[2]);
    let program = "import torch\nmodule = torch.nn.Linear(8, 4).eval()\nprogram = torch.export.export(module, (torch.randn(2, 8),))\n\
                   torch._inductor.aoti_compile_and_package(program, package_path='net.pt2')";
    make(&workplace, program);
    let arguments = ["run", "net.pt2", "--input", "input_0:f32[2,8]", "--noplot"];
    let refused = workplace.inferbench(&arguments).finish().with_code(2);
    refused.saying(&[
        "net.pt2 is a package of AOTInductor, whose native code would run when it is loaded: allow it by `--trust`",
    ]);
    let others = ["run", "net.pt2", "--input", "input_0:f32[2,9]", "--noplot", "--trust", "--allow-failed"];
    workplace.inferbench(&others).finish();
    let says = workplace.record("net/torch-aot-cpu-f32/2").message.unwrap();
    assert!(says.contains("the package does not take inputs of these sizes"), "{says}");
    workplace.inferbench(&[&arguments[..], &["--trust"]].concat()).finish().with_code(0);
    let record = workplace.record("net/torch-aot-cpu-f32/2");
    assert_eq!(record.status, Status::Ok, "{:?}", record.message);
    assert!(record.message.unwrap().contains("a package of AOTInductor that `--trust` allowed to run its native code"));
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
    let mut command = workplace.inferbench(&[&arguments[..], &["--trust=false"]].concat());
    command.env("INFERBENCH_TRUST", "1").finish().with_code(2).saying(&["or allow it by `--trust`"]);
    workplace.inferbench(&[&arguments[..], &["--trust=conv.pt"]].concat()).finish().with_code(2);
    workplace.inferbench(&[&arguments[..], &["--trust=net.pt"]].concat()).finish().with_code(0);
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
    // The same outputs by about twice the work.
    let slow = NET.replace("hidden = self", "for _ in range(3):\n            self.conv(pixels)\n        hidden = self");
    std::fs::write(workplace.path("parts.py"), slow).unwrap();
    let found = duel(&workplace, &["HEAD:net.py", "net.py:make", "--batch-sizes", "1"]);
    let case = &found["cases"][0];
    assert_eq!(
        (&case["id"], &case["comparison"]["verdict"]),
        (&"net/torch-cpu-f32/1".into(), &"slower".into()),
        "{found}"
    );
    std::fs::write(workplace.path("large.py"), NET.replace("16, 16", "32, 32")).unwrap();
    let other = workplace.inferbench(&["duel", "net.py", "large.py", "--batch-sizes", "1"]).finish();
    // The examples are drawn by chance, and integers are below the largest of them.
    for says in ["the inputs are f32[1,3,16,16] i64[1,7]<", " in the base, and f32[1,3,32,32] i64[1,7]<"] {
        assert!(format!("{}{}", other.stdout, other.stderr).contains(says), "{}{}", other.stdout, other.stderr);
    }
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

/// Modules that return tensors in tuples, and tensors of as many rows as the values of the inputs say.
const TUPLES: &str = "import torch
from typing import NamedTuple

class Range(NamedTuple):
    low: torch.Tensor
    high: torch.Tensor

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(8, 4)

    def forward(self, x):
        hidden = self.fc(x)
        return hidden, Range(hidden.amin(1), hidden.amax(1)), [hidden + 1, None]

def make():
    return Net(), (torch.randn(2, 8),)
";
const PLACES: &str = "import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(8, 4)

    def forward(self, x):
        hidden = self.fc(x)
        places = (hidden > 0).nonzero()
        return {'places': places, 'values': hidden[places[:, 0], places[:, 1]] * 2}

def make():
    return Net(), (torch.randn(2, 8),)
";

/// What a module of each file returns in plain PyTorch, and its inputs.
const REFERENCES: &str = "import importlib, safetensors.torch, sys, torch
sys.path.insert(0, '.')
for name, names in [
    ('net', ['out.logits', 'out.hidden', 'pair.0', 'pair.1']),
    ('tuples', ['output_0', 'low', 'high', 'output_3']),
    ('places', ['places', 'values']),
]:
    code = importlib.import_module(name)
    torch.manual_seed(0)
    module, inputs = code.make()
    with torch.inference_mode():
        given = module.eval()(*inputs)
    if name == 'net':
        tensors = [given['out'].logits, given['out'].hidden, *given['pair']]
    else:
        tensors = list(given.values()) if name == 'places' else [given[0], *given[1], given[2][0]]
    found = {f'output.{name}': tensor for name, tensor in zip(names, tensors)}
    found = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in found.items()}
    found |= {f'input.{name}': tensor for name, tensor in zip(['pixels', 'ids'] if name == 'net' else ['x'], inputs)}
    safetensors.torch.save_file(found, f'{name}.safetensors')
";

#[test]
#[ignore = "it takes minutes; `scripts/test --all` runs it"]
fn nested_outputs_and_sizes_by_values_are_right_in_all_forms() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&[], &["torch", "torch-compile", "torch-aot"], &[2]);
    for (file, text) in [("net.py", NET), ("tuples.py", TUPLES), ("places.py", PLACES)] {
        workplace.write(file, text);
    }
    make(&workplace, REFERENCES);
    let arguments = ["run", "net.py", "tuples.py", "places.py", "--noplot"];
    workplace.inferbench(&arguments).finish().with_code(0);
    let records = workplace.records();
    assert_eq!(records.len(), 9);
    for record in records {
        let id = record.case().to_string();
        assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{id}: {:?}", record.message);
        assert_eq!(record.verified_by.as_deref(), Some("reference"), "{id}");
    }
}

#[test]
fn products_in_another_type_than_that_of_the_case_are_refused() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&["digits"], &["torch"], &[1]);
    workplace.inferbench(&["run", "--noplot", "--dtype", "f16"]).finish().with_code(0);
    let record = workplace.record("digits/torch-cpu-f16/1");
    assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{:?}", record.message);
    assert!(record.message.unwrap().contains("4 of 4 products in f16 by PyTorch's profile"));
    let in_f32 = TUPLES.replace("self.fc(x)", "torch.nn.functional.linear(x.float(), self.fc.weight.float())");
    workplace.write("net.py", in_f32);
    workplace.inferbench(&["run", "net.py", "--noplot", "--dtype", "bf16", "--allow-failed"]).finish();
    let record = workplace.record("net/torch-cpu-bf16/1");
    let says = record.message.unwrap();
    let refusal = "PyTorch computes the products of this module in f32, and none in bf16";
    assert!(record.status == Status::Unsupported && says.contains(refusal), "{says}");
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
    let raises = NET.replace("hidden = self", "raise ValueError('no such layer')\n        hidden = self");
    std::fs::write(workplace.path("late.py"), raises).unwrap();
    let arguments = ["run", "late.py", "--noplot", "--backend", "torch,torch-compile", "--allow-failed"];
    workplace.inferbench(&arguments).finish();
    for backend in ["torch", "torch-compile"] {
        let says = workplace.record(&format!("late/{backend}-cpu-f32/1")).message.unwrap();
        assert!(says.contains("late.py, line 15, in forward (`raise ValueError('no such layer')`)"), "{says}");
    }
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

/// The lines of a Python file with a module whose `forward` has this body, and of its inputs.
fn module_with(initial: &str, forward: &str) -> String {
    format!(
        "import time\nimport torch\n\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        \
         self.fc = torch.nn.Linear(8, 4)\n        {initial}\n\n    def forward(self, x):\n        {forward}\n\n\
         def make():\n    return Net().eval(), (torch.randn(2, 8),)\n"
    )
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
    let path = format!("import sys; sys.path.insert(0, {:?}); exec(sys.argv[1])", workplace.path("old"));
    let python = environment("torch").join("bin/python");
    workplace.write("python", format!("#!/bin/sh\nexec {} -I -c '{path}' \"$3\"\n", python.display()));
    std::fs::set_permissions(workplace.path("python"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = workplace.inferbench(&["run", "--noplot"]);
    let refused = command.env("INFERBENCH_TORCH_PYTHON", workplace.path("python")).finish().with_code(3);
    refused.saying(&["PyTorch 2.3.1+cpu is too old: 2.4 or later is needed"]);
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
         else:\n    raise AssertionError",
        outside.join("torch"),
        outside.join("python"),
    );
    make(&workplace, &program);
}
