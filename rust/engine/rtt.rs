// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Round-trip time of a path: RFC 6298 in nanoseconds, plus the smallest seen.

use super::time::{Instant, Span};

/// Before any sample the probe time-out is this. A needless probe costs a small packet only.
const INITIAL_PTO: Span = Span::from_millis(1);
/// Silence of a path that has never answered, until which it may just be a long one.
const PATIENCE: Span = Span::from_millis(60);
/// The shortest probe time-out before data was acknowledged: the handshake's round trip is that of an
/// idle network, the first answer to many senders at once may take much longer.
const FIRST_PTO: Span = Span::from_millis(1);
/// A probe never goes out earlier than this: timers and softirqs are not more exact.
const MIN_PTO: Span = Span::from_micros(500);
/// Samples of whose minimum it is told whether a queue stands.
const INTERVAL: u8 = 16;
/// The least difference of round-trip times that tells of a queue.
const QUEUE: Span = Span::from_micros(50);
/// Routes whose smallest round-trip times differ by less than this factor are taken to be equally long: the larger one
/// was measured under load.
const ALIKE: u64 = 64;
/// The minimum is forgotten after so long.
pub(super) const MIN_WINDOW: Span = Span::from_millis(10_000);

/// Estimator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rtt {
    srtt: Option<Span>,
    var: Span,
    min: Span,
    min_at: Instant,
    /// The largest, fading towards the smoothed one.
    max: Span,
    latest_at: Instant,
    /// The smallest of the last [`INTERVAL`] samples that are complete, and of those since.
    recent: Span,
    filling: Span,
    filled: u8,
    samples: u8,
}

impl Rtt {
    /// Takes in one sample.
    pub fn sample(&mut self, now: Instant, rtt: Span) {
        let r = rtt.as_nanos().max(1);
        self.latest_at = now;
        if self.filled == 0 || rtt < self.filling {
            self.filling = rtt;
        }
        self.filled = self.filled.saturating_add(1);
        if self.filled >= INTERVAL {
            self.recent = self.filling;
            self.filled = 0;
        }
        self.samples = self.samples.saturating_add(1);
        match self.srtt {
            None => {
                self.srtt = Some(Span::from_nanos(r));
                self.var = Span::from_nanos(r / 2);
                self.min = rtt;
                self.min_at = now;
                self.max = rtt;
                self.recent = rtt;
            }
            Some(s) => {
                // RTTVAR = 3/4 RTTVAR + 1/4 |SRTT - R|; SRTT = 7/8 SRTT + 1/8 R
                let s = s.as_nanos();
                let v = self.var.as_nanos();
                let err = s.abs_diff(r);
                self.var = Span::from_nanos((v - v / 4).saturating_add(err / 4));
                self.srtt = Some(Span::from_nanos((s - s / 8).saturating_add(r / 8)));
                let max = self.max.as_nanos();
                let fade = max.saturating_sub(s) / 128;
                self.max = rtt.max(Span::from_nanos(max.saturating_sub(fade)));
                if rtt <= self.min || now.since(self.min_at) > MIN_WINDOW {
                    self.min = rtt;
                    self.min_at = now;
                }
            }
        }
    }

    /// Smoothed round-trip time, if known.
    pub fn smoothed(&self) -> Option<Span> {
        self.srtt
    }

    /// Whether there are samples besides that of the handshake.
    pub fn is_proven(&self) -> bool {
        self.samples > 1
    }

    /// Smallest recent round-trip time; zero while unknown.
    pub fn min(&self) -> Span {
        self.min
    }

    /// The smallest of the last samples: what exceeds [`Self::min`] is a queue that stands. Single large ones, by
    /// reordering or a processor that was busy, do not count (the idea of CoDel, RFC 8289).
    pub fn standing(&self) -> Span {
        if self.filled == 0 {
            self.recent
        } else {
            self.recent.min(self.filling)
        }
    }

    /// What the next packet may expect. A path that has not been heard for two round trips has no packets
    /// in its queue, or others': it is judged by its best time, so that it gets a new chance.
    pub fn current(&self, now: Instant) -> Span {
        match self.srtt {
            Some(s) if now.since(self.latest_at) > s.times(2) => self.min,
            Some(s) => s,
            None => Span::ZERO,
        }
    }

