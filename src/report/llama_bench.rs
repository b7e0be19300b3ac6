//! The table of llama-bench, for comparison with figures that people post: a row for each test of a language model, in
//! tokens per second, such as `pp512` for a prompt of 512 tokens and `tg128` for 128 generated tokens. `pp512+tg128`, a
//! prompt and the tokens generated after it, is computed from these two: from generation after a prompt of that length,
//! as llama-bench does, if that was measured, and otherwise from generation at depth 0.
//!
//! The deviation is between calls; llama-bench's is between its repetitions of the whole test. Generation is measured
//! in steps, so the deviation of its rows is between steps.

use super::escape;
use crate::definition::{Case, ORIGINAL, Phase, Status};
use crate::run_data::Record;

/// The columns of llama-bench.
const COLUMNS: [&str; 7] = ["model", "size", "params", "backend", "threads", "test", "t/s"];

/// The columns of text, which are aligned to the left; the others are numbers.
const WORDS: [&str; 2] = ["model", "backend"];

/// The rows of language models among these records, as Markdown. Returns `None` if there are none.
pub fn render(records: &[Record]) -> Option<String> {
    let timed: Vec<Timed> = records.iter().filter_map(Timed::of).collect();
    let rows: Vec<[String; 7]> =
        timed.iter().flat_map(|one| std::iter::once(one.row()).chain(one.both(&timed))).collect();
    if rows.is_empty() {
        return None;
    }
    let widths: [usize; 7] = std::array::from_fn(|column| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([COLUMNS[column].len()]).max().unwrap_or(0)
    });
    let line = |cells: [&str; 7]| {
        let padded = cells.iter().zip(COLUMNS).zip(widths).map(|((cell, name), width)| match WORDS.contains(&name) {
            true => format!("{cell:<width$}"),
            false => format!("{cell:>width$}"),
        });
        format!("| {} |\n", padded.collect::<Vec<_>>().join(" | "))
    };
    let rules = COLUMNS.iter().zip(widths).map(|(name, width)| match WORDS.contains(name) {
        true => "-".repeat(width + 2),
        false => format!("{}:", "-".repeat(width + 1)),
    });
    let mut text = line(COLUMNS);
    text += &format!("|{}|\n", rules.collect::<Vec<_>>().join("|"));
    for row in &rows {
        text += &line(row.each_ref().map(String::as_str));
    }
    Some(text)
}

/// A measured test.
struct Timed<'a> {
    record: &'a Record,
    length: usize,
    rate: f64,
}

impl<'a> Timed<'a> {
    fn of(record: &'a Record) -> Option<Self> {
        let is_test = record.status == Status::Ok && matches!(record.phase, Phase::Prefill | Phase::Decode);
        let (length, rate) = record.sequence_length.zip(record.tokens_per_second).filter(|_| is_test)?;
        Some(Timed { record, length, rate })
    }

    fn row(&self) -> [String; 7] {
        let Record { latency_std_ms, latency_mean_ms, .. } = self.record;
        // Times that scatter as much as their mean show no deviation of the rate.
        let deviation = latency_std_ms.zip(*latency_mean_ms).filter(|(std, mean)| std < mean);
        let deviation = deviation.map_or(String::new(), |(std, mean)| format!(" ± {:.2}", self.rate * std / mean));
        self.cells(self.test(), "", format!("{:.2}{deviation}", self.rate))
    }

    /// The computed rows: prompts together with the tokens that this test generates after them.
    fn both(&self, all: &[Timed<'_>]) -> Vec<[String; 7]> {
        let Some(count) = self.record.new_tokens.filter(|_| self.record.phase == Phase::Decode) else {
            return Vec::new();
        };
        // Generation at depth 0 counts for prompts after which no generation was measured.
        let lengths: Vec<usize> =
            all.iter().filter(|other| other.is_beside(self, Phase::Decode)).map(|other| other.length).collect();
        let is_after =
            |prompt: &&Timed<'_>| prompt.length == self.length || self.length == 1 && !lengths.contains(&prompt.length);
        let prompts = all.iter().filter(|other| other.is_beside(self, Phase::Prefill)).filter(is_after);
        let row = |prompt: &Timed<'_>| {
            let (read, made) = (prompt.length as f64, count as f64);
            let rate = (read + made) / (read / prompt.rate + made / self.rate);
            self.cells(format!("pp{}+tg{count}", prompt.length), " (computed)", format!("{rate:.2}"))
        };
        prompts.map(row).collect()
    }

    /// Whether this is a test of that phase of the same form, on the same runtime and machine, in the same run.
    fn is_beside(&self, other: &Timed<'_>, phase: Phase) -> bool {
        let setting = |it: &Record| {
            let (case, host) = (Case { phase, sequence_length: None, ..it.case() }, it.host_id.clone());
            (case, host, it.run_id.clone(), it.threads)
        };
        self.record.phase == phase && setting(self.record) == setting(other.record)
    }

