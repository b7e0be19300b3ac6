//! The status of a case, and the failure of a case.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr};

/// The outcome of one case in one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[derive(Serialize, Deserialize, JsonSchema, Display, IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Status {
    /// Measured, and its outputs were right where there is a reference.
    Ok,
    /// The backend cannot run this model, dtype or shape.
    Unsupported,
    /// The backend or device is not on this machine or not in this build.
    Unavailable,
    /// It could not run for another reason.
    #[default]
    Failed,
    /// It ran, and its outputs are not those of the model.
    WrongOutput,
    /// It ran; its outputs look wrong and there is nothing to compare them with.
    Suspicious,
    OutOfMemory,
    Timeout,
    /// It was measured, and the results scatter too much for a conclusion. No measurement gives this status.
    Unstable,
}

impl Status {
    /// Whether a case with this status has figures. Only `ok` ones are ranked and compared.
    pub fn is_measured(self) -> bool {
        matches!(self, Status::Ok | Status::Suspicious)
    }

    /// Whether a case with this status should have run: it is neither unsupported nor unavailable, and its outputs are not wrong.
    pub fn is_failure(self) -> bool {
        matches!(self, Status::Failed | Status::Timeout)
    }

    /// The name in records.
    pub fn name(self) -> &'static str {
        self.into()
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
    /// A failure with this status and message.
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        CaseFailure { status, message: message.into() }
    }

    /// The backend cannot run this.
    pub fn unsupported(message: impl Into<String>) -> Self {
        CaseFailure::new(Status::Unsupported, message)
    }

    /// Something is not on this machine.
    pub fn unavailable(message: impl Into<String>) -> Self {
        CaseFailure::new(Status::Unavailable, message)
    }

    /// It could not run for another reason.
    pub fn failed(message: impl Into<String>) -> Self {
        CaseFailure::new(Status::Failed, message)
    }
}
