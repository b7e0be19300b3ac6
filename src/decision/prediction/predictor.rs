//! Predicts cases that were not measured, with their error, or refuses with a reason.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use super::example::{Example, Lessons, Runtime, Site, Subject};
use super::fitted::{Fitted, LEAST_UNITS, LeftOut, Miss, Quantity, Rows, Widths, beyond, is_anchor};
use crate::catalogue::shell_word;
use crate::definition::{ORIGINAL, Phase};
use crate::profile::Kind;
use crate::report::numbers::plural;
use crate::run_data::Work;
use crate::statistics::median;

/// Fewer families or rows than these say nothing about models that were not seen.
const LEAST_FAMILIES: usize = 5;
const LEAST_ROWS: usize = 15;
/// The largest batch size that is considered.
const MOST_SAMPLES: usize = 1 << 20;
/// By which factor the operations and bytes of a case may be outside the measured range.
const MOST_BEYOND: f64 = 4.0;
/// Intervals for an unmeasured machine are raised to this power if no second machine shows how far such predictions are
/// off.
const WIDER: f64 = 2.0;
/// The same power for the time of a third-party network, if too few third-party networks show how far predictions are
/// off. Of 35 networks of 8 Python packages on ort, 80 % were within intervals with a power of 2.45, with equal weight
/// for each package. On held-out data (29 predictions for 13 networks of 10 other packages on ort, tract and candle),
/// 24 held with 2.4.
const WIDER_FOR_OTHERS: f64 = 2.4;

/// The operators of these kinds take the time of their bytes: one that was measured stands for the others of its kind.
const KINDS_BY_BYTES: [Kind; 5] =
    [Kind::Activation, Kind::DataMovement, Kind::Elementwise, Kind::Normalisation, Kind::Pooling];

/// Operators that do nothing in an inference.
const NOTHING: [&str; 2] = ["Dropout", "Identity"];

/// What a prediction rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema, strum::Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Basis {
    /// The case was measured: nothing is predicted.
    Measured,
    /// The same model was measured at other batch sizes.
    OtherBatches,
    /// Other models were measured here.
    OtherModels,
    /// Models were measured on other machines; of this one, only its peaks are known.
    OtherMachines,
}

/// A figure with the interval that should hold 80 % of the cases.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Estimate {
    pub value: f64,
    pub lower: f64,
    pub upper: f64,
}

impl Estimate {
    pub fn times(self, factor: f64) -> Self {
        Estimate { value: factor * self.value, lower: factor * self.lower, upper: factor * self.upper }
    }
}

/// The predicted figures of a case.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Prediction {
    pub basis: Basis,
    pub latency_ms: Estimate,
    /// From the mean latency, which is predicted from the median.
    pub throughput_ips: Estimate,
    /// The peak of the device if it has memory of its own, or else of a process of its own.
    pub memory_mb: Option<Estimate>,
    /// The median error, as a fraction, of such predictions for rows of this history that were left out; absent if the case was
    /// measured.
    pub median_error: Option<f64>,
    /// How many rows it was learned from.
    pub rows: usize,
    pub families: usize,
    /// The case whose measurement would narrow the interval most.
    pub would_help: Option<String>,
}

/// Why nothing is predicted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Refusal {
    pub reason: String,
    /// The measurement that would help most.
    pub would_help: String,
}

/// Predicts by the lessons of a history.
pub struct Predictor<'a> {
    lessons: &'a Lessons,
    /// The misses by key, which are the same for all cases with that key.
    misses: RefCell<BTreeMap<Known, Misses>>,
}

/// The key of misses; the last field is whether the case's family was measured.
type Known = (Runtime, Site, Basis, Quantity, bool);

/// The misses of rows that were left out, those of larger rows that were predicted from smaller ones, and the power
/// that makes intervals wider.
type Misses = (Vec<Miss>, Vec<Miss>, f64);

impl<'a> Predictor<'a> {
    pub fn new(lessons: &'a Lessons) -> Self {
        Predictor { lessons, misses: RefCell::default() }
    }

