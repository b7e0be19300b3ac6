//! Files and folders of users: Python files, exported programs, pickles, archives, and folders of a model hub.

use std::process::Command;

use inferbench::definition::Status;
use inferbench::run_data::Profile;

use super::{NET, make, module_with};
use crate::support::{Run, Workplace};
use crate::torch_environments::duel;
use crate::workers::has_environment;

#[test]
fn a_folder_of_a_model_hub_runs_by_the_class_of_its_configuration() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&[], &["torch"], &[2]);
    let sizes = "hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, vocab_size=99";
    let saved = "save_pretrained('tiny-bert', state_dict={**net.state_dict(), 'extra': net.pooler.dense.bias.clone()})";
    make(&workplace, &format!("from transformers import *\nnet = BertModel(BertConfig({sizes}))\nnet.{saved}"));
    workplace.inferbench(&["run", "tiny-bert/", "--noplot", "--seq-lens", "16"]).finish().with_code(0);
    let record = workplace.record("tiny-bert-seq16/torch-cpu-f32/2");
    assert_eq!(record.status, Status::Ok, "{:?}", record.message);
    assert_eq!(record.input_shape.as_deref(), Some("2x16 2x16"));
    let message = record.message.unwrap();
    assert!(
        message.contains("BertModel in a forward pass; the folder has tensors that are not used (1), such as extra: ")
    );
    assert!(message.contains("; transformers with attention sdpa"), "{message}");
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

#[test]
fn what_a_file_sets_or_computes_inside_is_not_taken_for_what_was_asked() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&[], &["torch"], &[2]);
    let in_bf16 = "with torch.autocast('cpu', torch.bfloat16):\n            return self.fc(x).float()";
    workplace.write("inner.py", format!("import torch\ntorch.set_num_threads(2)\n{}", module_with("", in_bf16)));
    let net = "n = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.BatchNorm1d(4))";
    let save = "torch.export.save(torch.export.export(module, (torch.randn(2, 8),)), name)";
    make(
        &workplace,
        &format!(
            "import copy, torch\n{net}\nfor module, name in [(n, 'batch.pt2'), (copy.deepcopy(n).eval(), 'net.pt2')]:\n    {save}"
        ),
    );
    workplace.inferbench(&["run", "inner.py", "--noplot"]).finish().with_code(0);
    let inner = workplace.record("inner/torch-cpu-f32/2");
    assert_eq!(
        (inner.status, inner.threads, inner.effective_dtype),
        (Status::Ok, Some(1), None),
        "{:?}",
        inner.message
    );
    assert!(inner.message.unwrap().contains("the module itself computes products in bf16"));
    workplace.inferbench(&["run", "net.pt2", "--backend", "torch-aot", "--noplot"]).finish().with_code(0);
    let compiled = workplace.record("net/torch-aot-cpu-f32/2");
    assert_eq!((compiled.status, compiled.verified.is_some()), (Status::Ok, false), "{:?}", compiled.message);
    let refused = workplace.inferbench(&["run", "batch.pt2", "--noplot"]).finish();
    assert!(refused.stdout.contains("statistics of the batch") || refused.stderr.contains("statistics of the batch"));
}

/// A `.pt2`, others whose sizes, names, guards or pickles are code, and others that would fill the memory.
const ARCHIVES: &str = r#"import io, json, os, torch, zipfile

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
pickled, nested = io.BytesIO(), io.BytesIO()
torch.save(Code(), pickled)
for place, name in [('bomb.pt2', 'bomb/data/weights/weight_0'), (nested, 'archive/data/0')]:
    with zipfile.ZipFile(place, 'w', zipfile.ZIP_DEFLATED) as made:
        made.writestr(name, bytes(1 << 20))
source = zipfile.ZipFile('net.pt2')
for name, end, change in [
    ('sizes', 'model.json', lambda text: text.replace(b'"Mul(Integer(2),', b'"open(chr(114), chr(119)) and Mul(Integer(2),')),
    ('named', 'model.json', lambda text: text.replace(b'"name": "x"', b'"name": "x=open(chr(114), chr(119))"')),
    ('guarded', 'model.json', lambda text: json.dumps(json.loads(text) | {'guards_code': ['open(chr(114), chr(119)) is None']}).encode()),
    ('pickled', 'sample_inputs/model.pt', lambda _: pickled.getvalue()),
    ('nested', 'sample_inputs/model.pt', lambda _: nested.getvalue()),
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
        ("sizes.pt2", "sizes.pt2 has a size that is not a formula, \"open(chr(114)"),
        ("named.pt2", "named.pt2 has a name that is not a word, 'x=open(chr(114)"),
        ("pickled.pt2", "pickled.pt2 has a pickle that would run code when it is read"),
        ("bomb.pt2", " bytes, and 1048576 when it is unpacked"),
        ("nested.pt2", "a file in nested.pt2 has "),
    ] {
        workplace.inferbench(&["run", file]).finish().with_code(2).saying(&[message]);
    }
    workplace.inferbench(&["run", "guarded.pt2", "--backend", "torch", "--noplot"]).finish().with_code(0);
    let says = workplace.record("guarded/torch-cpu-f32/1").message.unwrap();
    assert!(says.contains("without 1 of the export's guards"), "{says}");
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
fn a_pickle_runs_code_only_if_it_is_trusted() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&[], &["torch"], &[1]);
    // The worker has a module of that name, too.
    std::fs::write(workplace.path("networks.py"), NET).unwrap();
    let program =
        "import torch\nfrom networks import Net\ntorch.save(Net().conv, 'conv.pt')\ntorch.save(Net(), 'net.pt')";
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
fn an_archive_in_training_mode_is_put_into_evaluation_mode_or_refused() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&[], &["torch"], &[2]);
    let program = "import torch\nnet = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Dropout(0.5))\n\
                   torch.jit.script(net).save('net.pt')\n\
                   torch.export.save(torch.export.export(net, (torch.randn(2, 8),)), 'drops.pt2')";
    make(&workplace, program);
    let others = ["run", "net.pt", "--input", "input:f32[batch,9]", "--noplot", "--allow-failed"];
    workplace.inferbench(&others).finish();
    let says = workplace.record("net/torch-cpu-f32/2").message.unwrap();
    assert!(says.contains("mat1 and mat2 shapes cannot be multiplied"), "{says}");
    workplace.inferbench(&["run", "net.pt", "--input", "input:f32[batch,8]", "--noplot"]).finish().with_code(0);
    let record = workplace.record("net/torch-cpu-f32/2");
    let says = record.message.unwrap();
    assert!(record.status == Status::Ok && says.contains("which was saved in training mode"), "{says}");
    let refused = workplace.inferbench(&["run", "drops.pt2"]).finish();
    refused.saying(&["drops.pt2 drops values by chance (aten::", "export it after `.eval()`"]);
}

