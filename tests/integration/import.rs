//! `inferbench import`: what cannot be imported ends in one clear line before anything is downloaded, and what was imported is
//! found, verified and measured.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use inferbench::definition::Status;

use crate::support::{Finished, Run, Workplace, checkout, data_folder, has_llama_cpp, left_out};

/// Runs the command with a cache in which there is no environment, a disk on which there is no room for one, and a hub
/// that cannot be reached.
fn import(workplace: &Workplace, arguments: &[&str]) -> Finished {
    import_from("http://127.0.0.1:1", workplace, arguments)
}

fn import_from(hub: &str, workplace: &Workplace, arguments: &[&str]) -> Finished {
    // The importer is the checkout's: there is no room for the program's own either.
    let scripts = workplace.path("scripts");
    if !scripts.exists() {
        std::os::unix::fs::symlink(checkout().join("scripts"), scripts).unwrap();
    }
    let mut command = workplace.inferbench(&[&["import"], arguments].concat());
    command.env("XDG_CACHE_HOME", "/proc/nowhere").env("HF_ENDPOINT", hub).env("no_proxy", "*");
    command.env_remove("HF_HUB_OFFLINE").finish()
}

/// The only line of the message, which must contain `parts`.
fn refused(workplace: &Workplace, arguments: &[&str], parts: &[&str]) {
    let finished = import(workplace, arguments).with_code(2);
    assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
    finished.saying(parts);
    let exported = fs::read_dir(workplace.path("models/exported")).unwrap();
    assert_eq!(exported.count(), 0, "nothing half-made stays");
}

/// A safetensors file with this header and so many bytes behind it.
fn safetensors(header: &str, bytes: usize) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; bytes]].concat()
}

const CONFIG: &str = r#"{"model_type": "bert", "architectures": ["BertModel"]}"#;
const HEADER: &str = r#"{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}"#;

