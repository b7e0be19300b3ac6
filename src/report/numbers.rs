//! Numbers for readers: three significant digits, with a unit that keeps them short.

/// `3.21 ms`: three significant digits, in ns, µs, ms or s.
pub fn latency(ms: f64) -> String {
    let (value, unit) = match ms {
        _ if ms < 1e-3 => (ms * 1e6, "ns"),
        _ if ms < 1.0 => (ms * 1e3, "µs"),
        _ if ms < 1e3 => (ms, "ms"),
        _ => (ms / 1e3, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

/// `60.7 kB`, `3.30 MB`, `102 MB`.
pub fn megabytes(size: f64) -> String {
    if size < 1.0 { format!("{} kB", three_digits(size * 1e3)) } else { format!("{} MB", three_digits(size)) }
}

/// `450`, `7.96 k`, `25.6 M`, `8.18 G`.
pub fn rounded(count: u64) -> String {
    match count as f64 {
        few if few < 1e3 => count.to_string(),
        some if some < 1e6 => format!("{} k", three_digits(some / 1e3)),
        many if many < 1e9 => format!("{} M", three_digits(many / 1e6)),
        most => format!("{} G", three_digits(most / 1e9)),
    }
}

/// `98.2 %`.
pub fn percent(fraction: f64) -> String {
    format!("{:.1} %", 100.0 * fraction)
}

/// Three significant digits, never fewer than the integer part.
pub fn three_digits(value: f64) -> String {
    let decimals = match value.abs() {
        magnitude if magnitude < 10.0 => 2,
        magnitude if magnitude < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_have_three_digits_and_a_unit() {
        let shown = [0.000_012_3, 0.012_34, 1.234, 123.4, 4_321.0].map(latency);
        assert_eq!(shown, ["12.3 ns", "12.3 µs", "1.23 ms", "123 ms", "4.32 s"]);
    }

    #[test]
    fn counts_have_three_digits() {
        assert_eq!([7, 999, 1_000, 25_557_032, 8_178_000_000].map(rounded), ["7", "999", "1.00 k", "25.6 M", "8.18 G"]);
    }
}
