//! The figures of a prediction: what it is fitted to, how wide its intervals are, how they are shown.

use super::{asked, networks, of, prefill, row, site};
use crate::decision::prediction::example::{Example, Lessons, Site, Subject};
use crate::decision::prediction::fitted::{Fitted, LeftOut, Quantity, Rows};
use crate::decision::prediction::predictor::{Basis, Predictor, rows_of_phase};
use crate::decision::prediction::{
    Asked, Estimate, Evaluation, Prediction, evaluate, evaluation_text, predictions_text,
};
use crate::definition::{Boundary, Cost, Dtype, Phase, Status, TimedOn};
use crate::report::Format;
use crate::run_data::Record;

#[test]
fn only_plain_rows_of_the_newest_library_are_learned_from() {
    let with = |library: &str, day, ms| Record { library_version: Some(library.into()), ..row("net", 32, day, ms) };
    let others = [
        Record { boundary: Boundary::EndToEnd, ..row("net", 32, 3, 1.0) },
        Record { timed_on: TimedOn::Samples, ..row("net", 32, 3, 1.0) },
        Record { verified: Some(false), ..row("net", 32, 3, 1.0) },
        Record { status: Status::Suspicious, ..row("net", 32, 3, 1.0) },
    ];
    let lessons = of(&[&[with("1", 1, 0.08), with("2", 2, 0.05)][..], &others].concat());
    assert_eq!((lessons.examples.len(), lessons.uncounted), (1, 0));
    assert!((lessons.examples[0].ms - 0.05).abs() < 1e-9, "{lessons:?}");
    let disturbed = Record { disturbed_share: Some(0.4), ..row("net", 32, 1, 0.05) };
    assert!((of(&[disturbed]).examples[0].weight - 0.6).abs() < 1e-9);
    let of_integers = |model: &str, ms| Record { dtype: Dtype::I8, ..row(model, 256, 1, ms) };
    assert!(of(&[of_integers("a", 0.5), of_integers("b", 0.4)]).raised.is_empty());
}

#[test]
fn a_smaller_case_is_predicted_and_one_far_off_is_refused_with_its_numbers() {
    let lessons = of(&networks(4));
    let predict = |flops: u64, node_bytes: u64| {
        let mut it = asked("Conv Relu");
        (it.cost.flops, it.cost.convolution_flops, it.cost.node_bytes) = (flops, flops, node_bytes);
        Predictor::new(&lessons).predict(&it, &site()).map_err(|refusal| refusal.reason)
    };
    assert!(predict(5_000_000, 10_000_000).is_ok());
    let (beyond, by) = ("are outside the measured range,", "by more than a factor of 4");
    let few = format!("its 2.00 million operations {beyond} 10.00 to 193.60 million, {by}");
    assert_eq!(predict(2_000_000, 10_000_000).unwrap_err(), few);
    let bytes = format!("its 4.00 million bytes {beyond} 20.00 to 387.20 million, {by}");
    assert_eq!(predict(10_000_000, 4_000_000).unwrap_err(), bytes);
}

#[test]
fn another_machine_needs_peaks_and_has_an_interval_that_is_wider() {
    let mut lessons = of(&networks(4));
    let elsewhere = Site { host_id: "other".into(), threads: Some(1) };
    let refused = Predictor::new(&lessons).predict(&asked("Conv Relu"), &elsewhere).unwrap_err();
    assert!(refused.reason.starts_with("0 rows of 0 families are measured"), "{refused:?}");
    let peaks = lessons.peaks[&site()].clone();
    lessons.peaks.insert(elsewhere.clone(), peaks);
    let half = |site: &Site| {
        let found = Predictor::new(&lessons).predict(&asked("Conv Relu"), site).unwrap().latency_ms;
        (found.upper / found.value).ln()
    };
    assert!((half(&elsewhere) / half(&site()) - 2.0).abs() < 1e-9);
}

#[test]
fn rates_come_from_means_and_times_from_medians() {
    let with_mean = |it: Record| Record { latency_mean_ms: it.latency_p50_ms.map(|ms| 1.5 * ms), ..it };
    let of_four = Record { batch_size: 4, input_shape: Some("4x3x32x32".into()), ..row("net", 32, 1, 2.0) };
    let rows: Vec<Record> = networks(4).into_iter().chain([of_four]).map(with_mean).collect();
    let lessons = of(&rows);
    let predictor = Predictor::new(&lessons);
    let measured = lessons.examples.iter().find(|it| it.subject.batch_size == 4).unwrap();
    let found = predictor.predict(&measured.subject, &site()).unwrap();
    assert!((found.throughput_ips.value - 4e3 / 3.0).abs() < 1e-6, "{found:?}");
    let found = predictor.predict(&asked("Conv Relu"), &site()).unwrap();
    assert!((found.throughput_ips.value * 1.5 * found.latency_ms.value - 1e3).abs() < 1e-6, "{found:?}");
}

