//! The stacks of the process's threads, sampled while they use processors.
//!
//! The sampler interrupts threads wherever they are, by a signal, and walks up their stacks by the tables that compilers leave for
//! exceptions. Not every function survives an interruption: a process that is sampled should have nothing to lose.

use std::collections::HashMap;
use std::ffi::c_void;

use anyhow::{Context, Result};
use findshlibs::{SharedLibrary, TargetSharedLibrary};
use nix::sys::signal::{Signal, raise};
use pprof::{ProfilerGuard, ProfilerGuardBuilder};

use crate::run_data::{CpuStack, CpuStacks};

/// Samples per second of processor time; no multiple or divisor of the rate of anything periodic.
const FREQUENCY_HZ: u32 = 499;
/// The name for code that is in no library: the process itself has generated it.
const MADE_AT_RUN_TIME: &str = "[made at run time]";
/// Stands for the outer functions if they cannot be found.
const UNKNOWN_CALLERS: &str = "[unknown callers]";
/// Characters of a function's name that are kept: types of C++ and Rust can be pages long.
const LONGEST_NAME: usize = 160;

/// Samples from its start until it is stopped.
pub struct StackSampler(ProfilerGuard<'static>);

impl StackSampler {
    /// Functions of libraries that are loaded later have no names.
    ///
    /// # Errors
    /// The process is sampled already, or the system refuses it.
    pub fn start() -> Result<Self> {
        let sampler = |frequency_hz: u32| {
            let guard = ProfilerGuardBuilder::default().frequency(frequency_hz as i32).build();
            guard.context("stacks cannot be sampled")
        };
        // At the first signal of a process, pprof allocates memory to read the tables, and would wait for ever if the signal has
        // interrupted an allocation. Here it interrupts nothing, a second before a slow timer would.
        let first = sampler(1)?;
        raise(Signal::SIGPROF).context("stacks cannot be sampled")?;
        drop(first);
        Ok(StackSampler(sampler(FREQUENCY_HZ)?))
    }

    /// Ends the sampling, and returns the stacks.
    pub fn stop(self) -> Result<CpuStacks> {
        let report = self.0.report().build_unresolved().context("stacks cannot be read")?;
        let mut functions = Functions::new();
        let mut stacks: HashMap<Vec<String>, u64> = HashMap::new();
        for (found, samples) in report.data {
            let thread = String::from_utf8_lossy(&found.thread_name[..found.thread_name_length]).into_owned();
            let mut frames = vec![thread];
            // The innermost address is where the thread was. The others are return addresses, which lie behind their
            // calls.
            let addresses =
                found.frames.iter().enumerate().map(|(place, frame)| frame.ip.saturating_sub(usize::from(place > 0)));
            let addresses: Vec<usize> = addresses.collect();
            // Assembly without tables leads to an address outside all code.
            let known =
                addresses.iter().skip(1).take_while(|&&address| functions.library(address).is_some()).count() + 1;
            if known < addresses.len() {
                frames.push(UNKNOWN_CALLERS.to_owned());
            }
            frames.extend(addresses.iter().take(known).rev().flat_map(|&address| functions.at(address)));
            *stacks.entry(frames).or_default() += u64::try_from(samples).unwrap_or_default();
        }
        let mut stacks: Vec<CpuStack> =
            stacks.into_iter().map(|(frames, samples)| CpuStack { frames, samples }).collect();
        stacks.sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| a.frames.cmp(&b.frames)));
        Ok(CpuStacks { frequency_hz: FREQUENCY_HZ, stacks })
    }
}

/// The names of functions by addresses.
struct Functions {
    known: HashMap<usize, Vec<String>>,
    /// The first and the last address of each part of a library, with the library's name.
    libraries: Vec<(usize, usize, String)>,
}

impl Functions {
    fn new() -> Self {
        let mut libraries = Vec::new();
        TargetSharedLibrary::each(|library| {
            let path = library.name().to_string_lossy().into_owned();
            let name = path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("executable").to_owned();
            for part in library.segments() {
                let first = findshlibs::Segment::actual_virtual_memory_address(&part, library).0;
                libraries.push((first, first + findshlibs::Segment::len(&part), name.clone()));
            }
        });
        Functions { known: HashMap::new(), libraries }
    }

    /// The functions at an address from the outermost to the innermost: more than one where calls were inlined.
    fn at(&mut self, address: usize) -> Vec<String> {
        let library = self.library(address).map(str::to_owned);
        let names = self.known.entry(address).or_insert_with(|| {
            let mut names = Vec::new();
            backtrace::resolve(address as *mut c_void, |symbol| {
                let name = symbol.name().and_then(|name| name.as_str().map(readable));
                names.extend(name);
            });
            if names.is_empty() {
                names.push(library.map_or_else(|| MADE_AT_RUN_TIME.to_owned(), |name| format!("[{name}]")));
            }
            names.reverse();
            names
        });
        names.clone()
    }

    fn library(&self, address: usize) -> Option<&str> {
        let library = self.libraries.iter().find(|(first, last, _)| (*first..*last).contains(&address));
        library.map(|(.., name)| name.as_str())
    }
}

/// The demangled name, cut if it is very long.
fn readable(mangled: &str) -> String {
    let name = symbolic_demangle::demangle(mangled);
    match name.char_indices().nth(LONGEST_NAME) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn function_that_takes_its_time(until: std::time::Instant) -> f64 {
        let mut sum = 0.0;
        while std::time::Instant::now() < until {
            sum += (1..2000).map(f64::from).map(f64::sqrt).sum::<f64>();
        }
        sum
    }

    #[test]
    fn a_function_that_takes_the_time_is_found_in_the_stacks_of_its_thread() {
        let sampler = StackSampler::start().unwrap();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(2);
        let thread = std::thread::Builder::new().name("busy".into());
        thread.spawn(move || std::hint::black_box(function_that_takes_its_time(until))).unwrap().join().unwrap();
        let stacks = sampler.stop().unwrap();
        // Other tests of this process run in other threads.
        let is_busy = |stack: &&CpuStack| stack.frames[0] == "busy";
        let has_function =
            |stack: &&CpuStack| stack.frames.iter().any(|name| name.contains("function_that_takes_its_time"));
        let all: u64 = stacks.stacks.iter().filter(is_busy).map(|stack| stack.samples).sum();
        let found: u64 = stacks.stacks.iter().filter(is_busy).filter(has_function).map(|stack| stack.samples).sum();
        assert!(2 * found > all && all > 10, "{found} of {all}: {stacks:?}");
    }

    #[test]
    fn names_are_those_of_the_source() {
        assert_eq!(
            readable("_ZN2at6native6linearERKNS_6TensorES3_"),
            "at::native::linear(at::Tensor const&, at::Tensor const&)"
        );
        assert_eq!(readable(&"x".repeat(200)).chars().count(), LONGEST_NAME + 1);
    }
}
