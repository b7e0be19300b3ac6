//! A server on the loopback interface for one page in a browser: it gives the page its files, and carries frames.
//!
//! The page asks for the next request by `POST next` with its last answer; the server answers when there is a request.
//! The page keeps `alive` open, so that the server notices when the page is gone.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The page is isolated from other origins, so that it may use threads and a fine clock. The browser caches nothing.
const HEADERS: &str =
    "Cross-Origin-Opener-Policy: same-origin\r\nCross-Origin-Embedder-Policy: require-corp\r\nCache-Control: no-store";

/// The most bytes that the head of a request may have.
const MOST_HEAD: u64 = 64 << 10;

/// The files that a page may ask for.
pub(super) struct PageFiles {
    /// The name and text of each script of the page.
    pub own: &'static [(&'static str, &'static str)],
    /// The folder with the files that the page requests as `ort/NAME`.
    pub runtime: PathBuf,
    /// The files of the model, which the page requests by their paths.
    pub model: Vec<PathBuf>,
}

pub(super) struct PageServer {
    served: Arc<Served>,
    port: u16,
}

struct Served {
    /// The first part of all paths, which other programs on this machine cannot know.
    secret: String,
    files: PageFiles,
    requests: Mutex<Receiver<Vec<u8>>>,
    /// `None` once the page is gone.
    answers: Mutex<Option<Sender<Vec<u8>>>>,
    is_asked: AtomicBool,
    has_page: AtomicBool,
    is_over: AtomicBool,
}

/// A writer that sends the page a frame at each flush.
pub(super) struct ToPage {
    frame: Vec<u8>,
    requests: Sender<Vec<u8>>,
}

/// The page's answers; ends when the page does.
pub(super) struct FromPage {
    frame: io::Cursor<Vec<u8>>,
    answers: Receiver<Vec<u8>>,
}

impl PageServer {
    pub(super) fn start(files: PageFiles) -> io::Result<(Self, ToPage, FromPage)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let (to_page, requests) = channel();
        let (answers, from_page) = channel();
        let served = Arc::new(Served {
            secret: format!("/{:016x}/", RandomState::new().hash_one(port)),
            files,
            requests: Mutex::new(requests),
            answers: Mutex::new(Some(answers)),
            is_asked: AtomicBool::new(false),
            has_page: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let server = PageServer { served: Arc::clone(&served), port };
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if served.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let served = Arc::clone(&served);
                // A broken connection is not an error here: if the page is gone, `alive` shows it.
                thread::spawn(move || drop(served.serve(stream)));
            }
        });
        let (frame, cursor) = (Vec::new(), io::Cursor::default());
        Ok((server, ToPage { frame, requests: to_page }, FromPage { frame: cursor, answers: from_page }))
    }

    pub(super) fn address(&self) -> String {
        format!("http://127.0.0.1:{}{}", self.port, self.served.secret)
    }

    /// Returns true once the browser has asked for a file of the page.
    pub(super) fn is_asked(&self) -> bool {
        self.served.is_asked.load(Ordering::Relaxed)
    }

    /// Whether the page runs.
    pub(super) fn has_page(&self) -> bool {
        self.served.has_page.load(Ordering::Relaxed)
    }
}

impl Drop for PageServer {
    fn drop(&mut self) {
        self.served.is_over.store(true, Ordering::Relaxed);
        // Wakes the listener, which then sees `is_over`.
        drop(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)));
    }
}

impl Served {
    /// Answers the requests of one connection.
    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut input = BufReader::new(stream.try_clone()?);
        while let Some((path, body)) = read_request(&mut input, &self.secret)? {
            self.is_asked.fetch_or(path.is_some(), Ordering::Relaxed);
            let path = path.as_deref().unwrap_or("no path of the page");
            match path.split('?').next().unwrap_or_default() {
                "" => respond(&mut stream, "text/html", b"<!doctype html><script type=module src=serve.js></script>")?,
                "alive" => {
                    let _ = input.read(&mut [0]);
                    *self.answers.lock().unwrap_or_else(PoisonError::into_inner) = None;
                    return Ok(());
                }
                "next" => {
                    self.has_page.store(true, Ordering::Relaxed);
                    if let Some(answers) = &*self.answers.lock().unwrap_or_else(PoisonError::into_inner)
                        && !body.is_empty()
                    {
                        let _ = answers.send(body);
                    }
                    let request = self.requests.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(request) = request else { return Ok(()) };
                    respond(&mut stream, "application/octet-stream", &request)?;
                }
                "file" => {
                    let is_asked_for = |file: &&PathBuf| file.as_os_str().as_encoded_bytes() == body;
                    respond_file(&mut stream, self.files.model.iter().find(is_asked_for))?;
                }
                path => match (path.strip_prefix("ort/"), self.files.own.iter().find(|(name, _)| *name == path)) {
                    (_, Some((_, text))) => respond(&mut stream, "text/javascript", text.as_bytes())?,
                    (Some(name), _) if !name.contains(['/', '\\']) => {
                        respond_file(&mut stream, Some(&self.files.runtime.join(name)))?;
                    }
                    _ => respond_file(&mut stream, None)?,
                },
            }
        }
        Ok(())
    }
}

