//! Student's t distribution, and the interval of a mean.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::moments::{mean, variance};

/// Student's t distribution with these degrees of freedom (Student 1908, "The probable error of a mean").
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StudentT(StudentsT);

impl StudentT {
    /// At least 1 degree of freedom is assumed; from a million on the distribution is normal. Infinite figures of a file can
    /// make a number of degrees that is not a number: it counts as 1.
    pub fn new(freedom: f64) -> Self {
        const NEARLY_NORMAL: f64 = 1e6;
        let freedom = if freedom.is_nan() { 1.0 } else { freedom.clamp(1.0, NEARLY_NORMAL) };
        StudentT(StudentsT::new(0.0, 1.0, freedom).expect("location 0, scale 1 and freedom from 1 are a distribution"))
    }

    /// `t(½ + confidence / 2)`: half the width, in standard errors, of a two-sided interval.
    pub fn two_sided_quantile(&self, confidence: f64) -> f64 {
        self.0.inverse_cdf(0.5 + confidence / 2.0)
    }

    /// The probability of a value that is this far from 0, or farther. It is 1 if `value` is not a number, as of 0 divided
    /// by 0.
    pub fn two_sided_p(&self, value: f64) -> f64 {
        if value.is_nan() { 1.0 } else { 2.0 * self.0.sf(value.abs()) }
    }
}

/// A mean of independent figures, and how well it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanEstimate {
    pub mean: f64,
    pub standard_error: f64,
    /// Degrees of freedom of the standard error.
    pub freedom: f64,
}

impl MeanEstimate {
    /// The mean with the standard error `s / √n`. Returns `None` for fewer than two values.
    pub fn of(values: &[f64]) -> Option<Self> {
        let n = values.len() as f64;
        (values.len() > 1).then(|| MeanEstimate {
            mean: mean(values),
            standard_error: (variance(values) / n).sqrt(),
            freedom: n - 1.0,
        })
    }

    /// Half the width of the mean's interval: `t(½ + confidence / 2; ν) · standard error`.
    pub fn half_width(&self, confidence: f64) -> f64 {
        StudentT::new(self.freedom).two_sided_quantile(confidence) * self.standard_error
    }

    /// The probability of a mean that is this far from 0, or farther, if the true mean is 0.
    pub fn p_value(&self) -> f64 {
        StudentT::new(self.freedom).two_sided_p(self.mean / self.standard_error)
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
    }

    #[test]
    fn a_mean_has_its_t_test() {
        // t = 2 / (1 / √3) = 3.4641 with 2 degrees of freedom: p = 0.07418.
        let estimate = MeanEstimate::of(&[1.0, 2.0, 3.0]).unwrap();
        assert_eq!((estimate.mean, estimate.freedom), (2.0, 2.0));
        assert!((estimate.p_value() - 0.074_18).abs() < 1e-5);
        assert!((estimate.half_width(0.95) - 4.302_65 / 3.0_f64.sqrt()).abs() < 1e-4);
        assert_eq!(MeanEstimate::of(&[1.0]), None);
    }

    #[test]
    fn equal_figures_are_no_division_by_zero() {
        assert_eq!(MeanEstimate::of(&[0.0, 0.0]).unwrap().p_value(), 1.0);
        assert_eq!(MeanEstimate::of(&[1.0, 1.0]).unwrap().p_value(), 0.0);
    }
}
