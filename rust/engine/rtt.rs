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
/// The minimum is forgotten after so long.
const MIN_WINDOW: Span = Span::from_millis(10_000);

/// Estimator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rtt {
    srtt: Option<Span>,
    var: Span,
    min: Span,
    min_at: Instant,
    latest: Span,
    samples: u8,
}

impl Rtt {
    /// Takes in one sample.
    pub fn sample(&mut self, now: Instant, rtt: Span) {
        let r = rtt.as_nanos().max(1);
        self.latest = rtt;
        self.samples = self.samples.saturating_add(1);
        match self.srtt {
            None => {
                self.srtt = Some(Span::from_nanos(r));
                self.var = Span::from_nanos(r / 2);
                self.min = rtt;
                self.min_at = now;
            }
            Some(s) => {
                // RTTVAR = 3/4 RTTVAR + 1/4 |SRTT - R|; SRTT = 7/8 SRTT + 1/8 R
                let s = s.as_nanos();
                let v = self.var.as_nanos();
                let err = s.abs_diff(r);
                self.var = Span::from_nanos((v - v / 4).saturating_add(err / 4));
                self.srtt = Some(Span::from_nanos((s - s / 8).saturating_add(r / 8)));
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

    /// Whether the round-trip time has risen clearly above the smallest: there is a queue.
    pub fn has_risen(&self) -> bool {
        let floor = self.min.as_nanos();
        let limit = floor.saturating_add(floor / 2).saturating_add(50_000);
        self.latest.as_nanos() > limit && self.srtt.is_some_and(|s| s.as_nanos() > limit)
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
        assert!(!r.has_risen());
        for i in 0..100 {
            r.sample(Instant::from_nanos(i), Span::from_micros(1000));
        }
        assert!(r.has_risen());
    }
}
