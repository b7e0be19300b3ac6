//! A small server for the tests, which makes the faults that a test asks for. It listens on the loopback interface only.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use inferbench::load::Draws;
use inferbench::machine::{sharpen_timers, wait_until};
use inferbench::run_data::ServiceTime;
use serde_json::{Value, json};

/// Requests that are answered rightly before any fault: the client's warm-up.
const RIGHT_BEFORE: usize = 3;

/// What the server does wrong with each request after the first ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wrong {
    Nothing,
    /// The server is gone.
    Dies,
    Hangs,
    /// It resets the connection.
    Resets,
    /// It closes the connection without an answer.
    Closes,
    Status(u16),
    /// The request of this number, the first of which is 0, has status 503.
    BusyAt(usize),
    /// It closes the connection after an answer, without saying so before.
    ClosesAfter,
    /// An error that repeats the head of the request.
    Echoes,
    /// It announces a body that is larger than any memory.
    HugeLength,
    /// It sends half of the body that it has announced.
    HalfAnswer,
    /// It sends a byte now and then.
    Slow,
    HugeHeader,
    Redirects,
    NoJson,
    NotFinite,
    OtherShape,
    OtherValues,
    /// A stream does not say how many tokens it had, which is not wrong.
    NoUsage,
    /// A stream ends in its middle.
    NoEnd,
    /// The body stays open after the stream has ended.
    StaysOpen,
    /// A stream says that there is an error.
    ErrorInStream,
}

/// A server that runs until the test ends.
pub struct Server {
    pub url: String,
    pub wrong: Arc<Mutex<Wrong>>,
    pub requests: Arc<AtomicUsize>,
    /// The heads of all requests.
    pub heads: Arc<Mutex<Vec<String>>>,
    /// The bodies of requests that are answered by a model.
    pub bodies: Arc<Mutex<Vec<Vec<u8>>>>,
    /// The service time of each request in nanoseconds, from its arrival or the end of the request before.
    pub served: Arc<Mutex<Vec<u64>>>,
}

/// The arrival of a waiting request, and the channel for the end of its service.
type Queued = (Instant, Sender<()>);

struct Shared {
    wrong: Arc<Mutex<Wrong>>,
    requests: Arc<AtomicUsize>,
    heads: Arc<Mutex<Vec<String>>>,
    bodies: Arc<Mutex<Vec<Vec<u8>>>>,
    /// Requests that wait to be served, one after the other.
    queue: Option<Sender<Queued>>,
}

impl Server {
    pub fn start() -> Self {
        Self::with_service(None)
    }

    /// A server that serves one request after the other, each for this time.
    pub fn with_service(service: Option<(ServiceTime, u64)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let served: Arc<Mutex<Vec<u64>>> = Arc::default();
        let noted = served.clone();
        let queue = service.map(|(service, seed)| {
            let (sender, receiver) = channel::<Queued>();
            thread::spawn(move || {
                sharpen_timers();
                let mut draws = Draws::new(service, seed);
                let mut free = Instant::now();
                for (since, waiting) in receiver {
                    let begin = free.max(since);
                    wait_until(begin + draws.next().unwrap());
                    free = Instant::now();
                    noted.lock().unwrap().push((free - begin).as_nanos() as u64);
                    let _ = waiting.send(());
                }
            });
            sender
        });
        let server = Server {
            url,
            wrong: Arc::new(Mutex::new(Wrong::Nothing)),
            requests: Arc::default(),
            heads: Arc::default(),
            bodies: Arc::default(),
            served,
        };
        let shared = Arc::new(Shared {
            wrong: server.wrong.clone(),
            requests: server.requests.clone(),
            heads: server.heads.clone(),
            bodies: server.bodies.clone(),
            queue,
        });
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if *shared.wrong.lock().unwrap() == Wrong::Dies
                    && shared.requests.load(Ordering::SeqCst) >= RIGHT_BEFORE
                {
                    // The listener is closed.
                    return;
                }
                let shared = shared.clone();
                thread::spawn(move || {
                    let _ = answer_all(&stream, &shared);
                });
            }
        });
        server
    }

    pub fn doing(wrong: Wrong) -> Self {
        let server = Self::start();
        *server.wrong.lock().unwrap() = wrong;
        server
    }
}

