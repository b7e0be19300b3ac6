//! The memory of a process is watched in a process that does nothing else: a file of its own with one test.

use std::thread;
use std::time::Duration;

use inferbench::backend::{Placement, Session, Stages};
use inferbench::definition::CaseFailure;
use inferbench::fixture::HostTensor;
use inferbench::measurement::{TimedSession, memory, watch};
use inferbench::run_data::Record;

const BLOCK: usize = 64 << 20;

/// Holds a block through every call, and a second one for a part of it.
struct Allocating;

impl Session for Allocating {
    fn bind(&mut self, _: &[HostTensor]) -> Result<usize, CaseFailure> {
        Ok(0)
    }
    fn run(&mut self, _: usize) -> Result<(), CaseFailure> {
        let held = std::hint::black_box(vec![1_u8; BLOCK]);
        drop(std::hint::black_box(vec![1_u8; BLOCK]));
        thread::sleep(Duration::from_millis(300));
        drop(held);
        Ok(())
    }
    fn sync(&mut self) -> Result<(), CaseFailure> {
        Ok(())
    }
    fn outputs(&mut self, _: usize) -> Result<Vec<HostTensor>, CaseFailure> {
        Ok(Vec::new())
    }
    fn call_from_host(&mut self, _: usize, _: &[HostTensor]) -> Result<(Vec<HostTensor>, Stages), CaseFailure> {
        Err(CaseFailure::unsupported("never called"))
    }
    fn placement(&self) -> Placement {
        Placement::default()
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_known_allocation_is_found_to_within_a_few_per_cent() {
    memory::reset_peak().unwrap();
    // As a file that is read while the model is loaded.
    drop(std::hint::black_box(vec![1_u8; 6 * BLOCK]));
    let mut session = TimedSession::new(Box::new(Allocating), 1);
    let mut row = Record { device: "cpu".into(), batch_size: 1, ..Record::default() };
    let loaded_mb = memory::megabytes(memory::resident_bytes().unwrap());
    watch(&mut session, memory::resident_bytes(), &mut row, 2.0).unwrap();
    assert_eq!(row.device_memory_mb, None);
    let blocks = |mb: f64| 1e6 * mb / BLOCK as f64;
    let near = |mb: f64, expected: f64| (blocks(mb) / expected - 1.0).abs() < 0.05;
    assert!(near(row.memory_growth_mb.unwrap(), 2.0), "{row:?}");
    assert!(near(row.memory_mb.unwrap() - loaded_mb, 6.0), "{row:?}");
    assert!((0.8..1.4).contains(&blocks(row.memory_avg_mb.unwrap() - loaded_mb)), "{row:?}");
}
