//! Reads the names of the inputs of a TorchScript archive and the dtype that it computes in, without libtorch.
//!
//! An archive is a ZIP file whose `data.pkl` begins with the name of the module's class, and whose `code/` holds the
//! class as text. It gives the inputs' names, but never their shapes.

use std::io::{BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use fs_err::File;
use regex::Regex;
use zip::ZipArchive;

use crate::definition::Dtype;

/// The most bytes that are inflated from an archive. The code of the largest models takes a few MB.
const MOST_TEXT: u64 = 64 << 20;

/// The names of the inputs of the module's `forward`.
pub(crate) fn read_inputs(path: &Path) -> Result<Vec<String>> {
    let read = || {
        let mut archive = open(path)?;
        let pickle = read_entry(&mut archive, "/data.pkl")?;
        let class = class_name(&pickle).context(
            "not a TorchScript archive but a pickle, as `torch.save` writes it, which would run code when it is read: save it with \
             `torch.jit.save` or `torch.export.save`, write a `.py` whose function `make` returns the module, or allow it by `--trust`",
        )?;
        let (module, name) = class.rsplit_once('.').unwrap_or(("", &class));
        let code = read_entry(&mut archive, &format!("/code/{}.py", module.replace('.', "/")))?;
        forward_inputs(&String::from_utf8_lossy(&code), name)
            .with_context(|| format!("class {name} has no readable `forward`"))
    };
    read().with_context(|| path.display().to_string())
}

/// The dtype that the archive computes in: i8 if its code calls quantised operators, f16 or bf16 if all its weights
/// have that type, and f32 otherwise.
pub(crate) fn read_dtype(path: &Path) -> Result<Dtype> {
    let read = || -> Result<Dtype> {
        let mut archive = open(path)?;
        let is_code = |name: &String| name.contains("/code/") && name.ends_with(".py");
        let mut left = MOST_TEXT;
        for name in names(&archive).into_iter().filter(is_code) {
            let code = read_named(&mut archive, &name, left)?;
            left -= code.len() as u64;
            let code = String::from_utf8_lossy(&code);
            if code.contains("ops.quantized.") || code.contains("torch.quantize_per_tensor") {
                return Ok(Dtype::I8);
            }
        }
        // The pickle of the weights names the types of their storages.
        let pickle = read_entry(&mut archive, "/data.pkl")?;
        let has = |storage: &[u8]| pickle.windows(storage.len()).any(|window| window == storage);
        Ok(match [b"\nFloatStorage\n".as_slice(), b"\nHalfStorage\n", b"\nBFloat16Storage\n"].map(has) {
            [false, true, false] => Dtype::F16,
            [false, false, true] => Dtype::Bf16,
            _ => Dtype::F32,
        })
    };
    read().with_context(|| path.display().to_string())
}

type Archive = ZipArchive<BufReader<File>>;

fn open(path: &Path) -> Result<Archive> {
    ZipArchive::new(BufReader::new(File::open(path)?)).context("not a whole TorchScript archive")
}

fn names(archive: &Archive) -> Vec<String> {
    archive.file_names().filter_map(|name| Some(name.ok()?.into_owned())).collect()
}

/// Reads the entry whose name ends with `end`.
fn read_entry(archive: &mut Archive, end: &str) -> Result<Vec<u8>> {
    let name = names(archive).into_iter().find(|name| name.ends_with(end));
    let name = name.with_context(|| format!("not a TorchScript archive: no {end} in it"))?;
    read_named(archive, &name, MOST_TEXT)
}

/// Reads the entry of this name, which may have at most `most` bytes.
fn read_named(archive: &mut Archive, name: &str, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let entry = archive.by_name(name).with_context(|| name.to_owned())?;
    entry.take(most + 1).read_to_end(&mut bytes).with_context(|| name.to_owned())?;
    ensure!(bytes.len() as u64 <= most, "{name}: more than {} MiB of text", MOST_TEXT >> 20);
    Ok(bytes)
}

/// The class of the first object of a pickle: opcode `c`, the module and a line feed, the name and a line feed.
fn class_name(pickle: &[u8]) -> Option<String> {
    let begin = pickle.windows(10).position(|window| window == b"c__torch__")?;
    let text = String::from_utf8_lossy(&pickle[begin + 1..]);
    let mut lines = text.split('\n');
    Some(format!("{}.{}", lines.next()?, lines.next()?))
}

/// The names of the arguments of a class's `forward`, without the first one, which is the module.
fn forward_inputs(code: &str, class: &str) -> Option<Vec<String>> {
    let begin = Regex::new(&format!(r"(?m)^class {}\(", regex::escape(class))).ok()?.find(code)?.end();
    let of_class = code[begin..].split("\nclass ").next()?;
    let arguments = Regex::new(r"def forward\(([^)]*)\)").ok()?.captures(of_class)?.get(1)?.as_str();
    let argument = Regex::new(r"(\w+): [\w.]+").ok()?;
    let names = argument.captures_iter(arguments).map(|found| found[1].to_owned());
    Some(names.skip(1).collect())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_root_class_says_its_inputs() {
        let pickle = b"\x80\x02c__torch__.net\nNet\nq\x00)";
        assert_eq!(class_name(pickle).as_deref(), Some("__torch__.net.Net"));
        let code = "class Inner(Module):\n  def forward(self: __torch__.net.Inner,\n    y: Tensor) -> Tensor:\n    pass\nclass Net(Module):\n  def forward(self: __torch__.net.Net,\n    input_ids: Tensor,\n    mask: Tensor) -> Tensor:\n    pass\n";
        let inputs = forward_inputs(code, "Net").unwrap();
        assert_eq!(inputs, ["input_ids", "mask"]);
        let other = "class Net(Module):\n  def forward(s: __torch__.net.Net,\n    x: Tensor) -> Tensor:\n    pass\n";
        assert_eq!(forward_inputs(other, "Net").unwrap(), ["x"]);
    }

    #[test]
    fn an_archive_says_what_it_computes_in() {
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("models");
        assert_eq!(read_dtype(&models.join("zoo/digits/model.pt")).unwrap(), Dtype::F32);
        assert_eq!(read_dtype(&models.join("quantized/digits.int8-torch.pt")).unwrap(), Dtype::I8);
        assert!(read_dtype(&models.join("README.md")).is_err());
    }

    #[test]
    fn a_packaged_archive_says_its_inputs() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/zoo/bert-small/model.pt");
        let names = read_inputs(&path).unwrap();
        assert_eq!(names.len(), 2, "{names:?}");
        let folder = tempfile::tempdir().unwrap();
        let cut = folder.path().join("cut.pt");
        std::fs::write(&cut, &std::fs::read(&path).unwrap()[..500]).unwrap();
        assert!(format!("{:#}", read_inputs(&cut).unwrap_err()).contains("not a whole TorchScript archive"));
    }

    #[test]
    fn entries_are_limited_together() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bombs.pt");
        let mut zip = zip::ZipWriter::new(std::fs::File::create(&path).unwrap());
        for number in 0..3 {
            zip.start_file(format!("net/code/{number}.py"), zip::write::SimpleFileOptions::default()).unwrap();
            zip.write_all(&vec![b' '; MOST_TEXT as usize / 2]).unwrap();
        }
        zip.finish().unwrap();
        assert!(format!("{:#}", read_dtype(&path).unwrap_err()).ends_with("more than 64 MiB of text"));
    }

    #[test]
    fn an_entry_that_inflates_without_end_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bomb.pt");
        let mut zip = zip::ZipWriter::new(std::fs::File::create(&path).unwrap());
        for name in ["net/data.pkl", "net/code/net.py"] {
            zip.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
            zip.write_all(&vec![b' '; MOST_TEXT as usize + 1]).unwrap();
        }
        zip.finish().unwrap();
        assert!(path.metadata().unwrap().len() < 1 << 20);
        for error in [read_inputs(&path).unwrap_err(), read_dtype(&path).unwrap_err()] {
            assert!(format!("{error:#}").ends_with("more than 64 MiB of text"), "{error:#}");
        }
    }
}