    fn cells(&self, test: String, mark: &str, rate: String) -> [String; 7] {
        let Record { model, variant, backend, dtype, batch_size, .. } = self.record;
        let batch = if *batch_size == 1 { String::new() } else { format!(" × {batch_size}") };
        let size = |megabytes: f64| match megabytes * 1e6 / f64::from(1 << 30) {
            gib if gib >= 1.0 => format!("{gib:.2} GiB"),
            gib => format!("{:.2} MiB", gib * 1024.0),
        };
        let count = |parameters: u64| match parameters as f64 {
            count if count >= 1e9 => format!("{:.2} B", count / 1e9),
            count => format!("{:.2} M", count / 1e6),
        };
        let form = if variant == ORIGINAL { dtype.name() } else { variant };
        let form = self.record.gguf_scheme.as_deref().unwrap_or(form);
        let device = if self.record.device == "cpu" { String::new() } else { format!(" {}", self.record.device) };
        [
            escape::markdown(&format!("{model} {form}")),
            self.record.model_size_mb.map(size).unwrap_or_default(),
            self.record.parameters.map(count).unwrap_or_default(),
            escape::markdown(&format!("{backend}{device}")),
            self.record.threads.map(|threads| threads.to_string()).unwrap_or_default(),
            format!("{test}{batch}{mark}"),
            rate,
        ]
    }

    /// `pp512`, `tg128`, or `tg128 @ d4096` after a text. Generation after a single token is llama-bench's `tg`.
    fn test(&self) -> String {
        if self.record.phase == Phase::Prefill {
            return format!("pp{}", self.length);
        }
        let count = self.record.new_tokens.map_or(String::new(), |count| count.to_string());
        let depth = if self.length > 1 { format!(" @ d{}", self.length) } else { String::new() };
        format!("tg{count}{depth}")
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
            Record { tokens_per_second: Some(10.0), ..of(Phase::Decode, 1, "q4_0") },
            Record { gguf_scheme: Some("all F32".into()), ..of(Phase::Decode, 4096, "original") },
        ]);
        // 512 tokens in 12.8 s and 128 in 12.8 s.
        assert_eq!(
            text.unwrap(),
            "| model         |     size | params | backend   | threads |                   test |          t/s |\n\
             |---------------|---------:|-------:|-----------|--------:|-----------------------:|-------------:|\n\
             | llama q4_0    | 2.00 GiB | 1.10 B | llama-cpp |       2 |                  pp512 | 40.00 ± 0.80 |\n\
             | llama q4_0    | 2.00 GiB | 1.10 B | llama-cpp |       2 |                  tg128 | 10.00 ± 0.20 |\n\
             | llama q4_0    | 2.00 GiB | 1.10 B | llama-cpp |       2 | pp512+tg128 (computed) |        25.00 |\n\
             | llama all F32 | 2.00 GiB | 1.10 B | llama-cpp |       2 |          tg128 @ d4096 | 40.00 ± 0.80 |\n"
        );
        assert_eq!(render(&[of(Phase::Forward, 1, "q4_0")]), None);
        let scattered = render(&[Record { latency_std_ms: Some(25.0), ..of(Phase::Prefill, 512, "q4_0") }]).unwrap();
        assert!(scattered.contains(" 40.00 |") && !scattered.contains('±'), "{scattered}");
        let named = render(&[Record { model: "a|b".into(), ..of(Phase::Prefill, 512, "q4_0") }]).unwrap();
        assert!(named.contains("| a\\|b q4_0 |"), "{named}");
    }

    #[test]
    fn a_prompt_is_computed_with_what_was_generated_after_it_on_the_same_runtime() {
        let of = |phase, length, backend: &str| Record {
            phase,
            sequence_length: Some(length),
            new_tokens: (phase == Phase::Decode).then_some(128),
            status: Status::Ok,
            tokens_per_second: Some(40.0 / length as f64),
            ..record("llama", backend, 1, None)
        };
        let computed = |records: &[Record]| {
            let text = render(records).unwrap();
            let rows = text.lines().filter(|line| line.contains("(computed)"));
            rows.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
        };
        let (prompt, at_0) = (of(Phase::Prefill, 512, "candle"), of(Phase::Decode, 1, "candle"));
        let after = of(Phase::Decode, 512, "candle");
        assert_eq!(computed(&[prompt.clone(), of(Phase::Decode, 1, "llama-cpp")]).len(), 0);
        let deep = computed(&[prompt.clone(), at_0.clone(), after.clone()]);
        assert_eq!(deep, computed(&[prompt.clone(), after]));
        assert_eq!(deep.len(), 1);
        assert_ne!(deep, computed(&[prompt, at_0]));
    }
}