    /// Predicts the case on this site. Returns the measured figures if the case was measured.
    ///
    /// # Errors
    /// The case is beyond what the history has shown; the refusal names the measurement that would help most.
    pub fn predict(&self, subject: &Subject, site: &Site) -> Result<Prediction, Refusal> {
        let (all, here) = self.rows_of(&subject.runtime, site);
        let is_same = |it: &&&Example| it.subject.work.is_surely_same(&subject.work);
        if let Some(measured) = here.iter().find(is_same) {
            return Ok(of_measured(measured));
        }
        let anchors: Vec<&Example> = here.iter().copied().filter(|it| is_anchor(subject, site, it)).collect();
        let refusal = |reason: String| Refusal {
            reason,
            would_help: command(&subject.runtime, &subject.work, if anchors.is_empty() { 1 } else { 4 }),
        };
        if all.iter().all(|it| it.subject.runtime != subject.runtime) {
            return Err(refusal(format!("this history has no row of {}", runtime_text(&subject.runtime))));
        }
        let (rows, basis) = self.rows_for(subject, site, &all, !anchors.is_empty())?;
        if anchors.is_empty() {
            let of_operators = rows.all.iter().filter(|row| row.subject.is_of_operators());
            let seen: BTreeSet<&String> =
                rows.own.iter().chain(of_operators).flat_map(|row| &row.subject.operators).collect();
            let kinds: BTreeSet<Kind> = seen.iter().map(|name| Kind::of(name)).collect();
            let is_like_one = |name: &str| KINDS_BY_BYTES.contains(&Kind::of(name)) && kinds.contains(&Kind::of(name));
            let is_unseen =
                |name: &&String| !seen.contains(name) && !NOTHING.contains(&name.as_str()) && !is_like_one(name);
            let unseen: Vec<&str> = subject.operators.iter().filter(is_unseen).map(String::as_str).collect();
            if !unseen.is_empty() && !seen.is_empty() {
                let of = runtime_text(&subject.runtime);
                return Err(refusal(format!("no model with {} was measured on {of}", unseen.join(", "))));
            }
        }
        if let Some(reason) = too_far(subject, &rows.own) {
            return Err(refusal(reason));
        }
        let estimate = |quantity| self.estimate(subject, site, &rows, &anchors, basis, quantity);
        let unknown = || refusal("the history has no time for it".to_owned());
        let (latency_ms, misses) = estimate(Quantity::Time).ok_or_else(unknown)?;
        let memory_mb = estimate(Quantity::Memory).map(|(it, _)| it);
        let errors: Vec<f64> = misses.iter().map(Miss::error).collect();
        let ratios: Vec<f64> = rows.own.iter().map(|row| row.mean_to_median).collect();
        let mean_ms = latency_ms.times(median(&ratios).unwrap_or(1.0));
        // A first batch size of the model helps more than any other model; after that, only the case itself helps.
        let helpful = if anchors.is_empty() { 1 } else { subject.batch_size };
        Ok(Prediction {
            basis,
            throughput_ips: per_second(subject.batch_size, mean_ms),
            latency_ms,
            memory_mb,
            median_error: median(&errors),
            rows: rows.own.len(),
            families: families(&rows.own),
            would_help: Some(command(&subject.runtime, &subject.work, helpful)),
        })
    }

    /// The rows of the backend, device and dtype, and among them those of this phase and site.
    fn rows_of(&self, runtime: &Runtime, site: &Site) -> (Vec<&'a Example>, Vec<&'a Example>) {
        let all: Vec<&Example> =
            self.lessons.examples.iter().filter(|it| it.subject.runtime.is_like(runtime)).collect();
        let here = all.iter().copied().filter(|it| it.site == *site && it.subject.runtime == *runtime).collect();
        (all, here)
    }

