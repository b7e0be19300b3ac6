//! Statistics without a subject: functions of numbers, each with its source. They know nothing of models, runs or
//! files.
//!
//! It takes numbers. It gives numbers. What a figure means is decided in the rooms above.
//!
//! Percentiles of calls ([`SortedCalls`]) are calls that were made (nearest rank), with bounds; the median of other
//! figures ([`median`]) is the mean of the two in the middle, so that it changes its sign with the figures.

mod autocorrelation;
mod bootstrap;
mod calls;
mod discoveries;
mod early_stopping;
mod moments;
mod proportion;
mod random;
mod signed_rank;
mod student;

pub use autocorrelation::{autocorrelation, autocorrelation_of};
pub use bootstrap::bootstrap_interval;
pub use calls::{CONFIDENCE, SortedCalls, calls_for_bound, nearest_rank, relative_half_width};
pub use discoveries::discoveries;
pub use early_stopping::{FEWEST_FOR_DEPENDENCE, dependence, most_over, queries_for};
pub use moments::{geometric_mean, mean, mean_and_deviation, median, pooled_variance, variance};
pub use proportion::{paired_difference_interval, proportion_interval};
pub use random::{mix, uniform};
pub use signed_rank::SignedRank;
pub use student::StudentT;
