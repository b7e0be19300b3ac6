//! `print!`, `println!` and `eprintln!` of this crate, which go on where those of the standard library panic: a reader of the output that
//! has gone away (`| head`) must not end a run. The panics of libraries that become errors are not printed.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

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

/// Panics if writing has failed for another reason than that nobody reads.
pub(crate) fn without_reader(written: std::io::Result<()>) {
    if let Err(error) = written
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        panic!("standard output: {error}");
    }
}

thread_local! {
    /// It is true while panics of this thread are turned into errors.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Runs code of a library that may panic. A panic is the error, and is not reported on standard error.
///
/// # Errors
/// The code panicked, with this.
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

    use super::without_reader;

    #[test]
    fn a_reader_that_has_gone_away_is_no_error() {
        without_reader(Err(Error::from(ErrorKind::BrokenPipe)));
    }

    #[test]
    #[should_panic(expected = "standard output: no storage space")]
    fn a_full_disk_is_one() {
        without_reader(Err(Error::from(ErrorKind::StorageFull)));
    }
}
