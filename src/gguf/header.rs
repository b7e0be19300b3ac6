//! The header of a GGUF file: its keys and values, and what its tensors are.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::element::ElementKind;
use crate::definition::Dtype;

const MAGIC: &[u8; 4] = b"GGUF";
/// The versions that have 64-bit counts.
const VERSIONS: [u32; 2] = [2, 3];
/// The alignment of tensors' offsets, if the file gives no other.
const ALIGNMENT: u64 = 32;
/// The largest alignment that is accepted.
const MOST_ALIGNMENT: u64 = 1 << 20;
/// The most dimensions of a tensor.
const MOST_DIMENSIONS: u32 = 4;
/// Bytes of the longest name of a tensor that ggml reads.
const LONGEST_NAME: usize = 63;
/// How deep lists may be nested.
const DEEPEST: usize = 4;
/// llama.cpp's names of the kinds of files, by their numbers in `general.file_type`.
#[rustfmt::skip]
const FORMS: [(u64, &str); 34] = [
    (0, "all F32"), (1, "F16"), (2, "Q4_0"), (3, "Q4_1"), (7, "Q8_0"), (8, "Q5_0"), (9, "Q5_1"),
    (10, "Q2_K - Medium"), (11, "Q3_K - Small"), (12, "Q3_K - Medium"), (13, "Q3_K - Large"), (14, "Q4_K - Small"),
    (15, "Q4_K - Medium"), (16, "Q5_K - Small"), (17, "Q5_K - Medium"), (18, "Q6_K"), (19, "IQ2_XXS - 2.0625 bpw"),
    (20, "IQ2_XS - 2.3125 bpw"), (21, "Q2_K - Small"), (22, "IQ3_XS - 3.3 bpw"), (23, "IQ3_XXS - 3.0625 bpw"),
    (24, "IQ1_S - 1.5625 bpw"), (25, "IQ4_NL - 4.5 bpw"), (26, "IQ3_S - 3.4375 bpw"), (27, "IQ3_S mix - 3.66 bpw"),
    (28, "IQ2_S - 2.5 bpw"), (29, "IQ2_M - 2.7 bpw"), (30, "IQ4_XS - 4.25 bpw"), (31, "IQ1_M - 1.75 bpw"),
    (32, "BF16"), (36, "TQ1_0 - 1.69 bpw ternary"), (37, "TQ2_0 - 2.06 bpw ternary"), (38, "MXFP4 MoE"),
    (39, "NVFP4"),
];
/// The most elements of a list that are kept.
const MOST_KEPT: u64 = 1 << 22;

/// What a GGUF file says of itself.
#[derive(Clone, Debug)]
pub struct Header {
    /// The values that are not lists, and the lengths of lists.
    pub values: BTreeMap<String, Value>,
    pub tensors: Vec<TensorInfo>,
    /// Bytes of the file.
    pub file_bytes: u64,
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Integer(i128),
    Float(f64),
    Bool(bool),
    Text(String),
    /// The length of a list.
    List(u64),
}

/// A tensor of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    pub name: String,
    /// Sizes in the order of files: the first is the length of a row.
    pub sizes: Vec<u64>,
    pub kind: ElementKind,
    /// The position of its first byte in the file.
    pub begin: u64,
    pub bytes: u64,
}

impl TensorInfo {
    /// The number of elements.
    pub fn elements(&self) -> u64 {
        self.sizes.iter().product()
    }
}

impl Header {
    /// Reads the header of a file.
    ///
    /// # Errors
    /// The file cannot be read, is not a GGUF file, was cut short, or contradicts itself.
    pub fn read(path: &Path) -> Result<Self> {
        Ok(Self::read_with_lists(path, &[])?.0)
    }