#[test]
fn a_folder_that_is_not_whole_is_refused_in_one_line_that_names_the_file() {
    let workplace = Workplace::new(&[], &["candle"], &[1]);
    fs::create_dir(workplace.path("net")).unwrap();
    refused(&workplace, &["net"], &["net has no config.json"]);
    workplace.write("net/config.json", "{");
    refused(&workplace, &["net"], &["net/config.json is not JSON"]);
    workplace.write("net/config.json", "{}");
    refused(&workplace, &["net"], &["net/config.json lacks model_type"]);
    workplace.write("net/config.json", r#"{"model_type": "bert"}"#);
    refused(&workplace, &["net"], &["net/config.json lacks architectures"]);
    workplace.write("net/config.json", CONFIG);
    refused(&workplace, &["net"], &["net has no weights: it needs model.safetensors or pytorch_model.bin"]);
    workplace.write("net/model.safetensors.index.json", r#"{"weight_map": {"w": "part-1.safetensors"}}"#);
    refused(&workplace, &["net"], &["net lacks part-1.safetensors, which model.safetensors.index.json names"]);
    workplace.write("net/pytorch_model.bin", "PK");
    fs::remove_file(workplace.path("net/model.safetensors.index.json")).unwrap();
    refused(&workplace, &["net"], &["net/pytorch_model.bin is cut short"]);
    workplace.write("net/model.safetensors", "version https://git-lfs.github.com/spec/v1\n");
    refused(&workplace, &["net"], &["net/model.safetensors is a Git LFS pointer", "git lfs pull"]);
}

#[test]
fn the_header_of_a_safetensors_file_must_describe_what_is_there() {
    let workplace = Workplace::new(&[], &["candle"], &[1]);
    let all_but = |from: &str, to: &str| safetensors(&HEADER.replace(from, to), 24);
    for (content, reason) in [
        (b"net".to_vec(), "is cut short, or not a safetensors file"),
        (u64::MAX.to_le_bytes().to_vec(), "is cut short, or not a safetensors file"),
        (safetensors("[1]", 0), "has no header of a safetensors file"),
        (safetensors(HEADER, 20), "is cut short: its header describes 24 bytes, and it has 20"),
        (all_but("[2,3]", "[2,4]"), "its header gives w other bytes than its shape needs"),
        (all_but("[0,24]", "[-8,16]"), "its header gives w other bytes than its shape needs"),
        (all_but("[0,24]", "[0,null]"), "has no header of a safetensors file"),
    ] {
        workplace.write("w.safetensors", content);
        refused(&workplace, &["w.safetensors", "--architecture", "resnet18"], &["w.safetensors", reason]);
    }
}

#[test]
fn other_sources_are_refused_by_what_they_are() {
    let workplace = Workplace::new(&[], &["candle"], &[1]);
    workplace.write("w.safetensors", safetensors(HEADER, 24));
    refused(&workplace, &["w.safetensors"], &["w.safetensors has weights without a graph", "--architecture resnet50"]);
    // Complex numbers have eight bytes each.
    workplace.write("w.safetensors", safetensors(&HEADER.replace("F32", "C64").replace("24", "48"), 48));
    refused(&workplace, &["w.safetensors"], &["w.safetensors has weights without a graph"]);
    workplace.add_model("two_inputs.onnx", "net.onnx");
    refused(&workplace, &["net.onnx", "--architecture", "resnet50"], &["`--architecture` is for a state dict"]);
    let with_input = ["w.safetensors", "--architecture", "resnet50", "--input", "x:f32[batch,8]"];
    refused(&workplace, &with_input, &["`--input` is for a file with a graph", "w.safetensors", "state dict"]);
    workplace.write("net.txt", "net");
    refused(&workplace, &["net.txt"], &["net.txt cannot be imported", "config.json", ".pt2"]);
    workplace.write("net.pt", "net");
    refused(&workplace, &["net.pt"], &["net.pt is cut short"]);
    refused(&workplace, &["nowhere.pt2"], &["there is no file or folder nowhere.pt2"]);
    refused(&workplace, &["models/nowhere"], &["there is no file or folder models/nowhere"]);
    refused(&workplace, &["net.onnx", "--name", "digits"], &["digits is a packaged model", "--name"]);
    refused(&workplace, &["net.onnx", "--output", "models"], &["models already exists"]);
    import(&workplace, &["net.onnx", "--input", "x:f33[1]"]).with_code(2).saying(&["as in `x:f32[batch,3,224,224]`"]);
}

#[test]
fn an_id_that_the_hub_does_not_have_is_refused_before_packages_are_downloaded() {
    let workplace = Workplace::new(&[], &["candle"], &[1]);
    refused(&workplace, &["some/id"], &["no file or folder some/id", "127.0.0.1:1 cannot be reached"]);
    let hub = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", hub.local_addr().unwrap());
    let answer = thread::spawn(move || {
        let mut request = hub.accept().unwrap().0;
        let mut line = String::new();
        BufReader::new(&request).read_line(&mut line).unwrap();
        request.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").unwrap();
        line
    });
    let said = import_from(&address, &workplace, &["some/id"]).with_code(2);
    said.saying(&["has no public model with that id"]);
    assert_eq!(answer.join().unwrap(), "GET /api/models/some/id HTTP/1.1\r\n");
}

/// Archives as PyTorch writes none: one that would fill the memory, and others with a name that leads out of them.
const CRAFTED: &str = r#"
import zipfile
with zipfile.ZipFile("bomb.pt2", "w", zipfile.ZIP_DEFLATED) as made:
    made.writestr("bomb/archive_format", "pt2")
    made.writestr("bomb/data/weights/weight_0", bytes(1 << 20))
for place, name in enumerate(["../net.json", "/net.json", "net/..\\net.json"]):
    with zipfile.ZipFile(f"outside{place}.pt2", "w") as made:
        made.writestr("net/archive_format", "pt2")
        made.writestr(name, "{}")
"#;

#[test]
fn an_archive_that_would_fill_the_memory_or_leads_out_of_itself_is_refused() {
    let workplace = Workplace::new(&[], &["candle"], &[1]);
    Command::new("python3").args(["-c", CRAFTED]).current_dir(workplace.path("")).finish().with_code(0);
    refused(&workplace, &["bomb.pt2"], &["bomb.pt2 has ", " bytes, and 1048579 when it is unpacked"]);
    for file in ["outside0.pt2", "outside1.pt2", "outside2.pt2"] {
        refused(&workplace, &[file], &[&format!("{file} has a file whose name leads out of it: ")]);
    }
}

#[test]
fn a_python_that_is_not_there_and_a_cache_without_room_are_said() {
    let workplace = Workplace::new(&[], &["candle"], &[1]);
    workplace.add_model("two_inputs.onnx", "net.onnx");
    let without_python = import(&workplace, &["net.onnx", "--python", "no-such-python"]).with_code(2);
    without_python.saying(&["Python does not start as no-such-python", "name it by `--python`"]);
    let said = import(&workplace, &["net.onnx"]).with_code(2);
    said.saying(&["go into /proc/nowhere/inferbench/import", "GB to download", "GB on disk"]);
}

/// A folder as `inferbench import` makes it, out of the packaged `digits`, whose weights are trained.
fn import_digits(workplace: &Workplace, name: &str) {
    let folder = workplace.path(&format!("models/exported/{name}"));
    fs::create_dir(&folder).unwrap();
    let zoo = workplace.path("models/zoo/digits");
    for file in ["model.onnx", "model.pt", "weights.toml", "reference.safetensors"] {
        fs::copy(zoo.join(file), folder.join(file)).unwrap();
    }
    fs::copy(workplace.path("models/trained/digits.safetensors"), folder.join("weights.safetensors")).unwrap();
    let toml = fs::read_to_string(zoo.join("model.toml")).unwrap();
    let (own, _) = toml.split_once("[[variants]]").unwrap();
    let own = own.lines().filter(|line| !line.starts_with("data_source"));
    let own: Vec<&str> =
        own.map(|line| if line.starts_with("weights") { "weights = \"weights.safetensors\"" } else { line }).collect();
    fs::write(folder.join("model.toml"), own.join("\n")).unwrap();
}

#[test]
fn an_imported_folder_is_one_model_with_the_reference_that_it_has() {
    let workplace = Workplace::new(&[], &["candle"], &[1]);
    import_digits(&workplace, "mine-v1.5");
    let verified = |words: &[&str]| {
        workplace.inferbench(&[&["run", "--noplot"], words].concat()).finish().with_code(0);
        let records = workplace.records();
        assert_eq!(
            records.iter().map(|record| record.case_id.as_str()).collect::<Vec<_>>(),
            ["mine-v1.5/candle-cpu-f32/1"]
        );
        assert_eq!((records[0].status, records[0].verified), (Status::Ok, Some(true)));
    };
    // Found, named as a folder, and named by one of its files.
    verified(&[]);
    verified(&["models/exported/mine-v1.5"]);
    verified(&["models/exported/mine-v1.5/model.onnx"]);
    // Other weights than those of the reference.
    let weights = workplace.path("models/exported/mine-v1.5/weights.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&9.0_f32.to_le_bytes());
    fs::write(&weights, bytes).unwrap();
    workplace.inferbench(&["verify"]).finish().with_code(1);
}

/// Python of the environment that `inferbench import` makes, if it was used on this machine; says so where a test is left out otherwise.
fn environment() -> Option<PathBuf> {
    let found = python_of_import();
    if found.is_none() {
        left_out("the environment of `inferbench import` is not here; the first import makes it");
    }
    found
}

fn python_of_import() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")))?;
    let made_of = fs::read_to_string(cache.join("inferbench/import/requirements")).ok()?;
    let requirements =
        |of: &str| fs::read_to_string(checkout().join("scripts").join(of).join("requirements.txt")).unwrap();
    (made_of == requirements("import") + &requirements("export")).then(|| cache.join("inferbench/import/bin/python"))
}

/// What different files say of how states become a vector.
const POOLINGS: &str = r#"
import json, pathlib, sys
sys.path[:0] = sys.argv[1:]
import hub
pathlib.Path("1_Pooling").mkdir()
pathlib.Path("modules.json").write_text(json.dumps([{"type": "models.Transformer"}, {"type": "models.Pooling"}]))
def made_of(config):
    pathlib.Path("1_Pooling/config.json").write_text(json.dumps(config))
    return hub.sentence_embedding(pathlib.Path("."))
assert made_of({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}) == "mean_state"
assert made_of({"embedding_dimension": 8, "pooling_mode": "mean"}) == "mean_state"
assert made_of({"embedding_dimension": 8, "pooling_mode": "cls"}) is None
assert made_of({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}) is None
"#;

#[test]
fn states_of_which_another_than_the_mean_is_taken_are_not_averaged() {
    let Some(python) = environment() else { return };
    let workplace = Workplace::new(&[], &["candle"], &[1]);
    let folders = ["import", "export"].map(|of| checkout().join("scripts").join(of));
    let mut made = Command::new(python);
    made.args(["-c", POOLINGS]).args(folders).current_dir(workplace.path("")).finish().with_code(0);
}

/// An environment whose Python has gone, with the stamp of a whole one, and a Python that makes no other.
const WITHOUT_ITS_PYTHON: &str = r#"
import sys
from types import SimpleNamespace
sys.path[:0] = sys.argv[1:]
import launch
stamp = launch.ENVIRONMENT / "requirements"
launch.PYTHON.parent.mkdir(parents=True)
launch.PYTHON.symlink_to("/nowhere/python3")
stamp.write_text(launch.REQUIREMENTS.read_text() + (launch.HERE.parent / "export" / "requirements.txt").read_text())
launch.has_cpu_index = lambda: True
launch.shutil.disk_usage = lambda place: SimpleNamespace(free=1e12)
launch.sys.executable = "false"
try:
    launch.prepare_environment(None)
except SystemExit:
    assert not stamp.exists() and not launch.PYTHON.is_symlink()
else:
    raise AssertionError("it is taken for whole")
"#;

#[test]
fn an_environment_whose_python_has_gone_is_made_anew() {
    let workplace = Workplace::new(&[], &["candle"], &[1]);
    let mut made = Command::new("python3");
    made.args(["-c", WITHOUT_ITS_PYTHON]).arg(checkout().join("scripts/import"));
    made.env("XDG_CACHE_HOME", workplace.path("cache")).finish().with_code(0).saying(&["go into", "GB on disk"]);
}

/// A checkpoint of sentence-transformers in small: BERT, the mean of its states, with length 1.
const CHECKPOINT: &str = r#"
import json, pathlib, torch
from transformers import BertConfig, BertModel
torch.manual_seed(1)
config = BertConfig(vocab_size=131, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
BertModel(config).save_pretrained("net")
kinds = ["models.Transformer", "models.Pooling", "models.Normalize"]
pathlib.Path("net/modules.json").write_text(json.dumps([{"type": "sentence_transformers." + kind} for kind in kinds]))
pathlib.Path("net/1_Pooling").mkdir()
pathlib.Path("net/1_Pooling/config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
"#;

#[test]
fn a_sentence_embedding_checkpoint_is_imported_and_right_on_candles_own_module() {
    let Some(python) = environment() else { return };
    let workplace = Workplace::new(&[], &["candle"], &[1, 3]);
    fs::create_dir(workplace.path("net")).unwrap();
    fs::copy(data_folder().join("tokenizer.json"), workplace.path("net/tokenizer.json")).unwrap();
    Command::new(python).args(["-c", CHECKPOINT]).current_dir(workplace.path("")).finish().with_code(0);
    let imported = workplace.inferbench(&["import", "net/"]).finish().with_code(0);
    assert!(imported.stdout.contains("inferbench run models/exported/net\n"), "{}", imported.stdout);
    assert!(workplace.path("models/exported/net/tokenizer.json").is_file());
    workplace.inferbench(&["run", "--noplot", "models/exported/net", "--seq-lens", "32"]).finish().with_code(0);
    for batch_size in [1, 3] {
        let record = workplace.record(&format!("net-seq32/candle-cpu-f32/{batch_size}"));
        assert_eq!((record.status, record.verified), (Status::Ok, Some(true)));
        assert!(record.message.unwrap().contains("candle-transformers bert"));
    }
    // Its tokenizer came with it.
    if cfg!(feature = "text") {
        workplace.write("texts.txt", "What did they say?\nThe water of the day was like the one of the world.\n");
        let texts = ["--text", "texts.txt", "--boundary", "pipeline"];
        workplace.inferbench(&[&["run", "--noplot", "models/exported/net"], &texts[..]].concat()).finish().with_code(0);
        let record = workplace.record("net-seq8-pipeline/candle-cpu-f32/1");
        assert_eq!((record.status, record.input_shape.as_deref()), (Status::Ok, Some("1x7 1x7")));
        assert_eq!(workplace.record("net-seq16-pipeline/candle-cpu-f32/3").input_shape.as_deref(), Some("3x15 3x15"));
    }
    // The configuration of another model.
    let config = fs::read_to_string(workplace.path("net/config.json")).unwrap();
    workplace.write("net/config.json", config.replace("\"hidden_size\": 32", "\"hidden_size\": 48"));
    let refused = workplace.inferbench(&["import", "net", "--name", "other"]).finish().with_code(2);
    refused.saying(&["the weights have other sizes than config.json says"]);
    assert!(!workplace.path("models/exported/other").exists());
}

/// Outputs that are no numbers beside right ones.
const NO_NUMBERS: &str = r#"
import numpy, sys
sys.path[:0] = sys.argv[1:]
import check, files, package
nan, inf = numpy.nan, numpy.inf
def is_taken(actual, expected):
    try:
        files.largest_error(lambda feed: [numpy.array(actual)], [{}], [[numpy.array(expected)]])
    except AssertionError:
        return False
    return True
assert is_taken([1.0, 2.0], [1.0, 2.0]) and not is_taken([1.0, 2.1], [1.0, 2.0])
assert not is_taken([nan, 2.0], [1.0, 2.0]) and not is_taken([-inf, 2.0], [1.0, 2.0])
assert is_taken([-inf, nan, 2.0], [-inf, nan, 2.0]) and not is_taken([-inf, 2.1], [-inf, 2.0])
assert check.relative_error(numpy.array([nan, 2.0]), numpy.array([1.0, 2.0])) == inf
assert package.tolerance(1e-6) == "1e-4"
for error in (1e-2, inf):
    try:
        package.tolerance(error)
    except AssertionError:
        continue
    raise ValueError(f"{error} is tolerated")
"#;

#[test]
fn a_graph_whose_outputs_are_no_numbers_is_not_taken_for_the_original() {
    let Some(python) = environment() else { return };
    let folders = ["import", "export"].map(|of| checkout().join("scripts").join(of));
    Command::new(python).args(["-c", NO_NUMBERS]).args(folders).finish().with_code(0);
}

/// A `.pt2`, and others whose example inputs, names, guards or native parts are code, or whose example inputs would fill the memory.
const PROGRAMS: &str = r#"
import io, json, os, torch, zipfile
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(8, 4)
    def forward(self, x):
        return self.fc(x)
class Code:
    def __reduce__(self):
        return os.mkdir, ("ran",)
torch.export.save(torch.export.export(Net().eval(), (torch.randn(2, 8),)), "net.pt2")
pickled, bomb = io.BytesIO(), io.BytesIO()
torch.save(Code(), pickled)
with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as made:
    made.writestr("archive/data/0", bytes(1 << 20))
source = zipfile.ZipFile("net.pt2")
for name, end, change in [
    ("pickled", "sample_inputs/model.pt", lambda _: pickled.getvalue()),
    ("nested", "sample_inputs/model.pt", lambda _: bomb.getvalue()),
    ("named", "model.json", lambda text: text.replace(b'"name": "x"', b'"name": "x=open(chr(114), chr(119))"')),
    ("guarded", "model.json", lambda text: json.dumps(json.loads(text) | {"guards_code": ["open(chr(114), chr(119)) is None"]}).encode()),
]:
    with zipfile.ZipFile(name + ".pt2", "w", zipfile.ZIP_STORED) as made:
        for entry in source.namelist():
            text = source.read(entry)
            made.writestr(entry.replace("net/", name + "/", 1), change(text) if entry.endswith(end) else text)
with zipfile.ZipFile("native.pt2", "w") as made:
    made.writestr("native/archive_format", "pt2")
    made.writestr("native/data/aotinductor/model/net.so", "")
"#;

#[test]
fn an_exported_program_is_imported_without_running_its_code() {
    let Some(python) = environment() else { return };
    let workplace = Workplace::new(&[], &["candle"], &[1]);
    Command::new(python).args(["-c", PROGRAMS]).current_dir(workplace.path("")).finish().with_code(0);
    let refused = |file: &str| workplace.inferbench(&["import", file]).finish().with_code(2);
    refused("pickled.pt2").saying(&["pickled.pt2 has a pickle that would run code when it is read"]);
    refused("nested.pt2").saying(&["a file in nested.pt2 has ", "when it is unpacked"]);
    refused("named.pt2").saying(&["named.pt2 has a name that is not a word, 'x=open(chr(114)"]);
    refused("native.pt2").saying(&["native.pt2 is a package of AOTInductor"]);
    let guarded = workplace.inferbench(&["import", "guarded.pt2"]).finish().with_code(0);
    guarded.saying(&["guarded.pt2: without 1 of the export's guards"]);
    assert!(!workplace.path("ran").exists() && !workplace.path("r").exists());
    workplace.inferbench(&["import", "net.pt2"]).finish().with_code(0);
}

/// Files whose names and values differ from what their networks have by default.
const OTHERS: &str = r#"
import sys, torch, torchvision
from dataclasses import replace
from pathlib import Path
import onnx
from onnx import TensorProto, helper, numpy_helper
from transformers import BertConfig, BertForSequenceClassification, BertModel, LlamaConfig, LlamaForCausalLM, T5Config
sys.path[:0] = sys.argv[1:]
import architectures, graph_file, packaged, pretrained, state_dict
from source import Given, Refused

def refused(call, *arguments):
    try:
        call(*arguments)
    except Refused as why:
        return str(why)
    raise AssertionError("it is not refused")

# The table has 7 rows, and the text at most 5 tokens.
i32 = lambda name: helper.make_tensor_value_info(name, TensorProto.INT32, ["batch", "sequence"])
tables = {"table": torch.randn(7, 2), "places": torch.randn(5, 2)}
nodes = [("Cast", ["ids"], "wide", {"to": TensorProto.INT64}), ("Gather", ["table", "wide"], "rows", {}), ("Add", ["rows", "places"], "sum", {}),
    ("Cast", ["mask"], "whole", {"to": TensorProto.FLOAT}), ("Unsqueeze", ["whole", "axis"], "column", {}), ("Mul", ["sum", "column"], "y", {})]
graph = helper.make_graph([helper.make_node(kind, ins, [out], **more) for kind, ins, out, more in nodes], "net", [i32("ids"), i32("mask")],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "sequence", 2])],
    [*(numpy_helper.from_array(value.numpy(), name) for name, value in tables.items()), helper.make_tensor("axis", TensorProto.INT64, [1], [2])])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8), "net.onnx")
