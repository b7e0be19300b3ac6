//! Figures for readers: three significant digits, with a unit that keeps them short; counts; commits.

/// A smaller number has at most three digits before the point once it is rounded.
const BELOW_THOUSAND: f64 = 999.5;

/// Three significant digits in the smallest of these units that shows less than a thousand, or else in the last one. A
/// unit has its size and its name.
fn in_unit(value: f64, units: &[(f64, &str)]) -> String {
    let found = units.iter().find(|(size, _)| value / size < BELOW_THOUSAND).or(units.last());
    found.map(|(size, name)| format!("{} {name}", three_digits(value / size))).unwrap_or_default()
}

/// `3.21 ms`: in ns, µs, ms or s.
pub fn latency(ms: f64) -> String {
    in_unit(ms, &[(1e-6, "ns"), (1e-3, "µs"), (1.0, "ms"), (1e3, "s")])
}

/// `7.20`, `98.4`, `1,733`: microseconds, with commas between thousands.
pub fn microseconds(us: f64) -> String {
    let text = three_digits(us);
    if us.abs() < BELOW_THOUSAND {
        return text;
    }
    let (sign, digits) = text.split_at(usize::from(us < 0.0));
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    format!("{sign}{}", groups.collect::<Vec<_>>().join(","))
}

/// `60.7 kB`, `3.30 MB`, `102 MB`.
pub fn megabytes(size: f64) -> String {
    in_unit(size, &[(1e-3, "kB"), (1.0, "MB")])
}

/// `2.10 mJ`: in µJ, mJ or J.
pub fn joules(energy: f64) -> String {
    in_unit(energy, &[(1e-6, "µJ"), (1e-3, "mJ"), (1.0, "J")])
}

/// `450`, `7.96 k`, `25.6 M`, `8.18 G`.
pub fn rounded(count: u64) -> String {
    if count < 1000 { count.to_string() } else { in_unit(count as f64, &[(1e3, "k"), (1e6, "M"), (1e9, "G")]) }
}

/// `98.2 %`.
pub fn percent(fraction: f64) -> String {
    format!("{} %", fixed(100.0 * fraction, 1))
}

/// `+4.2 %` for a ratio of 1.042.
pub fn signed_percent(ratio: f64) -> String {
    format!("{:+.1} %", 100.0 * (ratio - 1.0))
}

/// `99 %`, `99.5 %`.
pub fn short_percent(fraction: f64) -> String {
    let text = fixed(100.0 * fraction, 2);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

/// `1 run`, `2 runs`.
pub fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// `0123456789ab`, `0123456789ab, changed`, `unknown`: a commit, and whether the tree had changes.
pub fn commit(commit: Option<&str>, is_dirty: Option<bool>) -> String {
    let start: String = commit.unwrap_or("unknown").chars().take(12).collect();
    if is_dirty == Some(true) { start + ", changed" } else { start }
}

/// Three significant digits, never fewer than the integer part.
pub fn three_digits(value: f64) -> String {
    let decimals = match value.abs() {
        magnitude if magnitude < 10.0 => 2,
        magnitude if magnitude < 100.0 => 1,
        _ => 0,
    };
    fixed(value, decimals)
}

/// `0.0583`, `0.20`, `12.3`: three digits also for figures far below 1, such as the price of a million samples of a
/// small model.
pub fn three_digits_of_any(value: f64) -> String {
    match value.abs() {
        magnitude if magnitude > 0.0 && magnitude < 0.1 => {
            let decimals = (2.0 - magnitude.log10().floor()).min(15.0) as usize;
            format!("{value:.decimals$}")
        }
        _ => three_digits(value),
    }
}

/// `−0.6`, `0.0`, `+1.2`: the value with so many decimals and its sign.
pub fn signed(value: f64, decimals: usize) -> String {
    let text = fixed(value.abs(), decimals);
    match value {
        _ if text.chars().all(|c| "0.".contains(c)) => text,
        below if below < 0.0 => format!("−{text}"),
        _ => format!("+{text}"),
    }
}

/// The value with so many decimals. Halves are rounded away from zero, as JavaScript does in the charts: `format!`
/// would make 174 of 174.5.
pub fn fixed(value: f64, decimals: usize) -> String {
    // With up to two decimals, only these numbers lie exactly between two texts, and they are multiplied without an
    // error.
    let is_multiple_of_eighth = (8.0 * value).fract() == 0.0;
    let scale = 10f64.powi(decimals as i32);
    let value = if is_multiple_of_eighth { (value * scale).round() / scale } else { value };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_have_three_digits_and_a_unit() {
        let shown = [0.000_012_3, 0.012_34, 0.9997, 1.234, 999.4, 999.5, 4_321.0].map(latency);
        assert_eq!(shown, ["12.3 ns", "12.3 µs", "1.00 ms", "1.23 ms", "999 ms", "1.00 s", "4.32 s"]);
    }

    #[test]
    fn halves_go_away_from_zero() {
        assert_eq!([174.5, 175.5, 12.25, 0.125, -2.375].map(three_digits), ["175", "176", "12.3", "0.13", "-2.38"]);
        assert_eq!([0.125, 0.10625].map(percent), ["12.5 %", "10.6 %"]);
        assert_eq!(megabytes(174.5), "175 MB");
    }

    #[test]
    fn a_figure_far_below_one_is_not_nothing() {
        let shown = [0.0, 0.000_033, 0.0583, 0.1963, 12.34].map(three_digits_of_any);
        assert_eq!(shown, ["0.00", "0.0000330", "0.0583", "0.20", "12.3"]);
    }

    #[test]
    fn microseconds_have_commas() {
        let shown = [7.2, -98.44, 576.0, 999.7, 1733.2, -1_234_567.0].map(microseconds);
        assert_eq!(shown, ["7.20", "-98.4", "576", "1,000", "1,733", "-1,234,567"]);
    }

    #[test]
    fn counts_have_three_digits() {
        assert_eq!([7, 999, 1_000, 25_557_032, 8_178_000_000].map(rounded), ["7", "999", "1.00 k", "25.6 M", "8.18 G"]);
    }
}
