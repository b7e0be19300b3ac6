//! Values that several commands read in the same way.

use anyhow::{Context, Result, ensure};

/// Reads a fraction from 0 on: `5%` or `0.05`. A number from 1 on needs its `%`, since it may be meant in per cent.
pub fn fraction(text: &str) -> Result<f64> {
    let (digits, unit) = match text.strip_suffix('%') {
        Some(digits) => (digits.trim_end(), 100.0),
        None => (text, 1.0),
    };
    let number: f64 = digits.parse().ok().context("not a number; write 5% or 0.05")?;
    let is_clear = unit > 1.0 || number < 1.0;
    ensure!(number.is_finite() && number >= 0.0 && is_clear, "not from 0 on, or without its %; write 5% or 0.05");
    Ok(number / unit)
}

/// Reads a fraction from 0 to below 1.
pub fn fraction_below_one(text: &str) -> Result<f64> {
    let fraction = fraction(text)?;
    ensure!(fraction < 1.0, "not from 0 to below 100 %");
    Ok(fraction)
}

/// Reads minutes above 0 and up to a day.
pub fn minutes(text: &str) -> Result<f64> {
    let minutes: f64 = text.parse().ok().context("not a number")?;
    ensure!(minutes > 0.0 && minutes <= 24.0 * 60.0, "not above 0 and up to a day");
    Ok(minutes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_given_in_per_cent_or_as_such() {
        for (text, expected) in [("5%", 0.05), ("0.05", 0.05), ("12.5 %", 0.125), ("0", 0.0), ("3000%", 30.0)] {
            assert_eq!(fraction(text).unwrap(), expected, "{text}");
        }
        for bad in ["5", "x", "-1%", "nan", "inf%", ""] {
            assert!(fraction(bad).is_err(), "{bad:?}");
        }
        assert!(fraction_below_one("99.9%").is_ok() && fraction_below_one("100%").is_err());
    }
}
