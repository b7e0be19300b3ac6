//! Why a request has no right answer: a kind that is counted, and words for a reader.

use std::error::Error;
use std::io;

use anyhow::Chain;
use strum::Display;

/// The kinds of errors, as the column `errors` counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Display)]
#[strum(serialize_all = "kebab-case")]
pub enum Kind {
    /// The name of the server has no address.
    Unresolved,
    /// Nothing listens at the address.
    Refused,
    /// No connection for another reason.
    Unreachable,
    /// The certificate does not match the server's name, or no trusted authority signed it.
    Certificate,
    /// The TLS handshake failed for another reason.
    Tls,
    /// The answer did not come in time.
    Timeout,
    /// The server reset the connection.
    Reset,
    /// The server closed the connection before it answered.
    Closed,
    /// `Reset` or `Closed` on a connection that was open before the request: the server may have closed it because it
    /// was idle, while the request was on its way.
    Stale,
    /// The answer ended early.
    Truncated,
    /// The head of the answer is not HTTP, or is too large.
    Head,
    /// The answer is larger than inferbench reads.
    TooLarge,
    /// The server names another address. Redirects are not followed.
    Redirect,
    /// Status 429 or 503, or a refused HTTP/2 stream: the server is overloaded.
    Busy,
    /// Another status from 400 to 499.
    ClientError,
    /// Another status from 500 on, an error in a stream, an answer that the server broke off, or an HTTP/2 stream that
    /// it reset.
    ServerError,
    /// The answer does not have the form of the protocol.
    WrongType,
    /// An output is missing, or has the wrong shape.
    WrongShape,
    /// An output has a value that is not a number or is infinite.
    NotFinite,
    /// The outputs differ from the reference.
    WrongValues,
    /// A stream ended without an end marker, or an answer of gRPC without a status.
    NoEnd,
    /// The model ended its answer at once.
    Empty,
    /// The load test ended before the answer came.
    Interrupted,
}

impl Kind {
    /// Whether the server gave a wrong answer.
    pub fn is_wrong_answer(self) -> bool {
        matches!(self, Kind::WrongType | Kind::WrongShape | Kind::NotFinite | Kind::WrongValues)
    }

    /// Whether there is no server to talk to.
    pub fn is_absence(self) -> bool {
        matches!(
            self,
            Kind::Unresolved
                | Kind::Refused
                | Kind::Unreachable
                | Kind::Certificate
                | Kind::Tls
                | Kind::Reset
                | Kind::Closed
                | Kind::Stale
        )
    }
}

/// Why a request has no right answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{kind}: {detail}")]
pub struct Fault {
    pub kind: Kind,
    pub detail: String,
}

impl Fault {
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Fault { kind, detail: detail.into() }
    }

    /// Why there is no connection.
    pub fn of_connecting(error: &io::Error) -> Self {
        use tokio_rustls::rustls;
        if let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            let kind = if matches!(tls, rustls::Error::InvalidCertificate(_)) { Kind::Certificate } else { Kind::Tls };
            return Fault::new(kind, tls.to_string());
        }
        let kind = match error.kind() {
            io::ErrorKind::ConnectionRefused => Kind::Refused,
            io::ErrorKind::ConnectionReset => Kind::Reset,
            io::ErrorKind::TimedOut => Kind::Timeout,
            io::ErrorKind::InvalidData => Kind::Tls,
            _ => Kind::Unreachable,
        };
        Fault::new(kind, error.to_string())
    }

    /// Makes the end of a connection `stale` if it was open before the request.
    pub fn on_connection(self, is_used: bool) -> Self {
        match self.kind {
            Kind::Closed | Kind::Reset if is_used => Fault {
                kind: Kind::Stale,
                detail: format!("the connection, which was open before the request, ended: {}", self.detail),
            },
            _ => self,
        }
    }

    /// Why an answer is missing or incomplete. `has_head` says whether its head came.
    pub fn of_http(error: &hyper::Error, has_head: bool) -> Self {
        let detail = Chain::new(error).map(ToString::to_string).collect::<Vec<_>>().join(": ");
        let unfinished = if has_head { Kind::Truncated } else { Kind::Closed };
        if error.is_parse() || error.is_parse_too_large() {
            return Fault::new(if has_head { Kind::Truncated } else { Kind::Head }, detail);
        }
        // Only the stream was reset. The connection still works, so there is a server.
        let reset = Chain::new(error).find_map(|it| it.downcast_ref::<h2::Error>());
        if let Some(reset) = reset.filter(|it| it.is_reset() && it.is_remote()) {
            let kind = match reset.reason() {
                Some(h2::Reason::REFUSED_STREAM | h2::Reason::ENHANCE_YOUR_CALM) => Kind::Busy,
                _ if has_head => Kind::Truncated,
                _ => Kind::ServerError,
            };
            return Fault::new(kind, detail);
        }
        let kind = match io_kind(error) {
            Some(io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionAborted) => {
                Kind::Reset
            }
            Some(io::ErrorKind::TimedOut) => Kind::Timeout,
            _ => unfinished,
        };
        Fault::new(kind, detail)
    }
}

/// Separates faults of the server from other errors, which are about the user's request.
///
/// # Errors
/// The error, if it is not a fault.
pub fn apart<T>(done: anyhow::Result<T>) -> anyhow::Result<Result<T, Fault>> {
    match done {
        Ok(done) => Ok(Ok(done)),
        Err(error) => error.downcast().map(Err),
    }
}

fn io_kind(error: &(dyn Error + 'static)) -> Option<io::ErrorKind> {
    Chain::new(error).find_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind)
}
