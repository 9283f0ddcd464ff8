// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Congestion window of a path: additive increase, decrease by the share of marked packets, by loss together
//! with a queue, and by delay.
//!
//! ```text
//! alpha <- 15/16 alpha + 1/16 F      F: share of packets with CE in the last round (DCTCP, RFC 8257)
//! cwnd  <- cwnd (1 - alpha/2)        at the end of a round with marks
//! cwnd  <- cwnd 3/4                  on loss while the round-trip time is risen, once a round
//! cwnd  <- cwnd 1/2                  on loss when more than a fifth of all packets is lost, once a round
//! cwnd  <- cwnd (1 - min(1/2, 4/5 (rtt - target) / rtt))
//!                                    at the end of a round; rtt: what stands, see [`Rtt::standing`], if above
//!                                    target = 2 min_rtt + 1/2 ms + 1 ms / sqrt(W)   (Swift; W: packets of all paths)
//! cwnd  <- cwnd + mss min(1, (1 + r) / (4 n^2))
//!                                    per round otherwise; doubled in slow start. n: paths in use, r: rounds since the
//!                                    last decrease
//! ```
//!
//! `1 / n^2` makes a connection with n paths through one bottleneck take no more than one with a single path (linked
//! increase, RFC 6356); that it grows with time (as in H-TCP) lets paths with a bottleneck each fill theirs.
//!
//! The delay rule bounds what a queue without marks may hold, so that losses are found and routes compared in a few
//! milliseconds whatever the buffers are.

use super::rtt::Rtt;
use super::seq::Psn;
use super::time::Span;

/// `alpha` = 1.
const ONE: u32 = 1024;
/// Above this share of lost packets, in 1/1024, no network is meant to work: it is congested.
const TOO_LOSSY: u32 = ONE / 5;
/// Packets in the windows of a connection that the delay rule leaves.
const LEAST: u32 = 8;
/// What the delay may be above twice the smallest: half of this, and all of it by the square root of the window.
const SLACK: Span = Span::from_millis(1);

/// What the paths of a connection know of each other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shared {
    /// Paths in use.
    pub paths: u32,
    /// Their windows, in packets.
    pub window: u32,
    /// The smallest round-trip time of all; zero while unknown.
    pub min_rtt: Span,
}

impl Shared {
    /// What the round-trip time is to stay below on a path that takes `floor` without queues.
    pub fn delay_bound(&self, floor: Span) -> Span {
        let root = self.window.max(1).saturating_mul(64).isqrt();
        let scaled = SLACK.as_nanos().saturating_mul(8) / u64::from(root.max(8));
        floor
            .times(2)
            .plus(SLACK.halved())
            .plus(Span::from_nanos(scaled))
    }

    /// Whether the windows are so small that the delay rule does not shrink them any more.
    pub fn at_least(&self) -> bool {
        self.window <= LEAST
    }
}

/// What an acknowledgement tells.
#[derive(Clone, Copy, Debug)]
pub struct News {
    /// Bytes newly acknowledged.
    pub bytes: u32,
    /// Oldest sequence in flight.
    pub una: Psn,
    /// The sequence after the last in flight.
    pub next: Psn,
    /// Packets that the peer has received since the last news ...
    pub received: u32,
    /// ... of these with CE ...
    pub ce: u32,
    /// ... and of these twice: what was taken for lost was late.
    pub dups: u32,
    /// Whether the window was in use.
    pub limited: bool,
}

/// The window in bytes of datagrams.
#[derive(Clone, Copy, Debug)]
pub struct Controller {
    cwnd: u32,
    ssthresh: u32,
    mss: u32,
    max: u32,
    alpha: u32,
    round_end: Psn,
    round_received: u32,
    round_ce: u32,
    /// Share of lost packets in 1/1024, smoothed over some hundred packets.
    lossy: u32,
    cut: bool,
    /// Rounds since the last decrease.
    calm: u32,
}

impl Controller {
    /// A window of `initial` packets of `mss` bytes each, at most `max_packets`.
    pub fn new(mss: u32, initial: u32, max_packets: u32) -> Self {
        let max = mss.saturating_mul(max_packets);
        Self {
            cwnd: mss.saturating_mul(initial).min(max),
            ssthresh: max,
            mss,
            max,
            alpha: 0,
            round_end: Psn::new(0),
            round_received: 0,
            round_ce: 0,
            lossy: 0,
            cut: false,
            calm: 0,
        }
    }

    /// Bytes that may be in flight.
    #[inline]
    pub fn window(&self) -> u32 {
        self.cwnd
    }

    /// Share of marked packets in 1/1024.
    pub fn alpha(&self) -> u32 {
        self.alpha
    }

    fn set(&mut self, cwnd: u32) {
        let min = self.mss.saturating_mul(2).min(self.max);
        self.cwnd = cwnd.clamp(min, self.max.max(min));
    }

    /// Packets were acknowledged.
    pub fn on_ack(&mut self, news: &News, rtt: &Rtt, shared: &Shared) {
        self.round_received = self.round_received.saturating_add(news.received);
        self.round_ce = self.round_ce.saturating_add(news.ce);
        for _ in 0..news.dups.min(256) {
            self.lossy = self.lossy.saturating_sub(ONE / 64);
        }
        for _ in 0..news.received.min(256) {
            self.lossy = self.lossy.saturating_sub(self.lossy.div_ceil(128));
        }
        if news.limited && !self.cut && self.round_ce == 0 {
            let step = if self.cwnd < self.ssthresh {
                news.bytes
            } else {
                let share = shared
                    .paths
                    .saturating_mul(shared.paths)
                    .saturating_mul(4)
                    .max(1);
                let part = self.calm.saturating_add(1).min(share);
                let per = u64::from(self.mss)
                    .saturating_mul(u64::from(news.bytes))
                    .saturating_mul(u64::from(part));
                let per = per
                    .checked_div(u64::from(self.cwnd))
                    .and_then(|p| p.checked_div(u64::from(share)))
                    .unwrap_or(0);
                u32::try_from(per).unwrap_or(0).max(1)
            };
            self.set(self.cwnd.saturating_add(step));
        }
        if !news.una.precedes(self.round_end) {
            self.end_round(news.next, rtt, shared);
        }
    }

