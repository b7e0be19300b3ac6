//! While something is measured, requests are answered at a limited rate: a client that asks again and again would take the
//! processor from the measurement. Those above the rate wait, and are answered together, so that the server wakes up rarely.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// The length of a window, and the requests that are answered in one.
const WINDOW: Duration = Duration::from_millis(200);
const ANSWERED: u32 = 20;

#[derive(Debug, Default)]
pub struct Pace(Mutex<Option<Window>>);

/// The last window in which a request has its turn.
#[derive(Clone, Copy, Debug)]
struct Window {
    begin: Instant,
    answered: u32,
}

impl Pace {
    /// Waits for the turn of a request.
    pub async fn turn(&self) {
        let turn = self.next(Instant::now());
        sleep_until(turn).await;
    }

    fn next(&self, now: Instant) -> Instant {
        let mut last = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let window = match *last {
            Some(Window { begin, answered }) if answered < ANSWERED && now < begin + WINDOW => {
                Window { begin, answered: answered + 1 }
            }
            Some(Window { begin, .. }) if now < begin + WINDOW => Window { begin: begin + WINDOW, answered: 1 },
            _ => Window { begin: now, answered: 1 },
        };
        *last = Some(window);
        window.begin.max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_above_the_rate_wait_for_later_windows() {
        let (pace, now) = (Pace::default(), Instant::now());
        let turns: Vec<Instant> = (0..50).map(|_| pace.next(now)).collect();
        let waits: Vec<u128> = [0, 19, 20, 39, 40, 49].map(|place: usize| (turns[place] - now).as_millis()).into();
        assert_eq!(waits, [0, 0, 200, 200, 400, 400]);
        // Later than all of them, nobody waits.
        let later = now + 10 * WINDOW;
        assert_eq!(pace.next(later), later);
    }
}