#[test]
fn factors_of_measured_batches_are_interpolated_and_most_of_the_last_is_kept() {
    let lessons = of(&networks(4));
    let rows: Vec<&Example> = lessons.examples.iter().collect();
    let at = |batch_size: usize| Subject { batch_size, ..asked("Conv Relu") };
    let fitted = Fitted::near(&at(1), &rows, Quantity::Time, &lessons.peaks).unwrap();
    let anchor = |batch: usize, factor: f64| {
        let ms = factor * fitted.plain(&at(batch), &site());
        Example { subject: at(batch), ms, ..lessons.examples[0].clone() }
    };
    let [two, eight] = [anchor(2, 2.0), anchor(8, 8.0)];
    for (batch, expected) in [(4, 4.0), (2, 2.0), (1, 2.0_f64.powf(0.8)), (16, 8.0_f64.powf(0.8))] {
        let found = fitted.anchored(&at(batch), &site(), &[&two, &eight]) / fitted.plain(&at(batch), &site());
        assert!((found / expected - 1.0).abs() < 1e-9, "{batch}: {found} is not {expected}");
    }
}

#[test]
fn half_of_the_rows_recommend_the_faster_backend() {
    let of_tch = |it: Record| {
        let record = Record { backend: "tch".into(), latency_p50_ms: it.latency_p50_ms.map(|ms| ms / 2.0), ..it };
        Record { case_id: record.case().to_string(), ..record }
    };
    let records: Vec<Record> = networks(8).into_iter().chain(networks(8).into_iter().map(of_tch)).collect();
    let loss = evaluate(&of(&records)).recommendations.unwrap();
    assert!(loss.decisions > 50 && loss.refused < loss.decisions && loss.contradictions == 0, "{loss:?}");
    assert!(loss.right > 0.9 && loss.mean_loss < 0.1 && loss.largest_loss < 1.2, "{loss:?}");
}

#[test]
fn machines_are_left_out_once_for_each_runtime() {
    let on = |host: &str| networks(4).into_iter().map(|it| Record { host_id: host.into(), ..it }).collect::<Vec<_>>();
    let mut lessons = of(&["h", "i", "j"].map(on).concat());
    let peaks = lessons.peaks[&site()].clone();
    for host in ["i", "j"] {
        lessons.peaks.insert(Site { host_id: host.into(), ..site() }, peaks.clone());
    }
    let found = evaluate(&lessons).errors;
    assert_eq!(found.iter().map(|it| it.left_out).collect::<Vec<_>>(), ["family", "family", "family", "machine"]);
    assert_eq!((found[3].rows, found[3].families, &found[3].host_id), (60, 5, &None));
}

#[test]
fn what_is_left_out_tells_nothing_of_its_speed_or_size() {
    let elsewhere = Site { host_id: "i".into(), threads: Some(1) };
    let slow = |it: Record| Record { host_id: "i".into(), latency_p50_ms: it.latency_p50_ms.map(|ms| 3.0 * ms), ..it };
    let mut lessons = of(&networks(4).into_iter().chain(networks(4).into_iter().map(slow)).collect::<Vec<_>>());
    let peaks = lessons.peaks[&site()].clone();
    lessons.peaks.insert(elsewhere, peaks);
    let all: Vec<&Example> = lessons.examples.iter().collect();
    let rows = Rows { own: all.clone(), all };
    let misses = LeftOut::MachineAndFamily.misses(&rows, Quantity::Time, &lessons.peaks);
    assert!(misses.len() == 40 && misses.iter().all(|miss| miss.logarithm.abs() > 1.0), "{misses:?}");
    let lessons = of(&networks(12));
    let all: Vec<&Example> = lessons.examples.iter().collect();
    let rows = Rows { own: all.clone(), all };
    let misses = LeftOut::Sizes.misses(&rows, Quantity::Time, &lessons.peaks);
    assert!(misses.len() > 10 && misses.iter().all(|miss| miss.beyond > 4.0_f64.ln() - 1e-9), "{misses:?}");
}