#[test]
fn an_archive_that_takes_one_row_only_is_measured_at_that() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&[], &["torch"], &[1, 2]);
    let program = "import torch\nfrom torch.nn import *\n\
                   net = Sequential(Conv2d(3, 4, 8, 64), Flatten(0), Unflatten(0, (1, 64)), Linear(64, 5))\n\
                   torch.jit.trace(net.eval(), torch.zeros(1, 3, 224, 224)).save('row.pt')";
    make(&workplace, program);
    workplace.inferbench(&["run", "row.pt", "--noplot"]).finish().with_code(0);
    let row = |batch: usize| workplace.record(&format!("row/torch-cpu-f32/{batch}"));
    assert_eq!((row(1).status, row(1).input_shape.as_deref()), (Status::Ok, Some("1x3x224x224")));
    assert_eq!(row(2).status, Status::Unsupported);
    assert!(row(2).message.unwrap().contains("typical shapes ran only at batch size 1: give others with `--input "));
}

#[test]
fn two_revisions_of_a_python_file_are_the_programs_of_a_duel() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&[], &["torch"], &[1]);
    std::fs::write(workplace.path("parts.py"), NET).unwrap();
    let net = "from parts import make\nassert open('parts.py').read().count('range') == ";
    std::fs::write(workplace.path("net.py"), format!("{net}0\n")).unwrap();
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
    std::fs::write(workplace.path("net.py"), format!("{net}1\n")).unwrap();
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
        assert_eq!((record.model_size_mb, record.artifact_sha256.is_some()), (None, true));
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
    // The profiler counts elements of the first operand, which are no matrix multiplication.
    let mut sums = rows.iter().filter(|row| row.operator == "aten::add");
    assert!(sums.all(|row| row.flops.is_none() && row.bytes.is_none()), "{rows:#?}");
}

#[test]
fn inputs_that_each_call_changes_are_refused() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&[], &["torch"], &[1]);
    let run = |forward: &str| {
        workplace.write("net.py", module_with("pass", forward));
        workplace.inferbench(&["run", "net.py", "--noplot", "--allow-failed"]).finish();
        let record = workplace.record("net/torch-cpu-f32/1");
        (record.status, record.message.unwrap())
    };
    let (status, says) = run("return self.fc(x.mul_(2))");
    assert!(status == Status::Unsupported && says.contains("the module changes its inputs in place"), "{says}");
    // Another time, nothing changes.
    let (status, says) = run("return self.fc(x.relu_())");
    assert_eq!(status, Status::Ok, "{says}");
}

#[test]
fn a_dictionary_of_inputs_has_those_of_a_graph_beside_it_by_position() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&[], &["torch"], &[2]);
    workplace.add_model("numbered.onnx", "net.onnx");
    let net = "import torch\n\nclass Net(torch.nn.Module):\n    def forward(self, x, y):\n        return torch.tanh(x), -y\n\n\
               def make():\n    return Net().eval(), {'x': torch.randn(2, 3), 'y': torch.randn(2, 3)}\n";
    workplace.write("net.py", net);
    workplace.inferbench(&["run", "net.py", "--noplot"]).finish().with_code(0);
    let record = workplace.record("net/torch-cpu-f32/2");
    assert_eq!(record.status, Status::Ok, "{:?}", record.message);
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
    refused("asks.py", "def make(): return input()\n", "in make (`def make(): return input()`): EOFError");
    refused("none.py", "", "none.py has no function `make`");
    let nothing = "import torch\ndef make(): return torch.nn.Linear(8, 4), None\n";
    refused("nothing.py", nothing, "`make` of nothing.py gives its inputs as NoneType");
    refused("wrong.pt2", "text", "wrong.pt2 is not what torch.export.save writes");
    let other = workplace.inferbench(&["run", "three.py:net"]).finish().with_code(2);
    other.saying(&["the function of a Python file is called `make`"]);
}
