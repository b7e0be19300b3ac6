//! Reads the names of a TorchScript archive's inputs and what it computes in, without libtorch.
//!
//! An archive is a ZIP file whose `data.pkl` begins with the name of the module's class, and whose `code/` holds the
//! class as text. It says the inputs' names and types, and never their shapes.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use regex::Regex;
use zip::ZipArchive;

use crate::definition::Dtype;

/// The inputs of the module's `forward` as `(name, type)`, such as `("x", "Tensor")`.
///
/// # Errors
/// The file is no TorchScript archive, or is not whole.
pub fn read_inputs(path: &Path) -> Result<Vec<(String, String)>, String> {
    let named = |error: String| format!("{}: {error}", path.display());
    let mut archive = open(path).map_err(named)?;
    let pickle = read_entry(&mut archive, "/data.pkl").map_err(named)?;
    let class = class_name(&pickle).ok_or_else(|| named("not a TorchScript archive: no module in data.pkl".into()))?;
    let (module, name) = class.rsplit_once('.').unwrap_or(("", &class));
    let code = read_entry(&mut archive, &format!("/code/{}.py", module.replace('.', "/"))).map_err(named)?;
    forward_inputs(&String::from_utf8_lossy(&code), name)
        .ok_or_else(|| named(format!("class {name} has no readable `forward`")))
}

/// What the archive computes in: i8 where its code calls quantised operators, and otherwise f32.
///
/// # Errors
/// The file is no TorchScript archive, or is not whole.
pub fn read_dtype(path: &Path) -> Result<Dtype, String> {
    let named = |error: String| format!("{}: {error}", path.display());
    let mut archive = open(path).map_err(named)?;
    for place in 0..archive.len() {
        let mut entry = archive.by_index(place).map_err(|error| named(error.to_string()))?;
        let is_code = entry.name().is_ok_and(|name| name.contains("/code/") && name.ends_with(".py"));
        if !is_code {
            continue;
        }
        let mut code = String::new();
        entry.read_to_string(&mut code).map_err(|error| named(error.to_string()))?;
        if code.contains("ops.quantized.") || code.contains("torch.quantize_per_tensor") {
            return Ok(Dtype::I8);
        }
    }
    Ok(Dtype::F32)
}

fn open(path: &Path) -> Result<ZipArchive<File>, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    ZipArchive::new(file).map_err(|error| format!("not a whole TorchScript archive ({error})"))
}

fn read_entry(archive: &mut ZipArchive<File>, end: &str) -> Result<Vec<u8>, String> {
    let names = archive.file_names().filter_map(|name| Some(name.ok()?.into_owned()));
    let name = names.into_iter().find(|name| name.ends_with(end));
    let name = name.ok_or_else(|| format!("not a TorchScript archive: no {end} in it"))?;
    let mut bytes = Vec::new();
    let mut entry = archive.by_name(&name).map_err(|error| format!("{name}: {error}"))?;
    entry.read_to_end(&mut bytes).map_err(|error| format!("{name}: {error}"))?;
    Ok(bytes)
}

/// The class of the first object of a pickle: opcode `c`, the module and a line feed, the name and a line feed.
fn class_name(pickle: &[u8]) -> Option<String> {
    let begin = pickle.windows(10).position(|window| window == b"c__torch__")?;
    let text = String::from_utf8_lossy(&pickle[begin + 1..]);
    let mut lines = text.split('\n');
    Some(format!("{}.{}", lines.next()?, lines.next()?))
}

/// The arguments of a class's `forward` but `self`.
fn forward_inputs(code: &str, class: &str) -> Option<Vec<(String, String)>> {
    let begin = Regex::new(&format!(r"(?m)^class {}\(", regex::escape(class))).ok()?.find(code)?.end();
    let of_class = code[begin..].split("\nclass ").next()?;
    let arguments = Regex::new(r"def forward\(([^)]*)\)").ok()?.captures(of_class)?.get(1)?.as_str();
    let argument = Regex::new(r"(\w+): ([\w.]+)").ok()?;
    let all = argument.captures_iter(arguments).map(|found| (found[1].to_owned(), found[2].to_owned()));
    Some(all.filter(|(name, _)| name != "self").collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_class_says_its_inputs() {
        let pickle = b"\x80\x02c__torch__.net\nNet\nq\x00)";
        assert_eq!(class_name(pickle).as_deref(), Some("__torch__.net.Net"));
        let code = "class Inner(Module):\n  def forward(self: __torch__.net.Inner,\n    y: Tensor) -> Tensor:\n    pass\nclass Net(Module):\n  def forward(self: __torch__.net.Net,\n    input_ids: Tensor,\n    mask: Tensor) -> Tensor:\n    pass\n";
        let inputs = forward_inputs(code, "Net").unwrap();
        assert_eq!(inputs, [("input_ids", "Tensor"), ("mask", "Tensor")].map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    #[test]
    fn an_archive_says_what_it_computes_in() {
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("models");
        assert_eq!(read_dtype(&models.join("zoo/digits/model.pt")), Ok(Dtype::F32));
        assert_eq!(read_dtype(&models.join("quantized/digits.int8-torch.pt")), Ok(Dtype::I8));
        assert!(read_dtype(&models.join("README.md")).is_err());
    }

    #[test]
    fn a_packaged_archive_says_its_inputs() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/zoo/bert-small/model.pt");
        let names: Vec<String> = read_inputs(&path).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        let cut = std::env::temp_dir().join(format!("inferbench-cut-{}.pt", std::process::id()));
        std::fs::write(&cut, &std::fs::read(&path).unwrap()[..500]).unwrap();
        assert!(read_inputs(&cut).unwrap_err().contains("not a whole TorchScript archive"));
    }
}