    /// Reads the header of a file, with the elements of the lists of these keys that it has.
    ///
    /// # Errors
    /// As [`read`](Self::read); a list has more than 4 million elements.
    pub fn read_with_lists(path: &Path, keys: &[&str]) -> Result<(Self, BTreeMap<String, Vec<Value>>)> {
        let file = fs_err::File::open(path)?;
        ensure!(file.metadata()?.len() > 0, "{} is empty", path.display());
        // SAFETY: the map is read only. If another process cuts the file short meanwhile, this process ends, as any
        // other reader of weights would.
        let map = unsafe { memmap2::Mmap::map(file.file()) }.with_context(|| path.display().to_string())?;
        Self::of_bytes(&map, keys).with_context(|| format!("{} is not a GGUF file that can be read", path.display()))
    }

    /// Reads the header of a whole file.
    fn of_bytes(file: &[u8], keys: &[&str]) -> Result<(Self, BTreeMap<String, Vec<Value>>)> {
        let mut bytes = Bytes { file, at: 0, kept: None };
        ensure!(bytes.take(4)? == MAGIC, "it does not begin with the letters GGUF");
        let version = bytes.u32()?;
        ensure!(
            !VERSIONS.contains(&version.swap_bytes()),
            "its numbers are big-endian, and only little-endian files can be read: convert it with `gguf_convert_endian.py`"
        );
        ensure!(VERSIONS.contains(&version), "its version is {version}, and only versions 2 and 3 can be read");
        let (tensor_count, value_count) = (bytes.u64()?, bytes.u64()?);
        // A key has at least 8 bytes of length, 4 of type and 1 of value; a tensor has 8, 4, 8, 4 and 8.
        bytes.check_count(value_count, 13, "keys")?;
        bytes.check_count(tensor_count, 32, "tensors")?;
        let (mut values, mut lists) = (BTreeMap::new(), BTreeMap::new());
        for _ in 0..value_count {
            let key = bytes.text()?;
            let kind = bytes.u32()?;
            bytes.kept = keys.contains(&&*key).then(Vec::new);
            let value = bytes.value(kind, 0).with_context(|| format!("key {key:?}"))?;
            lists.extend(bytes.kept.take().map(|list| (key.clone(), list)));
            ensure!(values.insert(key.clone(), value).is_none(), "it has the key {key:?} twice");
        }
        let alignment = match values.get("general.alignment") {
            None => ALIGNMENT,
            Some(Value::Integer(said)) => u64::try_from(*said).unwrap_or(0),
            Some(_) => bail!("its alignment is not a whole number"),
        };
        ensure!(
            alignment.is_power_of_two() && (8..=MOST_ALIGNMENT).contains(&alignment),
            "its alignment {alignment} is not a power of two between 8 and {MOST_ALIGNMENT}"
        );
        let mut tensors = (0..tensor_count).map(|_| bytes.tensor()).collect::<Result<Vec<_>>>()?;
        let data = (bytes.at as u64).next_multiple_of(alignment);
        let file_bytes = file.len() as u64;
        let mut names = std::collections::BTreeSet::new();
        for tensor in &mut tensors {
            let TensorInfo { name, begin, bytes, .. } = tensor;
            ensure!(
                begin.is_multiple_of(alignment),
                "the offset {begin} of tensor {name:?} is not a multiple of {alignment}"
            );
            let end = data.checked_add(*begin).and_then(|begin| begin.checked_add(*bytes));
            ensure!(
                end.is_some_and(|end| end <= file_bytes),
                "tensor {name:?} ends beyond the file, which has {file_bytes} bytes: was it cut short?"
            );
            *begin += data;
            ensure!(names.insert(name.clone()), "it has the tensor {name:?} twice");
        }
        Ok((Header { values, tensors, file_bytes }, lists))
    }

