//! A queue without a clock, for the tests of this room.

use super::served::{Served, Trial};
use super::service::Draws;

/// What one session makes of these arrivals without any loss of its own: Lindley's recursion.
pub fn queue(arrivals: &[u64], services: &mut Draws) -> Trial {
    let mut free = 0;
    let mut serve = |&scheduled_ns: &u64| {
        let started_ns = free.max(scheduled_ns);
        free = started_ns + services.next().map_or(0, |time| time.as_nanos() as u64);
        Served { scheduled_ns, issued_ns: scheduled_ns, started_ns, ended_ns: free, batch: 1, ..Served::default() }
    };
    Trial { served: arrivals.iter().map(&mut serve).collect(), ..Trial::default() }
}
