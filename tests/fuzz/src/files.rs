//! Files that a user names: models, tensors and pictures.

use std::fs;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use inferbench::catalogue::{Place, read_catalogue};
use inferbench::definition::{DataSource, Dtype, Model, Sizes};
use inferbench::fixture::{Samples, nonzero_parameters, read_reference_of, with_sizes_of_reference};
use inferbench::graph_dtype::{Form, convert};
use inferbench::{onnx as graphs, pictures as images};
use zip::CompressionMethod;
use zip::write::{SimpleFileOptions, ZipWriter};

use crate::{checkout, folder};

/// Separates the files of an archive that is made of an input.
const BETWEEN: &[u8] = b"\n---\n";
/// Files that are larger are no seeds.
const LARGEST_SEED: u64 = 64 << 10;

/// The files with this extension in folders of the checkout.
pub fn beside(extension: &str, folders: &[&str]) -> Vec<Vec<u8>> {
    let files = folders.iter().flat_map(|folder| fs::read_dir(checkout(folder)).expect("the folder")).flatten();
    let mut paths: Vec<PathBuf> = files.map(|file| file.path()).collect();
    paths.retain(|path| {
        let is_small = path.metadata().is_ok_and(|file| file.len() <= LARGEST_SEED);
        is_small && path.extension().is_some_and(|own| own.eq_ignore_ascii_case(extension))
    });
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("the seed")).collect()
}

/// The models that there are if a user puts a file of this name and content among the others.
fn models_with(name: &str, bytes: &[u8]) -> (PathBuf, Vec<Model>) {
    static MODELS: LazyLock<PathBuf> = LazyLock::new(|| folder("models/exported"));
    let file = MODELS.join(name);
    fs::write(&file, bytes).expect("the file");
    let entries = read_catalogue(MODELS.parent().expect("the folder above")).expect("the folder can be listed");
    (
        file,
        entries.into_iter().filter(|entry| entry.place == Place::Folder).filter_map(|entry| entry.model.ok()).collect(),
    )
}

pub fn onnx(bytes: &[u8]) {
    let (file, models) = models_with("net.onnx", bytes);
    let _ = graphs::outputs_left_out(&file);
    let converted = folder("converted").join("net.onnx");
    for model in &models {
        for plan in &model.phases {
            let sizes = Sizes { batch: 2, sequence: Some(3) };
            let _ = graphs::count(model, plan.phase, sizes);
            let _ = graphs::node_costs(model, plan.phase, sizes);
        }
        let _ = nonzero_parameters(model, Path::new(""));
        for dtype in [Dtype::F16, Dtype::I8] {
            let _ = convert(&file, &Form::Dtype(dtype), &converted);
        }
    }
}

/// An archive without compression, whose checksums are right whatever its content.
fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    for (name, content) in files {
        archive.start_file(*name, options).expect("the name");
        archive.write_all(content).expect("the content");
    }
    archive.finish().expect("the archive").into_inner()
}

fn halves(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let place = bytes.windows(BETWEEN.len()).position(|window| window == BETWEEN)?;
    Some((&bytes[..place], &bytes[place + BETWEEN.len()..]))
}

/// The bytes are an archive, or else its pickle and its code.
pub fn torchscript(bytes: &[u8]) {
    models_with("net.pt", bytes);
    if let Some((pickle, code)) = halves(bytes) {
        models_with("net.pt", &archive(&[("net/data.pkl", pickle), ("net/code/__torch__/net.py", code)]));
    }
}

pub fn archives() -> Vec<Vec<u8>> {
    let mut seeds = beside("pt", &["tests/data/models", "models/zoo/digits", "models/quantized"]);
    let pickle = b"\x80\x02c__torch__.net\nNet\nq\x00)\x81.";
    let code = b"class Net(Module):\n  def forward(self: __torch__.net.Net,\n    x: Tensor) -> Tensor:\n    return ops.quantized.linear(x)\n";
    seeds.push([&pickle[..], BETWEEN, &code[..]].concat());
    seeds
}

pub fn gguf(bytes: &[u8]) {
    let (file, _) = models_with("net.gguf", bytes);
    if let Ok((header, _)) = inferbench::gguf::Header::read_with_lists(&file, &["tokenizer.ggml.tokens", "lists"]) {
        let _ = (header.kinds_in_words(), header.dtype(), header.parameters(), header.vocabulary());
    }
}

