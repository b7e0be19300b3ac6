//! A queue without a clock, for the tests of this room.

use crate::load::{Draws, Served, Trial};

/// The trial of one session that loses no time between requests: Lindley's recursion.
pub fn queue(arrivals: &[u64], services: &mut Draws) -> Trial {
    queue_of(arrivals, services, 1, 1)
}

/// The same with several sessions, each with up to `most_batch` requests per call. Each further request takes half as
/// long as the first.
pub fn queue_of(arrivals: &[u64], services: &mut Draws, sessions: usize, most_batch: usize) -> Trial {
    let mut free = vec![0; sessions];
    let mut served = Vec::with_capacity(arrivals.len());
    while served.len() < arrivals.len() {
        let waiting = &arrivals[served.len()..];
        let session = (0..sessions).min_by_key(|&session| free[session]).unwrap_or(0);
        let started_ns = free[session].max(waiting[0]);
        let batch = waiting.iter().take(most_batch).take_while(|&&arrival| arrival <= started_ns).count();
        let one = services.next().map_or(0, |time| time.as_nanos() as u64);
        free[session] = started_ns + one + one * (batch as u64 - 1) / 2;
        let ended_ns = free[session];
        let of_call = waiting[..batch].iter().map(|&scheduled_ns| Served {
            scheduled_ns,
            issued_ns: scheduled_ns,
            started_ns,
            ended_ns,
            batch,
            ..Served::default()
        });
        served.extend(of_call);
    }
    Trial { served, ..Trial::default() }
}
