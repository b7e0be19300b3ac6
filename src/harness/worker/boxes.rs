//! Reads boxes with a class and a score each out of a detector's outputs.

use crate::definition::{Model, Phase};
use crate::fixture::HostTensor;
use crate::run_data::FoundBox;

/// The most boxes that are kept per picture.
const MOST_BOXES: usize = 100;
/// Parts of the names of families whose classes have a score each and no class for "no object": RT-DETR and its relatives.
const INDEPENDENT_SCORES: [&str; 10] =
    ["rt-detr", "rt_detr", "rtdetr", "deformable", "conditional", "d-fine", "d_fine", "dfine", "dab-detr", "dab_detr"];

/// The boxes of each sample. Returns `None` if the outputs are of another kind.
///
/// There are two forms: boxes `[batch, n, 4]` of centre, width and height with logits `[batch, n, classes]`, as DETR
/// gives them, where the last class is "no object"; and boxes of left, top, right and bottom with scores and classes,
/// both `[batch, n]`.
pub fn boxes(model: &Model, outputs: &[HostTensor]) -> Option<Vec<Vec<FoundBox>>> {
    let (boxes_place, form) = form_of_boxes(&model.output_names(Phase::Forward), outputs)?;
    let boxes = outputs[boxes_place].to_f64();
    let [batch, count, _] = outputs[boxes_place].shape[..] else { return None };
    // The scores and classes of each box.
    let answers: Vec<Vec<(f64, i64)>> = match form {
        Form::Listed { scores, classes } => {
            let classes = outputs[classes].to_f64().into_iter().map(|class| class as i64);
            outputs[scores].to_f64().into_iter().zip(classes).map(|answer| vec![answer]).collect()
        }
        Form::Centred { logits } => {
            let is_independent = INDEPENDENT_SCORES.iter().any(|name| model.family.to_lowercase().contains(name));
            let width = outputs[logits].shape[2];
            let of_box = |row: &[f64]| if is_independent { independent(row) } else { vec![best_of_softmax(row)] };
            outputs[logits].to_f64().chunks_exact(width).map(of_box).collect()
        }
    };
    let corners = |place: usize| {
        let sides: [f64; 4] = std::array::from_fn(|side| boxes[4 * place + side]);
        let is_centred = matches!(form, Form::Centred { .. });
        (if is_centred { corners_of_centred(sides) } else { sides }).map(|side| side as f32)
    };
    let of_sample = |sample: usize| {
        let found = (sample * count..(sample + 1) * count).flat_map(|place| {
            let corners = corners(place);
            answers[place].iter().map(move |&(score, class)| FoundBox { corners, class, score: score as f32 })
        });
        let is_finite = |it: &FoundBox| it.score.is_finite() && it.corners.iter().all(|side| side.is_finite());
        let mut found: Vec<FoundBox> = found.filter(is_finite).collect();
        found.sort_by(|one, other| other.score.total_cmp(&one.score));
        found.truncate(MOST_BOXES);
        found
    };
    Some((0..batch).map(of_sample).collect())
}

/// The indices of the outputs that belong to the boxes, by the form of the boxes.
enum Form {
    Centred { logits: usize },
    Listed { scores: usize, classes: usize },
}

fn form_of_boxes(names: &[String], outputs: &[HostTensor]) -> Option<(usize, Form)> {
    let name = |place: usize| names.get(place).map(|name| name.to_lowercase()).unwrap_or_default();
    let is_boxes = |&place: &usize| {
        let output = &outputs[place];
        let is_four = output.shape.len() == 3 && output.shape[2] == 4 && !output.is_integer();
        is_four && (names.is_empty() || name(place).contains("box"))
    };
    let boxes = (0..outputs.len()).find(is_boxes)?;
    let of_boxes = |place: usize| place != boxes && outputs[place].shape.starts_with(&outputs[boxes].shape[..2]);
    let find = |dimensions: usize, is_integer: Option<bool>, word: &str| {
        let fits = |&place: &usize| {
            let output = &outputs[place];
            let is_kind = is_integer.is_none_or(|wanted| output.is_integer() == wanted);
            of_boxes(place) && output.shape.len() == dimensions && is_kind
        };
        let all: Vec<usize> = (0..outputs.len()).filter(fits).collect();
        all.iter().copied().find(|&place| name(place).contains(word)).or(all.first().copied())
    };
    // Scores per class that are not logits come with corners, and in several orders of classes. They are not read.
    let is_called = |place: usize| names.is_empty() || name(place).contains("logit");
    let logits = find(3, Some(false), "logit").filter(|&place| is_called(place) && outputs[place].shape[2] > 1);
    if let Some(logits) = logits {
        return Some((boxes, Form::Centred { logits }));
    }
    let (scores, classes) = (find(2, Some(false), "score")?, find(2, None, "label")?);
    (scores != classes).then_some((boxes, Form::Listed { scores, classes }))
}

