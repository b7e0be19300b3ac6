//! Judges a case's answers by what its model is for: boxes, embeddings, speech, text, masks, depths, rankings, signals.
//! A figure is computed from the answers alone, from the answers and their labels, or from the answers and the
//! original's.

mod boxes;
mod embeddings;
mod figure;
mod maps;
mod ranking;
mod tokens;

pub use figure::Figure;

use self::figure::ratio;
use crate::run_data::{Better, CHANGE, Evaluation, FRACTION, Judged, Scores};

/// The figures of answers. `original` are the answers of the model's original to the same samples, if there are any.
pub fn figures(own: &Evaluation, original: Option<&Evaluation>) -> Vec<Figure> {
    let mut figures = of_kind(own, original);
    for Scores { metric, unit, of_samples } in &own.scores {
        // A metric of another package replaces the built-in one of the same name.
        figures.retain(|figure| figure.name.strip_suffix(CHANGE).unwrap_or(&figure.name) != metric);
        let of_original = original.and_then(|original| original.scores.iter().find(|it| it.metric == *metric));
        figures
            .extend(of_scores((metric, unit), of_samples, of_original).into_iter().map(|figure| figure.in_unit(unit)));
    }
    figures
}

/// The mean of scores, and how much larger they are than the original's on average, over the samples of which both are
/// known. It is unknown which values are better.
fn of_scores((metric, unit): (&str, &str), own: &[Option<f64>], original: Option<&Scores>) -> Vec<Figure> {
    let figure = |scores: Vec<f64>, is_change: bool| {
        let parts: Vec<(f64, f64)> = scores.into_iter().map(|score| (score, 1.0)).collect();
        let mean = |drawn: &[u32]| ratio(&parts, drawn);
        // Only fractions have the intervals of proportions.
        let figure = match (is_change, unit == FRACTION) {
            (true, true) => Figure::resampled_change(metric, Better::Higher, parts.len(), &mean, &|_| Some(0.0)),
            (false, true) => Figure::resampled(metric, Better::Higher, parts.len(), &mean),
            (true, false) => {
                let name = format!("{metric}{CHANGE}");
                Figure::resampled_without_limit(&name, Better::Higher, parts.len(), &mean).map(Figure::compared)
            }
            (false, false) => Figure::resampled_without_limit(metric, Better::Higher, parts.len(), &mean),
        };
        figure.map(|figure| Figure { better: None, ..figure })
    };
    let change = original.filter(|original| original.of_samples.len() == own.len()).and_then(|original| {
        let pairs = own.iter().zip(&original.of_samples);
        figure(pairs.filter_map(|(own, original)| Some((*own)? - (*original)?)).collect(), true)
    });
    figure(own.iter().flatten().copied().collect(), false).into_iter().chain(change).collect()
}

/// The figures of a model's kind.
fn of_kind(own: &Evaluation, original: Option<&Evaluation>) -> Vec<Figure> {
    let Some(judged) = &own.judged else { return Vec::new() };
    let before = original.and_then(|original| original.judged.as_ref());
    match (judged, before) {
        (Judged::Boxes { found, right }, Some(Judged::Boxes { found: before, .. })) => {
            boxes::figures(found, right.as_deref(), Some(before))
        }
        (Judged::Boxes { found, right }, _) => boxes::figures(found, right.as_deref(), None),
        (Judged::Embeddings { .. }, _) => embeddings::figures(own, original),
        (Judged::Transcripts { said, right }, Some(Judged::Transcripts { said: before, .. })) => {
            tokens::of_speech(said, right.as_deref(), Some(before))
        }
        (Judged::Transcripts { said, right }, _) => tokens::of_speech(said, right.as_deref(), None),
        (Judged::Texts { read, is_recorded }, Some(Judged::Texts { read: before, .. })) => {
            tokens::of_text(read, *is_recorded, Some(before))
        }
        (Judged::Texts { read, is_recorded }, _) => tokens::of_text(read, *is_recorded, None),
        (Judged::Masks { .. }, _) => maps::of_masks(own, original),
        (Judged::Depths { .. }, _) => maps::of_depths(own, original),
        (Judged::Recommendations, _) => ranking::figures(own, original),
        (Judged::Signals { .. }, _) => maps::of_signals(own, original),
    }
}

