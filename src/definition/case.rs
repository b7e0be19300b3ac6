//! A case: one combination of model, variant, phase, sizes, sequence length, backend, device, dtype and batch size, which is
//! one Criterion benchmark; its id, and the cost of one of its calls.

use std::fmt;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use strum::Display;

use super::dims::Dims;
use super::dtype::Dtype;
use super::tensor_spec::Sizes;

/// Which piece of a model's work one call does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[derive(Serialize, Deserialize, JsonSchema, Display, ValueEnum)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Phase {
    /// One forward pass over the whole model.
    #[default]
    Forward,
    /// The encoder of a generative model, which reads text, audio or an image.
    Encoder,
    /// From the inputs to the first token.
    Prefill,
    /// One more token, with the cache of all tokens before it.
    Decode,
}

/// Where the time of a call begins and ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[derive(Serialize, Deserialize, JsonSchema, Display, ValueEnum)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Boundary {
    /// Inputs are on the device, and the outputs stay there.
    #[default]
    Compute,
    /// From arrays on the host to arrays on the host.
    EndToEnd,
    /// From the bytes of an image or a text to the best classes.
    Pipeline,
}

/// What the calls that are timed have as inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[derive(Serialize, Deserialize, JsonSchema, Display, ValueEnum)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum TimedOn {
    /// Seeded values, or those of the reference, in the sizes of the case.
    #[default]
    Seeded,
    /// Samples of the model's data source, in their own lengths.
    Samples,
}

/// One case. A comparison pairs the equal cases of two runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Case {
    pub model: String,
    pub variant: String,
    pub phase: Phase,
    /// The sizes set for dimensions that the model leaves open, without the batch.
    #[serde(default)]
    pub dims: Dims,
    pub sequence_length: Option<usize>,
    pub backend: String,
    pub device: String,
    pub dtype: Dtype,
    pub batch_size: usize,
    #[serde(default)]
    pub boundary: Boundary,
    /// With samples, `sequence_length` is the largest number of tokens that a text of the case has.
    #[serde(default)]
    pub timed_on: TimedOn,
}

impl Case {
    /// The simplest case: a forward pass of the original variant, in f32 on the CPU.
    pub fn new(model: &str, backend: &str, batch_size: usize) -> Self {
        Case {
            model: model.into(),
            variant: ORIGINAL.into(),
            backend: backend.into(),
            device: "cpu".into(),
            batch_size,
            ..Case::default()
        }
    }

    /// The batch size and the sequence length, for symbolic dimensions.
    pub fn sizes(&self) -> Sizes {
        Sizes { batch: self.batch_size, sequence: self.sequence_length }
    }

    /// The triple under which Criterion stores the case.
    ///
    /// The group holds what is compared on one page (model, variant, sizes, sequence length, phase, inputs, boundary),
    /// the function is backend, device and dtype, and the value is the batch size. If the group or the function is too
    /// long, a part of its hash replaces its end.
    pub fn benchmark_id(&self) -> BenchmarkId {
        // A pipeline always takes samples.
        let says_samples = self.timed_on == TimedOn::Samples && self.boundary != Boundary::Pipeline;
        let mut group = vec![self.model.clone()];
        group.extend((self.variant != ORIGINAL).then(|| self.variant.clone()));
        group.extend(self.dims.0.iter().map(|(name, size)| format!("{}{size}", usable_name(name))));
        group.extend(self.sequence_length.map(|length| format!("seq{length}")));
        group.extend((self.phase != Phase::Forward).then(|| self.phase.to_string()));
        group.extend(says_samples.then(|| self.timed_on.to_string()));
        group.extend((self.boundary != Boundary::Compute).then(|| self.boundary.to_string()));
        let device = self.device.replace(':', ".");
        BenchmarkId {
            group: shortened(group.join("-")),
            function: shortened(format!("{}-{device}-{}", self.backend, self.dtype)),
            value: self.batch_size.to_string(),
        }
    }

