//! The server under load: its address, whether inferbench may contact it, and secrets such as tokens.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use hyper::Uri;
use hyper::header::{HeaderName, HeaderValue};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use super::fault::{Fault, Kind};
use super::grpc_status::unescaped;

/// Headers in the order in which they are sent.
pub type Headers = Vec<(HeaderName, HeaderValue)>;

/// What is known about a server before the first connection. It has no `Debug`, because its headers may be secret.
pub struct Target {
    /// The host with its port, as the header `Host` has it.
    pub authority: String,
    /// The path of the address, without a `/` at its end.
    pub path: String,
    pub query: Option<String>,
    pub addresses: Vec<SocketAddr>,
    /// Absent if connections are not encrypted.
    pub tls: Option<Tls>,
    pub is_http2: bool,
    /// Whether the scheme of the address is `grpc` or `grpcs`.
    pub is_grpc: bool,
    /// The user's headers, which every request carries. Credentials are only here.
    pub headers: Headers,
}

/// How connections are encrypted.
pub struct Tls {
    pub config: Arc<ClientConfig>,
    pub name: ServerName<'static>,
}

/// The user's flags about the address of a server.
#[derive(Clone, Debug, Default)]
pub struct Address {
    pub url: String,
    /// Other machines that may be put under load.
    pub allowed_hosts: Vec<String>,
    pub is_http2: bool,
    /// A file of PEM certificates that are trusted in place of the system's.
    pub certificates: Option<std::path::PathBuf>,
}

impl Target {
    /// Parses the URL and resolves its host. A name without an address is a [`Fault`], which is counted.
    ///
    /// # Errors
    /// The URL or a file of certificates is wrong, the host is another machine that is not allowed, or secrets would be
    /// sent to another machine in plain text.
    pub fn find(address: &Address, headers: Headers) -> Result<Result<Self, Fault>> {
        let Address { url, allowed_hosts, is_http2, certificates } = address;
        let uri: Uri = url.parse().ok().context("--url is not an address; write http://127.0.0.1:8000")?;
        let (is_tls, is_grpc) = match uri.scheme_str() {
            Some("http") => (false, false),
            Some("https") => (true, false),
            Some("grpc") => (false, true),
            Some("grpcs") => (true, true),
            _ => bail!("--url begins with http://, https://, grpc:// or grpcs://"),
        };
        let is_http2 = *is_http2 || is_grpc;
        let authority = uri.authority().context("--url has no host; write http://127.0.0.1:8000")?;
        ensure!(
            !authority.as_str().contains('@'),
            "--url has a user name or password, which lists of processes would show: put the token into a file, and pass it with `--token`"
        );
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let after_host = authority.as_str().rsplit_once(']').map_or(authority.as_str(), |(_, after)| after);
        // A wrong port must not become the default port, at which another server may listen.
        let port: u16 = match after_host.split_once(':').map(|(_, port)| port).filter(|port| !port.is_empty()) {
            Some(port) => port.parse().ok().context("--url has a port that is not a number from 0 to 65535")?,
            None if is_tls => 443,
            None => 80,
        };
        let is_here = is_this_machine(&host);
        ensure!(
            is_here || allowed_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(&host)),
            "{host} is another machine, which a load test may harm: pass `--allow-host {host}` if you may put it under load"
        );
        ensure!(is_tls || is_here || headers.is_empty(), "secrets are sent to other machines over https only");
        let addresses: Vec<SocketAddr> = match (host.as_str(), port).to_socket_addrs() {
            Ok(addresses) => addresses.collect(),
            Err(error) => return Ok(Err(Fault::new(Kind::Unresolved, format!("{host}: {error}")))),
        };
        ensure!(
            !is_here || addresses.iter().all(|address| address.ip().is_loopback()),
            "{host} does not resolve to this machine alone: write 127.0.0.1"
        );
        let tls = is_tls.then(|| tls(&host, certificates.as_deref(), is_http2)).transpose()?;
        Ok(Ok(Target {
            authority: authority.as_str().to_owned(),
            path: uri.path().trim_end_matches('/').to_owned(),
            query: uri.query().map(str::to_owned),
            is_http2,
            is_grpc,
            addresses,
            tls,
            headers,
        }))
    }

    /// The fault with words that may be shown and kept.
    pub fn cleaned(&self, fault: Fault) -> Fault {
        Fault { detail: self.cleaned_text(&fault.detail, MOST_WORDS), ..fault }
    }

    /// The server's words as they may be shown and kept: one line of at most `most` characters, without the user's
    /// secrets, which a server may repeat.
    pub fn cleaned_text(&self, text: &str, most: usize) -> String {
        let mut text: String = text.chars().map(|c| if c.is_whitespace() { ' ' } else { c }).filter(is_shown).collect();
        for secret in self.secrets() {
            text = text.replace(&secret, "***");
        }
        match text.char_indices().nth(most) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    }

    /// Everything that must not be shown, the longest first: the values of headers and of the query, and their parts.
    fn secrets(&self) -> Vec<String> {
        const LEAST: usize = 4;
        let headers = self.headers.iter().filter_map(|(_, value)| value.to_str().ok());
        let parts = headers
            .chain(self.query.as_deref())
            .flat_map(|text| [text].into_iter().chain(text.split([' ', '&', ';', ',']).map(value_of)));
        let is_secret = |part: &String| part.chars().count() >= LEAST && !["Bearer", "Basic"].contains(&part.as_str());
        // A server may repeat a query as it was sent or decoded, and either with the escapes of JSON.
        let read = |part: &str| unescaped(part.as_bytes());
        let forms = |part: &str| {
            let in_json = [part.replace('/', "\\/"), part.replace('+', "\\u002B")];
            [part.to_owned(), read(part), read(&part.replace('+', " "))].into_iter().chain(in_json)
        };
        let mut secrets: Vec<String> = parts.flat_map(forms).filter(is_secret).collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.dedup();
        secrets
    }

    /// The address as results show it: without its query, which may be secret.
    pub fn shown(&self) -> String {
        let scheme = if self.is_grpc { "grpc" } else { "http" };
        format!("{scheme}{}://{}{}", if self.tls.is_some() { "s" } else { "" }, self.authority, self.path)
    }
}

