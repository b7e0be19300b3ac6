//! `print!`, `println!` and `eprintln!` of this crate, which go on where those of the standard library panic: a reader of the output that
//! has gone away (`| head`) must not end a run.

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