#[test]
fn a_phase_with_enough_rows_has_its_own_and_terms_are_milliseconds_at_the_peaks() {
    let records: Vec<Record> =
        networks(4).into_iter().chain(networks(4).into_iter().map(|it| prefill("ort", it))).collect();
    let lessons = of(&records);
    let all: Vec<&Example> = lessons.examples.iter().collect();
    for phase in [Phase::Forward, Phase::Prefill] {
        let own = rows_of_phase(&all, phase).own;
        assert!(own.len() == 20 && own.iter().all(|it| it.subject.runtime.phase == phase));
    }
    let mut one = asked("Conv");
    one.parameters = Some(25_000_000);
    one.cost = Cost {
        flops: 3_000_000_000,
        convolution_flops: 1_000_000_000,
        nodes: 7,
        node_bytes: 500_000_000,
        matrix_products: 3,
        ..Cost::default()
    };
    let two = Subject { batch_size: 2, ..one.clone() };
    let expected = [7.0, 10.0, 20.0, 40.0, 50.0 / 3.0, 10.0, 3.0, 50.0 / 3.0];
    for (found, expected) in two.terms_of_time(lessons.peaks.get(&site())).into_iter().zip(expected) {
        assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
    }
    assert_eq!(one.terms_of_time(lessons.peaks.get(&site()))[7], 0.0);
    let mut of_prompt = one.clone();
    of_prompt.runtime.phase = Phase::Prefill;
    let likeness = [one.likeness(&one), one.likeness(&of_prompt), one.likeness(&two)];
    let expected = [1.02, 0.204, (-2.0_f64.ln().powi(2) / 2.0).exp() + 0.02];
    assert!(likeness.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-9), "{likeness:?}");
}

#[test]
fn a_prediction_is_shown_with_its_interval_in_the_form_that_was_asked_for() {
    let answer = |basis, half: f64| {
        let estimate = |value: f64| Estimate { value, lower: value / half, upper: value * half };
        let prediction = Prediction {
            basis,
            latency_ms: estimate(2.0),
            throughput_ips: estimate(500.0),
            memory_mb: None,
            median_error: Some(0.1),
            rows: 20,
            families: 5,
            would_help: None,
        };
        Asked {
            case_id: "net/ort-cpu-f32/1".into(),
            model: "net".into(),
            variant: "original".into(),
            backend: "ort".into(),
            device: "cpu".into(),
            dtype: Dtype::F32,
            batch_size: 1,
            dims: None,
            sequence_length: None,
            host_id: None,
            threads: None,
            largest_batch: None,
            anchor: None,
            prediction: Some(prediction),
            refusal: None,
        }
    };
    let nothing = Lessons::default();
    let text = |asked: Asked, lessons: &Lessons, format| predictions_text(&[asked], lessons, format);
    let markdown = text(answer(Basis::OtherModels, 2.0), &nothing, Format::Markdown);
    assert!(markdown.starts_with("| case |") && markdown.contains("2.00 ms (1.00 ms … 4.00 ms)"), "{markdown}");
    assert!(markdown.contains("is left out: 10.0 %\n") && !markdown.contains("were left out"), "{markdown}");
    assert!(!text(answer(Basis::OtherModels, 2.0), &nothing, Format::Table).contains("| case |"));
    assert!(!text(answer(Basis::Measured, 1.0), &nothing, Format::Markdown).contains('…'));
    let lessons = Lessons { disturbed: 2, uncounted: 1, raised: vec![(site(), 100.0, 150.0)], ..Lessons::default() };
    let said = text(answer(Basis::Measured, 1.0), &lessons, Format::Markdown);
    let raised = "reached 150 GFLOP/s, more than the measured peak of 100:";
    for part in ["2 rows were left out: other load", "1 row has no counted cost", raised] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let here = Asked { host_id: Some("aaaa1111".into()), threads: Some(2), ..answer(Basis::Measured, 1.0) };
    let said = text(here, &nothing, Format::Markdown);
    assert!(said.contains("the figures are for host aaaa1111 with 2 threads\n"), "{said}");
    let evaluation = Evaluation { errors: vec![], recommendations: None };
    let shown = |format| evaluation_text(&evaluation, &nothing, format);
    let [markdown, table] = [Format::Markdown, Format::Table].map(shown);
    assert!(markdown.starts_with("| left out |") && !table.starts_with('|'), "{markdown}{table}");
}