    /// A text among the values.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.values.get(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A whole number among the values that is not negative.
    pub fn number(&self, key: &str) -> Option<u64> {
        match self.values.get(key)? {
            Value::Integer(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// A number among the values.
    pub fn float(&self, key: &str) -> Option<f64> {
        match self.values.get(key)? {
            Value::Float(number) => Some(*number),
            Value::Integer(number) => Some(*number as f64),
            _ => None,
        }
    }

    /// The architecture: `llama`, `qwen2`, ….
    ///
    /// # Errors
    /// The file does not say it.
    pub fn architecture(&self) -> Result<&str> {
        self.text("general.architecture").context("the file does not say its architecture (`general.architecture`)")
    }

    /// A number of the architecture: for `context_length`, the value of the key `llama.context_length`.
    pub fn of_architecture(&self, key: &str) -> Option<u64> {
        self.number(&format!("{}.{key}", self.architecture().ok()?))
    }

    /// The number of tokens in the vocabulary, by its list, its key or the table of embeddings.
    pub fn vocabulary(&self) -> Option<u64> {
        let of_list = match self.values.get("tokenizer.ggml.tokens") {
            Some(Value::List(length)) => Some(*length),
            _ => None,
        };
        let of_table = || self.tensors.iter().find(|tensor| tensor.name == "token_embd.weight")?.sizes.get(1).copied();
        of_list.or_else(|| self.of_architecture("vocab_size")).or_else(of_table)
    }

    /// Elements of all tensors, except for the `rope_` tables, which follow from other values.
    pub fn parameters(&self) -> u64 {
        let is_table = |tensor: &&TensorInfo| tensor.name.starts_with("rope_");
        self.tensors.iter().filter(|tensor| !is_table(tensor)).map(TensorInfo::elements).sum()
    }

    /// The types of its tensors, with the elements that each has, the most first.
    pub fn kinds(&self) -> Vec<(ElementKind, u64)> {
        let mut of_kind: BTreeMap<ElementKind, u64> = BTreeMap::new();
        for tensor in &self.tensors {
            *of_kind.entry(tensor.kind).or_default() += tensor.elements();
        }
        let mut kinds: Vec<_> = of_kind.into_iter().collect();
        kinds.sort_by_key(|(_, elements)| std::cmp::Reverse(*elements));
        kinds
    }

    /// The types of its tensors in words: `Q4_K 71 %, Q6_K 29 %`. Those of less than half a per cent are left out.
    pub fn kinds_in_words(&self) -> String {
        let kinds = self.kinds();
        let all: u64 = kinds.iter().map(|(_, elements)| elements).sum();
        let share = |elements: u64| 100.0 * elements as f64 / all.max(1) as f64;
        let told = kinds.iter().filter(|(_, elements)| share(*elements) >= 0.5);
        told.map(|(kind, elements)| format!("{} {:.0} %", kind.name(), share(*elements))).collect::<Vec<_>>().join(", ")
    }

    /// The scheme by which the file was quantised, as the file gives it and llama.cpp names it: `Q4_K - Medium`. A file
    /// without it has the name of the type of most of its elements.
    pub fn scheme(&self) -> &'static str {
        let said = self.number("general.file_type");
        let found = FORMS.iter().find(|(number, _)| Some(*number) == said);
        found.map(|(_, name)| *name).or_else(|| Some(self.kinds().first()?.0.name())).unwrap_or_default()
    }

    /// The dtype of its products on a CPU: i8 if a tensor is quantised, or else the type of most of its elements.
    pub fn dtype(&self) -> Dtype {
        let kinds = self.kinds();
        match kinds.first() {
            _ if kinds.iter().any(|(kind, _)| !kind.is_plain()) => Dtype::I8,
            Some((ElementKind::F16, _)) => Dtype::F16,
            Some((ElementKind::BF16, _)) => Dtype::Bf16,
            _ => Dtype::F32,
        }
    }
}

/// A file that is read from its beginning.
struct Bytes<'a> {
    file: &'a [u8],
    at: usize,
    /// The elements of the list that is read, if they are kept.
    kept: Option<Vec<Value>>,
}

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let taken = self.at.checked_add(count).and_then(|end| self.file.get(self.at..end));
        let taken = taken.with_context(|| format!("it ends within its header, after {} bytes", self.file.len()))?;
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.take(N)?.try_into()?)
    }

    fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Checks that the rest of the file has room for this many items of at least `bytes_each` bytes.
    fn check_count(&self, count: u64, bytes_each: u64, of_what: &str) -> Result<()> {
        ensure!(
            count <= (self.file.len() - self.at) as u64 / bytes_each,
            "it says that it has {count} {of_what}, for which its {} bytes have no room",
            self.file.len()
        );
        Ok(())
    }

    fn text_bytes(&mut self) -> Result<&'a [u8]> {
        let length = self.u64()?;
        self.check_count(length, 1, "bytes in a text")?;
        self.take(usize::try_from(length)?)
    }

    fn text(&mut self) -> Result<String> {
        Ok(String::from_utf8_lossy(self.text_bytes()?).into_owned())
    }

    fn value(&mut self, kind: u32, depth: usize) -> Result<Value> {
        Ok(match kind {
            0 => Value::Integer(i128::from(self.array::<1>()?[0])),
            1 => Value::Integer(i128::from(i8::from_le_bytes(self.array()?))),
            2 => Value::Integer(i128::from(u16::from_le_bytes(self.array()?))),
            3 => Value::Integer(i128::from(i16::from_le_bytes(self.array()?))),
            4 => Value::Integer(i128::from(self.u32()?)),
            5 => Value::Integer(i128::from(i32::from_le_bytes(self.array()?))),
            6 => Value::Float(f64::from(f32::from_le_bytes(self.array()?))),
            7 => Value::Bool(self.array::<1>()?[0] != 0),
            8 => Value::Text(self.text()?),
            9 => {
                ensure!(depth < DEEPEST, "lists are nested more than {DEEPEST} deep");
                let (kind, length) = (self.u32()?, self.u64()?);
                let keeps = depth == 0 && self.kept.is_some();
                ensure!(!keeps || length <= MOST_KEPT, "a list of {length} elements exceeds the limit of {MOST_KEPT}");
                match bytes_of(kind).filter(|_| !keeps) {
                    Some(each) => {
                        self.check_count(length, each, "elements in a list")?;
                        self.take(usize::try_from(length * each)?)?;
                    }
                    // A vocabulary is long; one that is not kept is only skipped.
                    None if kind == 8 && !keeps => {
                        self.check_count(length, 8, "elements in a list")?;
                        for _ in 0..length {
                            self.text_bytes()?;
                        }
                    }
                    None => {
                        let least = bytes_of(kind).unwrap_or(if kind == 8 { 8 } else { 12 });
                        self.check_count(length, least, "elements in a list")?;
                        for _ in 0..length {
                            let element = self.value(kind, depth + 1)?;
                            if let Some(kept) = self.kept.as_mut().filter(|_| keeps) {
                                kept.push(element);
                            }
                        }
                    }
                }
                Value::List(length)
            }
            10 => Value::Integer(i128::from(self.u64()?)),
            11 => Value::Integer(i128::from(i64::from_le_bytes(self.array()?))),
            12 => Value::Float(f64::from_le_bytes(self.array()?)),
            other => bail!("a value is of the unknown type {other}"),
        })
    }

    /// A tensor, whose `begin` still counts from the first byte of all data.
    fn tensor(&mut self) -> Result<TensorInfo> {
        let name = self.text()?;
        ensure!(
            (1..=LONGEST_NAME).contains(&name.len()),
            "the name of a tensor has {} bytes, and only 1 to {LONGEST_NAME} can be read",
            name.len()
        );
        let dimensions = self.u32()?;
        ensure!(
            (1..=MOST_DIMENSIONS).contains(&dimensions),
            "tensor {name:?} has {dimensions} dimensions, and only 1 to {MOST_DIMENSIONS} can be read"
        );
        let sizes = (0..dimensions).map(|_| self.u64()).collect::<Result<Vec<u64>>>()?;
        let number = self.u32()?;
        let kind =
            ElementKind::of(number).with_context(|| format!("tensor {name:?} is of the unknown type {number}"))?;
        let begin = self.u64()?;
        ensure!(sizes.iter().all(|size| *size > 0), "tensor {name:?} has a size of 0");
        let row = sizes[0];
        ensure!(
            row.is_multiple_of(kind.block()),
            "the rows of tensor {name:?} have {row} elements, which is not a multiple of {}, the block size of {}",
            kind.block(),
            kind.name()
        );
        let elements = sizes.iter().try_fold(1_u64, |product, size| product.checked_mul(*size));
        let bytes = elements.filter(|it| i64::try_from(*it).is_ok()).and_then(|elements| kind.bytes(elements));
        let bytes = bytes.with_context(|| format!("tensor {name:?} has more elements than can be counted"))?;
        Ok(TensorInfo { name, sizes, kind, begin, bytes })
    }
}

