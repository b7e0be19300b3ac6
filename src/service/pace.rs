//! The rate of answers while something is measured. Without a limit, a client that polls would take the processor from
//! the measurement. Requests above the rate wait and are answered together, so the server wakes up rarely.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::sleep;

/// The length of a window, and the requests that are answered in one.
const WINDOW: Duration = Duration::from_millis(200);
const ANSWERED: usize = 20;

#[derive(Debug)]
pub struct Pace {
    /// Requests that may still be answered in this window. A client that leaves gives its place to the next one.
    left: Arc<Semaphore>,
    is_refilled: Arc<AtomicBool>,
}

impl Default for Pace {
    fn default() -> Self {
        Pace { left: Arc::new(Semaphore::new(ANSWERED)), is_refilled: Arc::default() }
    }
}

impl Pace {
    /// Waits for the turn of a request.
    pub async fn turn(&self) {
        if !self.is_refilled.swap(true, Ordering::SeqCst) {
            tokio::spawn(refill(self.left.clone(), self.is_refilled.clone()));
        }
        if let Ok(turn) = self.left.acquire().await {
            turn.forget();
        }
    }
}

/// Begins new windows until one passes without a request.
async fn refill(left: Arc<Semaphore>, is_refilled: Arc<AtomicBool>) {
    loop {
        sleep(WINDOW).await;
        let taken = ANSWERED - left.available_permits();
        if taken == 0 {
            break is_refilled.store(false, Ordering::SeqCst);
        }
        left.add_permits(taken);
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use tokio::time::{Instant, timeout};

    use super::*;

    #[test]
    fn requests_above_the_rate_wait_and_those_that_left_do_not_count() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (pace, start) = (Pace::default(), Instant::now());
            for _ in 0..ANSWERED {
                pace.turn().await;
            }
            let mut asking = Context::from_waker(Waker::noop());
            let mut leaving: Vec<_> = (0..10_000).map(|_| Box::pin(pace.turn())).collect();
            assert!(leaving.iter_mut().all(|turn| turn.as_mut().poll(&mut asking).is_pending()));
            drop(leaving);
            pace.turn().await;
            assert!(start.elapsed() >= WINDOW);
            // If the clients that left still counted, this would take a hundred seconds.
            timeout(Duration::from_secs(20), pace.turn()).await.unwrap();
        });
    }
}
