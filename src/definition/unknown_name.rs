//! The error for a name that is not one of a list.

/// A name that is none of those that there are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {kind} {name:?}; there are {}", known.join(", "))]
pub struct UnknownName {
    kind: &'static str,
    name: String,
    known: &'static [&'static str],
}

impl UnknownName {
    /// `kind` says what was named, and `known` lists the names that there are.
    pub(super) fn new(kind: &'static str, name: &str, known: &'static [&'static str]) -> Self {
        UnknownName { kind, name: name.into(), known }
    }
}
