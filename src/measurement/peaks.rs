//! The machine's own peaks: how fast some threads multiply f32 matrices, each its own, and how fast they copy memory.
//!
//! They are the two roofs of the roofline model (Williams, Waterman and Patterson, CACM 52(4), 2009): a computation of
//! `i` operations per byte can reach `min(product, i × copy)`. Both are measured, not read from a data sheet, and the
//! best of several repetitions counts. They are lower bounds of what the machine can do: another library's product may
//! be faster than this one, and reading alone is faster than copying. Results above 100 % of them are not cut off.
//!
//! The load of other processes is noted. Disturbed peaks are measured again by the next run, and the better figures
//! count. Peaks are kept in a file ([`Paths::peaks`]) by machine, processor, version and number of threads.
//!
//! The product is `matrixmultiply`'s, which has kernels for AVX-512. candle's `gemm` has them behind a feature that would
//! be switched on for candle too, and so change what is measured.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::machine::{Machine, ProcessorTime, last_level_cache_bytes, own_ticks};
use crate::paths::Paths;
use crate::run_data::Peaks;
use crate::run_data::files::{read_json, write_json};

/// Raised when the peaks are measured in another way, so that kept ones are not used any more.
const METHOD: u32 = 2;

/// The sizes of matrices, the largest first. Packing them takes little time beside multiplying.
const SIZES: [usize; 3] = [512, 256, 128];

/// The numbers of products that each thread makes in a row. On a busy machine, some of many short rows have a quiet
/// moment. Beside a long row, starting the threads takes little time.
pub(super) const PRODUCTS: [usize; 2] = [8, 64];

/// The time limit for each number of products.
const PATIENCE: Duration = Duration::from_millis(700);
const COPY_PATIENCE: Duration = Duration::from_millis(400);

/// If others have more than this fraction of the processors' time, the peaks are too low.
const MOST_DISTURBED: f64 = 0.1;

/// Names the machine, the processor, the number of threads, the version and the method that peaks belong to.
fn key(machine: &Machine, threads: usize) -> String {
    let (version, cpu) = (env!("CARGO_PKG_VERSION"), machine.cpu_model.as_deref().unwrap_or_default());
    format!("{} {cpu}, {threads} threads, inferbench {version}, method {METHOD}", machine.host_id)
}

/// Peaks by their key; none if the file is missing or cannot be read.
fn kept(path: &Path) -> BTreeMap<String, Peaks> {
    read_json(path).unwrap_or_default()
}

/// The peaks of the machine on `threads` threads: the kept ones, or new ones, which takes about two seconds.
pub fn peaks_of(paths: &Paths, machine: &Machine, threads: usize) -> Peaks {
    match kept(&paths.peaks()).remove(&key(machine, threads)) {
        Some(before) if before.disturbed_share.is_none_or(|share| share <= MOST_DISTURBED) => before,
        before => measure_and_keep(paths, machine, threads, before),
    }
}

/// The faster figures of both, since disturbance makes nothing faster. The second says how disturbed they are.
fn better(before: Peaks, again: Peaks) -> Peaks {
    Peaks {
        product_gflops_per_second: before.product_gflops_per_second.max(again.product_gflops_per_second),
        copy_gb_per_second: before.copy_gb_per_second.max(again.copy_gb_per_second),
        ..again
    }
}

/// The peaks of the machine, always measured anew.
pub fn calibrate(paths: &Paths, machine: &Machine, threads: usize) -> Peaks {
    measure_and_keep(paths, machine, threads, None)
}

/// New peaks, or the earlier ones where they were better. If they cannot be kept, the next run measures them again.
fn measure_and_keep(paths: &Paths, machine: &Machine, threads: usize, before: Option<Peaks>) -> Peaks {
    eprintln!("calibrating: the peaks of this machine on {threads} thread{}", if threads == 1 { "" } else { "s" });
    let peaks = measure(threads, machine);
    if let Some(share) = peaks.disturbed_share.filter(|share| *share > MOST_DISTURBED) {
        let share = 100.0 * share;
        eprintln!(
            "other load took {share:.0} % of the processors: the peaks may be too low, and the next run measures them again"
        );
    }
    let peaks = match before {
        Some(before) => better(before, peaks),
        None => peaks,
    };
    if let Err(why) = keep(&paths.peaks(), machine, &peaks) {
        eprintln!("the peaks of this machine are not kept: {why:#}");
    }
    peaks
}