    /// Checks that each component of the id survives as a file name, so that no two cases share Criterion's folder.
    pub fn check_id(&self) -> Result<()> {
        let id = self.benchmark_id();
        [&id.group, &id.function, &id.value].into_iter().try_for_each(|component| check_component(component))
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.benchmark_id().fmt(f)
    }
}

/// The variant that every packaged model has: as published, in f32.
pub const ORIGINAL: &str = "original";

/// Criterion's name of a benchmark: `group/function/value`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BenchmarkId {
    pub group: String,
    pub function: String,
    pub value: String,
}

impl fmt::Display for BenchmarkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.group, self.function, self.value)
    }
}

/// The cost of one call, for the whole batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cost {
    /// Floating-point operations of matrix products and convolutions.
    pub flops: u64,
    /// The part of `flops` in convolutions.
    pub convolution_flops: u64,
    /// Bytes of the weights, inputs and outputs, each counted once; 0 if they were not counted.
    pub bytes: u64,
    /// Nodes of the graph that compute or move something; 0 if they were not counted.
    pub nodes: u64,
    /// Bytes that these nodes read and write, as if their elements were f32.
    pub node_bytes: u64,
    /// Products of two matrices. A node that multiplies batches of matrices has one product per pair.
    pub matrix_products: u64,
}

impl Cost {
    /// The sum of both costs. Returns `None` if it is too large.
    pub fn plus(self, other: Self) -> Option<Self> {
        self.by_figure(other, u64::checked_add)
    }

    /// The cost of this many calls. Returns `None` if it is too large.
    pub fn times(self, calls: u64) -> Option<Self> {
        self.by_figure(self, |figure, _| figure.checked_mul(calls))
    }

    /// The products of two matrices. Returns `None` if they were not counted, as in manifests of older versions.
    pub fn counted_products(self) -> Option<u64> {
        (self.matrix_products > 0 || self.flops == self.convolution_flops).then_some(self.matrix_products)
    }

    fn by_figure(self, other: Self, of: impl Fn(u64, u64) -> Option<u64>) -> Option<Self> {
        Some(Cost {
            flops: of(self.flops, other.flops)?,
            convolution_flops: of(self.convolution_flops, other.convolution_flops)?,
            bytes: of(self.bytes, other.bytes)?,
            nodes: of(self.nodes, other.nodes)?,
            node_bytes: of(self.node_bytes, other.node_bytes)?,
            matrix_products: of(self.matrix_products, other.matrix_products)?,
        })
    }

    /// Operations per byte that has to be moved: the operational intensity of Williams, Waterman and Patterson,
    /// "Roofline: an insightful visual performance model for multicore architectures", CACM 52(4), 2009.
    pub fn intensity(self) -> Option<f64> {
        (self.bytes > 0).then(|| self.flops as f64 / self.bytes as f64)
    }
}

/// Bytes that Criterion keeps of a component of a name.
const LONGEST: usize = 64;
/// Hexadecimal digits of the hash that replaces the end of a longer component.
const HASH_DIGITS: usize = 8;

/// The text, if Criterion keeps all of it; otherwise its beginning and a part of its hash, so that different texts remain different.
fn shortened(text: String) -> String {
    if text.len() <= LONGEST {
        return text;
    }
    let hash: String = Sha256::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect();
    let beginning = text.floor_char_boundary(LONGEST - 1 - HASH_DIGITS);
    format!("{}-{}", &text[..beginning], &hash[..HASH_DIGITS])
}

/// Whether a component has a part of a hash in place of its end.
pub fn is_shortened(component: &str) -> bool {
    let is_hash = |end: &str| end.len() == HASH_DIGITS && end.bytes().all(|byte| byte.is_ascii_hexdigit());
    component.len() == LONGEST && component.rsplit_once('-').is_some_and(|(_, end)| is_hash(end))
}

