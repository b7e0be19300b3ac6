//! Who may send requests: checks the host name, the site that a browser's request comes from, and the token.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::Settings;
use super::context::Context;
use super::failure::Failure;
use super::listener::MOST_HEAD;

/// The most bytes of a request's body.
pub const MOST_BODY: usize = 1 << 20;
/// The content security policy of this server's pages: they may load only their own parts and call only this server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
    frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'";
/// The paths below which a GET starts a measurement.
const STARTS_BY_GET: &str = "/api/v1/benchmark/";
/// Makes a browser ask for a name and a password. The password is the token.
const QUESTION: &str = "Basic realm=\"inferbench\", charset=\"UTF-8\"";

/// Lets a request pass or refuses it. By its headers, every response forbids browsers to guess its type or to keep it.
pub async fn guard(State(context): State<Arc<Context>>, request: Request, next: Next) -> Response {
    let checked = check(&context, request.uri().path(), request.headers());
    if context.queue.running().is_some() {
        // Refused requests also take time from the measurement, but no turns from the other requests.
        let pace = if checked.is_ok() { &context.pace } else { &context.refusals };
        pace.turn().await;
    }
    let mut response = match checked {
        Ok(()) => next.run(request).await,
        Err(failure) => failure.into_response(),
    };
    let is_refused = response.status() == StatusCode::UNAUTHORIZED;
    let headers = response.headers_mut();
    if is_refused {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(QUESTION));
    }
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(POLICY));
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn check(context: &Context, path: &str, headers: &HeaderMap) -> Result<(), Failure> {
    if headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>() > MOST_HEAD {
        let message = format!("the headers have more than {} KiB", MOST_HEAD >> 10);
        return Err(Failure::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, message));
    }
    let forbidden = |message: &str| Failure::new(StatusCode::FORBIDDEN, message);
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let is_single = headers.get_all(header::HOST).iter().count() == 1;
    // A page of another site can have its own name resolved to this machine. An address always means itself.
    let Settings { hosts, token, .. } = &context.settings;
    if !is_single || !is_known(name_of(host), hosts, token.is_some()) {
        return Err(forbidden("the request names another host; `--allow-host NAME` adds a name of this server"));
    }
    if let Some(origin) = headers.get(header::ORIGIN) {
        let own = origin.to_str().ok().and_then(|origin| origin.split_once("://")).is_some_and(|(_, its)| its == host);
        if !own {
            return Err(forbidden("the request comes from a page of another site"));
        }
    }
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    if site.is_some_and(|site| site != b"same-origin" && site != b"none") {
        return Err(forbidden("the request comes from a page of another site"));
    }
    let Some(token) = token else { return Ok(()) };
    let given = headers.get(header::AUTHORIZATION).and_then(|given| given.to_str().ok()).unwrap_or_default();
    let (scheme, rest) = given.split_once(' ').unwrap_or_default();
    let given = match scheme.to_ascii_lowercase().as_str() {
        "bearer" => rest.trim().as_bytes().to_vec(),
        // A browser sends it unasked, even for a picture in a page of another site: it must not start a measurement by
        // GET.
        "basic" if !path.starts_with(STARTS_BY_GET) => {
            let pair = BASE64_STANDARD.decode(rest.trim()).unwrap_or_default();
            pair.splitn(2, |byte| *byte == b':').nth(1).unwrap_or_default().to_vec()
        }
        _ => Vec::new(),
    };
    if is_equal(&given, token.as_bytes()) {
        return Ok(());
    }
    Err(Failure::new(
        StatusCode::UNAUTHORIZED,
        "the request needs the token of this server, as `Authorization: Bearer TOKEN`",
    ))
}

/// The host without the port: `[::1]:8000` is `::1`.
fn name_of(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

/// Whether clients may call the server by this name. `0.0.0.0` leads to this machine, but browsers do not say which
/// site such a request comes from: it needs the token.
fn is_known(name: &str, hosts: &[String], has_token: bool) -> bool {
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| has_token || !address.to_canonical().is_unspecified())
        || hosts.iter().any(|host| host.eq_ignore_ascii_case(name))
}

/// Compares two texts of equal length in a time that does not depend on where they differ.
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let differing = one.iter().zip(other).fold(0, |differing, (a, b)| differing | (a ^ b));
    one.len() == other.len() && std::hint::black_box(differing) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_named_hosts_are_known() {
        for host in
            ["127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]:8000", "192.168.1.7:80", "bench.example.org:8000"]
        {
            assert!(is_known(name_of(host), &["bench.example.org".into()], false), "{host}");
        }
        for host in ["", "evil.example", "localhost.evil.example:8000", "127.0.0.1.evil.example", "[::1", "1.2.3"] {
            assert!(!is_known(name_of(host), &["bench.example.org".into()], true), "{host}");
        }
    }

    #[test]
    fn the_unspecified_address_is_known_only_to_a_server_with_a_token() {
        for host in ["0.0.0.0:8000", "[::]:8000", "[::ffff:0.0.0.0]"] {
            assert_eq!([false, true].map(|has_token| is_known(name_of(host), &[], has_token)), [false, true], "{host}");
        }
    }

    #[test]
    fn texts_are_equal_in_all_their_bytes() {
        assert!(is_equal(b"abc", b"abc"));
        for other in [b"abd".as_slice(), b"ab", b"abcd", b""] {
            assert!(!is_equal(b"abc", other));
        }
    }
}