fn keep(path: &Path, machine: &Machine, peaks: &Peaks) -> Result<()> {
    let mut all = kept(path);
    all.insert(key(machine, peaks.threads), peaks.clone());
    write_json(path, &all)
}

/// Four times the last-level caches, by STREAM's rule, so that the copied data does not stay in them. It is at most an
/// eighth of the memory, or of the container's limit, beyond which the kernel would kill the process.
pub(super) fn copied_bytes(cache: Option<u64>, machine: &Machine) -> usize {
    const ASSUMED_CACHE: u64 = 32 << 20;
    let wanted = cache.unwrap_or(ASSUMED_CACHE).saturating_mul(4).max(64 << 20);
    usize::try_from(wanted.min(machine.usable_memory_bytes().unwrap_or(u64::MAX) / 8)).unwrap_or(usize::MAX)
}

/// Measures for about two seconds.
fn measure(threads: usize, machine: &Machine) -> Peaks {
    let threads = threads.max(1);
    let begin = ProcessorTime::now().zip(own_ticks());
    let mut product_gflops_per_second: f64 = 0.0;
    let mut matrices = Matrices::new(matrix_size(threads, machine), threads);
    for products in PRODUCTS {
        let giga_operations = matrices.giga_operations(products);
        if giga_operations > product_gflops_per_second * PATIENCE.as_secs_f64() && products > PRODUCTS[0] {
            // The machine is too slow for it.
            break;
        }
        let seconds = best(usize::MAX, PATIENCE, || matrices.multiply(products));
        product_gflops_per_second = product_gflops_per_second.max(giga_operations / seconds);
    }
    let elements = copied_bytes(last_level_cache_bytes(), machine).div_ceil(size_of::<u64>()).max(threads);
    let [source, mut target] = arrays(elements, threads);
    let seconds = best(usize::MAX, COPY_PATIENCE, || copy(threads, &source, black_box(&mut target)));
    let copied_bytes = size_of_val(source.as_slice());
    let copy_gb_per_second = 2.0 * copied_bytes as f64 / 1e9 / seconds;
    let disturbed_share = disturbed_share(begin);
    Peaks { threads, product_gflops_per_second, copy_gb_per_second, copied_bytes, disturbed_share }
}

/// Fraction of the processors' time since `begin` that others used or that was stolen, by the ticks of all and of this
/// process.
pub(super) fn disturbed_share(begin: Option<(ProcessorTime, u64)>) -> Option<f64> {
    let ((before, own_before), (after, own_after)) = begin.zip(ProcessorTime::now().zip(own_ticks()))?;
    let own = own_after.saturating_sub(own_before);
    Some(after.others_share_since(before, own) + after.stolen_share_since(before))
}

/// Two arrays of this many numbers, or of half as many and so on if this process may not take that much memory.
pub(super) fn arrays(mut elements: usize, threads: usize) -> [Vec<u64>; 2] {
    let has_room = |elements: usize| {
        let mut both = Vec::<u64>::new();
        let has_room = both.try_reserve_exact(2 * elements).is_ok();
        // The compiler may leave out memory that is not used.
        black_box(&mut both);
        has_room
    };
    while elements > 1 << 20 && !has_room(elements) {
        elements /= 2;
    }
    [1, 2].map(|value| filled(elements, threads, value))
}

/// An array that all threads fill. The thread that first writes a page decides in which NUMA node the page lies, and
/// copies have to reach the memory of all nodes.
fn filled(elements: usize, threads: usize, value: u64) -> Vec<u64> {
    // No page of it has been written yet.
    let mut array = vec![0; elements];
    // Copying is fast even in debug builds.
    let piece = vec![value; 1 << 16];
    let fill = |part: &mut [u64]| part.chunks_mut(piece.len()).for_each(|to| to.copy_from_slice(&piece[..to.len()]));
    thread::scope(|scope| {
        for part in array.chunks_mut(elements.div_ceil(threads)) {
            scope.spawn(move || fill(part));
        }
    });
    array
}

/// The shortest time of `work` in seconds, of at most `most` repetitions that begin within `patience`.
pub(super) fn best(most: usize, patience: Duration, mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut shortest = f64::INFINITY;
    for _ in 0..most {
        let begin = Instant::now();
        work();
        shortest = shortest.min(begin.elapsed().as_secs_f64());
        if start.elapsed() > patience {
            break;
        }
    }
    shortest
}

