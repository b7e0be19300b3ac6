//! Whether one side of a comparison is faster or slower than the other, and how sure that is.

mod verdict;

pub use verdict::{RatioInterval, Verdict, Yardstick, discoveries};