/// Other programs computed the expected figures: `tests/data/judges.py`.
#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::run_data::{FoundBox, MaskForm, ReadText, Transcript, class_pixels, decibels, relative_error};

    fn known(judge: &str) -> Value {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/judges.json");
        let mut all: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        all[judge].take()
    }

    fn rows<T>(value: &Value, of: impl Fn(&Value) -> T) -> Vec<Vec<T>> {
        value.as_array().unwrap().iter().map(|row| row.as_array().unwrap().iter().map(&of).collect()).collect()
    }

    #[track_caller]
    fn check(figures: &[Figure], name: &str, expected: &Value) {
        let figure = figures.iter().find(|figure| figure.name == name).unwrap_or_else(|| panic!("{name}: {figures:?}"));
        let expected = expected.as_f64().unwrap();
        assert!((figure.value - expected).abs() < 1e-6, "{name} is {} instead of {expected}", figure.value);
        let (lower, upper) = figure.interval.unwrap();
        assert!(lower < expected && expected < upper && lower > expected - 0.5 * expected.abs().max(1.0), "{figure:?}");
    }

    #[test]
    fn boxes_have_the_precision_of_pycocotools() {
        let known = known("boxes");
        let found_box = |it: &Value| FoundBox {
            corners: std::array::from_fn(|side| it["corners"][side].as_f64().unwrap() as f32),
            class: it["class"].as_i64().unwrap(),
            score: it["score"].as_f64().unwrap_or(1.0) as f32,
        };
        let [found, right] = ["found", "right"].map(|key| rows(&known[key], found_box));
        let labelled = |found: &Vec<Vec<FoundBox>>| Evaluation {
            samples: found.len(),
            judged: Some(Judged::Boxes { found: found.clone(), right: Some(right.clone()) }),
            ..Evaluation::default()
        };
        let of_labels = figures(&labelled(&found), None);
        check(&of_labels, "map", &known["map"]);
        check(&of_labels, "map50", &known["map50"]);
        // With an original that finds the right boxes.
        let beside = figures(&labelled(&found), Some(&labelled(&right)));
        let change = beside.iter().find(|figure| figure.name == "map_change").unwrap();
        assert!((change.value - (of_labels[0].value - 1.0)).abs() < 1e-12 && change.is_compared, "{change:?}");
        // Without labels, the original agrees with itself.
        let seeded = Evaluation { judged: Some(Judged::Boxes { found, right: None }), ..Evaluation::default() };
        let same = figures(&seeded, Some(&seeded));
        assert_eq!(same.iter().map(|figure| (figure.value, figure.is_compared)).collect::<Vec<_>>(), [(1.0, true); 2]);
        assert_eq!(figures(&seeded, None), []);
    }

    #[test]
    fn transcripts_have_the_error_rate_of_jiwer() {
        let known = known("transcripts");
        let all = |key: &str, has_words: bool| -> Vec<Transcript> {
            let tokens = rows(&known[key], |token| token.as_i64().unwrap());
            let words = |tokens: &Vec<i64>| has_words.then(|| tokens.iter().map(ToString::to_string).collect());
            tokens.into_iter().map(|tokens| Transcript { words: words(&tokens), tokens }).collect()
        };
        let evaluation = |said: Vec<Transcript>, right| Evaluation {
            judged: Some(Judged::Transcripts { said, right }),
            ..Evaluation::default()
        };
        let heard = evaluation(all("said", true), Some(all("right", true)));
        check(&figures(&heard, None), "word_error_rate", &known["error_rate"]);
        let without_words = evaluation(all("said", false), None);
        let original = evaluation(all("right", false), None);
        let compared = figures(&without_words, Some(&original));
        check(&compared, "token_error_rate", &known["error_rate"]);
        assert!(compared.len() == 1 && compared[0].is_compared, "{compared:?}");
        let change = figures(&heard, Some(&heard));
        assert_eq!((change[1].name.as_str(), change[1].value), ("word_error_rate_change", 0.0));
    }

    #[test]
    fn embeddings_are_found_as_numpy_finds_them() {
        let known = known("embeddings");
        let evaluation = |key: &str, labels: Option<Vec<i64>>| Evaluation {
            labels,
            outputs: rows(&known[key], |value| value.as_f64().unwrap() as f32),
            judged: Some(Judged::Embeddings { first: "x".into(), others: Vec::new() }),
            ..Evaluation::default()
        };
        let labels = || Some(known["labels"].as_array().unwrap().iter().map(|it| it.as_i64().unwrap()).collect());
        let labelled = figures(&evaluation("variant", labels()), Some(&evaluation("original", labels())));
        check(&labelled, "retrieval_at_1", &known["of_group"]);
        assert!(labelled.iter().any(|figure| figure.name == "retrieval_at_1_change"), "{labelled:?}");
        let seeded = figures(&evaluation("variant", None), Some(&evaluation("original", None)));
        check(&seeded, "retrieval_at_1", &known["of_sample"]);
        check(&seeded, "cosine", &known["cosine"]);
        assert!(seeded.iter().all(|figure| figure.is_compared));
        // With several outputs the names say which.
        let mut two = evaluation("variant", None);
        let others = vec![("y".to_owned(), two.outputs.clone())];
        two.judged = Some(Judged::Embeddings { first: "x".into(), others });
        let names: Vec<String> = figures(&two, Some(&two)).into_iter().map(|figure| figure.name).collect();
        assert_eq!(names, ["retrieval_at_1_x", "cosine_x", "retrieval_at_1_y", "cosine_y"]);
    }

    #[test]
    fn scores_of_the_same_samples_are_compared_and_replace_a_metric_of_their_name() {
        let evaluation = |of_samples: [Option<f64>; 4]| Evaluation {
            samples: 4,
            judged: Some(Judged::Boxes { found: vec![Vec::new(); 4], right: None }),
            scores: vec![Scores { metric: "map".into(), unit: "points".into(), of_samples: of_samples.to_vec() }],
            ..Evaluation::default()
        };
        let own = evaluation([Some(1.0), None, Some(2.0), Some(6.0)]);
        let found = figures(&own, Some(&evaluation([Some(0.0), Some(0.0), Some(2.0), None])));
        let shown: Vec<_> = found.iter().map(|it| (it.name.as_str(), it.value, it.samples, it.unit.as_str())).collect();
        assert_eq!(shown, [("map", 3.0, 3, "points"), ("map_change", 0.5, 2, "points")]);
        assert!(found.iter().all(|figure| figure.better.is_none()));
        assert_eq!(figures(&evaluation([None; 4]), None), []);
    }

    /// Answers with these outputs.
    fn answers(outputs: &Value, judged: Judged) -> Evaluation {
        let outputs = rows(outputs, |value| value.as_f64().unwrap() as f32);
        Evaluation { samples: outputs.len(), outputs, judged: Some(judged), ..Evaluation::default() }
    }

    #[test]
    fn masks_have_the_jaccard_index_of_scikit_learn() {
        let known = known("masks");
        let form = MaskForm::Scores(known["classes"].as_u64().unwrap() as usize);
        let right = rows(&known["right"], |class| MaskForm::class_of_label(class.as_f64().unwrap()));
        assert!(
            right.iter().flatten().any(Option::is_none) && right.iter().flatten().flatten().all(|class| *class < 3)
        );
        let seeded = |outputs: &str, form| answers(&known[outputs], Judged::Masks { form, pixels: None });
        let labelled = |outputs: &str, form: MaskForm| {
            let evaluation = seeded(outputs, form);
            let beside = |(row, right): (&Vec<f32>, &Vec<_>)| class_pixels(form.classes(row), right.iter().copied());
            let pixels = Some(evaluation.outputs.iter().zip(&right).map(beside).collect());
            Evaluation { judged: Some(Judged::Masks { form, pixels }), ..evaluation }
        };
        let (own, original) = (labelled("scores", form), labelled("original", MaskForm::Class));
        let found = figures(&own, Some(&original));
        check(&found, "mean_iou", &known["mean_iou"]);
        check(&figures(&original, None), "mean_iou", &known["mean_iou_of_original"]);
        let change = known["mean_iou"].as_f64().unwrap() - known["mean_iou_of_original"].as_f64().unwrap();
        assert!((found[1].value - change).abs() < 1e-9 && found[1].name == "mean_iou_change", "{found:?}");
        // Without labels, the original's masks count as right, and the same masks are all right.
        let seeded = [seeded("scores", form), seeded("original", MaskForm::Class)];
        let beside = figures(&seeded[0], Some(&seeded[1]));
        check(&beside, "mean_iou", &known["mean_iou_beside"]);
        assert!(beside.len() == 1 && beside[0].is_compared, "{beside:?}");
        assert_eq!(figures(&seeded[0], Some(&seeded[0]))[0].value, 1.0);
        assert_eq!(figures(&seeded[0], None), []);
    }

    #[test]
    fn depths_and_signals_have_the_errors_of_scikit_learn_and_scikit_image() {
        type Measured = fn(&[f32], &[f32]) -> Option<f64>;
        type Kept = fn(Option<Vec<Option<f64>>>) -> Judged;
        let depths: (Measured, Kept) = (relative_error, |relative_errors| Judged::Depths { relative_errors });
        let signals: (Measured, Kept) = (decibels, |decibels| Judged::Signals { decibels });
        for (kind, name, (measured, judged)) in [("depths", "abs_rel", depths), ("signals", "psnr", signals)] {
            let known = known(kind);
            let (seeded, original) = (answers(&known["found"], judged(None)), answers(&known["right"], judged(None)));
            let beside = figures(&seeded, Some(&original));
            let figure = beside.iter().find(|figure| figure.name == name).unwrap();
            assert!((figure.value - known[name].as_f64().unwrap()).abs() < 1e-5 && figure.is_compared, "{figure:?}");
            assert!(beside.len() == 1 && figure.interval.is_some() && figures(&seeded, None).is_empty(), "{beside:?}");
            let rows = seeded.outputs.iter().zip(&original.outputs);
            let mut errors: Vec<_> = rows.map(|(own, right)| measured(own, right)).collect();
            // A sample of which nothing is known does not count.
            errors.push(None);
            let labelled = Evaluation { judged: Some(judged(Some(errors))), ..Evaluation::default() };
            let found = figures(&labelled, Some(&labelled));
            assert!((found[0].value - figure.value).abs() < 1e-9 && !found[0].is_compared, "{found:?}");
            assert_eq!((found[1].name.as_str(), found[1].value), (&*format!("{name}_change"), 0.0));
            assert_eq!(figure.unit, if name == "psnr" { "dB" } else { "fraction" });
        }
    }

    #[test]
    fn rankings_have_the_area_under_the_curve_of_scikit_learn() {
        let known = known("rankings");
        let numbers = |key: &str| -> Vec<f64> {
            known[key].as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
        };
        let evaluation = |key: &str, labels: Option<Vec<i64>>| Evaluation {
            outputs: numbers(key).into_iter().map(|score| vec![score as f32]).collect(),
            labels,
            judged: Some(Judged::Recommendations),
            ..Evaluation::default()
        };
        let labels = || Some(numbers("labels").into_iter().map(|label| label as i64).collect::<Vec<i64>>());
        let found = figures(&evaluation("scores", labels()), Some(&evaluation("original", labels())));
        check(&found, "auc", &known["auc"]);
        let change = known["auc"].as_f64().unwrap() - known["auc_of_original"].as_f64().unwrap();
        assert!((found[1].value - change).abs() < 1e-9 && found[1].name == "auc_change", "{found:?}");
        let beside = figures(&evaluation("scores", None), Some(&evaluation("original", None)));
        check(&beside, "concordance", &known["concordance"]);
        assert!(beside[0].is_compared && beside.len() == 1, "{beside:?}");
        assert_eq!(figures(&evaluation("scores", Some(vec![1; 60])), None), [], "all were chosen");
    }

    #[test]
    fn texts_have_the_perplexity_of_numpy() {
        let known = known("texts");
        let evaluation = |key: &str| {
            let text = |it: &Value| ReadText {
                log_probabilities: Vec::new(),
                likeliest: it["likeliest"].as_array().unwrap().iter().map(|token| token.as_i64().unwrap()).collect(),
                loss: it["loss"].as_f64().unwrap(),
            };
            let read = known[key].as_array().unwrap().iter().map(text).collect();
            Evaluation { judged: Some(Judged::Texts { read, is_recorded: false }), ..Evaluation::default() }
        };
        let found = figures(&evaluation("variant"), Some(&evaluation("original")));
        for name in ["perplexity", "perplexity_change", "token_agreement"] {
            check(&found, name, &known[name]);
        }
        // The tokens are seeded: only for the agreement is it known which values are better.
        let directed: Vec<&str> =
            found.iter().filter(|figure| figure.better.is_some()).map(|figure| figure.name.as_str()).collect();
        assert_eq!(directed, ["token_agreement"]);
    }
}