    fn end_round(&mut self, next: Psn, rtt: &Rtt, shared: &Shared) {
        let share = self
            .round_ce
            .min(self.round_received)
            .saturating_mul(ONE)
            .checked_div(self.round_received)
            .unwrap_or(0);
        self.alpha = (self.alpha.saturating_mul(15).saturating_add(share)) / 16;
        if self.round_ce > 0 && !self.cut {
            // The first marks ever end slow start at once: alpha would be too small yet.
            let alpha = if self.cwnd < self.ssthresh {
                self.alpha.max(share / 2)
            } else {
                self.alpha
            };
            self.shrink(u64::from(alpha), u64::from(2 * ONE));
        } else if !self.cut {
            self.limit_delay(rtt, shared);
        }
        self.cut = false;
        self.calm = self.calm.saturating_add(1);
        self.round_received = 0;
        self.round_ce = 0;
        self.round_end = next;
    }

    /// Shrinks the window by `part` of `whole`.
    fn shrink(&mut self, part: u64, whole: u64) {
        let cut = u64::from(self.cwnd)
            .saturating_mul(part)
            .checked_div(whole)
            .unwrap_or(0);
        let cwnd = self.cwnd.saturating_sub(u32::try_from(cut).unwrap_or(0));
        self.set(cwnd);
        self.ssthresh = self.cwnd;
        self.calm = 0;
    }

    fn limit_delay(&mut self, rtt: &Rtt, shared: &Shared) {
        let target = shared.delay_bound(rtt.floor(shared.min_rtt)).as_nanos();
        let delay = rtt.standing().as_nanos();
        let above = delay.saturating_sub(target);
        if above > 0 && !shared.at_least() {
            self.shrink((above.saturating_mul(4) / 5).min(delay / 2), delay);
        }
    }

    /// `packets` were lost; `queueing`: while the round-trip time was risen.
    pub fn on_loss(&mut self, packets: u32, queueing: bool) {
        for _ in 0..packets.min(256) {
            self.lossy = self
                .lossy
                .saturating_add(ONE.saturating_sub(self.lossy) / 128);
        }
        if self.cut {
            return;
        }
        if self.lossy > TOO_LOSSY {
            self.cut = true;
            self.shrink(1, 2);
        } else if queueing {
            self.cut = true;
            self.shrink(1, 4);
        }
    }

    /// The path has another route. `idle`: it seems to have room. Else go on carefully, as others that had to leave
    /// may be there, too.
    pub fn on_new_route(&mut self, idle: bool) {
        self.lossy = 0;
        self.alpha = 0;
        self.calm = 0;
        self.ssthresh = if idle { self.max } else { self.cwnd };
    }

    /// Probes remain unanswered.
    pub fn on_silence(&mut self) {
        self.ssthresh = (self.cwnd / 2).max(self.mss.saturating_mul(2));
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::time::Instant;
    use super::*;

    fn news(i: u32, ce: u32) -> News {
        News {
            bytes: 10_000,
            una: Psn::new(i),
            next: Psn::new(i + 1),
            received: 10,
            ce,
            dups: 0,
            limited: true,
        }
    }

    fn measured(us: u64, then: u64) -> Rtt {
        let mut r = Rtt::default();
        r.sample(Instant::from_nanos(1), Span::from_micros(us));
        for i in 2..40 {
            r.sample(Instant::from_nanos(i), Span::from_micros(then));
        }
        r
    }

    #[test]
    fn grows_and_shrinks_within_bounds() {
        let rtt = measured(100, 100);
        let mut c = Controller::new(1000, 10, 256);
        for i in 0..1000u32 {
            c.on_ack(&news(i, 0), &rtt, &Shared::default());
        }
        assert_eq!(c.window(), 256_000);
        for i in 1000..1200u32 {
            c.on_ack(&news(i, 10), &rtt, &Shared::default());
        }
        assert_eq!(c.window(), 2000);
        c.on_loss(1, true);
        assert_eq!(c.window(), 2000);
    }

    #[test]
    fn loss_without_a_queue_costs_nothing_unless_there_is_far_too_much() {
        let rtt = measured(100, 100);
        let mut c = Controller::new(1000, 100, 256);
        for i in 0..1000u32 {
            c.on_ack(&news(i, 0), &rtt, &Shared::default());
            c.on_loss(1, false);
        }
        assert_eq!(c.window(), 256_000, "one packet of ten");
        for i in 1000..1100u32 {
            c.on_ack(&news(i, 0), &rtt, &Shared::default());
            c.on_loss(10, false);
        }
        assert!(c.window() < 10_000, "every second packet: {}", c.window());
    }

    #[test]
    fn delay_is_bounded() {
        let mut c = Controller::new(1000, 200, 256);
        let many = Shared {
            window: 100,
            ..Shared::default()
        };
        for i in 0..100u32 {
            c.on_ack(&news(i, 0), &measured(100, 5_000), &many);
        }
        assert!(c.window() < 20_000, "{}", c.window());
        let before = c.window();
        for i in 100..120u32 {
            c.on_ack(&news(i, 0), &measured(100, 1_100), &many);
        }
        assert!(c.window() > before);
    }
}
