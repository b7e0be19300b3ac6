//! One connection to a server, which is opened again if the server closes it. It works on the thread that sends a
//! request.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::header::{self, HeaderMap};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::fault::{Fault, Kind};
use super::limits::{Held, Spent};
use super::target::{Headers, Target};

/// How long opening a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long to wait for the end of a body after the answer is complete. After that, the connection is closed.
const AFTER_END: Duration = Duration::from_millis(200);
/// The most bytes of an answer's head.
const MOST_HEAD: usize = 64 << 10;
/// The most bytes of an answer's body.
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

/// Reads the body of an answer part by part.
pub trait Reader {
    /// Reads the next part, which came at `at`.
    ///
    /// # Errors
    /// The body reports an error, or does not have the form of the protocol.
    fn part(&mut self, bytes: &[u8], at: Instant) -> Result<(), Fault>;

    /// Whether the answer is complete, so that later bytes do not belong to it.
    fn has_ended(&self) -> bool {
        false
    }
}

/// What was seen of an answer, even if the request failed.
#[derive(Debug, Default)]
pub struct Seen {
    /// How long it took to open each new connection.
    pub connects: Vec<Duration>,
    pub status: Option<StatusCode>,
    /// With the trailers.
    pub headers: HeaderMap,
    pub first_byte: Option<Duration>,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// When the last byte came, or when the request was given up.
    pub ended: Option<Instant>,
    /// Whether the answer was read to its end, so that the connection can take the next request.
    pub is_whole: bool,
    /// Counts the bytes of the answer as held until it is dropped.
    pub held: Option<Held>,
}

/// A connection with at most one request at a time.
pub struct Connection {
    runtime: Runtime,
    open: Option<Open>,
    target: Arc<Target>,
    spent: Arc<Spent>,
    stop: watch::Receiver<bool>,
}

/// An open connection, and the task that reads and writes while a request is on it.
struct Open {
    sender: Sender,
    task: JoinHandle<()>,
}

