//! Student's t distribution.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// Student's t distribution with these degrees of freedom (Student 1908, "The probable error of a mean").
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StudentT(StudentsT);

impl StudentT {
    /// Degrees of freedom below 1 count as 1, and from a million on the distribution is normal. Infinite figures of a
    /// file can make them not a number, which counts as 1, too.
    pub fn new(freedom: f64) -> Self {
        const NEARLY_NORMAL: f64 = 1e6;
        let freedom = if freedom.is_nan() { 1.0 } else { freedom.clamp(1.0, NEARLY_NORMAL) };
        StudentT(StudentsT::new(0.0, 1.0, freedom).expect("location 0, scale 1 and freedom from 1 are a distribution"))
    }

    /// `t(½ + confidence / 2)`: half the width, in standard errors, of a two-sided interval.
    pub fn two_sided_quantile(&self, confidence: f64) -> f64 {
        self.0.inverse_cdf(0.5 + confidence / 2.0)
    }

    /// The probability of a value that is this far from 0, or farther. It is 1 if `value` is not a number, such as 0
    /// divided by 0.
    pub fn two_sided_p(&self, value: f64) -> f64 {
        if value.is_nan() { 1.0 } else { 2.0 * self.0.sf(value.abs()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_tables() {
        for (freedom, confidence, expected) in [(9.0, 0.99, 3.249_836), (4.0, 0.95, 2.776_445), (1e9, 0.95, 1.959_966)]
        {
            let found = StudentT::new(freedom).two_sided_quantile(confidence);
            assert!((found - expected).abs() < 2e-4, "{found} is not {expected}");
        }
        assert_eq!(StudentT::new(f64::NAN), StudentT::new(1.0));
        assert!((StudentT::new(4.0).two_sided_p(-2.776_445) - 0.05).abs() < 1e-6);
        assert_eq!(StudentT::new(4.0).two_sided_p(f64::NAN), 1.0);
    }
}
