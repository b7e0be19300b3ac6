//! One executable for libFuzzer, which gives its inputs to the parser that `INFERBENCH_FUZZ` names.
//!
//! Without the variable it lists the parsers. With `INFERBENCH_FUZZ_SEEDS` it writes the parser's first inputs into that folder and ends.

#![no_main]

mod files;
mod messages;
mod results;

use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::OnceLock;

/// A reader of what comes from outside. An input is a fault if the reader panics, takes long or takes much memory.
struct Parser {
    name: &'static str,
    read: fn(&[u8]),
    /// The first inputs.
    seeds: fn() -> Vec<Vec<u8>>,
}

static PARSERS: [Parser; 15] = [
    Parser {
        name: "onnx",
        read: files::onnx,
        seeds: || files::beside("onnx", &["tests/data/models", "models/zoo/digits"]),
    },
    Parser { name: "torchscript", read: files::torchscript, seeds: files::archives },
    Parser { name: "gguf", read: files::gguf, seeds: files::headers },
    Parser {
        name: "safetensors",
        read: files::safetensors,
        seeds: || files::beside("safetensors", &["models/zoo/digits", "models/trained"]),
    },
    Parser { name: "npz", read: files::npz, seeds: files::arrays },
    Parser { name: "tensor", read: files::tensor, seeds: files::tensors },
    Parser { name: "picture", read: files::picture, seeds: files::pictures },
    Parser { name: "frames", read: messages::frames, seeds: messages::seeds_of_worker },
    Parser { name: "worker", read: messages::worker, seeds: messages::seeds_of_worker },
    Parser { name: "page", read: messages::page, seeds: messages::seeds_of_requests },
    Parser { name: "requests", read: messages::requests, seeds: messages::seeds_of_requests },
    Parser { name: "answers", read: messages::answers, seeds: messages::seeds_of_answers },
    Parser { name: "outcomes", read: results::outcomes, seeds: results::seeds_of_outcomes },
    Parser { name: "records", read: results::records, seeds: results::seeds_of_records },
    Parser { name: "parquet", read: results::parquet, seeds: results::seeds_of_parquet },
];

/// Packages whose panics are caught where they are called.
const CAUGHT: [&str; 1] = ["rten-shape-inference"];

static CHOSEN: OnceLock<&Parser> = OnceLock::new();

libfuzzer_sys::fuzz_target!(
    init: choose(),
    |bytes: &[u8]| {
        if let Some(parser) = CHOSEN.get() {
            (parser.read)(bytes);
        }
    }
);

fn choose() {
    let chosen = std::env::var("INFERBENCH_FUZZ").ok();
    let parser = PARSERS.iter().find(|parser| chosen.as_deref() == Some(parser.name));
    let Some(parser) = parser else {
        PARSERS.iter().for_each(|parser| println!("{}", parser.name));
        exit(i32::from(chosen.is_some()));
    };
    if let Some(folder) = std::env::var_os("INFERBENCH_FUZZ_SEEDS") {
        for (number, seed) in (parser.seeds)().iter().enumerate() {
            std::fs::write(Path::new(&folder).join(format!("seed-{number:02}")), seed).expect("a seed is written");
        }
        exit(0);
    }
    let _ = CHOSEN.set(parser);
    // libFuzzer's own hook ends the process.
    let fault = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let file = panic.location().map_or("", |location| location.file());
        if !CAUGHT.iter().any(|package| file.contains(package)) {
            fault(panic);
        }
    }));
}

/// A path of the checkout.
fn checkout(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// A folder of this process for files that are read.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("inferbench-fuzz-{}", std::process::id())).join(name);
    std::fs::create_dir_all(&folder).expect("a folder for files");
    folder
}