/// The path below the secret and the body of the next request; `None` if there are no more. A request without the
/// secret has the path `None`, and may not have a body.
pub(super) fn read_request(input: &mut impl BufRead, secret: &str) -> io::Result<Option<(Option<String>, Vec<u8>)>> {
    let mut head = input.by_ref().take(MOST_HEAD);
    let mut first = String::new();
    if head.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    let mut length = 0;
    loop {
        let mut line = String::new();
        if head.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or_default();
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let path = first.split(' ').nth(1).and_then(|path| path.strip_prefix(secret)).map(str::to_owned);
    if head.limit() == 0 || path.is_none() && length > 0 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = Vec::new();
    input.take(length).read_to_end(&mut body)?;
    Ok((body.len() as u64 == length).then_some((path, body)))
}

fn respond(stream: &mut TcpStream, kind: &str, body: &[u8]) -> io::Result<()> {
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{HEADERS}\r\n\r\n", body.len())?;
    stream.write_all(body)
}

fn respond_file(stream: &mut TcpStream, path: Option<&PathBuf>) -> io::Result<()> {
    let file = path.and_then(|path| File::open(path).ok());
    let Some(mut file) = file else {
        return write!(stream, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n{HEADERS}\r\n\r\n");
    };
    let kind = match path.and_then(|path| path.extension()?.to_str()) {
        Some("mjs") => "text/javascript",
        Some("wasm") => "application/wasm",
        _ => "application/octet-stream",
    };
    let length = file.metadata()?.len();
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{HEADERS}\r\n\r\n")?;
    io::copy(&mut file, stream).map(drop)
}

impl Write for ToPage {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.frame.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let frame = std::mem::take(&mut self.frame);
        self.requests.send(frame).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Read for FromPage {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.frame.position() == self.frame.get_ref().len() as u64 {
            let Ok(frame) = self.answers.recv() else { return Ok(0) };
            self.frame = io::Cursor::new(frame);
        }
        self.frame.read(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(server: &PageServer, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).unwrap();
        write!(stream, "POST {path} HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn who_does_not_know_the_secret_takes_no_memory() {
        let read = |request: &str| read_request(&mut request.as_bytes(), "/secret/");
        let of_body = |path: &str| read(&format!("POST {path} HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody"));
        assert_eq!(of_body("/secret/next").unwrap(), Some((Some("next".into()), b"body".to_vec())));
        assert!(of_body("/next").is_err());
        assert!(read(&"x".repeat(1 << 20)).is_err());
        assert!(read(&format!("GET /secret/next HTTP/1.1\r\n{}", "a: b\r\n".repeat(1 << 14))).is_err());
    }

    #[test]
    fn a_page_gets_its_own_files_and_frames_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let graph = folder.path().join("net.onnx");
        std::fs::write(&graph, "a graph").unwrap();
        std::fs::write(folder.path().join("other"), "of somebody else").unwrap();
        let own = &[("page.js", "code")];
        let files = PageFiles { own, runtime: folder.path().join("ort"), model: vec![graph.clone()] };
        let (server, mut to_page, mut from_page) = PageServer::start(files).unwrap();
        let secret = server.served.secret.clone();
        let answer = |path: &str, body: &str| asked(&server, &format!("{secret}{path}"), body);
        assert!(asked(&server, "/page.js", "").starts_with("HTTP/1.1 404"), "without the secret");
        assert!(!server.is_asked());
        assert!(answer("page.js", "").ends_with("\r\n\r\ncode"));
        assert!(server.is_asked());
        assert!(answer("file", graph.to_str().unwrap()).ends_with("\r\n\r\na graph"));
        for (path, body) in
            [("file", folder.path().join("other").to_str().unwrap()), ("ort/../other", ""), ("other", "")]
        {
            assert!(answer(path, body).starts_with("HTTP/1.1 404"), "{path} {body}");
        }
        assert!(!server.has_page());

        to_page.write_all(b"a request").unwrap();
        to_page.flush().unwrap();
        assert!(answer("next", "an answer").ends_with("\r\n\r\na request"));
        let mut read = [0; 9];
        from_page.read_exact(&mut read).unwrap();
        assert_eq!((&read, server.has_page()), (b"an answer", true));
        assert_eq!(answer("alive", ""), "");
        assert_eq!(from_page.read(&mut read).unwrap(), 0, "the page is gone");
    }
}