    /// The rows to learn from: those of the same machine and threads if they are enough, or else those of all machines whose peaks are
    /// known.
    fn rows_for(
        &self,
        subject: &Subject,
        site: &Site,
        all: &[&'a Example],
        is_anchored: bool,
    ) -> Result<(Rows<'a>, Basis), Refusal> {
        let of_phase = |rows: &[&'a Example]| rows_of_phase(rows, subject.runtime.phase);
        let here: Vec<&Example> = all.iter().copied().filter(|it| it.site == *site).collect();
        let rows = of_phase(&here);
        if is_enough(&rows.own) {
            return Ok((rows, if is_anchored { Basis::OtherBatches } else { Basis::OtherModels }));
        }
        // The peaks are those of the CPU, and say nothing about other devices.
        let has_peaks = |site: &Site| subject.runtime.device == "cpu" && self.lessons.peaks.contains_key(site);
        let elsewhere: Vec<&Example> = all.iter().copied().filter(|it| has_peaks(&it.site)).collect();
        let elsewhere = of_phase(&elsewhere);
        if has_peaks(site) && elsewhere.own.iter().any(|it| it.site != *site) && is_enough(&elsewhere.own) {
            return Ok((elsewhere, Basis::OtherMachines));
        }
        let networks = networks(&here);
        let rows = plural(networks.len(), "row", "rows");
        let families = plural(families(&networks), "family", "families");
        let are = if networks.len() == 1 { "is" } else { "are" };
        Err(Refusal {
            reason: format!(
                "{rows} of {families} {are} measured on {} here, and at least {LEAST_ROWS} rows of {LEAST_FAMILIES} \
                 families are needed",
                runtime_text(&subject.runtime)
            ),
            would_help: format!(
                "inferbench run --suite small --backend {} --device {} --dtype {} --batch-sizes 1,4,16",
                subject.runtime.backend, subject.runtime.device, subject.runtime.dtype
            ),
        })
    }

    /// The largest batch size that fits into `megabytes`: it was measured to fit, or the upper end of its predicted
    /// interval does. `one` and `other` are the case at two batch sizes; the cost at other batch sizes is on the line
    /// through both. Returns 0 if not even one sample fits, and `None` if nothing can be said, or all fit.
    pub fn largest_batch(&self, one: &Subject, other: &Subject, site: &Site, megabytes: f64) -> Option<usize> {
        let (all, mut anchors) = self.rows_of(&one.runtime, site);
        anchors.retain(|it| it.subject.work.is_surely_same(&one.work) || is_anchor(one, site, it));
        let (rows, basis) = self.rows_for(one, site, &all, !anchors.is_empty()).ok()?;
        let step = (other.batch_size as f64) - (one.batch_size as f64);
        let at = |batch: usize| {
            let part = (batch as f64 - one.batch_size as f64) / step;
            let line = |one: u64, other: u64| (one as f64 + part * (other as f64 - one as f64)).max(0.0) as u64;
            let mut subject = Subject { batch_size: batch, ..one.clone() };
            subject.cost.flops = line(one.cost.flops, other.cost.flops);
            subject.cost.node_bytes = line(one.cost.node_bytes, other.cost.node_bytes);
            subject
        };
        let fits = |batch: usize| {
            let found = self.estimate(&at(batch), site, &rows, &anchors, basis, Quantity::Memory);
            found.map(|(memory, _)| memory.upper <= megabytes)
        };
        if step == 0.0 || fits(MOST_SAMPLES)? {
            return None;
        }
        let measured = anchors.iter().filter(|it| it.memory_mb.is_some_and(|memory| memory <= megabytes));
        let mut fitting = measured.map(|it| it.subject.batch_size).max().unwrap_or(0);
        let mut too_large = MOST_SAMPLES.max(fitting);
        while too_large - fitting > 1 {
            let middle = fitting + (too_large - fitting) / 2;
            if fits(middle)? { fitting = middle } else { too_large = middle }
        }
        Some(fitting)
    }

    /// The estimate of a quantity, and the misses of such estimates.
    fn estimate(
        &self,
        subject: &Subject,
        site: &Site,
        rows: &Rows<'_>,
        anchors: &[&Example],
        basis: Basis,
        quantity: Quantity,
    ) -> Option<(Estimate, Vec<Miss>)> {
        let peaks = &self.lessons.peaks;
        let fitted = Fitted::near(subject, &rows.all, quantity, peaks)?;
        let value = fitted.anchored(subject, site, anchors);
        let is_known = rows.all.iter().any(|row| row.subject.family == subject.family);
        let of_basis = || {
            let left_out = match basis {
                Basis::OtherBatches => LeftOut::Batch,
                // The rows of several machines show how well a machine that is left out is predicted.
                Basis::OtherMachines if is_known => LeftOut::Machine,
                Basis::OtherMachines => LeftOut::MachineAndFamily,
                Basis::OtherModels | Basis::Measured => LeftOut::Family,
            };
            let misses = |left_out: LeftOut| left_out.misses(rows, quantity, peaks);
            let (own, of_sizes) = (misses(left_out), misses(LeftOut::Sizes));
            let power = if own.is_empty() && basis == Basis::OtherMachines { WIDER } else { 1.0 };
            (if own.is_empty() { misses(LeftOut::Family) } else { own }, of_sizes, power)
        };
        let key = (subject.runtime.clone(), site.clone(), basis, quantity, is_known);
        let (mut misses, of_sizes, mut power) = self.misses.borrow_mut().entry(key).or_insert_with(of_basis).clone();
        let is_of_others = matches!(basis, Basis::OtherModels | Basis::OtherMachines);
        if is_of_others && quantity == Quantity::Time && !subject.is_packaged {
            let (of_others, wider) = for_others(misses);
            misses = of_others;
            power *= wider;
        }
        let factor = (power * Widths::of(&misses, &of_sizes)?.half(beyond(subject, &rows.own))).exp();
        Some((Estimate { value, lower: value / factor, upper: value * factor }, misses))
    }
}

/// The misses that give the width of an interval for a third-party network, and the power that makes it wider: those of
/// third-party networks alone if they are enough, or else all of these.
pub fn for_others(misses: Vec<Miss>) -> (Vec<Miss>, f64) {
    let of_others: Vec<Miss> = misses.iter().filter(|miss| !miss.is_packaged).cloned().collect();
    let families: BTreeSet<&String> = of_others.iter().map(|miss| &miss.family).collect();
    if families.len() < LEAST_UNITS { (misses, WIDER_FOR_OTHERS) } else { (of_others, 1.0) }
}

fn is_enough(rows: &[&Example]) -> bool {
    rows.len() >= LEAST_ROWS && families(rows) >= LEAST_FAMILIES
}

/// The rows for cases of a phase.
pub fn rows_of_phase<'a>(all: &[&'a Example], phase: Phase) -> Rows<'a> {
    let networks = networks(all);
    let own: Vec<&Example> = networks.iter().copied().filter(|it| it.subject.runtime.phase == phase).collect();
    Rows { own: if is_enough(&own) { own } else { networks }, all: all.to_vec() }
}

