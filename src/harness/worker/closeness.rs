//! The tolerance: how far outputs may be from the expected ones.
//!
//! An error is accepted if it is a small fraction of what samples differ by ([`Spread`]). A larger one is accepted if
//! rounding explains it. To find out, the session computes once more with inputs that are off by one rounding error of
//! its dtype. The change of the outputs shows what rounding does in this network. An error of 0.7 of what samples
//! differ by is never accepted, unless only a few numbers have it by chance.

use anyhow::ensure;

use crate::backend::Session;
use crate::definition::{CaseFailure, Dtype};
use crate::fixture::{Allowed, Errors, HostTensor, NamedTensors, Spread, Worst, with_rounding_errors};
use crate::report::numbers::three_digits_of_any;

/// Errors up to this multiple of what rounding explains are accepted.
const TIMES_ROUNDING: f64 = 10.0;

/// What is allowed, and what is known of rounding.
#[derive(Clone, Debug)]
pub struct Closeness {
    pub allowed: Allowed,
    /// The errors that rounding explains, once they were measured.
    pub rounding: Option<Errors>,
    /// What rounding explains is measured only if an error exceeds this fraction of the spread. In f32 this is the
    /// strict limit. The errors of other dtypes usually exceed that, and a session with rounded weights takes long to
    /// load, so they have the loose limit.
    measured_from: f64,
}

impl Closeness {
    /// For a reference, which is exact. A tolerance in the model's description (`given`) replaces both limits.
    pub fn to_reference(dtype: Dtype, given: Option<f64>) -> Self {
        let (unit_roundoff, part_of_spread, without_rounding, largest) = match dtype {
            Dtype::F32 => (2.0_f64.powi(-24), 1e-4, 1e-3, f64::from(f32::MAX)),
            Dtype::F16 => (2.0_f64.powi(-11), 1e-3, 0.1, f64::from(half::f16::MAX)),
            Dtype::Bf16 => (2.0_f64.powi(-8), 1e-3, 0.3, f64::from(half::bf16::MAX)),
            // 254 steps from -127 to 127.
            Dtype::I8 => (1.0 / 254.0, 1e-3, 0.5, f64::from(f32::MAX)),
        };
        let allowed = Allowed {
            part_of_spread: given.unwrap_or(part_of_spread),
            without_rounding: given.unwrap_or(without_rounding),
            unit_roundoff,
            times_rounding: TIMES_ROUNDING,
            largest,
            may_flip: 0.0,
        };
        let measured_from = if dtype == Dtype::F32 { allowed.part_of_spread } else { allowed.without_rounding };
        Closeness { allowed, rounding: None, measured_from }
    }

    /// For another runtime, which has rounding errors, too.
    pub fn to_peer(dtype: Dtype, given: Option<f64>) -> Self {
        let mut closeness = Self::to_reference(dtype, given);
        closeness.allowed.may_flip = 0.01;
        closeness
    }

    /// For a decoder whose tokens have up to this many positions. The angles of rotary embeddings grow with the position,
    /// and so do their rounding errors, which those of the weights do not show. Runtimes compute angles in f32. A
    /// tolerance in the model's description is for short texts.
    pub fn with_positions(mut self, positions: usize) -> Self {
        let of_angles = (4.0 * positions as f64 * 2.0_f64.powi(-24)).min(1e-3);
        self.allowed.part_of_spread = self.allowed.part_of_spread.max(of_angles);
        self.measured_from = self.measured_from.max(of_angles);
        self
    }

    /// Returns true if an error is so large that it is accepted only if rounding explains it.
    pub fn needs_rounding(&self, spread: &Spread, errors: &Errors) -> bool {
        let worst = errors.worst(spread, None, Allowed { without_rounding: self.measured_from, ..self.allowed });
        worst.is_some_and(|worst| worst.of_allowed > 1.0)
    }

    /// The group whose error is the largest fraction of what is allowed. Returns `None` if nothing was compared.
    ///
    /// # Errors
    /// The error is larger than allowed; the message names the group.
    pub fn check(&self, spread: &Spread, errors: &Errors) -> anyhow::Result<Option<Worst>> {
        let Some(worst) = errors.worst(spread, self.rounding.as_ref(), self.allowed) else { return Ok(None) };
        ensure!(worst.of_allowed <= 1.0, "{}", in_words(&worst, self.allowed));
        Ok(Some(worst))
    }