/// GGUF files of one tensor, with values of several types.
pub fn headers() -> Vec<Vec<u8>> {
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let key = |key: &str, kind: u32, value: &[u8]| [&text(key)[..], &kind.to_le_bytes(), value].concat();
    let file = |element: u32, bytes: usize| {
        let list = [&8_u32.to_le_bytes()[..], &2_u64.to_le_bytes(), &text("a"), &text("b")].concat();
        let lists =
            [&9_u32.to_le_bytes()[..], &1_u64.to_le_bytes(), &4_u32.to_le_bytes(), &0_u64.to_le_bytes()].concat();
        let mut file = [&b"GGUF"[..], &3_u32.to_le_bytes(), &1_u64.to_le_bytes(), &6_u64.to_le_bytes()].concat();
        file.extend(key("general.architecture", 8, &text("llama")));
        file.extend(key("general.alignment", 4, &32_u32.to_le_bytes()));
        file.extend(key("llama.context_length", 10, &64_u64.to_le_bytes()));
        file.extend(key("llama.rope.freq_base", 6, &1e4_f32.to_le_bytes()));
        file.extend(key("tokenizer.ggml.tokens", 9, &list));
        file.extend(key("lists", 9, &lists));
        file.extend([&text("token_embd.weight")[..], &2_u32.to_le_bytes()].concat());
        file.extend([32_u64.to_le_bytes(), 2_u64.to_le_bytes()].concat());
        file.extend([&element.to_le_bytes()[..], &0_u64.to_le_bytes()].concat());
        file.resize(file.len().next_multiple_of(32) + bytes, 0);
        file
    };
    vec![file(8, 68), file(0, 256), file(1, 128)]
}

/// The model of a graph among the tests' data.
pub fn model_of(name: &str) -> Model {
    let graph = fs::read(checkout(&format!("tests/data/models/{name}.onnx"))).expect("the graph");
    models_with("net.onnx", &graph).1.remove(0)
}

/// A model of two inputs, for which files are references and samples.
fn model() -> &'static Model {
    static MODEL: LazyLock<Model> = LazyLock::new(|| model_of("two_inputs"));
    &MODEL
}

/// Reads a file as what is right for a model, and as its samples.
fn as_reference(name: &str, bytes: &[u8]) {
    let file = folder("reference").join(name);
    fs::write(&file, bytes).expect("the file");
    if let Ok(reference) = read_reference_of(model(), &file) {
        let _ = reference.set(0);
        let _ = with_sizes_of_reference(model().clone(), &file);
    }
    let samples = Model { data_source: DataSource::Recorded(file), ..model().clone() };
    if let Ok(samples) = Samples::open(&samples, None) {
        for place in 0..samples.len().min(3) {
            let _ = samples.sample(place);
        }
    }
}

pub fn safetensors(bytes: &[u8]) {
    as_reference("net.safetensors", bytes);
}

/// The bytes are an archive, or else the two arrays of one.
pub fn npz(bytes: &[u8]) {
    as_reference("net.npz", bytes);
    let (first, second) = halves(bytes).unwrap_or((bytes, &[]));
    as_reference("net.npz", &archive(&[("input.ids.npy", first), ("label.npy", second)]));
}

pub fn arrays() -> Vec<Vec<u8>> {
    let array = |kind: &str, shape: &str, data: &[u8]| {
        let header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}\n");
        [&b"\x93NUMPY\x01\x00"[..], &(header.len() as u16).to_le_bytes(), header.as_bytes(), data].concat()
    };
    let mut seeds = beside("npz", &["tests/data/crafted"]);
    seeds.push([&array("<i8", "2, 4", &[1; 64])[..], BETWEEN, &array("|u1", "2,", &[1, 2])].concat());
    seeds.push(array("<f2", "2, 4", &[0x3c; 16]));
    seeds
}

/// A message of ONNX as an output, whose inputs are made.
pub fn tensor(bytes: &[u8]) {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| folder("messages"));
    for name in ["input_0.pb", "input_1.pb", "output_0.pb"] {
        fs::write(FOLDER.join(name), bytes).expect("the message");
    }
    let _ = read_reference_of(model(), &FOLDER);
    let _ = read_reference_of(model(), &FOLDER.join("output_0.pb"));
}

pub fn tensors() -> Vec<Vec<u8>> {
    // dims 2 and 4, type f32, and raw bytes; the same as floats; and as integers of 64 bits.
    let raw = [&[0x08_u8, 2, 0x08, 4, 0x10, 1, 0x4a, 32][..], &[0; 32]].concat();
    let floats = [&[0x08_u8, 2, 0x08, 4, 0x10, 1, 0x22, 32][..], &[0; 32]].concat();
    let integers = vec![0x08, 2, 0x08, 4, 0x10, 7, 0x3a, 8, 1, 2, 3, 4, 5, 6, 7, 8];
    vec![raw, floats, integers]
}

pub fn picture(bytes: &[u8]) {
    let _ = images::size(bytes);
    let _ = images::decode(bytes);
    let _ = images::decode_mask(bytes);
}

pub fn pictures() -> Vec<Vec<u8>> {
    let folders = ["bars", "rings", "waves", "waves/nested"].map(|name| format!("tests/data/pictures/{name}"));
    let folders = folders.each_ref().map(String::as_str);
    ["jpg", "jpeg", "png"].iter().flat_map(|extension| beside(extension, &folders)).collect()
}
