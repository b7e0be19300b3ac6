//! The table of llama-bench, so that figures can be laid beside those that people post: a row for each test of a language model, `pp512` for a
//! prompt of 512 tokens and `tg128` for 128 tokens that are generated, in tokens per second.
//!
//! The deviation is that between calls, where llama-bench has it between its repetitions of the whole test. Generating is measured in steps, so
//! that a row's deviation is that of a step.

use crate::definition::{Phase, Status};
use crate::run_data::Record;

/// Columns as llama-bench has them, and whether they are numbers.
const COLUMNS: [(&str, bool); 7] = [
    ("model", false),
    ("size", true),
    ("params", true),
    ("backend", false),
    ("threads", true),
    ("test", true),
    ("t/s", true),
];

/// The rows of language models among these records, as Markdown. Returns `None` if there are none.
pub fn render(records: &[Record]) -> Option<String> {
    let rows: Vec<[String; 7]> = records.iter().filter_map(row).collect();
    if rows.is_empty() {
        return None;
    }
    let widths: [usize; 7] = std::array::from_fn(|column| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([COLUMNS[column].0.len()]).max().unwrap_or(0)
    });
    let line = |cells: [&str; 7]| {
        let padded = cells.iter().zip(COLUMNS).zip(widths).map(|((cell, (_, is_number)), width)| match is_number {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        format!("| {} |\n", padded.collect::<Vec<_>>().join(" | "))
    };
    let rules = COLUMNS.iter().zip(widths).map(|((_, is_number), width)| match is_number {
        true => format!("{}:", "-".repeat(width + 1)),
        false => "-".repeat(width + 2),
    });
    let mut text = line(COLUMNS.map(|(name, _)| name));
    text += &format!("|{}|\n", rules.collect::<Vec<_>>().join("|"));
    for row in &rows {
        text += &line(row.each_ref().map(String::as_str));
    }
    Some(text)
}

fn row(record: &Record) -> Option<[String; 7]> {
    let rate = record.tokens_per_second.filter(|_| record.status == Status::Ok)?;
    let test = test(record)?;
    let deviation = record.latency_std_ms.zip(record.latency_mean_ms).filter(|(_, mean)| *mean > 0.0);
    let deviation = deviation.map_or(String::new(), |(std, mean)| format!(" ± {:.2}", rate * std / mean));
    let batch = if record.batch_size == 1 { String::new() } else { format!(" × {}", record.batch_size) };
    let size = |megabytes: f64| match megabytes * 1e6 / f64::from(1 << 30) {
        gib if gib >= 1.0 => format!("{gib:.2} GiB"),
        gib => format!("{:.2} MiB", gib * 1024.0),
    };
    let count = |parameters: u64| match parameters as f64 {
        count if count >= 1e9 => format!("{:.2} B", count / 1e9),
        count => format!("{:.2} M", count / 1e6),
    };
    let form = if record.variant == crate::definition::ORIGINAL { record.dtype.name() } else { &record.variant };
    let device = if record.device == "cpu" { String::new() } else { format!(" {}", record.device) };
    Some([
        format!("{} {form}", record.model),
        record.model_size_mb.map(size).unwrap_or_default(),
        record.parameters.map(count).unwrap_or_default(),
        format!("{}{device}", record.backend),
        record.threads.map(|threads| threads.to_string()).unwrap_or_default(),
        format!("{test}{batch}"),
        format!("{rate:.2}{deviation}"),
    ])
}

/// `pp512`, `tg128`, or `tg128 @ d4096` after a text. What is generated after a single token is llama-bench's `tg`.
fn test(record: &Record) -> Option<String> {
    let length = record.sequence_length?;
    match record.phase {
        Phase::Prefill => Some(format!("pp{length}")),
        Phase::Decode => {
            let count = record.new_tokens.map_or(String::new(), |count| count.to_string());
            let depth = if length > 1 { format!(" @ d{length}") } else { String::new() };
            Some(format!("tg{count}{depth}"))
        }
        Phase::Forward | Phase::Encoder => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::record;

    #[test]
    fn rows_are_tests_of_llama_bench() {
        let of = |phase, length, variant: &str| Record {
            model: "llama".into(),
            variant: variant.into(),
            backend: "llama-cpp".into(),
            device: "cpu".into(),
            phase,
            sequence_length: Some(length),
            new_tokens: (phase == Phase::Decode).then_some(128),
            status: Status::Ok,
            batch_size: 1,
            threads: Some(2),
            tokens_per_second: Some(40.0),
            latency_mean_ms: Some(25.0),
            latency_std_ms: Some(0.5),
            model_size_mb: Some(2147.483648),
            parameters: Some(1_100_000_000),
            ..record("llama", "llama-cpp", 1, None)
        };
        let text = render(&[
            of(Phase::Prefill, 512, "q4_0"),
            of(Phase::Decode, 1, "q4_0"),
            of(Phase::Decode, 4096, "original"),
        ]);
        assert_eq!(
            text.unwrap(),
            "| model      |     size | params | backend   | threads |          test |          t/s |\n\
             |------------|---------:|-------:|-----------|--------:|--------------:|-------------:|\n\
             | llama q4_0 | 2.00 GiB | 1.10 B | llama-cpp |       2 |         pp512 | 40.00 ± 0.80 |\n\
             | llama q4_0 | 2.00 GiB | 1.10 B | llama-cpp |       2 |         tg128 | 40.00 ± 0.80 |\n\
             | llama f32  | 2.00 GiB | 1.10 B | llama-cpp |       2 | tg128 @ d4096 | 40.00 ± 0.80 |\n"
        );
        assert_eq!(render(&[of(Phase::Forward, 1, "q4_0")]), None);
    }
}