/// The rows without those of chains of single operators.
fn networks<'a>(rows: &[&'a Example]) -> Vec<&'a Example> {
    rows.iter().copied().filter(|row| !row.subject.is_of_operators()).collect()
}

impl Miss {
    /// The error of the prediction, as a fraction of the measured value.
    pub fn error(&self) -> f64 {
        ((-self.logarithm).exp() - 1.0).abs()
    }
}

fn of_measured(example: &Example) -> Prediction {
    let exactly = |value: f64| Estimate { value, lower: value, upper: value };
    Prediction {
        basis: Basis::Measured,
        latency_ms: exactly(example.ms),
        throughput_ips: per_second(example.subject.batch_size, exactly(example.ms * example.mean_to_median)),
        memory_mb: example.memory_mb.map(exactly),
        median_error: None,
        rows: 1,
        families: 1,
        would_help: None,
    }
}

fn per_second(batch_size: usize, ms: Estimate) -> Estimate {
    let rate = |ms: f64| batch_size as f64 * 1e3 / ms;
    Estimate { value: rate(ms.value), lower: rate(ms.upper), upper: rate(ms.lower) }
}

/// The reason if the case is too far outside the range of the rows.
fn too_far(subject: &Subject, rows: &[&Example]) -> Option<String> {
    let check = |what: &str, of: fn(&Subject) -> u64| {
        let own = of(subject) as f64;
        let all = || rows.iter().map(|row| of(&row.subject) as f64);
        let (least, most) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
        let is_beyond = own > MOST_BEYOND * most || own * MOST_BEYOND < least;
        is_beyond.then(|| {
            let range = format!("{:.2} to {:.2} million", least / 1e6, most / 1e6);
            format!(
                "its {:.2} million {what} are outside the measured range, {range}, by more than a factor of {MOST_BEYOND}",
                own / 1e6
            )
        })
    };
    check("operations", |it| it.cost.flops).or_else(|| check("bytes", |it| it.cost.node_bytes))
}

fn families(rows: &[&Example]) -> usize {
    rows.iter().map(|row| row.subject.family.as_str()).collect::<BTreeSet<_>>().len()
}

/// `ort on cpu in f32`.
pub fn runtime_text(runtime: &Runtime) -> String {
    let phase = if runtime.phase == Phase::Forward { String::new() } else { format!(", {}", runtime.phase) };
    format!("{} on {} in {}{phase}", runtime.backend, runtime.device, runtime.dtype)
}

/// The command that measures a model at a batch size.
pub fn command(runtime: &Runtime, work: &Work, batch_size: usize) -> String {
    let case = &work.case;
    let length = case.sequence_length.map(|length| format!(" --seq-lens {length}")).unwrap_or_default();
    let dims =
        if case.dims.0.is_empty() { String::new() } else { format!(" --dim {}", shell_word(&case.dims.to_string())) };
    let (model, backend, device, dtype) = (&case.model, &runtime.backend, &runtime.device, runtime.dtype);
    let variant = if case.variant == ORIGINAL { String::new() } else { format!(" --variant {}", case.variant) };
    format!(
        "inferbench run --model {model}{variant} --backend {backend} --device {device} --dtype {dtype} --batch-sizes {batch_size}{dims}{length}"
    )
}
