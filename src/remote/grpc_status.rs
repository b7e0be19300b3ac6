//! The status of a gRPC answer, which is in the HTTP/2 trailers.

use hyper::header::HeaderMap;

use super::fault::{Fault, Kind};

/// The status of an answer. Returns `None` if there is none.
pub fn status(headers: &HeaderMap) -> Option<u16> {
    headers.get("grpc-status")?.to_str().ok()?.parse().ok()
}

/// Checks the status of a whole answer.
///
/// # Errors
/// The status is missing or is an error. The kind follows from the HTTP status that `google/rpc/code.proto` maps it to.
pub fn check(headers: &HeaderMap) -> Result<(), Fault> {
    let Some(status) = status(headers) else {
        let media = headers.get(hyper::header::CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or_default();
        if !media.starts_with("application/grpc") {
            let why = format!("the answer has the content type {media:?}, not application/grpc");
            return Err(Fault::new(Kind::WrongType, why));
        }
        return Err(Fault::new(Kind::NoEnd, "the answer ended without a gRPC status"));
    };
    let (kind, name) = match status {
        0 => return Ok(()),
        1 => (Kind::ClientError, "cancelled"),
        3 => (Kind::ClientError, "invalid argument"),
        4 => (Kind::Timeout, "deadline exceeded"),
        5 => (Kind::ClientError, "not found"),
        6 => (Kind::ClientError, "already exists"),
        7 => (Kind::ClientError, "permission denied"),
        8 => (Kind::Busy, "resource exhausted"),
        9 => (Kind::ClientError, "failed precondition"),
        10 => (Kind::ClientError, "aborted"),
        11 => (Kind::ClientError, "out of range"),
        12 => (Kind::ServerError, "unimplemented"),
        13 => (Kind::ServerError, "internal"),
        14 => (Kind::Busy, "unavailable"),
        15 => (Kind::ServerError, "data loss"),
        16 => (Kind::ClientError, "unauthenticated"),
        _ => (Kind::ServerError, "unknown"),
    };
    let words = headers.get("grpc-message").map(|words| unescaped(words.as_bytes())).unwrap_or_default();
    Err(Fault::new(kind, format!("gRPC status {status} ({name}) {words}").trim_end().to_owned()))
}

/// Decodes a message, or a part of an address, in which `%` and two hexadecimal digits stand for a byte.
pub fn unescaped(words: &[u8]) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(words.len()), words);
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|digits| first == b'%' && digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or(first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|&(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_status_is_a_kind_with_the_words_of_the_server() {
        let of = |status: &str| check(&headers(&[("grpc-status", status), ("grpc-message", "no%20room%2")]));
        assert!(of("0").is_ok());
        for (status, kind) in [
            ("3", Kind::ClientError),
            ("4", Kind::Timeout),
            ("8", Kind::Busy),
            ("12", Kind::ServerError),
            ("14", Kind::Busy),
            ("99", Kind::ServerError),
        ] {
            let fault = of(status).unwrap_err();
            assert_eq!(fault.kind, kind, "{status}");
            assert!(fault.detail.ends_with(") no room%2"), "{fault}");
        }
        assert_eq!(check(&headers(&[("content-type", "application/grpc+proto")])).unwrap_err().kind, Kind::NoEnd);
        assert_eq!(check(&headers(&[("content-type", "text/html")])).unwrap_err().kind, Kind::WrongType);
        assert_eq!(of("many").unwrap_err().kind, Kind::WrongType);
    }

    #[test]
    fn a_percent_sign_without_two_digits_is_itself() {
        assert_eq!(
            ["a%20b", "%+5", "100%", "%2", "%zz"].map(|words| unescaped(words.as_bytes())),
            ["a b", "%+5", "100%", "%2", "%zz"]
        );
    }
}
