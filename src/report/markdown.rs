//! Markdown, for a README or a pull request.

use super::ranking::{disturbed_lines, latency, missing_calls_line, rank, rate, short_message};
use crate::definition::Status;
use crate::record::Record;

/// A heading and a table a model, and what the figures were measured on.
pub fn render(records: &[Record], resolution: &str) -> String {
    let mut text = String::new();
    for group in rank(records) {
        text.push_str(&format!("### {}\n\n", group.title));
        text.push_str(&format!(
            "| backend | device | dtype | batch | p50 | p99 | {} | memory | p50 ÷ best | status |\n",
            group.rate_unit
        ));
        text.push_str("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n");
        for row in &group.rows {
            let record = row.record;
            let p50 = latency(record.latency_p50_ms);
            let status = match record.status {
                Status::Ok => "ok".to_owned(),
                status => format!("{status}: {}", escape(&short_message(record))),
            };
            text.push_str(&format!(
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {status} |\n",
                record.backend,
                record.device,
                record.dtype,
                record.batch_size,
                if row.is_best { format!("**{p50}**") } else { p50 },
                latency(record.latency_p99_ms),
                rate(record),
                record.memory_mb.map(|mb| format!("{mb:.0} MB")).unwrap_or_default(),
                row.ratio_to_best.map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
            ));
        }
        text.push('\n');
        for line in missing_calls_line(&group).into_iter().chain(disturbed_lines(&group)) {
            text.push_str(&format!("{line}\n\n"));
        }
    }
    if let Some(record) = records.first() {
        let commit = record.git_commit.as_deref().map_or("unknown", |commit| &commit[..commit.len().min(12)]);
        let dirty = if record.git_dirty == Some(true) { ", changed" } else { "" };
        text.push_str(&format!("Run {} on host {}, commit {commit}{dirty}.\n", record.run_id, record.host_id));
    }
    text.push_str(&format!("\n{resolution}\n"));
    text
}

fn escape(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::record;

    #[test]
    fn a_message_cannot_break_the_table() {
        let mut failed = record("m", "ort", 1, None);
        failed.status = Status::Failed;
        failed.message = Some("a | b\nc".into());
        let text = render(&[failed], "");
        let row = text.lines().find(|line| line.starts_with("| ort")).unwrap();
        assert!(row.ends_with("| failed: a \\| b |"), "{row}");
    }
}
