//! Maps of pixels: how far the classes, depths and signals of an answer are those of the labels, or of the original.

use super::figure::{Figure, part, ratio};
use crate::run_data::{Better, ClassPixels, Evaluation, Judged, MaskForm, class_pixels, decibels, relative_error};

/// The mean over classes of the pixels that both masks have, divided by those that either has (intersection over union,
/// the Jaccard index). The pixels of all samples are taken together, and classes that are in either mask count. Without
/// labels, the original's masks count as right.
pub fn of_masks(own: &Evaluation, original: Option<&Evaluation>) -> Vec<Figure> {
    const NAME: &str = "mean_iou";
    let Some((form, pixels)) = masks_of(own) else { return Vec::new() };
    let original = original.and_then(|original| Some((original, masks_of(original)?)));
    if let Some(pixels) = pixels {
        let of_original = original.and_then(|(_, (_, pixels))| pixels).map(MeanIou::new);
        let means = (&MeanIou::new(pixels), of_original.as_ref());
        return Figure::with_change(NAME, Better::Higher, pixels.len(), means, MeanIou::of);
    }
    let Some((original, (of_original, _))) = original else { return Vec::new() };
    // If the numbers of outputs differ, they may be of different samples.
    if own.outputs.len() != original.outputs.len() {
        return Vec::new();
    }
    let same_pixels = |(own, original): &(&Vec<f32>, &Vec<f32>)| {
        own.len() / form.planes().max(1) == original.len() / of_original.planes().max(1)
    };
    let rows = own.outputs.iter().zip(&original.outputs).filter(same_pixels);
    let pixels: Vec<_> =
        rows.map(|(own, original)| class_pixels(form.classes(own), of_original.classes(original))).collect();
    let mean = MeanIou::new(&pixels);
    let figure = Figure::resampled(NAME, Better::Higher, pixels.len(), &|drawn| mean.of(drawn));
    figure.map(Figure::compared).into_iter().collect()
}

/// The form of masks, and the pixels beside the labels.
type Masks<'a> = (MaskForm, Option<&'a [Vec<ClassPixels>]>);

fn masks_of(evaluation: &Evaluation) -> Option<Masks<'_>> {
    if let Some(Judged::Masks { form, pixels }) = &evaluation.judged { Some((*form, pixels.as_deref())) } else { None }
}

/// The pixels of all samples, with classes numbered from 0.
struct MeanIou {
    classes: usize,
    /// For each sample: the number of each of its classes, with its shared and its united pixels.
    samples: Vec<Vec<(usize, u64, u64)>>,
}

impl MeanIou {
    fn new(pixels: &[Vec<ClassPixels>]) -> Self {
        let mut classes: Vec<i64> = pixels.iter().flatten().map(|it| it.class).collect();
        classes.sort_unstable();
        classes.dedup();
        let place = |class: i64| classes.partition_point(|&it| it < class);
        let of_sample = |sample: &Vec<ClassPixels>| {
            sample.iter().map(|it| (place(it.class), it.shared, it.united)).collect::<Vec<_>>()
        };
        MeanIou { samples: pixels.iter().map(of_sample).collect(), classes: classes.len() }
    }

    fn of(&self, drawn: &[u32]) -> Option<f64> {
        let mut sums = vec![(0, 0); self.classes];
        for (sample, &count) in self.samples.iter().zip(drawn).filter(|(_, count)| **count > 0) {
            for &(class, shared, united) in sample {
                sums[class].0 += shared * u64::from(count);
                sums[class].1 += united * u64::from(count);
            }
        }
        let present = || sums.iter().filter(|(_, united)| *united > 0);
        let sum: f64 = present().map(|&(shared, united)| shared as f64 / united as f64).sum();
        Some(present().count()).filter(|count| *count > 0).map(|count| sum / count as f64)
    }
}

