//! Calibrates a machine before and after its part of a suite, by short looks at its matrix product and its memory copy.
//!
//! The roofline's peaks ([`super::peaks`]) are the best figures ever seen on a machine. To compare two machines of one
//! kind, several figures of each with their scatter are needed. A look has five rounds, and each takes the best of at
//! most five repetitions: a momentary disturbance does not count, but a lasting neighbour slows all of them.

use std::hint::black_box;
use std::time::Duration;

use super::peaks::{Matrices, PRODUCTS, arrays, best, copied_bytes, copy, disturbed_share, matrix_size};
use crate::machine::{Machine, ProcessorTime, last_level_cache_bytes, own_ticks, throttled};
use crate::run_data::{Calibration, Manifest, Probe, ProcessSpread};

const ROUNDS: usize = 5;
const TIMES: usize = 5;
/// The time limit for the repetitions of one figure.
const PATIENCE: Duration = Duration::from_millis(150);

/// A calibration that still lacks its second look.
pub struct CalibrationWatch {
    so_far: Calibration,
    machine: Machine,
    throttled: Option<u64>,
    time: Option<ProcessorTime>,
}

impl CalibrationWatch {
    /// Takes the first look, with the threads of the run.
    pub fn begin(manifest: &Manifest, selftest: Option<ProcessSpread>) -> Self {
        let machine = Machine::read();
        let before = look(manifest.threads, &machine);
        let so_far = Calibration { host_id: machine.host_id.clone(), before, selftest, ..Calibration::default() };
        CalibrationWatch { so_far, machine, throttled: throttled(), time: ProcessorTime::now() }
    }

    /// The first look.
    pub fn so_far(&self) -> &Calibration {
        &self.so_far
    }

    /// Takes the second look.
    pub fn end(self, threads: usize) -> Calibration {
        let of_time = self.time.zip(ProcessorTime::now());
        let slowed = throttled().zip(self.throttled).map(|(now, before)| now.saturating_sub(before));
        let after = Some(look(threads, &self.machine));
        let stolen_share = of_time.map(|(before, now)| now.stolen_share_since(before));
        Calibration { after, throttled: slowed, stolen_share, ..self.so_far }
    }
}

/// Five rounds, in about a second.
fn look(threads: usize, machine: &Machine) -> Probe {
    let threads = threads.max(1);
    let (products, mut matrices) = (PRODUCTS[0], Matrices::new(matrix_size(threads, machine), threads));
    let elements = copied_bytes(last_level_cache_bytes(), machine).div_ceil(size_of::<u64>()).max(threads);
    let [source, mut target] = arrays(elements, threads);
    let (giga_operations, gigabytes) =
        (matrices.giga_operations(products), 2.0 * size_of_val(source.as_slice()) as f64 / 1e9);
    // The first execution of each touches the memory.
    matrices.multiply(products);
    copy(threads, &source, black_box(&mut target));
    let begin = ProcessorTime::now().zip(own_ticks());
    let mut probe = Probe { threads, ..Probe::default() };
    for _ in 0..ROUNDS {
        let product = best(TIMES, PATIENCE, || matrices.multiply(products));
        let copied = best(TIMES, PATIENCE, || copy(threads, &source, black_box(&mut target)));
        probe.product_gflops_per_second.push(giga_operations / product);
        probe.copy_gb_per_second.push(gigabytes / copied);
    }
    probe.stolen_share = begin.zip(ProcessorTime::now()).map(|((before, _), now)| now.stolen_share_since(before));
    probe.disturbed_share = disturbed_share(begin);
    probe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_has_five_figures_of_each_kind() {
        let probe = look(1, &Machine { memory_bytes: Some(256 << 20), ..Machine::default() });
        let all = [&probe.product_gflops_per_second, &probe.copy_gb_per_second];
        assert!(
            all.iter().all(|figures| figures.len() == ROUNDS && figures.iter().all(|it| *it > 0.0 && it.is_finite()))
        );
        assert!(probe.disturbed_share.is_none_or(|share| (0.0..=1.0).contains(&share)), "{probe:?}");
    }
}
