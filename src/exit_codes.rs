//! Exit codes. A code's meaning never changes.

/// No problem found.
pub const OK: u8 = 0;
/// A regression, a wrong output, or a load test above its latency bound.
pub const REGRESSION_OR_WRONG: u8 = 1;
/// Bad usage or a bad file.
pub const USAGE: u8 = 2;
/// Nothing could be measured.
pub const NOTHING_MEASURED: u8 = 3;
/// Undecided, usually because the machine is too noisy: a regression is neither shown nor excluded for at least one
/// case.
pub const UNSTABLE: u8 = 4;
/// A case failed or took too long. Unsupported and unavailable cases and wrong outputs do not count here.
pub const CASE_FAILED: u8 = 5;
/// Interrupted by Ctrl-C or SIGTERM; finished cases are kept.
pub const INTERRUPTED: u8 = 130;