/// The mean over pictures of the error of depths as a fraction of the right ones. Without labels, the original's depths
/// count as right.
pub fn of_depths(own: &Evaluation, original: Option<&Evaluation>) -> Vec<Figure> {
    const NAME: &str = "abs_rel";
    let Some(parts) = beside_labels(own) else {
        let parts = beside_original(own, original, relative_error);
        let figure = |parts: Parts| Figure::resampled(NAME, Better::Lower, parts.len(), &|drawn| ratio(&parts, drawn));
        return parts.and_then(figure).map(Figure::compared).into_iter().collect();
    };
    let before = original.and_then(beside_labels);
    Figure::with_change(NAME, Better::Lower, parts.len(), (parts.as_slice(), before.as_deref()), ratio)
}

/// The mean over samples of the ratio of signal to noise, in decibels. Without labels, the original's signals count as
/// right. The change is a fraction of the original's ratio.
pub fn of_signals(own: &Evaluation, original: Option<&Evaluation>) -> Vec<Figure> {
    const NAME: &str = "psnr";
    // A ratio of 0 or 1 is not a proportion of the samples.
    let figure = |parts: &[(f64, f64)]| {
        let mean = |drawn: &[u32]| ratio(parts, drawn);
        Some(Figure::resampled_without_limit(NAME, Better::Higher, parts.len(), &mean)?.in_unit("dB"))
    };
    let Some(parts) = beside_labels(own) else {
        let parts = beside_original(own, original, decibels);
        return parts.and_then(|parts| figure(&parts)).map(Figure::compared).into_iter().collect();
    };
    let change = original.and_then(beside_labels).and_then(|before| {
        // Noise that is stronger than the signal has a ratio below 0.
        let relative = |drawn: &[u32]| {
            let before = ratio(&before, drawn)?;
            Some((ratio(&parts, drawn)? - before) / before.abs())
        };
        Figure::resampled_change(NAME, Better::Higher, parts.len(), &relative, &|_| Some(0.0))
    });
    figure(&parts).into_iter().chain(change).collect()
}

/// Each sample's figure and how often it counts: not at all if it is unknown.
type Parts = Vec<(f64, f64)>;

fn beside_labels(evaluation: &Evaluation) -> Option<Parts> {
    let (Judged::Depths { relative_errors: figures } | Judged::Signals { decibels: figures }) =
        evaluation.judged.as_ref()?
    else {
        return None;
    };
    Some(figures.as_ref()?.iter().copied().map(part).collect())
}

/// A figure of each sample that compares its outputs with the original's.
fn beside_original(
    own: &Evaluation,
    original: Option<&Evaluation>,
    measured: fn(&[f32], &[f32]) -> Option<f64>,
) -> Option<Parts> {
    let rows = own.outputs.iter().zip(&original?.outputs);
    let same = rows.filter(|(own, original)| own.len() == original.len());
    Some(same.map(|(own, original)| part(measured(own, original))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_noise_is_a_loss_below_0_decibels_too() {
        let of = |decibels: f64| {
            let judged = Some(Judged::Signals { decibels: Some(vec![Some(decibels); 4]) });
            Evaluation { samples: 4, judged, ..Evaluation::default() }
        };
        let change = |own: f64, original: f64| {
            let figures = of_signals(&of(own), Some(&of(original)));
            figures.into_iter().find(|figure| figure.name == "psnr_change").unwrap().value
        };
        assert_eq!([change(10.0, 20.0), change(-10.0, -5.0), change(-2.5, -5.0)], [-0.5, -1.0, 0.5]);
    }

    #[test]
    fn decibels_have_no_interval_of_a_proportion() {
        let labelled = Judged::Signals { decibels: Some(vec![Some(0.0); 6]) };
        let beside_labels = Evaluation { samples: 6, judged: Some(labelled), ..Evaluation::default() };
        let of = |number| {
            let judged = Some(Judged::Signals { decibels: None });
            Evaluation { samples: 6, judged, outputs: vec![vec![number, 1.0]; 6], ..Evaluation::default() }
        };
        let beside_original = of_signals(&of(f32::NAN), Some(&of(0.0)));
        for figures in [of_signals(&beside_labels, None), beside_original] {
            assert_eq!((figures[0].value, figures[0].interval), (0.0, Some((0.0, 0.0))));
        }
    }
}