Path("graph").mkdir()
assert "--input 'ids:i32[batch,sequence]'" in refused(graph_file.convert, Path("net.onnx"), "ONNX", [], Path("graph"))
five = [Given(name, "i32", ["batch", 5], None, None) for name in ("ids", "mask")]
graph_file.convert(Path("net.onnx"), "ONNX", five, Path("graph"))
said = Path("graph/model.toml").read_text()
assert "below = 7" in said and "constant = 1" in said, said
words = helper.make_node("EmbedLayerNormalization", ["words", "", "table", "", "places"], ["sum"], domain="com.microsoft")
graph.node.insert(0, words)
assert graph_file._rows_looked_up_in(graph) == {"ids": 7, "words": 7}

class Words(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(9, 2)
    def forward(self, ids):
        return self.table(ids.long().unsqueeze(1))

program = torch.export.export(Words(), (torch.zeros(2, 3, dtype=torch.int32),))
assert [graph_file._rows_looked_up(node) for node in program.graph.nodes if node.name == "ids"] == [9]

torch.save({"denselayer1.norm.1.weight": torch.ones(1), "mlp.linear_2.bias": torch.ones(1), "a.mlp.linear_1.bias": torch.ones(1)}, "old.pth")
assert sorted(state_dict.read(Path("old.pth"))) == ["a.mlp.0.bias", "denselayer1.norm1.weight", "mlp.linear_2.bias"]
assert state_dict._of_torchvision("googlenet", {}).transform_input
taken = []
state_dict.read = lambda path: {n: value.numpy() for n, value in torchvision.models.swin_t().state_dict().items()}
packaged.write = lambda entry, weights, folder: taken.append(weights)
state_dict.convert(Path("swin.pth"), "swin_t", "net", Path("."))
assert taken and not any(name.endswith("relative_position_index") for name in taken[0])

sizes = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
bert = BertConfig(**sizes)
classifier = BertForSequenceClassification(bert)
classifier.save_pretrained("bert", state_dict={n: value for n, value in classifier.state_dict().items() if "pooler" not in n})
assert "lack 2 tensors" in refused(pretrained.load, BertForSequenceClassification, bert, Path("bert"), "eager")
_, lacks_pooler, remark = pretrained.load(BertModel, bert, Path("bert"), "eager")
assert lacks_pooler and remark.startswith("the folder has tensors that are not used (2), such as classifier.bias"), remark

of_t5 = lambda **more: architectures.entry_of("T5ForConditionalGeneration", "net", T5Config(num_layers=1, **more), "made here", None)
assert of_t5() and not of_t5(tie_word_embeddings=False)
torch.manual_seed(1)
llama = LlamaConfig(**sizes, hidden_act="relu", initializer_range=0.3)
made = replace(architectures.entry_of("LlamaForCausalLM", "net", llama, "made here", None), build=lambda: LlamaForCausalLM(llama))
Path("llama").mkdir()
packaged.write_generative(made, Path("llama"))
"#;

#[test]
fn what_differs_from_the_usual_is_taken_as_it_is_or_refused() {
    let Some(python) = environment() else { return };
    let workplace = Workplace::new(&[], &["candle"], &[1]);
    let folders = ["import", "export"].map(|of| checkout().join("scripts").join(of));
    let mut made = Command::new(python);
    made.args(["-c", OTHERS]).args(folders).current_dir(workplace.path("")).finish().with_code(0);
}

/// A checkpoint of a language model in small.
const DECODER: &str = r#"
import torch
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(1)
LlamaForCausalLM(LlamaConfig(vocab_size=300, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    intermediate_size=96, max_position_embeddings=256)).save_pretrained("net")
"#;

#[test]
fn an_imported_language_model_has_its_forms_as_gguf() {
    let Some(python) = environment().filter(|_| has_llama_cpp()) else { return };
    let workplace = Workplace::new(&[], &["llama-cpp", "candle"], &[1]);
    Command::new(python).args(["-c", DECODER]).current_dir(workplace.path("")).finish().with_code(0);
    workplace.inferbench(&["import", "net/"]).finish().with_code(0);
    let asked = ["run", "--noplot", "models/exported/net", "--seq-lens", "32", "--variant", "original,q8_0"];
    workplace.inferbench(&asked).finish().with_code(0);
    for form in ["net-seq32", "net-q8_0-seq32"] {
        let dtype = if form == "net-seq32" { "f32" } else { "i8" };
        for phase in ["prefill", "decode"] {
            let record = workplace.record(&format!("{form}-{phase}/llama-cpp-cpu-{dtype}/1"));
            assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{:?}", record.message);
            // The original is compared with PyTorch.
            let by = if dtype == "f32" { "reference" } else { "the same weights in f32" };
            assert_eq!(record.verified_by.as_deref(), Some(by));
        }
    }
    assert_eq!(workplace.record("net-q8_0-seq32-decode/candle-cpu-i8/1").status, Status::Ok);
}

/// A checkpoint of a model that classifies tokens, with positions for short texts only.
const SHORT: &str = r#"
import torch
from transformers import BertConfig, BertForTokenClassification
torch.manual_seed(1)
BertForTokenClassification(BertConfig(vocab_size=131, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
    intermediate_size=64, max_position_embeddings=64)).save_pretrained("net")
"#;

#[test]
fn a_model_of_short_texts_has_a_reference_of_the_longest_text_that_it_takes() {
    let Some(python) = environment() else { return };
    let workplace = Workplace::new(&[], &["candle"], &[1]);
    Command::new(python).args(["-c", SHORT]).current_dir(workplace.path("")).finish().with_code(0);
    workplace.inferbench(&["import", "net/"]).finish().with_code(0);
    assert!(workplace.path("models/exported/net/model.npz").is_file());
}

#[test]
fn a_config_has_the_defaults_of_the_library_and_what_else_its_own_folder_says() {
    let workplace = Workplace::new(&[], &["candle"], &[1]);
    for folder in ["net", "made"] {
        fs::create_dir(workplace.path(folder)).unwrap();
    }
    // As an older release of transformers has written it, and what the importer has made of it.
    workplace.write("net/config.json", r#"{"rope_theta": 1e6, "id2label": {"0": "a"}, "vocab_size": 7}"#);
    workplace.write("made/config.json", r#"{"rope_parameters": {"rope_theta": 1e6}, "vocab_size": 8}"#);
    let copy = "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); import convert; \
                convert.copy_texts(Path(sys.argv[2]), Path(sys.argv[3]))";
    let mut python = Command::new("python3");
    python.args(["-c", copy]).args([checkout().join("scripts/import"), workplace.path("net"), workplace.path("made")]);
    assert!(python.status().unwrap().success());
    let config: serde_json::Value =
        serde_json::from_slice(&fs::read(workplace.path("made/config.json")).unwrap()).unwrap();
    assert_eq!(config["rope_parameters"]["rope_theta"], 1e6);
    assert_eq!((&config["id2label"]["0"], &config["vocab_size"]), (&"a".into(), &8.into()));
}
