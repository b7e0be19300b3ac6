//! How variants, and what to deploy, are shown.

use super::*;
use crate::report::Format;

fn shown(records: Vec<Record>, format: Format) -> String {
    compare(&records, &[], &Options { noise: QUIET, ..Options::new("m") }).unwrap().render(format)
}

#[test]
fn a_row_has_every_figure_with_its_difference_and_the_recommendation_comes_last() {
    let mut records = example();
    records[2].accuracy_top5 = Some(0.996);
    let text = shown(records, Format::Table);
    let line = |part: &str| text.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}: {text}"));
    for part in [
        "●◇",
        "1.25 ms  0.63 ×",
        "3.00 MB  0.29 ×",
        "98.2 % (96.5 … 99.2) of 450",
        "0.0 (−0.6 … +0.6)",
        "99.6 %",
        "800  1.60 ×",
        "103 MB  0.93 ×",
        "0.63 (0.60 … 0.66)",
        "faster",
        "kept",
    ] {
        assert!(line(" int8-static ").contains(part), "{part}: {text}");
    }
    assert!(line(" pruned ").contains("41 % not 0") && line(" pruned ").contains("lost"), "{text}");
    assert!(line("distilled").ends_with("distilled on tch: failed: no operator <Gelu> | a"), "{text}");
    assert!(line("× is relative to").contains("the original in f32"), "{text}");
    let sentence = "Ship int8-static on ort: p50 1.25 ms, size 3.00 MB, accuracy 98.2 %; against the original on ort: \
        0.63 (0.60 … 0.66) × the time, 0.29 × the size, accuracy change 0.0 (−0.6 … +0.6) points.";
    assert_eq!(text.trim_end().lines().last(), Some(sentence));
}

#[test]
fn without_labels_quality_is_agreement_and_called_that() {
    let text = shown(
        vec![
            unlabelled("original", "ort", 10.0, 2.0, (1.0, 1.0)),
            unlabelled("int8", "ort", 2.5, 1.0, (0.984, 0.99871)),
        ],
        Format::Table,
    );
    for part in ["98.4 % (91.6 … 100.0) of 64", "0.99871", "agreement with the original 98.4 %, which is not accuracy"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(
        text.contains("quality is agreement with the original and not accuracy") && !text.contains("points"),
        "{text}"
    );
}

#[test]
fn markdown_and_html_show_the_recommendation_first_and_text_as_text() {
    let hostile = "</style><script>alert(1)</script>";
    let mut records = example();
    records[4].message = Some(format!("no | {hostile}"));
    for record in &mut records {
        record.run_id = hostile.into();
    }
    let markdown = shown(records.clone(), Format::Markdown);
    assert!(markdown.starts_with("### m · batch 1\n\n**Ship int8-static on ort: "), "{markdown}");
    assert!(markdown.contains("| ●◇ | **int8-static** | ort | cpu | f32 | 1.25 ms 0.63 × |"), "{markdown}");
    assert!(markdown.contains("no \\| &lt;/style"), "{markdown}");
    let page = compare(&records, &[], &Options::new("m")).unwrap().html();
    let place = |part: &str| page.find(part).unwrap_or_else(|| panic!("no {part} in {page}"));
    assert!(place("class=\"recommendation\">Ship int8-static") < place("<table>"), "{page}");
    assert!(page.contains("no | &lt;/style&gt;") && !page.contains("<script") && !page.contains("</style"), "{page}");
}

#[test]
fn a_script_finds_figures_and_the_recommendation() {
    let found: serde_json::Value = serde_json::from_str(&shown(example(), Format::Json)).unwrap();
    let row = &found["rows"][2];
    assert_eq!((&row["variant"], &row["differences"]["latency_p50"]), (&"int8-static".into(), &0.625.into()));
    assert_eq!((&row["verdict"], &row["quality"]), (&"faster".into(), &"kept".into()));
    assert_eq!(found["recommendation"]["case_id"], row["case_id"]);
    assert_eq!(found["rows"][4]["status"], "failed");
}

#[test]
fn what_to_deploy_is_a_row_with_its_sentence_below() {
    let records = [
        measured("original", "ort", 10.0, 2.0, SAME),
        measured("original", "tch", 10.0, 3.0, SAME),
        Record { model: "n".into(), tokens_per_second: Some(6634.0), ..measured("original", "ort", 10.0, 2.0, SAME) },
        Record { model: "n".into(), ..measured("original", "tch", 10.0, 2.02, SAME) },
    ];
    let options = |model: &str| Options { noise: QUIET, ..Options::new(model) };
    let all = ["m", "n"].map(|model| advise(&records, &[], &options(model)).unwrap()).concat();
    let table = advice_table(&all);
    let markdown = table.markdown();
    let lines: Vec<&str> = markdown.lines().collect();
    assert_eq!(lines[0], "| model | deploy | p50 | throughput | memory | runner-up | its p50 ÷ best | confidence |");
    let row = "| m | **the original on ort** | 2.00 ms | 500 samples/s | 110 MB | the original on tch | 1.50 (";
    assert!(lines[2].starts_with(row) && lines[2].ends_with(" | 95 % |"), "{markdown}");
    assert!(lines[3].contains("6634 tokens/s") && lines[3].ends_with(" | undecided |"), "{markdown}");
    assert!(lines[5].starts_with("- m: For latency, deploy the original on ort: p50 2.00 ms"), "{markdown}");
    assert!(section(&all).contains("<th>confidence</th></tr></thead>"), "{}", section(&all));
    assert!(section(&all).contains("<tr title=\"m: For latency, deploy the original on ort: p50 2.00 ms"));
    assert!(table.terminal().contains("\n  n: For latency, deploy the original on ort: "), "{}", table.terminal());
}
