//! No backend computes on more threads at once than it was told to: the kernel's own account of their time.

#![cfg(target_os = "linux")]

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::{Run, Workplace, backends_of_networks, children, wait_for};

/// Seconds per tick of the kernel's account.
const TICK: f64 = 0.01;

/// Ticks of processor time of all threads of a process, and of those that it has started.
fn ticks(process: u32) -> u64 {
    ticks_of(process) + children(process).into_iter().map(ticks_of).sum::<u64>()
}

fn ticks_of(process: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let of_task = |task: fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat")).ok()?;
        // The name may hold anything but is in parentheses; utime and stime are the 12th and 13th fields after it.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
    };
    tasks.filter_map(of_task).sum()
}

/// Processor seconds per second while a case is measured.
fn processors_in_use(backend: &str, threads: usize) -> f64 {
    let workplace = Workplace::new(&["tenn_eeg"], &[backend], &[32]);
    let threads = threads.to_string();
    let mut run = workplace.inferbench(&["run", "--noplot", "--threads", &threads, "--iterations", "100000"]);
    let log = workplace.path("log.txt");
    let mut running = run.args(["--budget", "2"]).start(&log);
    wait_for("the samples", || fs::read_to_string(&log).unwrap().contains("calls in").then_some(()));
    let child = running.child();
    // In this order, a pause between the two makes the share smaller and not larger.
    let (start, begin) = (Instant::now(), ticks(child));
    // One second is half of the samples: Criterion's arithmetic comes after them. They end sooner where the machine becomes faster.
    let (mut end, mut seconds) = (begin, 0.0);
    while seconds < 1.0 {
        sleep(Duration::from_millis(100));
        let now = ticks(child);
        if now < end {
            break;
        }
        (end, seconds) = (now, start.elapsed().as_secs_f64());
    }
    running.wait();
    let record = workplace.record(&format!("tenn_eeg/{backend}-cpu-f32/32"));
    assert_eq!(record.threads.map(|count| count.to_string()), Some(threads), "the record of {backend}");
    (end - begin) as f64 * TICK / seconds
}

#[test]
#[ignore = "it takes minutes; `scripts/test --all` runs it"]
fn no_backend_computes_on_more_threads_than_it_was_told() {
    for backend in backends_of_networks() {
        for threads in [1, 2] {
            let processors = processors_in_use(backend, threads);
            assert!(processors > 0.1, "{backend} did not compute");
            // Ticks are counted in whole numbers, for each thread.
            let at_most = threads as f64 + 0.15;
            assert!(processors < at_most, "{backend}: {processors:.2} processors where {threads} were asked for");
        }
    }
}
