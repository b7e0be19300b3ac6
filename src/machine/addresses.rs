//! The addresses of a process's memory. Systems draw them at random for each process, and they make it some per cent
//! faster or slower (Mytkowicz et al. 2009, "Producing wrong data without doing anything obviously wrong!").
//!
//! In a paired benchmark, the arms of one generation get the same addresses, and each generation gets new ones.

use std::process::{Child, Command};

/// The variable that displaces a process's memory by one byte per character of its value: the environment lies on the
/// stack.
const DISPLACEMENT: &str = "ARM_DISPLACEMENT";
/// Displacements are smaller than this, a page.
pub const MOST_DISPLACEMENT: usize = 4096;

const LARGE_PAGE: usize = 2 << 20;

/// Starts a process whose addresses depend only on its executable, its environment and `displacement`. Where the system
/// does not allow it (see [`can_fix_addresses`]), they stay random.
pub fn spawn_displaced(command: &mut Command, displacement: usize) -> std::io::Result<Child> {
    command.env(DISPLACEMENT, "-".repeat(displacement % MOST_DISPLACEMENT));
    with_fixed_addresses(|| command.spawn()).0
}

/// Whether the system lets processes have addresses that are not random. Linux does, unless a container forbids it.
pub fn can_fix_addresses() -> bool {
    with_fixed_addresses(|| ()).1
}

/// Runs `start`. The processes that it starts have fixed addresses if the second value is true.
#[cfg(target_os = "linux")]
fn with_fixed_addresses<T>(start: impl FnOnce() -> T) -> (T, bool) {
    use nix::sys::personality::{Persona, get, set};
    let own = get().and_then(|own| set(own | Persona::ADDR_NO_RANDOMIZE));
    let started = start();
    let is_fixed = own.is_ok();
    let _ = own.and_then(set);
    (started, is_fixed)
}

#[cfg(not(target_os = "linux"))]
fn with_fixed_addresses<T>(start: impl FnOnce() -> T) -> (T, bool) {
    (start(), false)
}

/// Displaces what this process maps from now on (libraries, large buffers), according to the displacement that it was
/// started with.
pub fn displace_mappings() {
    if let Some(length) = displacing_mapping() {
        // The compiler would leave out memory that nobody uses.
        std::mem::forget(std::hint::black_box(Vec::<u8>::with_capacity(length)));
    }
}

/// The length of a mapping that displaces all later ones. Returns `None` if this process was started without a
/// displacement.
pub fn displacing_mapping() -> Option<usize> {
    std::env::var_os(DISPLACEMENT).map(|displacement| mapping_for(displacement.len()))
}

/// A page for every 16 bytes of the displacement, and the rest in large pages: systems begin libraries and large buffers at a
/// multiple of a large page.
fn mapping_for(displacement: usize) -> usize {
    // An allocation of this size is a mapping of its own in every allocator.
    const LEAST: usize = 4 << 20;
    const PAGE: usize = 4096;
    LEAST + displacement / 16 * PAGE + displacement % 16 * LARGE_PAGE
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::process::Stdio;

    /// The ranges of addresses that a process of `cat` has.
    fn maps(displacement: usize) -> String {
        let mut command = Command::new("cat");
        command.arg("/proc/self/maps").stdout(Stdio::piped());
        let output = spawn_displaced(&mut command, displacement).unwrap().wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().filter_map(|line| line.split_whitespace().next()).map(|range| format!("{range}\n")).collect()
    }

    #[test]
    fn each_displacement_moves_pages_and_many_move_large_pages() {
        let lengths: BTreeSet<usize> = (0..MOST_DISPLACEMENT).map(mapping_for).collect();
        assert_eq!(lengths.len(), MOST_DISPLACEMENT);
        let large: BTreeSet<usize> = lengths.iter().map(|length| length / LARGE_PAGE).collect();
        assert_eq!(large.len(), 16);
    }

    #[test]
    fn addresses_are_the_same_for_one_displacement() {
        if can_fix_addresses() {
            assert_eq!(maps(100), maps(100));
        }
    }
}
