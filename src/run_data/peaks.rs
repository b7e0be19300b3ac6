//! How fast a machine can be at best: the two roofs of the roofline model.
//!
//! A computation of `i` operations per byte can reach `min(product, i × copy)` (Williams, Waterman and Patterson,
//! CACM 52(4), 2009).

use serde::{Deserialize, Serialize};

/// How fast a machine can be at best.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peaks {
    pub threads: usize,
    /// The best of several products of two square f32 matrices: operations, two for each multiply-add, in 10^9 a second.
    /// 0 in older manifests.
    #[serde(default)]
    pub product_gflops_per_second: f64,
    /// Of copying one array to another: bytes read and bytes written, in 10^9 a second, as STREAM counts them.
    pub copy_gb_per_second: f64,
    /// Bytes of one array.
    pub copied_bytes: usize,
}

impl Peaks {
    /// What a computation of `intensity` operations per byte can reach, in 10^9 operations per second.
    pub fn roof_gflops_per_second(&self, intensity: f64) -> f64 {
        self.product_gflops_per_second.min(intensity * self.copy_gb_per_second)
    }

    /// `gflops_per_second` in percent of what a computation of that intensity can reach; above 100 where it is better than
    /// the product and the copy that were measured.
    pub fn roofline_percent(&self, gflops_per_second: f64, intensity: f64) -> Option<f64> {
        let roof = self.roof_gflops_per_second(intensity);
        (roof > 0.0).then(|| 100.0 * gflops_per_second / roof)
    }
}
