//! Exit codes. A code's meaning never changes.

/// All well.
pub const OK: u8 = 0;
/// A regression, a wrong output, or a load whose latency is not within its bound.
pub const REGRESSION_OR_WRONG: u8 = 1;
/// Bad usage, or a bad file.
pub const USAGE: u8 = 2;
/// Nothing could be measured.
pub const NOTHING_MEASURED: u8 = 3;
/// The machine is too unstable to say, of one case at least: a regression is neither shown nor excluded.
pub const UNSTABLE: u8 = 4;
/// A case failed or took too long that should have run: it is neither unsupported nor unavailable, and its outputs are not wrong.
pub const CASE_FAILED: u8 = 5;
/// Stopped by Ctrl-C or SIGTERM; what was finished is kept.
pub const INTERRUPTED: u8 = 130;
