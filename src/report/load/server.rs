//! The sentences about a load test of a server.

use crate::report::numbers::{latency, percent};
use crate::run_data::LoadResult;

/// Waits for a free connection are reported if they are longer than this fraction of the latency.
const PART_OF_WAIT: f64 = 0.05;
/// A shorter wait is that of a thread for a processor.
const LEAST_WAIT_MS: f64 = 2.0;
/// A client that uses so many processors may have slowed down a server on the same machine.
const BUSY_CLIENT: f64 = 0.5;

/// The server and its protocol, what it adds to the latency, and the limits of the client. `all` are the rows of the
/// load test.
pub fn sentences_of_server(row: &LoadResult, all: &[LoadResult]) -> Vec<String> {
    let Some(url) = &row.url else { return Vec::new() };
    let server = row.server.as_deref().unwrap_or("a server without a name");
    let added = row.local_case.as_ref().zip(row.server_adds_p50_ms).zip(row.server_adds_p99_ms);
    let added = added.map(|((local, p50), p99)| {
        let ([p50, p99], run) = ([p50, p99].map(signed), row.local_run.as_deref().unwrap_or_default());
        format!("the server adds {p50} at p50 and {p99} at p99 to {local} (load test {run})")
    });
    // The first token may be due long before the whole answer.
    let shortest_ms = row.ttft_p99_ms.unwrap_or(f64::INFINITY).min(row.latency_p99_ms);
    let least_ms = (PART_OF_WAIT * shortest_ms).max(LEAST_WAIT_MS);
    let all_used = row.connections.filter(|all| row.connections_used >= Some(*all) && row.rate.is_some());
    let waits = row.queue_p99_ms.filter(|wait| *wait > least_ms).map(latency).zip(all_used).map(|(wait, all)| {
        let awaited = if all == 1 { "the only connection".to_owned() } else { format!("one of the {all} connections") };
        format!("requests waited for {awaited}, {wait} at p99; `--connections` raises the number")
    });
    // The next rate may have failed because of the client.
    let is_refused = |it: &&LoadResult| {
        let is_next = it.case_id == row.case_id && it.search == row.search && it.rate == row.lowest_failing_rate;
        is_next
            && it.loadgen_accepts == Some(false)
            && it.connections.is_some()
            && it.connections_used >= it.connections
    };
    let refused = all.iter().find(|it| row.is_highest && row.rate.is_some() && is_refused(it));
    let client = refused.zip(row.connections).map(|(refused, all)| {
        let rate = refused.rate.unwrap_or_default();
        let used = if all == 1 { "the only connection was".to_owned() } else { format!("all {all} connections were") };
        format!(
            "at {rate:.1}/s, which failed, {used} in use: the limit may be the client's; `--connections` raises the number"
        )
    });
    let busy = row.client_processors.filter(|client| *client > BUSY_CLIENT).map(percent).map(|client| {
        format!("the client used {client} of a processor, which a server on the same machine did not have")
    });
    let retry = row.retry_after_s.map(|s| format!("the server asked to wait for up to {s} s (Retry-After)"));
    let highest = row.rate.filter(|_| row.is_highest && row.lowest_failing_rate.is_none()).map(|rate| {
        format!("no rate failed up to {rate:.1}/s, so the server may serve more; `--max-rate` limits a search")
    });
    let tokens = row.tokens_by.as_deref().filter(|by| by.contains("events")).map(|_| {
        "the server does not say how many tokens there are; each event of a stream counts as one. \
         `--tokenizer FILE` counts tokens"
            .to_owned()
    });
    let what = row.protocol.as_ref().map(|protocol| format!("{server} at {url} by {protocol}"));
    let sentences = [what, added, waits, client, busy, retry, highest, tokens].into_iter().flatten();
    sentences.map(|sentence| format!("{}: {sentence}", row.case_id)).collect()
}

fn signed(ms: f64) -> String {
    if ms < 0.0 { format!("-{}", latency(-ms)) } else { latency(ms) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_a_line_for_what_it_adds() {
        let row = LoadResult {
            case_id: "digits/http-mlserver-f32/1".into(),
            url: Some("http://127.0.0.1:8080".into()),
            server: Some("mlserver 1.7.1".into()),
            protocol: Some("v2 json".into()),
            rate: Some(300.0),
            connections: Some(64),
            connections_used: Some(64),
            queue_p99_ms: Some(0.1),
            latency_p99_ms: 9.0,
            local_case: Some("digits/ort-cpu-f32/1".into()),
            local_run: Some("20260101T000000Z".into()),
            server_adds_p50_ms: Some(1.8),
            server_adds_p99_ms: Some(-0.25),
            client_processors: Some(0.2),
            ..LoadResult::default()
        };
        let of = |row: &LoadResult| sentences_of_server(row, &[]).join("\n");
        let text = of(&row);
        assert!(text.contains("the server adds 1.80 ms at p50 and -250 µs at p99 to digits/ort-cpu-f32/1"), "{text}");
        assert!(!text.contains("waited") && !text.contains("the client used"), "{text}");
        let text = of(&LoadResult { queue_p99_ms: Some(5.0), client_processors: Some(0.9), ..row.clone() });
        assert!(text.contains("one of the 64 connections") && text.contains("the client used 90.0 %"), "{text}");
        let only = LoadResult { connections: Some(1), queue_p99_ms: Some(5.0), ..row.clone() };
        assert!(of(&only).contains("requests waited for the only connection, 5.00 ms at p99"));
        let free = LoadResult { connections_used: Some(63), queue_p99_ms: Some(5.0), ..row.clone() };
        assert!(!of(&free).contains("waited"));
        let limited = LoadResult { is_highest: true, ..free.clone() };
        assert!(of(&limited).contains("no rate failed up to 300.0/s") && !of(&free).contains("no rate failed"));
        assert!(sentences_of_server(&LoadResult::default(), &[]).is_empty());
        // The first token waits for a connection long before the whole answer is late, and the rate above was refused by the client.
        let streamed =
            LoadResult { queue_p99_ms: Some(20.0), latency_p99_ms: 5000.0, ttft_p99_ms: Some(200.0), ..row.clone() };
        assert!(of(&streamed).contains("waited for one of the 64 connections"));
        let highest =
            LoadResult { is_highest: true, lowest_failing_rate: Some(330.0), queue_p99_ms: Some(0.1), ..row.clone() };
        let refused = LoadResult { rate: Some(330.0), loadgen_accepts: Some(false), ..row.clone() };
        let text = sentences_of_server(&highest, &[highest.clone(), refused.clone()]).join("\n");
        assert!(text.contains("at 330.0/s, which failed, all 64 connections were in use"), "{text}");
        let with_room = LoadResult { connections_used: Some(60), ..refused };
        assert!(!sentences_of_server(&highest, &[with_room]).join("\n").contains("which failed"));
    }
}
