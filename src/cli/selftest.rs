//! `inferbench selftest`: how exactly this machine can measure.

use std::time::Duration;

use clap::Args;

use crate::duel::measure_gate;
use crate::exit_codes;
use crate::paths::Paths;
use crate::report::{Format, json};
use crate::selection::values::minutes;
use crate::selftest::{self, Selftest};

/// Find the smallest change between runs that this machine shows
#[derive(Args)]
#[command(
    after_help = "Later reports quote what it has found.\n\nExamples:\n  inferbench selftest\n  inferbench selftest --minutes 1 --format json"
)]
pub struct Arguments {
    /// About how long it may take
    #[arg(long, value_name = "N", default_value = "3", value_parser = minutes)]
    minutes: f64,
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let at_most = Duration::from_secs_f64(60.0 * arguments.minutes);
    let selftest = match selftest::measure(&Paths::find(), at_most, &measure_gate)? {
        Ok(selftest) => selftest,
        Err(exit_code) => return Ok(exit_code),
    };
    match arguments.format {
        Format::Json => print!("{}", json(&selftest)),
        Format::Table | Format::Markdown => print!("{}", table(&selftest, arguments.minutes)),
    }
    Ok(exit_codes::OK)
}

/// Why there are no duels in a self-test that may take this many minutes.
fn no_gate(minutes: f64) -> &'static str {
    if minutes < 1.5 {
        "unknown: it takes at least --minutes 1.5"
    } else {
        "unknown: too few generations were measured, or this system cannot stop processes"
    }
}

fn table(selftest: &Selftest, minutes: f64) -> String {
    let Selftest { overhead, smallest_change, processes, case, gate, .. } = selftest;
    let calls: usize = processes.iter().map(|process| process.calls).sum();
    let median = processes.iter().map(|process| process.p50_ms()).sum::<f64>() / processes.len() as f64;
    let disturbed =
        selftest.disturbed_share().map_or("unknown".into(), |share| format!("{:.0} % of the samples", 100.0 * share));
    let per_cent = |share: f64| format!("{:.1} %", 100.0 * share);
    let gate = gate.as_ref().map_or(no_gate(minutes).into(), |gate| {
        let found = gate.found.iter().map(|it| format!("{:.0} %: {:.0} %", 100.0 * it.slowdown, 100.0 * it.share));
        let alarm = match gate.measured.filter(|measured| measured.is_change()) {
            Some(measured) => format!("; the duel itself said {measured} for equal programs: do not trust duels here"),
            None => String::new(),
        };
        format!(
            "{} false alarms, {} void, {} cleared, {} generations each; slow-downs found: {}{alarm}",
            per_cent(gate.false_alarms),
            per_cent(gate.void),
            per_cent(gate.cleared),
            gate.generations_per_duel,
            found.collect::<Vec<_>>().join(", ")
        )
    });
    let lines = [
        ("two clock reads", format!("{:.1} ns", overhead.clock_reads_ns)),
        ("null backend", format!("{:.1} ns per call, ratio {:.2}", overhead.null_call_ns, overhead.null_call_ratio)),
        ("measured", format!("{case}: {} processes, {calls} calls, {:.3} ms", processes.len(), median)),
        ("disturbed", disturbed),
        ("between processes", format!("{:.2} % of their medians", smallest_change.deviation_percent)),
        ("duels", gate),
    ];
    let lines: String = lines.into_iter().map(|(name, value)| format!("{name:<19}{value}\n")).collect();
    format!("{lines}\n{}\n", selftest.line())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duels_that_had_the_time_and_failed_do_not_ask_for_more() {
        assert!(no_gate(1.0).contains("--minutes 1.5"));
        assert!(!no_gate(1.5).contains("--minutes") && !no_gate(3.0).contains("--minutes"));
    }
}