/// The likeliest class except the last, which is "no object", and its probability.
fn best_of_softmax(row: &[f64]) -> (f64, i64) {
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = row.iter().map(|logit| (logit - largest).exp()).sum();
    let (logit, class) = best(&row[..row.len() - 1]);
    ((logit - largest).exp() / sum, class)
}

/// The probability of each class. A box may have several classes.
fn independent(row: &[f64]) -> Vec<(f64, i64)> {
    row.iter().zip(0..).map(|(logit, class)| (1.0 / (1.0 + (-logit).exp()), class)).collect()
}

/// The largest number, and its index.
pub fn best(row: &[f64]) -> (f64, i64) {
    let places = row.iter().enumerate();
    let (class, logit) =
        places.fold((0, f64::NEG_INFINITY), |best, (place, &logit)| if logit > best.1 { (place, logit) } else { best });
    (logit, class as i64)
}

fn corners_of_centred([x, y, width, height]: [f64; 4]) -> [f64; 4] {
    [x - width / 2.0, y - height / 2.0, x + width / 2.0, y + height / 2.0]
}

/// The boxes of a label, which have the same form as the model's boxes.
pub fn labelled_boxes(label: &[([f32; 4], i64)], model: &Model, outputs: &[HostTensor]) -> Vec<FoundBox> {
    let form = form_of_boxes(&model.output_names(Phase::Forward), outputs);
    let is_centred = matches!(form, Some((_, Form::Centred { .. })));
    let of_label = |&(sides, class): &([f32; 4], i64)| {
        let corners = if is_centred { corners_of_centred(sides.map(f64::from)).map(|side| side as f32) } else { sides };
        FoundBox { corners, class, score: 1.0 }
    };
    label.iter().map(of_label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::TensorData;

    fn floats(shape: &[usize], values: &[f32]) -> HostTensor {
        HostTensor { shape: shape.to_vec(), data: TensorData::F32(values.to_vec()) }
    }

    #[test]
    fn boxes_of_both_forms_have_corners_and_the_best_class() {
        let names = ["logits", "pred_boxes"].map(str::to_owned);
        let logits = floats(&[1, 2, 3], &[0.0, 2.0, 1.0, 3.0, 0.0, 9.0]);
        let centred = floats(&[1, 2, 4], &[0.5, 0.5, 0.2, 0.4, 0.25, 0.25, 0.5, 0.5]);
        let Some((1, Form::Centred { logits: 0 })) = form_of_boxes(&names, &[logits.clone(), centred.clone()]) else {
            panic!()
        };
        let (score, class) = best_of_softmax(&[0.0, 2.0, 1.0]);
        let all = 1.0 + 2.0_f64.exp() + 1.0_f64.exp();
        assert!((score - 2.0_f64.exp() / all).abs() < 1e-12 && class == 1);
        // "No object" is likelier than every class.
        assert!(best_of_softmax(&[3.0, 0.0, 9.0]).0 < 0.01);
        let corners = corners_of_centred([0.5, 0.5, 0.2, 0.4]);
        assert!(corners.iter().zip([0.4, 0.3, 0.6, 0.7]).all(|(one, other)| (one - other).abs() < 1e-12));
        let names = ["boxes", "labels", "scores"].map(str::to_owned);
        let classes = HostTensor { shape: vec![1, 2], data: TensorData::I64(vec![5, 6]) };
        let listed = [centred, classes, floats(&[1, 2], &[0.5, 0.25])];
        let Some((0, Form::Listed { scores: 2, classes: 1 })) = form_of_boxes(&names, &listed) else { panic!() };
        assert_eq!(independent(&[0.0, f64::INFINITY]), [(0.5, 0), (1.0, 1)]);
        let names = ["boxes", "scores"].map(str::to_owned);
        let of_classes = floats(&[1, 2, 3], &[0.1; 6]);
        assert!(form_of_boxes(&names, &[listed[0].clone(), of_classes]).is_none());
    }
}