/// The largest size with which the results of all threads take at most an eighth of the memory, or of the container's
/// limit.
pub(super) fn matrix_size(threads: usize, machine: &Machine) -> usize {
    let most = machine.usable_memory_bytes().unwrap_or(u64::MAX) / 8;
    let fits = |size: &usize| (threads * size * size * size_of::<f32>()) as u64 <= most;
    SIZES.into_iter().find(fits).unwrap_or(SIZES[SIZES.len() - 1])
}

/// Two square matrices, and a result for each thread. If many threads shared one product, each would pack the whole
/// right matrix to multiply it by a few rows.
pub(super) struct Matrices {
    size: usize,
    left: Vec<f32>,
    right: Vec<f32>,
    results: Vec<f32>,
}

impl Matrices {
    pub fn new(size: usize, threads: usize) -> Self {
        let [left, right] = [(); 2].map(|()| matrix(size));
        Matrices { size, left, right, results: vec![0.0; threads * size * size] }
    }

    /// The operations of [`multiply`](Self::multiply), in 10^9.
    pub fn giga_operations(&self, products: usize) -> f64 {
        2.0 * products as f64 * self.size as f64 * self.results.len() as f64 / 1e9
    }

    /// Each thread computes `left × right` this many times.
    pub fn multiply(&mut self, products: usize) {
        let Matrices { size, left, right, results } = self;
        let (size, left, right) = (*size, left.as_slice(), right.as_slice());
        thread::scope(|scope| {
            for result in results.chunks_mut(size * size) {
                scope.spawn(move || (0..products).for_each(|_| product(size, left, right, black_box(&mut *result))));
            }
        });
    }
}

/// Numbers of both signs, without a regular pattern that a product could profit from.
fn matrix(size: usize) -> Vec<f32> {
    (0..size * size).map(|index| (index.wrapping_mul(2_654_435_761) % 1009) as f32 / 1009.0 - 0.5).collect()
}

/// `result = left × right`, all square and row by row.
fn product(size: usize, left: &[f32], right: &[f32], result: &mut [f32]) {
    assert_eq!([left.len(), right.len(), result.len()], [size * size; 3]);
    let stride = size as isize;
    let (left, right, result) = (left.as_ptr(), right.as_ptr(), result.as_mut_ptr());
    // SAFETY: the library takes pointers. All three have `size × size` elements, as the strides say, and `result` is
    // borrowed by this thread alone.
    unsafe {
        matrixmultiply::sgemm(size, size, size, 1.0, left, stride, 1, right, stride, 1, 0.0, result, stride, 1);
    }
}

