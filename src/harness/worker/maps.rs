//! Answers that are maps of pixels, scores of items or signals: finds their output, and compares it with labels.

use crate::definition::{CaseFailure, Judge};
use crate::fixture::{HostTensor, Label, Sample};
use crate::run_data::{ClassPixels, Judged, MaskForm, class_pixels, decibels, relative_error};

/// The output that a judge needs, for messages. Returns `None` for a judge of other answers.
pub fn wanted(judge: Judge) -> Option<&'static str> {
    match judge {
        Judge::Segmentation => Some("scores of classes per pixel, or a mask"),
        Judge::Depth => Some("depth per pixel"),
        Judge::Recommendation => Some("score per sample"),
        Judge::Denoising => Some("signal per sample"),
        Judge::Classes | Judge::Boxes | Judge::Embedding | Judge::Text | Judge::Speech => None,
    }
}

/// The index of the output that a judge evaluates: the first one with the right form and name, or else the first one
/// with the right form.
pub fn place(judge: Judge, names: &[String], batch_size: usize, outputs: &[HostTensor]) -> Option<usize> {
    wanted(judge)?;
    let name = |place: usize| names.get(place).map(|name| name.to_lowercase()).unwrap_or_default();
    let has_form = |&place: &usize| {
        let output = &outputs[place];
        let (is_floating, rest) = (!output.is_integer(), output.shape.get(1..).unwrap_or_default());
        output.shape.first() == Some(&batch_size)
            && match judge {
                Judge::Segmentation => mask_form(&name(place), output).is_some(),
                Judge::Depth => is_floating && size_of(output).is_some(),
                Judge::Recommendation => is_floating && matches!(rest, [] | [1 | 2]),
                _ => is_floating && rest.iter().product::<usize>() > 1,
            }
    };
    let words: &[&str] = match judge {
        Judge::Segmentation => &["logits", "prob", "mask", "segment"],
        Judge::Depth => &["depth"],
        Judge::Recommendation => &["logits", "prob", "score"],
        _ => &["noise", "denois", "sample"],
    };
    let is_called = |&place: &usize| words.iter().any(|word| name(place).contains(word));
    let places: Vec<usize> = (0..outputs.len()).filter(has_form).collect();
    places.iter().copied().find(is_called).or(places.first().copied())
}

/// Height and width of a map of one number per pixel, `[batch, height, width]` or `[batch, 1, height, width]`.
fn size_of(output: &HostTensor) -> Option<[usize; 2]> {
    match output.shape[..] {
        [_, height, width] | [_, 1, height, width] if height * width > 1 => Some([height, width]),
        _ => None,
    }
}

/// How an output gives the classes of pixels. One floating-point number per pixel is a logit of class 1, or its
/// probability if the output's name says so.
fn mask_form(name: &str, output: &HostTensor) -> Option<MaskForm> {
    match output.shape[..] {
        // The classes or the masks of queries, as of Mask2Former: neither alone gives the class of a pixel.
        _ if name.contains("quer") => None,
        [_, classes, height, width] if classes > 1 && !output.is_integer() && height * width > 1 => {
            Some(MaskForm::Scores(classes))
        }
        _ if size_of(output).is_none() => None,
        _ if output.is_integer() => Some(MaskForm::Class),
        _ => Some(MaskForm::Above(if ["prob", "sigmoid"].iter().any(|word| name.contains(word)) { 0.5 } else { 0.0 })),
    }
}