/// Checks a component of a name that becomes a folder of Criterion's tree.
///
/// Criterion replaces some characters and cuts names at 64 bytes without a message, and keeps files of its own under some
/// names. Ids outside these rules would overwrite each other.
///
/// # Errors
/// The component has other characters, is too long, or is a name of Criterion's own.
pub fn check_component(component: &str) -> Result<()> {
    const CRITERIONS_OWN: [&str; 5] = ["report", "new", "base", "change", "profile"];
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-' | '@');
    ensure!(
        (1..=LONGEST).contains(&component.len()) && component.chars().all(allowed) && !component.starts_with('.'),
        "{component:?} is not a usable name: 1 to {LONGEST} of a-z, 0-9, '.', '_', '-' and '@', not starting with '.'"
    );
    ensure!(!CRITERIONS_OWN.contains(&component), "{component:?} is a name that Criterion keeps for its own files");
    Ok(())
}

/// Makes a usable name from a text: other characters become `-`, or are dropped at the ends. A part of the hash
/// replaces the end of a text that is too long.
pub fn usable_name(text: &str) -> String {
    let text = text.to_lowercase();
    let text = text.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let usable = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' };
    shortened(text.chars().map(usable).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case() -> Case {
        Case::new("resnet50", "ort", 8)
    }

    #[test]
    fn the_id_groups_the_cases_of_one_model() {
        assert_eq!(case().to_string(), "resnet50/ort-cpu-f32/8");
        let other =
            Case { variant: "int8-static".into(), sequence_length: Some(128), device: "cuda:1".into(), ..case() };
        assert_eq!(other.to_string(), "resnet50-int8-static-seq128/ort-cuda.1-f32/8");
        let sized = Case { dims: "Width=384,height=224".parse().unwrap(), ..case() };
        assert_eq!(sized.to_string(), "resnet50-width384-height224/ort-cpu-f32/8");
        let from_host = Case { boundary: Boundary::EndToEnd, ..case() };
        assert_eq!(from_host.to_string(), "resnet50-end-to-end/ort-cpu-f32/8");
        let on_samples = |boundary| Case { boundary, timed_on: TimedOn::Samples, ..case() }.to_string();
        assert_eq!(on_samples(Boundary::Compute), "resnet50-samples/ort-cpu-f32/8");
        assert_eq!(on_samples(Boundary::EndToEnd), "resnet50-samples-end-to-end/ort-cpu-f32/8");
        assert_eq!(on_samples(Boundary::Pipeline), "resnet50-pipeline/ort-cpu-f32/8");
    }

    #[test]
    fn long_names_are_shortened_and_remain_different() {
        let long = |end: &str| usable_name(&format!("{}{end}", "Long Name ".repeat(8)));
        assert!(long("a").starts_with("long-name-long-name-") && is_shortened(&long("a")), "{}", long("a"));
        assert_ne!(long("a"), long("b"));
        for name in [long("a"), "x".repeat(64)] {
            let case = |length| Case { model: name.clone(), sequence_length: Some(length), ..case() };
            assert!(case(128).check_id().is_ok() && is_shortened(&case(128).benchmark_id().group));
            assert_ne!(case(128).benchmark_id(), case(256).benchmark_id());
            assert!(check_component(&name).is_ok());
        }
        let settings = "torch-compile.autocast.channels-last.max-autotune-no-cudagraphs";
        let case = |dtype| Case { dtype, ..Case::new("digits", settings, 1) };
        assert!(case(Dtype::F32).check_id().is_ok());
        assert_ne!(case(Dtype::F32).benchmark_id(), case(Dtype::F16).benchmark_id());
        let longest = format!("{}-seq1", "x".repeat(59));
        assert_eq!(usable_name(&longest), longest);
        assert!(!is_shortened(&longest) && !is_shortened("deadbeef"));
    }

    #[test]
    fn names_that_criterion_would_change_are_refused() {
        assert!(case().check_id().is_ok());
        for bad in ["", "report", "A", "a b", "a/b", ".hidden", &"x".repeat(65)] {
            assert!(check_component(bad).is_err(), "{bad:?}");
        }
    }
}
