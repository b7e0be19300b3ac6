//! The integers of a quantised weight and of the bias that is added to its products, with their scales.

use anyhow::{Result, ensure};

use crate::onnx::Source;

/// A weight as symmetric i8: `round(w / scale)` with `scale = max |w| / 127` of its output channel.
///
/// This is `quantize_dynamic` of ONNX Runtime with `per_channel` and `QInt8`; the zero point is 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Quantised {
    pub source: usize,
    /// Whether channels are the rows of the source, which is seen as a matrix, and not its columns.
    pub channels_are_rows: bool,
    /// Whether the integers are written with rows and columns exchanged.
    pub is_transposed: bool,
    /// A normalisation of the product that is folded into its weights.
    pub normalisation: Option<Normalisation>,
    /// A bias in i32.
    pub bias: Option<Bias>,
}

/// `BatchNormalization`: `gamma · (x − mean) / √(variance + epsilon) + beta`, each with one number per channel, by the
/// places of their initializers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Normalisation {
    pub gamma: usize,
    pub beta: usize,
    pub mean: usize,
    pub variance: usize,
    pub epsilon: f32,
}

/// A bias as i32 with the scale of the sums that it is added to: the scale of the activation times that of the weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bias {
    /// The initializer; `None` if the bias comes from a normalisation alone.
    pub source: Option<usize>,
    pub activation_scale: f32,
}

/// A quantised weight and its bias.
#[derive(Default)]
pub(super) struct Numbers {
    pub integers: Vec<i8>,
    /// One per channel.
    pub scales: Vec<f32>,
    /// One per channel, in units of `bias_scales`.
    pub bias: Vec<i32>,
    /// One per channel, as in `quantize_static` of ONNX Runtime.
    pub bias_scales: Vec<f32>,
}

/// The largest integer of a bias: half of what i32 holds, so that there is room for the sum that it is added to.
const LARGEST_BIAS: f32 = (1 << 30) as f32;

impl Quantised {
    /// Quantises the weight and its bias.
    pub fn numbers(&self, source: &Source) -> Result<Numbers> {
        let read = |place: usize| source.floats(&source.graph.initializers[place]);
        let tensor = &source.graph.initializers[self.source];
        let name = &tensor.name;
        let rows = tensor.dims.first().map_or(1, |&rows| rows.max(1) as usize);
        let columns: usize = tensor.dims.iter().skip(1).map(|&size| size.max(0) as usize).product();
        let channels = if self.channels_are_rows { rows } else { columns };
        let channel = |place: usize| if self.channels_are_rows { place / columns } else { place % columns };

        let mut weights = read(self.source)?;
        let mut biases = match self.bias.and_then(|bias| bias.source) {
            Some(place) => read(place)?,
            None => vec![0.0; channels],
        };
        if let Some(Normalisation { gamma, beta, mean, variance, epsilon }) = self.normalisation {
            let [gamma, beta, mean, variance] = [read(gamma)?, read(beta)?, read(mean)?, read(variance)?];
            let factors: Vec<f32> =
                gamma.iter().zip(variance).map(|(gamma, variance)| gamma / (variance + epsilon).sqrt()).collect();
            weights.iter_mut().enumerate().for_each(|(place, weight)| *weight *= factors[channel(place)]);
            for (at, bias) in biases.iter_mut().enumerate() {
                *bias = (*bias - mean[at]) * factors[at] + beta[at];
            }
        }
        let is_finite = |numbers: &[f32]| numbers.iter().all(|number| number.is_finite());
        ensure!(is_finite(&weights), "initializer {name:?} has a value that is not finite: it has no i8 form");
        ensure!(
            is_finite(&biases),
            "the bias of initializer {name:?} has a value that is not finite: it has no i32 form"
        );

        let mut scales = vec![0.0_f32; channels];
        for (place, weight) in weights.iter().enumerate() {
            let scale = &mut scales[channel(place)];
            *scale = scale.max(weight.abs() / 127.0);
        }
        let activation_scale = self.bias.map_or(1.0, |bias| bias.activation_scale);
        for (scale, bias) in scales.iter_mut().zip(&biases) {
            if self.bias.is_some() {
                // Weights that are tiny in comparison with their bias get coarser steps, so that the bias fits.
                *scale = scale.max((bias.abs() / LARGEST_BIAS).max(f32::MIN_POSITIVE) / activation_scale);
            }
            // A channel of zeros, or of numbers too small for a normal scale, becomes all zeros with any scale.
            if !scale.is_normal() {
                *scale = 1.0;
            }
        }
        let mut integers = vec![0; weights.len()];
        for (place, weight) in weights.iter().enumerate() {
            let to = if self.is_transposed { place % columns * rows + place / columns } else { place };
            integers[to] = (weight / scales[channel(place)]).round_ties_even().clamp(-127.0, 127.0) as i8;
        }
        let bias_scales: Vec<f32> = scales.iter().map(|scale| scale * activation_scale).collect();
        let integer = |(bias, scale): (f32, &f32)| (f64::from(bias) / f64::from(*scale)).round_ties_even() as i32;
        let bias = biases.into_iter().zip(&bias_scales).map(integer).collect();
        Ok(Numbers { integers, scales, bias, bias_scales })
    }
}