/// Adds the answers of a batch, which may have fewer samples than the output has rows, to what is judged.
///
/// # Errors
/// A label has another size, or a class that the output does not have.
pub fn add(
    judged: &mut Option<Judged>,
    judge: Judge,
    name: &str,
    output: &HostTensor,
    batch: &[Sample],
) -> Result<(), CaseFailure> {
    let maps: Vec<&HostTensor> = batch.iter().filter_map(map_of).collect();
    let has_labels = !maps.is_empty();
    let new = match (judge, mask_form(&name.to_lowercase(), output)) {
        (Judge::Segmentation, Some(form)) => Judged::Masks { form, pixels: has_labels.then(Vec::new) },
        (Judge::Depth, _) => Judged::Depths { relative_errors: has_labels.then(Vec::new) },
        (Judge::Denoising, _) => Judged::Signals { decibels: has_labels.then(Vec::new) },
        _ => Judged::Recommendations,
    };
    let judged = judged.get_or_insert(new);
    if !has_labels {
        return Ok(());
    }
    let values: Vec<f32> = output.to_f64().into_iter().map(|value| value as f32).collect();
    let rows = values.chunks_exact((values.len() / output.shape[0]).max(1));
    for (row, map) in rows.zip(maps) {
        let label = map.to_f64();
        let narrow = || label.iter().map(|&number| number as f32).collect::<Vec<f32>>();
        match judged {
            Judged::Masks { form, pixels: Some(pixels) } => pixels.push(beside_mask(*form, row, output, &label, map)?),
            Judged::Depths { relative_errors: Some(errors) } => {
                let (from, to) = (size(output), size(map));
                errors.push(relative_error(&resized(row, from, to).collect::<Vec<_>>(), &narrow()));
            }
            Judged::Signals { decibels: Some(all) } => {
                if label.len() != row.len() {
                    let (label, output) = (&map.shape[1..], &output.shape[1..]);
                    let message = format!("the label of a sample has shape {label:?}, and the output has {output:?}");
                    return Err(CaseFailure::unsupported(message));
                }
                all.push(decibels(row, &narrow()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Which numbers the masks of all samples have.
#[derive(Default)]
pub struct MaskLabels {
    has_one: bool,
    has_class: bool,
    has_ignored: bool,
}

impl MaskLabels {
    pub fn add(&mut self, batch: &[Sample]) {
        for label in batch.iter().filter_map(map_of).map(HostTensor::to_f64) {
            self.has_one |= label.contains(&1.0);
            self.has_class |= label.iter().any(|&class| class > 0.0 && class != 255.0);
            self.has_ignored |= label.contains(&255.0);
        }
    }

    /// # Errors
    /// The masks have 255 and no class above 0. In many such files 255 means the class, but pixels of 255 are not
    /// counted. If there is only one class, grey pixels at edges do not count as a class.
    pub fn check(&self, judged: Option<&Judged>) -> Result<(), CaseFailure> {
        let is_known = match judged {
            Some(Judged::Masks { form: MaskForm::Above(_), pixels: Some(_) }) => self.has_one,
            Some(Judged::Masks { pixels: Some(_), .. }) => self.has_class,
            _ => return Ok(()),
        };
        if self.has_ignored && !is_known {
            let why = "the masks have 255 and no class above 0: pixels of 255 do not count, so write 1 for the pixels of the class";
            return Err(CaseFailure::unsupported(why));
        }
        Ok(())
    }
}

fn map_of(sample: &Sample) -> Option<&HostTensor> {
    match &sample.label {
        Some(Label::Map(map)) => Some(map),
        _ => None,
    }
}

/// Height and width, the last two dimensions.
fn size(map: &HostTensor) -> [usize; 2] {
    let last = |back: usize| map.shape.iter().nth_back(back).copied().unwrap_or(1);
    [last(1), last(0)]
}

/// Compares the pixels of a sample's mask, in the label's size, with the label.
fn beside_mask(
    form: MaskForm,
    row: &[f32],
    output: &HostTensor,
    label: &[f64],
    map: &HostTensor,
) -> Result<Vec<ClassPixels>, CaseFailure> {
    if let (MaskForm::Scores(_), &[_, height, width, _]) = (form, output.shape.as_slice())
        && size(map) == [height, width]
        && size(output) != size(map)
    {
        let shape = &output.shape;
        let why = format!("the scores {shape:?} have their classes last, and are read as [n, classes, height, width]");
        return Err(CaseFailure::unsupported(why));
    }
    let right = || label.iter().map(|&number| MaskForm::class_of_label(number));
    let most = right().flatten().max();
    if let (Some(most), MaskForm::Scores(classes)) = (most, form)
        && usize::try_from(most).is_ok_and(|most| most >= classes)
    {
        return Err(CaseFailure::unsupported(format!(
            "the mask of a sample has the class {most}, and the model has {classes}: classes are indices of outputs, \
             from 0 to {}, and pixels of 255 do not count",
            classes - 1
        )));
    }
    let (from, to) = (size(output), size(map));
    let pixels = from[0] * from[1];
    if form == MaskForm::Class {
        let nearest = (0..to[0] * to[1]).map(|place| {
            let [y, x] = [place / to[1] * from[0] / to[0], place % to[1] * from[1] / to[1]];
            form.class_of(std::iter::once(row[y * from[1] + x]))
        });
        return Ok(class_pixels(nearest, right()));
    }
    let [rows, columns] = [0, 1].map(|side| neighbours(from[side], to[side]));
    let found = rows.iter().flat_map(|&y| columns.iter().map(move |&x| (y, x))).map(|(y, x)| {
        let plane = |plane: usize| between(&row[plane * pixels..][..pixels], from[1], y, x);
        form.class_of((0..form.planes()).map(plane))
    });
    Ok(class_pixels(found, right()))
}

/// A map in another size, by linear interpolation between the centres of pixels, as in PyTorch's `interpolate` without
/// `align_corners`.
fn resized(row: &[f32], from: [usize; 2], to: [usize; 2]) -> impl Iterator<Item = f32> {
    let [rows, columns] = [0, 1].map(|side| neighbours(from[side], to[side]));
    rows.into_iter().flat_map(move |y| columns.clone().into_iter().map(move |x| between(row, from[1], y, x)))
}

/// The two pixels between which a pixel of the other size lies, and the weight of the second one.
type Neighbours = (usize, usize, f32);

fn neighbours(from: usize, to: usize) -> Vec<Neighbours> {
    let of = |place: usize| {
        let centre = ((place as f32 + 0.5) * (from as f32 / to as f32) - 0.5).max(0.0);
        let first = (centre as usize).min(from - 1);
        (first, (first + 1).min(from - 1), centre - first as f32)
    };
    (0..to).map(of).collect()
}

fn between(plane: &[f32], width: usize, (top, bottom, down): Neighbours, (left, right, along): Neighbours) -> f32 {
    // A neighbour of weight 0 is left out, because it may not be finite.
    let mixed = |one: f32, other: f32, weight: f32| if weight == 0.0 { one } else { one + (other - one) * weight };
    let of_row = |row: usize| mixed(plane[row * width + left], plane[row * width + right], along);
    mixed(of_row(top), of_row(bottom), down)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::TensorData;

    fn output(shape: &[usize], numbers: &[f32]) -> HostTensor {
        HostTensor { shape: shape.to_vec(), data: TensorData::F32(numbers.to_vec()) }
    }

    fn labelled(shape: &[usize], numbers: &[f32]) -> Sample {
        Sample { inputs: Vec::new(), label: Some(Label::Map(output(shape, numbers))) }
    }

    #[test]
    fn a_map_is_resized_as_pytorch_does_it() {
        // `torch.nn.functional.interpolate(torch.tensor([[[[1., 2.], [3., 4.]]]]), scale_factor=2, mode="bilinear")`
        let larger: Vec<f32> = resized(&[1.0, 2.0, 3.0, 4.0], [2, 2], [4, 4]).collect();
        let rows = [[1.0, 1.25, 1.75, 2.0], [1.5, 1.75, 2.25, 2.5], [2.5, 2.75, 3.25, 3.5], [3.0, 3.25, 3.75, 4.0]];
        assert_eq!(larger, rows.concat());
        assert_eq!(resized(&[1.0, f32::NAN], [1, 2], [1, 2]).next(), Some(1.0));
        assert_eq!(resized(&[1.0, 2.0, 3.0, 4.0], [2, 2], [1, 1]).collect::<Vec<_>>(), [2.5]);
    }

    #[test]
    fn the_output_of_a_judge_has_its_form_and_its_name() {
        let names = ["hidden", "logits", "depth"].map(str::to_owned);
        let zeros = |shape: &[usize]| output(shape, &vec![0.0; shape.iter().product()]);
        let outputs = [zeros(&[2, 4, 4]), zeros(&[2, 3, 4, 4]), zeros(&[2, 1, 4, 4])];
        let place = |judge| place(judge, &names, 2, &outputs);
        assert_eq!((place(Judge::Segmentation), place(Judge::Depth)), (Some(1), Some(2)));
        assert_eq!((place(Judge::Denoising), place(Judge::Recommendation)), (Some(0), None));
        assert_eq!(place(Judge::Classes), None);
        let form = |name: &str, output: &HostTensor| mask_form(name, output);
        assert_eq!(form("logits", &outputs[1]), Some(MaskForm::Scores(3)));
        assert_eq!(form("probability", &outputs[0]), Some(MaskForm::Above(0.5)));
        assert_eq!(form("logits", &outputs[0]), Some(MaskForm::Above(0.0)));
        let mask = HostTensor { shape: vec![1, 2, 2], data: TensorData::I64(vec![0; 4]) };
        assert_eq!(form("mask", &mask), Some(MaskForm::Class));
        assert_eq!(form("pooled", &zeros(&[2, 5, 1, 1])), None);
        let names = ["class_queries_logits", "masks_queries_logits"].map(str::to_owned);
        let of_queries = [zeros(&[2, 5, 3]), zeros(&[2, 5, 4, 4])];
        assert_eq!(super::place(Judge::Segmentation, &names, 2, &of_queries), None);
    }

    #[test]
    fn masks_with_255_and_no_class_are_refused() {
        let is_refused = |numbers: &[f32]| {
            let mut labels = MaskLabels::default();
            labels.add(&[labelled(&[1, 1, 3], numbers)]);
            let judged = |form| Judged::Masks { form, pixels: Some(Vec::new()) };
            [MaskForm::Above(0.5), MaskForm::Scores(2)].map(|form| labels.check(Some(&judged(form))).is_err())
        };
        assert_eq!(is_refused(&[0.0, 255.0, 255.0]), [true; 2]);
        // Grey pixels at the edge of the one class, or the seventh class of several.
        assert_eq!(is_refused(&[0.0, 255.0, 7.0]), [true, false]);
        assert_eq!([is_refused(&[0.0, 255.0, 1.0]), is_refused(&[0.0; 3])], [[false; 2]; 2]);
    }

    #[test]
    fn answers_are_counted_beside_labels_of_their_own_size() {
        let mut masks = None;
        // Two classes and two pixels, in a mask of twice the size.
        let scores = output(&[1, 2, 1, 2], &[1.0, 0.0, 0.0, 2.0]);
        let sample = labelled(&[1, 2, 4], &[0.0, 0.0, 1.0, 255.0, 0.0, 1.0, 1.0, 1.0]);
        add(&mut masks, Judge::Segmentation, "logits", &scores, std::slice::from_ref(&sample)).unwrap();
        let Some(Judged::Masks { pixels: Some(pixels), .. }) = &masks else { panic!("{masks:?}") };
        let of = |class, shared, united| ClassPixels { class, shared, united };
        assert_eq!(pixels[0], [of(0, 3, 4), of(1, 3, 4)]);
        let other = labelled(&[1, 1, 2], &[0.0, 2.0]);
        let refused = add(&mut masks, Judge::Segmentation, "logits", &scores, &[other]).unwrap_err();
        assert!(refused.message.contains("has the class 2, and the model has 2"), "{}", refused.message);
        let last = output(&[1, 2, 3, 4], &[0.0; 24]);
        let mask = labelled(&[1, 2, 3], &[0.0; 6]);
        let refused = add(&mut None, Judge::Segmentation, "logits", &last, &[mask]).unwrap_err();
        assert!(refused.message.contains("have their classes last"), "{}", refused.message);

        let mut depths = None;
        let sample = labelled(&[1, 1, 4], &[2.0, 2.0, 0.0, 4.0]);
        add(&mut depths, Judge::Depth, "depth", &output(&[1, 1, 2], &[2.0, 4.0]), &[sample]).unwrap();
        // 2, 2.5, 3.5 and 4.
        assert_eq!(depths, Some(Judged::Depths { relative_errors: Some(vec![Some(0.25 / 3.0)]) }));

        let mut signals = None;
        let sample = labelled(&[1, 3], &[0.0, 1.0, 2.0]);
        let short = add(&mut signals, Judge::Denoising, "noise", &output(&[1, 2], &[0.0; 2]), &[sample]).unwrap_err();
        assert!(short.message.contains("has shape [3], and the output has [2]"), "{}", short.message);
    }
}