pub(super) fn copy(threads: usize, source: &[u64], target: &mut [u64]) {
    let block = source.len().div_ceil(threads);
    thread::scope(|scope| {
        for (source, target) in source.chunks(block).zip(target.chunks_mut(block)) {
            scope.spawn(move || target.copy_from_slice(source));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peaks() -> Peaks {
        Peaks { threads: 2, product_gflops_per_second: 100.0, copy_gb_per_second: 10.0, ..Peaks::default() }
    }

    #[test]
    fn the_roof_is_the_memory_s_at_low_intensity_and_the_product_s_at_high() {
        assert_eq!(peaks().roof_gflops_per_second(2.0), 20.0);
        assert_eq!(peaks().roof_gflops_per_second(50.0), 100.0);
        assert_eq!(peaks().roofline_percent(5.0, 2.0), Some(25.0));
        assert_eq!(peaks().roofline_percent(150.0, 50.0), Some(150.0));
        assert_eq!(peaks().roofline_percent(1.0, 0.0), None);
    }

    #[test]
    fn each_thread_makes_a_whole_product_and_all_together_make_a_copy() {
        let size = 7;
        let (left, right) = (matrix(size), matrix(size));
        for threads in [1, 2, 3, 9] {
            let mut matrices = Matrices::new(size, threads);
            matrices.multiply(2);
            assert_eq!(matrices.results.len(), threads * size * size);
            for (place, value) in matrices.results.iter().enumerate() {
                let (row, column) = (place / size % size, place % size);
                let expected: f32 =
                    (0..size).map(|inner| left[row * size + inner] * right[inner * size + column]).sum();
                assert!((value - expected).abs() < 1e-5, "{threads} threads, {place}: {value} instead of {expected}");
            }
            assert_eq!(matrices.giga_operations(2), (threads * 2 * 2 * size.pow(3)) as f64 / 1e9);
            let mut target = vec![0; 10];
            copy(threads, &[3; 10], &mut target);
            assert_eq!(target, [3; 10]);
        }
    }

    fn with_product(threads: usize, product_gflops_per_second: f64) -> Peaks {
        Peaks { threads, product_gflops_per_second, copy_gb_per_second: 10.0, ..Peaks::default() }
    }

    #[test]
    fn peaks_are_kept_by_machine_and_threads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("inferbench/peaks.json");
        let machine =
            |host: &str, cpu: &str| Machine { host_id: host.into(), cpu_model: Some(cpu.into()), ..Machine::default() };
        let gflops = |machine: &Machine, threads| {
            kept(&path).get(&key(machine, threads)).map(|peaks| peaks.product_gflops_per_second)
        };
        let one = machine("1a", "A CPU");
        assert_eq!(gflops(&one, 2), None);
        keep(&path, &one, &with_product(2, 100.0)).unwrap();
        keep(&path, &one, &with_product(1, 60.0)).unwrap();
        assert_eq!((gflops(&one, 2), gflops(&one, 1)), (Some(100.0), Some(60.0)));
        keep(&path, &one, &with_product(2, 90.0)).unwrap();
        assert_eq!((gflops(&one, 2), gflops(&one, 1)), (Some(90.0), Some(60.0)));
        assert_eq!(gflops(&machine("1a", "Another CPU"), 2), None);
        assert_eq!(gflops(&machine("2b", "A CPU"), 2), None);
    }

    #[test]
    fn of_disturbed_peaks_and_those_after_them_the_better_ones_count() {
        let with = |product, copy, share| Peaks {
            copy_gb_per_second: copy,
            disturbed_share: Some(share),
            ..with_product(2, product)
        };
        assert_eq!(better(with(60.0, 12.0, 0.4), with(100.0, 10.0, 0.0)), with(100.0, 12.0, 0.0));
    }

    #[test]
    fn a_file_that_is_broken_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("peaks.json");
        std::fs::write(&path, "{").unwrap();
        keep(&path, &Machine::default(), &with_product(1, 8.0)).unwrap();
        assert_eq!(kept(&path)[&key(&Machine::default(), 1)], with_product(1, 8.0));
    }

    #[test]
    fn arrays_are_filled_to_their_end() {
        for (elements, threads) in [(1, 1), (7, 3), (3 * (1 << 16) + 7, 1), (3 * (1 << 16) + 7, 5)] {
            assert_eq!(arrays(elements, threads), [vec![1; elements], vec![2; elements]]);
        }
    }

    #[test]
    fn arrays_are_four_times_the_caches_if_there_is_memory_for_them() {
        let copied = |cache, memory_bytes, container_memory_bytes| {
            copied_bytes(cache, &Machine { memory_bytes, container_memory_bytes, ..Machine::default() })
        };
        assert_eq!(copied(Some(32 << 20), Some(16 << 30), None), 128 << 20);
        assert_eq!(copied(Some(1 << 20), None, None), 64 << 20);
        assert_eq!(copied(None, Some(256 << 20), None), 32 << 20);
        // A container sees the caches of a whole server, but has a small part of its memory.
        assert_eq!(copied(Some(384 << 20), Some(512 << 30), Some(1 << 30)), 128 << 20);
        assert_eq!(copied(Some(384 << 20), Some(256 << 20), Some(512 << 30)), 32 << 20);
    }

    #[test]
    fn matrices_are_smaller_where_the_results_of_many_threads_would_take_too_much_memory() {
        let size = |threads, container_memory_bytes| {
            let memory_bytes = Some(512 << 30);
            matrix_size(threads, &Machine { memory_bytes, container_memory_bytes, ..Machine::default() })
        };
        assert_eq!([size(1, None), size(256, None), size(64, Some(512 << 20))], [512; 3]);
        assert_eq!([size(256, Some(512 << 20)), size(256, Some(128 << 20)), size(256, Some(1 << 20))], [256, 128, 128]);
    }
}
