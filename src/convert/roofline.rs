//! How fast a model was computed, and how much of the machine's peaks that is.

use crate::definition::{Dtype, NULL};
use crate::run_data::{Peaks, Record};

/// By the mean latency, which is there by then. The null backend computes nothing, however fast it is.
///
/// The peaks are those of f32 on the processor, on the threads that the run asked for.
pub(super) fn put_speed(record: &mut Record, peaks: Option<&Peaks>) {
    if record.backend == NULL {
        return;
    }
    let per_second = |(flops, ms): (u64, f64)| flops as f64 / ms / 1e6;
    record.gflops_per_second = record.flops.zip(record.latency_mean_ms).map(per_second);
    let has_threads = |peaks: &&Peaks| record.threads.is_none_or(|threads| threads == peaks.threads);
    let is_of_peaks = record.device == "cpu" && record.dtype == Dtype::F32;
    let peaks = peaks.filter(has_threads).filter(|_| is_of_peaks);
    let all = record.gflops_per_second.zip(record.arithmetic_intensity).zip(peaks);
    record.roofline_percent = all.and_then(|((speed, intensity), peaks)| peaks.roofline_percent(speed, intensity));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{Case, Cost, Status};
    use crate::run_data::RunIdentity;

    fn record(case: &Case, threads: usize) -> Record {
        let run = RunIdentity {
            run_id: "r".into(),
            timestamp: "2026-01-02T03:04:05Z".parse().unwrap(),
            git_commit: None,
            git_dirty: None,
            host_id: "1a".into(),
            suite: "s".into(),
            rustc_version: String::new(),
        };
        let mut record = Record::new(&run, case, Status::Ok, None);
        (record.threads, record.latency_mean_ms) = (Some(threads), Some(2.0));
        record.put_cost(Some(Cost { flops: 80_000_000, bytes: 10_000_000 }));
        let (product_gflops_per_second, copy_gb_per_second) = (100.0, 20.0);
        put_speed(
            &mut record,
            Some(&Peaks { threads: 2, product_gflops_per_second, copy_gb_per_second, copied_bytes: 1 }),
        );
        record
    }

    #[test]
    fn the_percentage_is_of_the_lower_of_the_two_roofs() {
        let record = record(&Case::new("m", "ort", 1), 2);
        assert_eq!((record.flops, record.arithmetic_intensity), (Some(80_000_000), Some(8.0)));
        // 8 operations a byte at 20 GB/s are more than the product's 100 GFLOP/s.
        assert_eq!((record.gflops_per_second, record.roofline_percent), (Some(40.0), Some(40.0)));
    }

    #[test]
    fn a_case_that_the_peaks_are_not_of_has_no_percentage() {
        let plain = Case::new("m", "ort", 1);
        let half = record(&Case { dtype: Dtype::F16, ..plain.clone() }, 2);
        assert_eq!(
            (half.gflops_per_second, half.arithmetic_intensity, half.roofline_percent),
            (Some(40.0), None, None)
        );
        let elsewhere = record(&Case { device: "cuda".into(), ..plain.clone() }, 2);
        assert_eq!((elsewhere.arithmetic_intensity, elsewhere.roofline_percent), (Some(8.0), None));
        assert_eq!(record(&plain, 1).roofline_percent, None);
        let null = record(&Case::new("m", NULL, 1), 2);
        assert_eq!((null.flops, null.gflops_per_second, null.roofline_percent), (Some(80_000_000), None, None));
    }
}