    /// Measures what rounding explains: the session computes the ring's inputs with rounding errors of the dtype.
    /// Integers have no such errors: for a model with integer inputs, `rounded` loads a session whose weights have
    /// them, if that is cheap.
    ///
    /// # Errors
    /// A session cannot compute with these inputs.
    pub fn measure_rounding(
        &mut self,
        session: &mut dyn Session,
        (spread, own): (&Spread, &[NamedTensors]),
        ring: &[Vec<HostTensor>],
        rounded: impl FnOnce(f64) -> Result<Option<Box<dyn Session>>, CaseFailure>,
    ) -> Result<(), CaseFailure> {
        let mut rounding = Errors::default();
        let has_integers = ring.iter().flatten().any(HostTensor::is_integer);
        let mut rounded = if has_integers { rounded(self.allowed.unit_roundoff)? } else { None };
        let session = rounded.as_deref_mut().unwrap_or(session);
        for (binding, (inputs, own)) in ring.iter().zip(own).enumerate() {
            let inputs = with_rounding_errors(inputs, self.allowed.unit_roundoff, binding as u64);
            let binding = session.bind(&inputs)?;
            let outputs = session.outputs(binding)?;
            // Integers may change here, since this measures the rounding of the other outputs.
            let allowed = Allowed { may_flip: 1.0, ..self.allowed };
            rounding.add(spread, &outputs, own, &allowed).map_err(|why| CaseFailure::failed(format!("{why:#}")))?;
        }
        self.rounding = Some(rounding);
        Ok(())
    }
}

fn in_words(worst: &Worst, allowed: Allowed) -> String {
    let Worst { place, of_spread, of_rounding, .. } = worst;
    let times = three_digits_of_any(*of_spread);
    let differs = format!("{place} differs by {times} times as much as the outputs of different samples differ");
    match of_rounding {
        Some(times) => format!("{differs}, which is {times:.1} times what rounding explains"),
        None => format!("{differs}, and {} times is allowed", allowed.without_rounding),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::TensorData;
    use crate::statistics::uniform;

    #[test]
    fn an_error_in_f32_needs_rounding_long_before_one_in_f16() {
        let output = |sample: u64, factor: f64| {
            let mut state = sample;
            let values = (0..256).map(|_| factor * (uniform(&mut state) - 0.5)).collect();
            HostTensor { shape: vec![1, 256], data: TensorData::F64(values) }
        };
        let expected: Vec<NamedTensors> = (0..4).map(|sample| vec![("y".to_owned(), output(sample, 1.0))]).collect();
        let spread = Spread::of(&expected, 1).unwrap();
        let needs = |dtype: Dtype, part: f64| {
            let closeness = Closeness::to_reference(dtype, None);
            let mut errors = Errors::default();
            for (sample, wanted) in expected.iter().enumerate() {
                errors.add(&spread, &[output(sample as u64, 1.0 + part)], wanted, &closeness.allowed).unwrap();
            }
            closeness.needs_rounding(&spread, &errors)
        };
        assert_eq!([2e-5, 6e-4, 0.5].map(|part| needs(Dtype::F32, part)), [false, true, true]);
        assert_eq!([2e-5, 6e-4, 0.5].map(|part| needs(Dtype::F16, part)), [false, false, true]);
        let limits = |dtype: Dtype, given, positions| {
            let closeness = Closeness::to_reference(dtype, given).with_positions(positions);
            (closeness.allowed.part_of_spread, closeness.measured_from)
        };
        let of_long = 2.0_f64.powi(-11);
        assert_eq!([400, 2048, 1 << 20].map(|it| limits(Dtype::F32, None, it).0), [1e-4, of_long, 1e-3]);
        assert_eq!(limits(Dtype::F32, Some(1e-4), 2048), (of_long, of_long));
        assert_eq!(limits(Dtype::F16, None, 2048), (1e-3, 0.1));
    }
}
