// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Congestion window of a path: additive increase, decrease by the share of marked packets.
//!
//! ```text
//! alpha <- 15/16 alpha + 1/16 F      F: share of packets with CE in the last round (DCTCP)
//! cwnd  <- cwnd (1 - alpha/2)        at the end of a round with marks
//! cwnd  <- cwnd 3/4                  on loss while the round-trip time is risen, once a round
//! cwnd  <- cwnd + mss                per round otherwise; doubled in slow start
//! ```

use super::seq::Psn;

/// `alpha` = 1.
const ONE: u32 = 1024;

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
    cut: bool,
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
            cut: false,
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

    /// `bytes` were acknowledged; `una` and `next` bound the sequences now in flight; `received` and
    /// `ce` are the receiver's new counts since the last acknowledgement; `limited`: the window
    /// was in use.
    pub fn on_ack(
        &mut self,
        bytes: u32,
        una: Psn,
        next: Psn,
        received: u32,
        ce: u32,
        limited: bool,
    ) {
        self.round_received = self.round_received.saturating_add(received);
        self.round_ce = self.round_ce.saturating_add(ce);
        if limited && !self.cut && self.round_ce == 0 {
            let step = if self.cwnd < self.ssthresh {
                bytes
            } else {
                let per = u64::from(self.mss).saturating_mul(u64::from(bytes));
                let per = per.checked_div(u64::from(self.cwnd)).unwrap_or(0);
                u32::try_from(per).unwrap_or(0).max(1)
            };
            self.set(self.cwnd.saturating_add(step));
        }
        if !una.precedes(self.round_end) {
            self.end_round(next);
        }
    }

    fn end_round(&mut self, next: Psn) {
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
            let cut = u64::from(self.cwnd).saturating_mul(u64::from(alpha)) / u64::from(2 * ONE);
            let cwnd = self.cwnd.saturating_sub(u32::try_from(cut).unwrap_or(0));
            self.set(cwnd);
            self.ssthresh = self.cwnd;
        }
        self.cut = false;
        self.round_received = 0;
        self.round_ce = 0;
        self.round_end = next;
    }

    /// A loss while the round-trip time was risen.
    pub fn on_congestive_loss(&mut self) {
        if !self.cut {
            self.cut = true;
            self.set(self.cwnd.saturating_sub(self.cwnd / 4));
            self.ssthresh = self.cwnd;
        }
    }

    /// Probes remain unanswered.
    pub fn on_silence(&mut self) {
        self.ssthresh = (self.cwnd / 2).max(self.mss.saturating_mul(2));
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_and_shrinks_within_bounds() {
        let mut c = Controller::new(1000, 10, 256);
        for i in 0..1000u32 {
            c.on_ack(10_000, Psn::new(i), Psn::new(i + 10), 10, 0, true);
        }
        assert_eq!(c.window(), 256_000);
        for i in 1000..1200u32 {
            c.on_ack(10_000, Psn::new(i), Psn::new(i + 1), 10, 10, true);
        }
        assert_eq!(c.window(), 2000);
        c.on_congestive_loss();
        assert_eq!(c.window(), 2000);
    }
}
