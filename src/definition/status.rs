//! What became of a case.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The outcome of one case in one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Measured, and its outputs were right where there is a reference.
    Ok,
    /// The backend cannot run this model, dtype or shape.
    Unsupported,
    /// The backend or device is not on this machine or not in this build.
    Unavailable,
    /// It should have run and did not.
    #[default]
    Failed,
    /// It ran, and its outputs are not the model's.
    WrongOutput,
    OutOfMemory,
    Timeout,
    /// It was measured, and the figures are too scattered to say anything.
    Unstable,
}

impl Status {
    pub fn name(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Unsupported => "unsupported",
            Status::Unavailable => "unavailable",
            Status::Failed => "failed",
            Status::WrongOutput => "wrong-output",
            Status::OutOfMemory => "out-of-memory",
            Status::Timeout => "timeout",
            Status::Unstable => "unstable",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Why a case has no figures: a status other than `ok`, and the reason for a reader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{status}: {message}")]
pub struct CaseFailure {
    pub status: Status,
    pub message: String,
}

impl CaseFailure {
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        CaseFailure { status, message: message.into() }
    }

    pub fn unsupported(message: impl Into<String>) -> Self {
        CaseFailure::new(Status::Unsupported, message)
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        CaseFailure::new(Status::Unavailable, message)
    }

    pub fn failed(message: impl Into<String>) -> Self {
        CaseFailure::new(Status::Failed, message)
    }
}