fn answer_all(stream: &TcpStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    // A small buffer leaves an unread body in the socket.
    let mut reader = BufReader::with_capacity(16, stream.try_clone()?);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        shared.heads.lock().unwrap().push(head.clone());
        let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        let path = head.split([' ', '?']).nth(1).unwrap_or_default().to_owned();
        let is_asked = head.starts_with("POST") && !path.ends_with("/index");
        let number = if is_asked { shared.requests.fetch_add(1, Ordering::SeqCst) } else { 0 };
        let wrong = *shared.wrong.lock().unwrap();
        let wrong = match wrong {
            _ if !is_asked || number < RIGHT_BEFORE => Wrong::Nothing,
            Wrong::BusyAt(place) if place == number => Wrong::Status(503),
            Wrong::BusyAt(_) => Wrong::Nothing,
            other => other,
        };
        if wrong == Wrong::Resets {
            // Closing a socket with unread bytes resets the connection.
            return Ok(());
        }
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body)?;
        if is_asked {
            shared.bodies.lock().unwrap().push(body.clone());
        }
        if let Some(queue) = shared.queue.as_ref().filter(|_| is_asked) {
            let (waiting, served) = channel();
            queue.send((Instant::now(), waiting)).ok();
            served.recv().ok();
        }
        if !answer(stream, &path, &head, &body, wrong)? || wrong == Wrong::ClosesAfter {
            return Ok(());
        }
    }
}