    /// The round-trip time without queues, as far as known. `others`: the smallest of all paths of the connection,
    /// zero if unknown.
    pub fn floor(&self, others: Span) -> Span {
        let alike = others > Span::ZERO && self.min <= others.times(ALIKE);
        if alike {
            self.min.min(others)
        } else {
            self.min
        }
    }

    /// Whether a queue stands: [`Self::standing`] is clearly above [`Self::floor`], or, as that may have
    /// been measured under load, in the upper half of what is seen.
    pub fn has_risen(&self, others: Span) -> bool {
        let floor = self.floor(others).as_nanos();
        let limit = floor
            .saturating_add(floor / 2)
            .saturating_add(QUEUE.as_nanos());
        let standing = self.standing().as_nanos();
        if standing > limit {
            return true;
        }
        let floor = self.min.as_nanos();
        let range = self.max.as_nanos().saturating_sub(floor);
        range > floor / 4 && range > QUEUE.as_nanos() && standing > floor.saturating_add(range / 2)
    }

    /// Takes what stands for the length of the way.
    pub fn relearn(&mut self, now: Instant) {
        if self.srtt.is_some() {
            self.min = self.standing();
            self.min_at = now;
        }
    }

    /// Begins anew on another route, on which the first answer took `first`. `alike`: it is as long as the old one, so
    /// that the smallest round-trip time is the same.
    pub fn restart(&mut self, now: Instant, first: Span, alike: bool) {
        let old = *self;
        *self = Self::default();
        self.sample(now, first);
        self.samples = old.samples.max(1);
        if alike && old.min < first && old.srtt.is_some() {
            self.min = old.min;
            self.min_at = old.min_at;
        }
    }

    /// How long a packet may be without an answer before a path with this estimate is thought to have lost
    /// it, whatever was sent later.
    pub fn patience(&self) -> Span {
        if self.is_proven() {
            self.probe_timeout().times(2)
        } else {
            PATIENCE
        }
    }

    /// Time without an answer after which to probe.
    pub fn probe_timeout(&self) -> Span {
        match self.srtt {
            None => INITIAL_PTO,
            Some(s) => {
                let least = if self.is_proven() { MIN_PTO } else { FIRST_PTO };
                s.plus(self.var.times(4))
                    .plus(Span::from_micros(100))
                    .max(least)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converges_and_rises() {
        let mut r = Rtt::default();
        assert_eq!(r.probe_timeout(), INITIAL_PTO);
        for i in 0..100 {
            r.sample(Instant::from_nanos(i), Span::from_micros(100));
        }
        assert!(r
            .smoothed()
            .is_some_and(|s| (95..=100).contains(&s.as_micros())));
        assert!(!r.has_risen(Span::ZERO));
        for i in 0..100 {
            r.sample(Instant::from_nanos(i), Span::from_micros(1000));
        }
        assert!(r.has_risen(Span::ZERO));
    }

    #[test]
    fn sees_queues_also_when_the_minimum_was_measured_under_load() {
        let mut r = Rtt::default();
        let mut feed = |us: u64, n: u64| {
            for i in 0..n {
                r.sample(Instant::from_nanos(i), Span::from_micros(us));
            }
            r.has_risen(Span::ZERO)
        };
        assert!(!feed(400, 40));
        assert!(feed(540, 40));
        assert!(!feed(400, 1));
        r.restart(Instant::from_nanos(1000), Span::from_micros(100), false);
        assert!(!r.has_risen(Span::ZERO) && r.is_proven());
        assert!(r.has_risen(Span::from_micros(20)), "others know better");
        let later = Instant::from_nanos(1_000_000);
        assert_eq!(r.current(later), r.min());
    }

    #[test]
    fn jitter_is_no_queue() {
        let mut r = Rtt::default();
        for i in 0..1000u64 {
            let us = if i % 8 == 0 { 100 } else { 2000 };
            r.sample(Instant::from_nanos(i), Span::from_micros(us));
            assert!(i < 16 || !r.has_risen(Span::ZERO), "{i}");
        }
    }
}