/// Bytes of a value, for types whose values all have the same length.
fn bytes_of(kind: u32) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Vec<u8> {
        [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
    }

    /// A file with one key and one tensor `[32, 2]` of a type, with this many bytes of data.
    fn file(kind: u32, data: usize) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend(3_u32.to_le_bytes());
        file.extend([1_u64.to_le_bytes(), 1_u64.to_le_bytes()].concat());
        file.extend(text("general.architecture"));
        file.extend(8_u32.to_le_bytes());
        file.extend(text("llama"));
        file.extend(text("token_embd.weight"));
        file.extend(2_u32.to_le_bytes());
        file.extend([32_u64.to_le_bytes(), 2_u64.to_le_bytes()].concat());
        file.extend(kind.to_le_bytes());
        file.extend(0_u64.to_le_bytes());
        file.resize(file.len().next_multiple_of(32) + data, 0);
        file
    }

    fn refused(file: &[u8]) -> String {
        format!("{:#}", Header::of_bytes(file, &[]).unwrap_err())
    }

    #[test]
    fn a_header_says_what_the_file_is() {
        let header = Header::of_bytes(&file(8, 68), &[]).unwrap().0;
        assert_eq!((header.architecture().unwrap(), header.parameters()), ("llama", 64));
        assert_eq!((header.vocabulary(), header.dtype()), (Some(2), Dtype::I8));
        assert_eq!((header.kinds_in_words().as_str(), header.scheme()), ("Q8_0 100 %", "Q8_0"));
        let said = BTreeMap::from([("general.file_type".to_owned(), Value::Integer(15))]);
        assert_eq!(Header { values: said, ..header }.scheme(), "Q4_K - Medium");
        assert_eq!(Header::of_bytes(&file(0, 256), &[]).unwrap().0.dtype(), Dtype::F32);
    }

    #[test]
    fn what_a_file_has_no_room_for_is_refused() {
        assert!(refused(&file(8, 67)).contains("tensor \"token_embd.weight\" ends beyond the file"));
        assert!(
            refused(&file(14, 1000))
                .contains("have 32 elements, which is not a multiple of 256, the block size of Q6_K")
        );
        assert!(refused(&file(99, 1000)).contains("unknown type 99"));
        for (place, of_what) in [(8, "tensors"), (16, "keys")] {
            let mut hostile = file(8, 68);
            hostile[place..place + 8].copy_from_slice(&(1_u64 << 60).to_le_bytes());
            assert!(refused(&hostile).contains(&format!("1152921504606846976 {of_what}")), "{}", refused(&hostile));
        }
        let mut endless = file(8, 68);
        endless[24..32].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(refused(&endless).contains("bytes in a text, for which"));
        assert_eq!(refused(b"GGML"), "it does not begin with the letters GGUF");
        assert!(refused(b"GGUF\0\0\0\x03").starts_with("its numbers are big-endian"));
    }

    #[test]
    fn every_beginning_of_a_file_and_every_changed_byte_has_an_answer() {
        let whole = file(8, 68);
        for length in 0..whole.len() {
            assert!(Header::of_bytes(&whole[..length], &[]).is_err(), "{length}");
        }
        for place in 0..whole.len() - 68 {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = whole.clone();
                changed[place] = value;
                drop(Header::of_bytes(&changed, &[]));
            }
        }
    }
}
