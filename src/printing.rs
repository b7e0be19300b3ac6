//! `print!`, `println!` and `eprintln!` of this crate. They go on where those of the standard library panic: a closed
//! pipe (`| head`) must not end a run. Panics of libraries that are turned into errors are not printed.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

macro_rules! print {
    ($($text:tt)*) => {
        $crate::printing::without_reader(std::io::Write::write_fmt(&mut std::io::stdout(), format_args!($($text)*)))
    };
}

macro_rules! println {
    ($($text:tt)*) => {
        print!("{}\n", format_args!($($text)*))
    };
}

macro_rules! eprintln {
    ($($text:tt)*) => {
        // There is no other place for an error about this.
        drop(std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{}\n", format_args!($($text)*))))
    };
}

/// True once a write to standard output has failed, for example because the disk is full. A closed pipe does not count.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// Reports the first failed write, unless the pipe is closed. The command goes on, so that its other results are not
/// lost.
pub(crate) fn without_reader(written: std::io::Result<()>) {
    if let Err(error) = written
        && error.kind() != std::io::ErrorKind::BrokenPipe
        && !HAS_FAILED.swap(true, Ordering::Relaxed)
    {
        eprintln!("inferbench: standard output: {error}");
    }
}

/// Flushes standard output. Returns whether no write has failed.
pub(crate) fn is_printed() -> bool {
    without_reader(std::io::Write::flush(&mut std::io::stdout()));
    !HAS_FAILED.load(Ordering::Relaxed)
}

thread_local! {
    /// It is true while panics of this thread are turned into errors.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Runs code of a library that may panic. A panic becomes the error, and is not reported on standard error.
///
/// # Errors
/// The code panicked; the error is the panic's payload.
pub(crate) fn caught<T>(action: impl FnOnce() -> T) -> Result<T, Box<dyn Any + Send>> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = take_hook();
        set_hook(Box::new(move |panic| {
            if !IS_CAUGHT.get() {
                report(panic);
            }
        }));
    });
    let before = IS_CAUGHT.replace(true);
    let result = catch_unwind(AssertUnwindSafe(action));
    IS_CAUGHT.set(before);
    result
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::{is_printed, without_reader};

    #[test]
    fn a_full_disk_is_an_error_and_a_reader_that_has_gone_away_is_none() {
        without_reader(Err(Error::from(ErrorKind::BrokenPipe)));
        assert!(is_printed());
        without_reader(Err(Error::from(ErrorKind::StorageFull)));
        assert!(!is_printed());
    }
}
