//! The connections: how many there may be, and how long their clients may be idle.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::signal;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Sleep, sleep, timeout};

use super::context::Context;
use super::job::State;
use super::routes::router;

/// Connections at a time. Further ones wait in the system's queue.
const MOST_CONNECTIONS: u32 = 1024;
/// How long a client may take to send the head of a request, from the end of the last response on, and to read a part
/// of an answer.
const PATIENCE: Duration = Duration::from_secs(15);
/// The most bytes of the head of a request.
pub(super) const MOST_HEAD: usize = 32 << 10;
/// How long the last answers may take when the server ends.
const FAREWELL: Duration = Duration::from_secs(3);

/// Answers requests until the user stops the server and `measuring` has ended, or the user stops it again.
pub async fn listen(listener: TcpListener, context: Arc<Context>, measuring: JoinHandle<()>) {
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS as usize));
    let service = router(context.clone());
    let accepting = {
        let places = places.clone();
        tokio::spawn(async move {
            loop {
                let Ok(place) = places.clone().acquire_owned().await else { return };
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let service = service.clone();
                        tokio::spawn(async move {
                            let _ = stream.set_nodelay(true);
                            answer(stream, service).await;
                            drop(place);
                        });
                    }
                    // No file descriptor is left, for example.
                    Err(_) => sleep(Duration::from_millis(100)).await,
                }
            }
        })
    };
    told_to_stop().await;
    let is_measuring = context.queue.running().is_some_and(|job| job.state() == State::Running);
    let how = if is_measuring { " after the case that is being measured; ask again to end at once" } else { "" };
    eprintln!("ending{how}");
    context.queue.close();
    tokio::select! {
        _ = measuring => {}
        () = told_to_stop() => {
            if let Some(job) = context.queue.running() {
                job.cancel();
                let _ = timeout(FAREWELL, job.end()).await;
            }
        }
    }
    accepting.abort();
    let _ = timeout(FAREWELL, places.acquire_many(MOST_CONNECTIONS)).await;
}

pub(super) async fn answer(stream: impl Stream, router: axum::Router) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(MOST_HEAD);
    // What a client does wrong concerns only this client.
    let _ = builder
        .serve_connection(TokioIo::new(Watched { stream, stalled: None }), TowerToHyperService::new(router))
        .await;
}

/// A TCP connection, or one in memory.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}

/// A connection that fails if its client stops reading.
struct Watched<S> {
    stream: S,
    /// Ends when the client has read nothing for too long. Absent while nothing waits for the client.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Watched<S> {
    fn watch<T>(&mut self, context: &mut TaskContext<'_>, poll: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.stalled = None;
            return poll;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(PATIENCE)));
        stalled.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: Stream> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut TaskContext<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: Stream> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, poll)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Waits for Ctrl-C or SIGTERM.
async fn told_to_stop() {
    #[cfg(unix)]
    if let Ok(mut terminate) = signal::unix::signal(signal::unix::SignalKind::terminate()) {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = signal::ctrl_c() => {}
        }
        return;
    }
    drop(signal::ctrl_c().await);
}