/// The most characters that are shown of a server's words about an error.
const MOST_WORDS: usize = 300;

/// The value of `name=value`. The `=` at the end of base64 is padding, and does not begin a value.
fn value_of(pair: &str) -> &str {
    match pair.split_once('=') {
        Some((_, value)) if !value.trim_start_matches('=').is_empty() => value,
        _ => pair,
    }
}

/// Whether a character may be shown. Characters that control a terminal, are invisible, or change the direction of
/// writing may not.
fn is_shown(c: &char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Whether a name or an address is certainly that of this machine.
fn is_this_machine(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn tls(host: &str, certificates: Option<&Path>, is_http2: bool) -> Result<Tls> {
    let mut roots = RootCertStore::empty();
    match certificates {
        Some(file) => {
            let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            let read = read.map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))?;
            ensure!(!read.is_empty(), "{} has no PEM certificate", file.display());
            for certificate in read {
                roots.add(certificate).with_context(|| file.display().to_string())?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            ensure!(!roots.is_empty(), "the system has no trusted certificates: pass a file with `--certificates`");
        }
    }
    let provider = Arc::new(crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![if is_http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    let name = ServerName::try_from(host.to_owned()).with_context(|| format!("{host} cannot have a certificate"))?;
    Ok(Tls { config: Arc::new(config), name })
}

/// The header with the token of the file, or else of the variable. Returns `None` if there is neither.
///
/// # Errors
/// The file cannot be read, or is not a token in a single line.
pub fn token(file: Option<&Path>, variable: &str) -> Result<Option<(HeaderName, HeaderValue)>> {
    let text = match file {
        Some(file) => {
            Some(fs_err::read_to_string(file).context("`--token` names a file that has the token in its only line")?)
        }
        None => std::env::var(variable).ok(),
    };
    let text = text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty() || file.is_some());
    let Some(text) = text else { return Ok(None) };
    ensure!(
        !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic()),
        "a token is a single line of ASCII characters without spaces"
    );
    Ok(Some((hyper::header::AUTHORIZATION, secret(&format!("Bearer {text}"))?)))
}

/// Reads a file with one header per line, such as `x-api-key: …`.
///
/// # Errors
/// The file cannot be read, or a line is not a header. The message has the number of the line, and not its text.
pub fn headers_of_file(file: &Path) -> Result<Headers> {
    let text = fs_err::read_to_string(file)?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let header = |(place, line): (usize, &str)| {
        let read = || {
            let (name, value) = line.split_once(':')?;
            Some((name.trim().parse().ok()?, secret(value.trim()).ok()?))
        };
        read().with_context(|| format!("{}: line {} is not a header: write `name: value`", file.display(), place + 1))
    };
    lines.map(header).collect()
}

fn secret(text: &str) -> Result<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok().context("a header has characters that HTTP does not allow")?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(url: &str, allowed: &[&str], headers: Headers) -> Result<Result<Target, Fault>> {
        let allowed_hosts = allowed.iter().map(|&host| host.to_owned()).collect();
        Target::find(&Address { url: url.to_owned(), allowed_hosts, ..Address::default() }, headers)
    }

    #[test]
    fn other_machines_need_a_permission_and_secrets_need_tls() {
        let target = find("http://127.0.0.1:8080/prefix/?key=1", &[], Vec::new()).unwrap().unwrap();
        assert_eq!((target.shown().as_str(), target.path.as_str()), ("http://127.0.0.1:8080/prefix", "/prefix"));
        assert_eq!(find("http://localhost", &[], Vec::new()).unwrap().unwrap().addresses[0].port(), 80);
        assert!(find("http://[::1]:9", &[], Vec::new()).unwrap().is_ok());
        assert!(find("http://LocalHost:9", &[], Vec::new()).unwrap().is_ok());
        for url in ["http://[::1]", "http://127.0.0.1:"] {
            assert_eq!(find(url, &[], Vec::new()).unwrap().unwrap().addresses[0].port(), 80, "{url}");
        }
        let secret = || vec![(hyper::header::AUTHORIZATION, secret("Bearer s3cret").unwrap())];
        assert!(find("http://127.0.0.1:1", &[], secret()).unwrap().is_ok());
        for (url, allowed, headers, why) in [
            ("http://192.0.2.1:80", vec![], Vec::new(), "--allow-host 192.0.2.1"),
            ("http://example.invalid", vec!["other"], Vec::new(), "--allow-host example.invalid"),
            ("http://192.0.2.1", vec!["192.0.2.1"], secret(), "over https only"),
            ("http://me:word@127.0.0.1", vec![], Vec::new(), "--token"),
            ("ftp://127.0.0.1", vec![], Vec::new(), "http://"),
            ("127.0.0.1:80", vec![], Vec::new(), "http://"),
            ("", vec![], Vec::new(), "not an address"),
            ("http://127.0.0.1:80800", vec![], Vec::new(), "a port that is not a number"),
            ("http://127.0.0.1:80a", vec![], Vec::new(), "a port that is not a number"),
            ("http://[::1]:65536", vec![], Vec::new(), "a port that is not a number"),
        ] {
            let error = find(url, &allowed, headers).err().unwrap().to_string();
            assert!(error.contains(why) && !error.contains("s3cret") && !error.contains("word@"), "{url}: {error}");
        }
    }

    #[test]
    fn what_a_server_says_is_shown_in_one_short_line_without_secrets() {
        let headers = vec![
            (hyper::header::AUTHORIZATION, secret("Bearer s3cret-t0ken").unwrap()),
            (HeaderName::from_static("cookie"), secret("session=abcdef; b=1").unwrap()),
        ];
        let target = find("http://127.0.0.1:1/?key=hunter2&x=1", &[], headers).unwrap().unwrap();
        let of = |text: &str| target.cleaned_text(text, 60);
        assert_eq!(of("no \"s3cret-t0ken\"\u{1b}[31m\nfor\u{202e} hunter2, abcdef"), "no \"***\"[31m for ***, ***");
        assert_eq!(of("Bearer s3cret-t0ken is wrong; key=hunter2&x=1"), "*** is wrong; ***");
        // A control character does not hide a secret.
        assert_eq!(of("s3cret\u{0}-t0ken, Bearer of 1"), "***, Bearer of 1");
        let escaped = find("http://127.0.0.1:1/?key=hunter%2F2+x", &[], Vec::new()).unwrap().unwrap();
        assert_eq!(escaped.cleaned_text("hunter%2F2+x, hunter/2+x and hunter/2 x", 60), "***, *** and ***");
        assert_eq!(of(&"ü".repeat(61)), "ü".repeat(60) + "…");
        assert_eq!(of(&"ü".repeat(60)), "ü".repeat(60));
    }

    #[test]
    fn a_name_without_an_address_is_a_counted_kind_of_error() {
        // A label of more than 63 characters is not a valid name, so no name server is asked.
        let name = format!("{}.invalid", "a".repeat(64));
        let fault = find(&format!("http://{name}"), &[&name], Vec::new()).unwrap().err().unwrap();
        assert_eq!(fault.kind, Kind::Unresolved);
    }

    #[test]
    fn files_of_secrets_are_read_and_never_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("headers");
        fs_err::write(&file, "x-api-key: abc\n\nX-Other: d e\n").unwrap();
        let headers = headers_of_file(&file).unwrap();
        assert_eq!(headers.len(), 2);
        assert!(headers.iter().all(|(_, value)| value.is_sensitive() && !format!("{value:?}").contains("abc")));
        fs_err::write(&file, "x-api-key: abc\nhunter2\n").unwrap();
        let error = headers_of_file(&file).unwrap_err().to_string();
        assert!(error.contains("line 2") && !error.contains("hunter2"), "{error}");
        fs_err::write(&file, " t0ken \n").unwrap();
        let (_, value) = token(Some(&file), "NO_SUCH_VARIABLE").unwrap().unwrap();
        assert_eq!(value.to_str().unwrap(), "Bearer t0ken");
        assert!(token(None, "NO_SUCH_VARIABLE").unwrap().is_none());
        fs_err::write(&file, "two words").unwrap();
        assert!(token(Some(&file), "NO_SUCH_VARIABLE").is_err());
    }
}
