//! One connection to a server, which is opened again if the server closes it. It has a thread of its own, as a session has.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::header::{self, HeaderMap};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::fault::{Fault, Kind};
use super::target::{Headers, Target};

/// How long opening a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// Bytes of the head of an answer.
const MOST_HEAD: usize = 64 << 10;
/// Bytes of the body of an answer.
const MOST_BODY: u64 = 256 << 20;

/// A request of a protocol.
#[derive(Clone, Debug)]
pub struct Call {
    pub method: Method,
    /// With its query.
    pub path: String,
    pub headers: Headers,
    pub body: Bytes,
}

impl Call {
    pub fn get(path: impl Into<String>) -> Self {
        Call { method: Method::GET, path: path.into(), headers: Vec::new(), body: Bytes::new() }
    }

    pub fn json(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        let headers = vec![(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"))];
        Call { method: Method::POST, path: path.into(), headers, body: body.into() }
    }
}

/// Takes the body of an answer in its parts.
pub trait Reader {
    /// Takes a part that has just come.
    ///
    /// # Errors
    /// The body says that there is no answer, or is no such body.
    fn part(&mut self, bytes: &[u8], at: Instant) -> Result<(), Fault>;

    /// The moment from which on nothing else belongs to the answer, if it is over.
    fn has_ended(&self) -> bool {
        false
    }
}

/// What was seen of an answer, also where there is none in the end.
#[derive(Debug, Default)]
pub struct Seen {
    /// How long each connection took that was opened.
    pub connects: Vec<Duration>,
    pub status: Option<StatusCode>,
    pub headers: HeaderMap,
    pub first_byte: Option<Duration>,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// When the last byte was there.
    pub ended: Option<Instant>,
}

/// A connection. No two requests are on it at the same time.
pub struct Connection {
    runtime: Runtime,
    sender: Option<Sender>,
    target: Arc<Target>,
    patience: Duration,
    stop: watch::Receiver<bool>,
}

enum Sender {
    One(http1::SendRequest<Full<Bytes>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

impl Sender {
    async fn ready(&mut self) -> hyper::Result<()> {
        match self {
            Sender::One(sender) => sender.ready().await,
            Sender::Two(sender) => sender.ready().await,
        }
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        match self {
            Sender::One(sender) => sender.send_request(request).await,
            Sender::Two(sender) => sender.send_request(request).await,
        }
    }
}

impl Connection {
    /// A connection that is not open yet. A request that takes longer than `patience` has no answer.
    ///
    /// # Errors
    /// The system gives no more files.
    pub fn new(target: Arc<Target>, patience: Duration, stop: watch::Receiver<bool>) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        Ok(Connection { runtime, sender: None, target, patience, stop })
    }

    /// Opens it, if it is not open.
    ///
    /// # Errors
    /// There is no connection.
    pub fn open(&mut self, seen: &mut Seen) -> Result<(), Fault> {
        let Connection { runtime, sender, target, .. } = self;
        if sender.is_none() {
            *sender = Some(runtime.block_on(connect(target, seen))?);
        }
        Ok(())
    }

    /// Sends a request and lets the reader have the answer's body. `is_meant` says whether a status has such a body; one of another status is left
    /// unread.
    ///
    /// # Errors
    /// There is no answer, or the reader's.
    pub fn exchange(&mut self, call: &Call, seen: &mut Seen, reader: &mut dyn Reader) -> Result<(), Fault> {
        let patience = self.patience;
        let mut stop = self.stop.clone();
        let Connection { runtime, sender, target, .. } = self;
        let asked = ask(sender, target, call, seen, reader);
        let answer = runtime.block_on(async {
            tokio::select! {
                answer = timeout(patience, asked) => {
                    let late = || Fault::new(Kind::Timeout, format!("no answer within {} s", patience.as_secs_f64()));
                    answer.unwrap_or_else(|_| Err(late()))
                }
                _ = stop.wait_for(|stop| *stop) => {
                    Err(Fault::new(Kind::Interrupted, "the load test ended before the answer was there"))
                }
            }
        });
        seen.ended.get_or_insert_with(Instant::now);
        if answer.is_err() {
            // What is left of the answer must not be that of the next request.
            self.sender = None;
        }
        answer
    }
}

async fn ask(
    sender: &mut Option<Sender>,
    target: &Target,
    call: &Call,
    seen: &mut Seen,
    reader: &mut dyn Reader,
) -> Result<(), Fault> {
    let mut is_new = false;
    let response = loop {
        // An idle connection may be closed meanwhile.
        let is_usable = match sender.as_mut() {
            Some(sender) => sender.ready().await.is_ok(),
            None => false,
        };
        if !is_usable {
            *sender = Some(connect(target, seen).await?);
            is_new = true;
        }
        let Some(open) = sender.as_mut() else { continue };
        let request = request(target, call)?;
        let begin = Instant::now();
        match open.send(request).await {
            Ok(response) => {
                seen.first_byte = Some(begin.elapsed());
                break response;
            }
            // The server has closed the connection after the answer before: a new one says whether there is an answer to this request.
            Err(error) if !is_new && !error.is_parse() => *sender = None,
            Err(error) => return Err(Fault::of_http(&error, false)),
        }
    };
    seen.sent_bytes = call.body.len() as u64;
    let status = response.status();
    seen.status = Some(status);
    let is_last = response.headers().get(header::CONNECTION).is_some_and(|value| value.as_bytes() == b"close");
    let (head, mut body) = response.into_parts();
    seen.headers = head.headers;
    let mut excuse = Vec::new();
    while let Some(frame) = body.frame().await {
        let at = Instant::now();
        let frame = frame.map_err(|error| Fault::of_http(&error, true))?;
        let Some(bytes) = frame.data_ref() else { continue };
        seen.received_bytes += bytes.len() as u64;
        if seen.received_bytes > MOST_BODY {
            return Err(Fault::new(Kind::TooLarge, format!("the answer has more than {MOST_BODY} bytes")));
        }
        if status.is_success() {
            reader.part(bytes, at)?;
        } else if excuse.len() < MOST_EXCUSE {
            excuse.extend_from_slice(&bytes[..bytes.len().min(MOST_EXCUSE)]);
        }
        if !reader.has_ended() {
            seen.ended = Some(at);
        }
    }
    seen.ended.get_or_insert_with(Instant::now);
    if is_last {
        *sender = None;
    }
    if status.is_success() { Ok(()) } else { Err(refusal(status, &excuse)) }
}

/// Bytes of an answer that says why there is none.
const MOST_EXCUSE: usize = 300;

fn refusal(status: StatusCode, excuse: &[u8]) -> Fault {
    let kind = match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Kind::Busy,
        _ if status.is_redirection() => Kind::Redirect,
        _ if status.is_client_error() => Kind::ClientError,
        _ => Kind::ServerError,
    };
    let words = String::from_utf8_lossy(excuse);
    let words: String = words.chars().filter(|c| !c.is_control()).collect();
    Fault::new(kind, format!("status {status} {words}").trim_end().to_owned())
}

fn request(target: &Target, call: &Call) -> Result<Request<Full<Bytes>>, Fault> {
    let mut builder = Request::builder().method(call.method.clone());
    let query = target.query.as_ref().filter(|_| !call.path.contains('?'));
    let path = query.map_or_else(|| call.path.clone(), |query| format!("{}?{query}", call.path));
    builder = match target.is_http2 {
        true => {
            let scheme = if target.is_tls { "https" } else { "http" };
            builder.uri(format!("{scheme}://{}{path}", target.authority)).version(hyper::Version::HTTP_2)
        }
        false => builder.uri(path).header(header::HOST, &target.authority),
    };
    for (name, value) in call.headers.iter().chain(&target.headers) {
        builder = builder.header(name, value);
    }
    builder.body(Full::new(call.body.clone())).map_err(|error| Fault::new(Kind::ClientError, error.to_string()))
}

async fn connect(target: &Target, seen: &mut Seen) -> Result<Sender, Fault> {
    let begin = Instant::now();
    let opened = timeout(CONNECT, opened(target)).await;
    let late = || Fault::new(Kind::Unreachable, format!("no connection within {} s", CONNECT.as_secs()));
    let sender = opened.unwrap_or_else(|_| Err(late()))?;
    seen.connects.push(begin.elapsed());
    Ok(sender)
}

async fn opened(target: &Target) -> Result<Sender, Fault> {
    let stream = TcpStream::connect(target.addresses.as_slice()).await.map_err(|error| Fault::of_connecting(&error))?;
    let _ = stream.set_nodelay(true);
    match &target.tls {
        None => speaking(stream, target.is_http2).await,
        Some(tls) => {
            let connector = TlsConnector::from(tls.config.clone());
            let secret = connector.connect(tls.name.clone(), stream).await;
            speaking(secret.map_err(|error| Fault::of_connecting(&error))?, target.is_http2).await
        }
    }
}

/// The connection's own work is done while a request waits for its answer.
async fn speaking(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    is_http2: bool,
) -> Result<Sender, Fault> {
    let stream = TokioIo::new(stream);
    let failed = |error: hyper::Error| Fault::of_http(&error, false);
    if is_http2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new()).max_header_list_size(MOST_HEAD as u32);
        let (sender, connection) = builder.handshake(stream).await.map_err(failed)?;
        tokio::spawn(connection);
        return Ok(Sender::Two(sender));
    }
    let mut builder = http1::Builder::new();
    builder.max_buf_size(MOST_HEAD);
    let (sender, connection) = builder.handshake(stream).await.map_err(failed)?;
    tokio::spawn(connection);
    Ok(Sender::One(sender))
}