/// Returns whether the connection stays open.
fn answer(mut stream: &TcpStream, path: &str, head: &str, body: &[u8], wrong: Wrong) -> std::io::Result<bool> {
    let with_status = |status: &str, headers: &str, body: &str| {
        format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
    };
    match wrong {
        Wrong::Closes | Wrong::Dies => return Ok(false),
        Wrong::Hangs => {
            thread::sleep(Duration::from_secs(20));
            return Ok(false);
        }
        Wrong::Status(status) => {
            stream
                .write_all(with_status(&format!("{status} No"), "retry-after: 1\r\n", "too much to do").as_bytes())?;
            return Ok(true);
        }
        Wrong::Redirects => {
            let there = format!("location: {path}\r\n");
            stream.write_all(with_status("307 Elsewhere", &there, "").as_bytes())?;
            return Ok(true);
        }
        Wrong::Echoes => {
            let text = format!("\u{1b}[31mno: {head}{head}{head}");
            stream.write_all(with_status("500 No", "", &text).as_bytes())?;
            return Ok(true);
        }
        Wrong::HugeLength => {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999\r\n\r\n{")?;
            thread::sleep(Duration::from_secs(1));
            return Ok(false);
        }
        Wrong::HugeHeader => {
            let huge = format!("x-huge: {}\r\n", "x".repeat(1 << 20));
            let _ = stream.write_all(with_status("200 OK", &huge, "{}").as_bytes());
            return Ok(false);
        }
        _ => {}
    }
    if path.ends_with("/completions") && is_streamed(body) {
        return stream_tokens(stream, path, body, wrong);
    }
    let answer = match wrong {
        Wrong::NoJson => Some("<html>wrong</html>".to_owned()),
        _ => body_of(path, body, wrong),
    };
    let Some(answer) = answer else {
        stream.write_all(with_status("404 Not Found", "", "nothing here").as_bytes())?;
        return Ok(true);
    };
    let (answer, headers) = if head.to_lowercase().contains("inference-header-content-length") {
        let (json, bytes) = as_bytes(&answer);
        let headers = format!("inference-header-content-length: {}\r\n", json.len());
        ([json.into_bytes(), bytes].concat(), headers)
    } else {
        (answer.into_bytes(), String::new())
    };
    let begin = format!("HTTP/1.1 200 OK\r\n{headers}content-length: {}\r\n\r\n", answer.len());
    match wrong {
        Wrong::HalfAnswer => {
            stream.write_all(begin.as_bytes())?;
            stream.write_all(&answer[..answer.len() / 2])?;
            return Ok(false);
        }
        Wrong::Slow => {
            stream.write_all(begin.as_bytes())?;
            for byte in answer {
                stream.write_all(&[byte])?;
                thread::sleep(Duration::from_millis(50));
            }
        }
        _ => stream.write_all(&[begin.into_bytes(), answer].concat())?,
    }
    Ok(true)
}

fn is_streamed(body: &[u8]) -> bool {
    serde_json::from_slice::<Value>(body).is_ok_and(|body| body["stream"] == true)
}

/// The model `double` takes `x` of two numbers and returns twice of them.
fn body_of(path: &str, body: &[u8], wrong: Wrong) -> Option<String> {
    let tensor = |name: &str| json!({"name": name, "datatype": "FP32", "shape": [-1, 2]});
    let answer = match path {
        "/v2" => json!({"name": "tests", "version": "1.2", "extensions": []}),
        "/v2/repository/index" => json!([{"name": "double"}]),
        "/v2/models/double" => json!({"name": "double", "inputs": [tensor("x")], "outputs": [tensor("y")]}),
        "/v2/models/double/infer" => {
            let values = inputs(body);
            let factor = if wrong == Wrong::OtherValues { 3.0 } else { 2.0 };
            let doubled: Vec<f32> = values.iter().map(|value| factor * value).collect();
            let rows = values.len() / 2;
            let shape = if wrong == Wrong::OtherShape { json!([rows, 3]) } else { json!([rows, 2]) };
            let answer = json!({"model_name": "double", "outputs": [{"name": "y", "datatype": "FP32", "shape": shape, "data": doubled}]});
            let text = answer.to_string();
            return Some(if wrong == Wrong::NotFinite {
                text.replacen("\"data\":[", "\"data\":[NaN,", 1)
            } else {
                text
            });
        }
        "/v1/models" if wrong == Wrong::Nothing => json!({"data": [{"id": "lab/tiny-lm", "owned_by": "vllm"}]}),
        "/version" => json!({"version": "0.9"}),
        "/v1/embeddings" => {
            let count = serde_json::from_slice::<Value>(body).ok()?["input"].as_array()?.len();
            let data: Vec<Value> = (0..count).map(|_| json!({"embedding": [0.1, 0.2]})).collect();
            json!({"data": data, "usage": {"prompt_tokens": 4 * count}})
        }
        "/v1/completions" => {
            json!({"choices": [{"text": "a b c"}], "usage": {"prompt_tokens": 5, "completion_tokens": 3}})
        }
        "/predict" => json!({"predictions": [[1.0, 2.0]]}),
        _ => return None,
    };
    Some(answer.to_string())
}

/// The numbers of the first input, in JSON or after it.
fn inputs(body: &[u8]) -> Vec<f32> {
    let mut read = serde_json::Deserializer::from_slice(body).into_iter::<Value>();
    let head = read.next().unwrap().unwrap();
    match head["inputs"][0]["data"].as_array() {
        Some(data) => data.iter().map(|value| value.as_f64().unwrap() as f32).collect(),
        None => {
            body[read.byte_offset()..].chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
        }
    }
}

/// The same answer with its data as bytes after the JSON.
fn as_bytes(answer: &str) -> (String, Vec<u8>) {
    let mut answer: Value = serde_json::from_str(answer).unwrap();
    let output = answer["outputs"][0].as_object_mut().unwrap();
    let data = output.remove("data").unwrap();
    let bytes: Vec<u8> =
        data.as_array().unwrap().iter().flat_map(|value| (value.as_f64().unwrap() as f32).to_le_bytes()).collect();
    output.insert("parameters".into(), json!({"binary_data_size": bytes.len()}));
    (answer.to_string(), bytes)
}

/// Streams the requested number of tokens, two per event, with two milliseconds before each event.
fn stream_tokens(mut stream: &TcpStream, path: &str, body: &[u8], wrong: Wrong) -> std::io::Result<bool> {
    const END: &[u8] = b"0\r\n\r\n";
    let asked: Value = serde_json::from_slice(body).unwrap();
    let tokens = asked["max_tokens"].as_u64().unwrap();
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")?;
    let is_chat = path.contains("/chat/");
    if is_chat {
        send(stream, &json!({"choices": [{"delta": {"role": "assistant", "content": ""}}]}).to_string())?;
    }
    for token in 0..tokens.div_ceil(2) {
        thread::sleep(Duration::from_millis(2));
        let choice = if is_chat { json!({"delta": {"content": "a b"}}) } else { json!({"text": "a b"}) };
        send(stream, &json!({"choices": [choice]}).to_string())?;
        match wrong {
            Wrong::NoEnd if token == 1 => return stream.write_all(END).map(|()| true),
            Wrong::HalfAnswer if token == 1 => return Ok(false),
            Wrong::ErrorInStream if token == 1 => {
                send(stream, &json!({"error": "no memory left"}).to_string())?;
                return stream.write_all(END).map(|()| true);
            }
            _ => {}
        }
    }
    send(stream, &json!({"choices": [{"delta": {}, "text": "", "finish_reason": "length"}]}).to_string())?;
    if wrong != Wrong::NoUsage {
        send(stream, &json!({"choices": [], "usage": {"prompt_tokens": 40, "completion_tokens": tokens}}).to_string())?;
    }
    send(stream, "[DONE]")?;
    if wrong == Wrong::StaysOpen {
        // Until the client closes the connection.
        return stream.read(&mut [0]).map(|_| false);
    }
    stream.write_all(END)?;
    Ok(true)
}

fn send(mut stream: &TcpStream, data: &str) -> std::io::Result<()> {
    let event = format!("data: {data}\n\n");
    stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes())
}
