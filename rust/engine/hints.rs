// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Receiver grants: which share of its inbound capacity a receiver gives to each sender.
//!
//! The embedder keeps one [`Receiver`] per plane. Each connection calls
//! [`Receiver::on_burst`] when data has come in; the number of connections seen in the last period is
//! the number of senders, and the grant is
//!
//! ```text
//! grant  = capacity * 15/16 / senders       no limit while there is one sender only
//! period = max(configured, senders * 16 KiB / capacity)
//! ```
//!
//! The period grows with the number of senders, as each must have had the time to send something; the
//! number goes up at once and down by an eighth per period.

use super::time::{Instant, Span};

/// What a sender needs to be allowed to send within a period, in bytes: a burst of large packets.
const TURN: u64 = 16 * 1024;

/// Counts active senders in periods.
#[derive(Clone, Copy, Debug)]
pub struct Receiver {
    capacity: u32,
    period: Span,
    since: Instant,
    current: u32,
    last: u32,
    serial: u32,
}

/// What a connection remembers between bursts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Member {
    serial: u32,
}

impl Receiver {
    /// `capacity` in KiB per millisecond; `period` about one round trip.
    pub fn new(capacity: u32, period: Span) -> Self {
        Self {
            capacity,
            period,
            since: Instant::default(),
            current: 0,
            last: 0,
            serial: 1,
        }
    }

    /// A burst of `member` came in; returns its grant in KiB per millisecond, 0 = no limit.
    pub fn on_burst(&mut self, now: Instant, member: &mut Member) -> u32 {
        let turns = u64::from(self.last.max(self.current)).saturating_mul(TURN);
        // Bytes by KiB per ms are 1000000/1024 ns.
        let turns = turns
            .saturating_mul(976)
            .checked_div(u64::from(self.capacity))
            .unwrap_or(0);
        if now.since(self.since) >= self.period.max(Span::from_nanos(turns)) {
            // Down slowly: for a while the queue may hold packets of a few senders only.
            let decayed = self.last.saturating_sub(self.last.div_ceil(8));
            self.last = self.current.max(decayed);
            self.current = 0;
            self.since = now;
            self.serial = self.serial.wrapping_add(1).max(1);
        }
        if member.serial != self.serial {
            member.serial = self.serial;
            self.current = self.current.saturating_add(1);
        }
        let senders = self.last.max(self.current);
        if senders <= 1 || self.capacity == 0 {
            return 0;
        }
        let usable = self.capacity - self.capacity / 16;
        usable.checked_div(senders).unwrap_or(0).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares() {
        let mut r = Receiver::new(1600, Span::from_micros(100));
        let mut m = [Member::default(); 3];
        let t = Instant::from_nanos(1_000_000);
        assert_eq!(r.on_burst(t, &mut m[0]), 0);
        assert_eq!(r.on_burst(t, &mut m[1]), 750);
        assert_eq!(r.on_burst(t, &mut m[2]), 500);
        assert_eq!(r.on_burst(t, &mut m[0]), 500);
    }
}