enum Sender {
    One(http1::SendRequest<Full<Bytes>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

/// Why no head of an answer came, and whether the request was sent.
struct Unanswered {
    error: hyper::Error,
    was_sent: bool,
}

impl Sender {
    async fn ready(&mut self) -> hyper::Result<()> {
        match self {
            Sender::One(sender) => sender.ready().await,
            Sender::Two(sender) => sender.ready().await,
        }
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Unanswered> {
        let sent = match self {
            Sender::One(sender) => sender.try_send_request(request).await,
            Sender::Two(sender) => sender.try_send_request(request).await,
        };
        // hyper returns a request if no byte of it was written.
        sent.map_err(|mut error| Unanswered { was_sent: error.take_message().is_none(), error: error.into_error() })
    }
}

impl Open {
    /// Whether the connection can take a request. The server may have closed it while it was idle. Its task has not
    /// noticed, because it runs only during requests.
    async fn is_usable(&mut self) -> bool {
        // The first turn polls the sockets, and the second lets the task read.
        yield_now().await;
        yield_now().await;
        self.sender.ready().await.is_ok()
    }
}

impl Connection {
    /// A connection that is not open yet.
    ///
    /// # Errors
    /// The system allows no more open files.
    pub fn new(target: Arc<Target>, spent: Arc<Spent>) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let stop = spent.stop();
        Ok(Connection { runtime, open: None, target, spent, stop })
    }

    /// Opens the connection if it is closed.
    ///
    /// # Errors
    /// The server cannot be reached, or the load test ended first.
    pub fn open(&mut self, seen: &mut Seen) -> Result<(), Fault> {
        let Connection { runtime, open, target, stop, .. } = self;
        if open.is_none() {
            *open = Some(runtime.block_on(unless_stopped(stop, connect(target, seen)))?);
        }
        Ok(())
    }

    /// Sends a request, and passes the body of a successful answer to the reader.
    ///
    /// # Errors
    /// No whole answer came, its status is an error, or the reader returned one.
    pub fn exchange(&mut self, call: &Call, seen: &mut Seen, reader: &mut dyn Reader) -> Result<(), Fault> {
        let patience = self.spent.limits().patience;
        let Connection { runtime, open, target, spent, stop } = self;
        let asked = async {
            let asked = timeout(patience, ask(open, target, spent, call, seen, reader)).await;
            let late = || Fault::new(Kind::Timeout, format!("no answer within {} s", patience.as_secs_f64()));
            asked.unwrap_or_else(|_| Err(late()))
        };
        let answer = runtime.block_on(unless_stopped(stop, asked));
        if answer.is_err() {
            // The server was busy with the request until now, even if the last part came long ago.
            seen.ended = Some(Instant::now());
        }
        if answer.is_err() && !seen.is_whole {
            // The rest of this answer must not be read as the next one.
            self.close();
        }
        answer
    }

    /// Closes the connection at once, not at its next request. A server that does not answer thus never has more
    /// connections than allowed.
    fn close(&mut self) {
        if let Some(Open { sender, task }) = self.open.take() {
            drop(sender);
            task.abort();
            let _ = self.runtime.block_on(task);
        }
    }
}

/// The result of `done`, unless the load test ends first.
async fn unless_stopped<T>(
    stop: &mut watch::Receiver<bool>,
    done: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    tokio::select! {
        done = done => done,
        _ = stop.wait_for(|stop| *stop) => {
            Err(Fault::new(Kind::Interrupted, "the load test ended before the answer was there"))
        }
    }
}

/// Sends a request on the open connection, or on a new one. A request is never sent twice, because the server may have
/// processed it.
async fn sent(
    open: &mut Option<Open>,
    target: &Target,
    call: &Call,
    seen: &mut Seen,
) -> Result<Response<Incoming>, Fault> {
    if let Some(idle) = open
        && !idle.is_usable().await
    {
        *open = None;
    }
    let mut is_used = open.is_some();
    loop {
        let open = match open {
            Some(open) => open,
            // The future of `connect` is large. In a box, it does not slow requests on open connections down.
            None => open.insert(Box::pin(connect(target, seen)).await?),
        };
        let request = request(target, call)?;
        let begin = Instant::now();
        match open.sender.send(request).await {
            Ok(response) => {
                seen.first_byte = Some(begin.elapsed());
                return Ok(response);
            }
            Err(Unanswered { was_sent: false, .. }) if is_used => {
                is_used = false;
                *open = Box::pin(connect(target, seen)).await?;
            }
            Err(Unanswered { error, .. }) => return Err(Fault::of_http(&error, false).on_connection(is_used)),
        }
    }
}

async fn ask(
    open: &mut Option<Open>,
    target: &Target,
    spent: &Spent,
    call: &Call,
    seen: &mut Seen,
    reader: &mut dyn Reader,
) -> Result<(), Fault> {
    let response = sent(open, target, call, seen).await?;
    seen.sent_bytes = call.body.len() as u64;
    let status = response.status();
    seen.status = Some(status);
    let is_last = response.headers().get(header::CONNECTION).is_some_and(|value| value.as_bytes() == b"close");
    let (head, mut body) = response.into_parts();
    seen.headers = head.headers;
    let too_large = || Fault::new(Kind::TooLarge, format!("the answer has more than {MOST_BODY} bytes"));
    if body.size_hint().lower() > MOST_BODY {
        return Err(too_large());
    }
    let mut held = spent.hold();
    let mut excuse = Vec::new();
    loop {
        let frame = match reader.has_ended() {
            false => body.frame().await,
            true => timeout(AFTER_END, body.frame()).await.unwrap_or_else(|_| {
                *open = None;
                None
            }),
        };
        let Some(frame) = frame else { break };
        let at = Instant::now();
        let frame = frame.map_err(|error| Fault::of_http(&error, true))?;
        let bytes = match frame.into_data() {
            Ok(bytes) => bytes,
            Err(frame) => {
                seen.headers.extend(frame.into_trailers().unwrap_or_default());
                continue;
            }
        };
        seen.received_bytes += bytes.len() as u64;
        if seen.received_bytes > MOST_BODY {
            return Err(too_large());
        }
        if status.is_success() {
            held.add(bytes.len())?;
            reader.part(&bytes, at)?;
        } else {
            let left = MOST_EXCUSE - excuse.len();
            excuse.extend_from_slice(&bytes[..bytes.len().min(left)]);
        }
        if !reader.has_ended() {
            seen.ended = Some(at);
        }
    }
    seen.ended.get_or_insert_with(Instant::now);
    seen.held = Some(held);
    seen.is_whole = open.is_some();
    if is_last {
        *open = None;
    }
    if status.is_success() { Ok(()) } else { Err(refusal(status, &excuse)) }
}

/// The most bytes that are kept of the body of an error. Fewer are shown, after secrets were removed: a secret that is
/// cut in two would not be found.
const MOST_EXCUSE: usize = 4096;

fn refusal(status: StatusCode, excuse: &[u8]) -> Fault {
    let kind = match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Kind::Busy,
        _ if status.is_redirection() => Kind::Redirect,
        _ if status.is_client_error() => Kind::ClientError,
        _ => Kind::ServerError,
    };
    let words = String::from_utf8_lossy(excuse);
    Fault::new(kind, format!("status {status} {words}").trim_end().to_owned())
}

fn request(target: &Target, call: &Call) -> Result<Request<Full<Bytes>>, Fault> {
    let mut builder = Request::builder().method(call.method.clone());
    let mark = if call.path.contains('?') { '&' } else { '?' };
    let path = target.query.as_ref().map_or_else(|| call.path.clone(), |query| format!("{}{mark}{query}", call.path));
    // A `Host` header of the user's replaces the address: an ingress chooses the service by it.
    let headers = || call.headers.iter().chain(&target.headers);
    let own_host = headers().find(|(name, _)| *name == header::HOST).and_then(|(_, host)| host.to_str().ok());
    let host = own_host.unwrap_or(&target.authority);
    builder = match target.is_http2 {
        true => {
            let scheme = if target.tls.is_some() { "https" } else { "http" };
            builder.uri(format!("{scheme}://{host}{path}")).version(hyper::Version::HTTP_2)
        }
        false => builder.uri(path).header(header::HOST, host),
    };
    for (name, value) in headers().filter(|(name, _)| *name != header::HOST) {
        builder = builder.header(name, value);
    }
    builder.body(Full::new(call.body.clone())).map_err(|error| Fault::new(Kind::ClientError, error.to_string()))
}

async fn connect(target: &Target, seen: &mut Seen) -> Result<Open, Fault> {
    let begin = Instant::now();
    let opened = timeout(CONNECT, opened(target)).await;
    let late = || Fault::new(Kind::Unreachable, format!("no connection within {} s", CONNECT.as_secs()));
    let open = opened.unwrap_or_else(|_| Err(late()))?;
    seen.connects.push(begin.elapsed());
    Ok(open)
}

/// Why there is no connection to a host, after the last of its addresses has refused it.
fn unconnected(addresses: &[SocketAddr]) -> String {
    let all: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    match all.as_slice() {
        [one] => format!("nothing listens at {one}"),
        _ => format!("none of the host's addresses takes the connection: {}", all.join(", ")),
    }
}

async fn opened(target: &Target) -> Result<Open, Fault> {
    #[cfg(fuzzing)]
    if let Some(stream) = super::fuzzed::next_connection() {
        return speaking(stream, target.is_http2).await;
    }
    let fault = |error: std::io::Error| match Fault::of_connecting(&error) {
        Fault { kind: Kind::Refused, .. } => Fault::new(Kind::Refused, unconnected(&target.addresses)),
        fault => fault,
    };
    let stream = TcpStream::connect(target.addresses.as_slice()).await.map_err(fault)?;
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

/// An open connection on this stream. Its task runs only while a request waits for its answer.
async fn speaking(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, is_http2: bool) -> Result<Open, Fault> {
    let stream = TokioIo::new(stream);
    let failed = |error: hyper::Error| Fault::of_http(&error, false);
    if is_http2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new()).max_header_list_size(MOST_HEAD as u32);
        let (sender, connection) = builder.handshake(stream).await.map_err(failed)?;
        return Ok(Open { sender: Sender::Two(sender), task: tokio::spawn(async { drop(connection.await) }) });
    }
    let (sender, connection) = http1::Builder::new().max_buf_size(MOST_HEAD).handshake(stream).await.map_err(failed)?;
    Ok(Open { sender: Sender::One(sender), task: tokio::spawn(async { drop(connection.await) }) })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::remote::limits::Limits;
    use crate::remote::target::Address;

