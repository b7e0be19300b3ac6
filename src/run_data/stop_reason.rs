//! Why a case was measured with so many calls and no more.

/// Why no more calls were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "kebab-case")]
pub enum StopReason {
    /// There are as many as were asked for, or as many as fill the least time.
    Iterations,
    /// The percentile that was asked for has its bound.
    PercentileBound,
    /// The interval of the mean is as narrow as was asked for.
    Interval,
    /// There would have been more, but the budget was spent.
    Budget,
    /// There are as many as are ever kept.
    MostCalls,
    /// Criterion's own arguments said how many.
    Arguments,
}