    /// Ignores the body of an answer.
    struct Ignoring;

    impl Reader for Ignoring {
        fn part(&mut self, _: &[u8], _: Instant) -> Result<(), Fault> {
            Ok(())
        }
    }

    #[test]
    fn a_request_whose_answer_stalls_ends_when_it_is_given_up() {
        const PATIENCE: Duration = Duration::from_millis(200);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\na").unwrap();
            // Until the client closes the connection.
            let _ = stream.read(&mut [0]);
        });
        let target = Target::find(&Address { url, ..Address::default() }, Vec::new()).unwrap().unwrap();
        let spent = Spent::new(Limits { patience: PATIENCE, ..Limits::default() });
        let mut connection = Connection::new(Arc::new(target), Arc::new(spent)).unwrap();
        let (begin, mut seen) = (Instant::now(), Seen::default());
        let fault = connection.exchange(&Call::get("/"), &mut seen, &mut Ignoring).unwrap_err();
        assert_eq!((fault.kind, seen.received_bytes), (Kind::Timeout, 1));
        assert!(seen.ended.unwrap() >= begin + PATIENCE, "{seen:?}");
    }

    #[test]
    fn a_refusal_names_all_addresses_of_the_host() {
        let [four, six] = ["127.0.0.1:9", "[::1]:9"].map(|address| address.parse().unwrap());
        assert_eq!(unconnected(&[four]), "nothing listens at 127.0.0.1:9");
        let of_both = "none of the host's addresses takes the connection: 127.0.0.1:9, [::1]:9";
        assert_eq!(unconnected(&[four, six]), of_both);
    }

    #[test]
    fn the_query_of_the_address_follows_that_of_the_path() {
        let address = Address { url: "http://127.0.0.1:1/?key=abc".into(), ..Address::default() };
        let target = Target::find(&address, Vec::new()).unwrap().unwrap();
        let of = |path: &str| request(&target, &Call::get(path)).unwrap().uri().to_string();
        assert_eq!([of("/predict"), of("/predict?v=2")], ["/predict?key=abc", "/predict?v=2&key=abc"]);
    }
}
