// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! When a burst of received datagrams is over: acknowledgements wait for its end.
//!
//! Only datagrams that the connection has believed count. Anybody can send some that reach a connection by its
//! addresses alone; these must neither delay nor hasten anything.

use super::{wire::ACK_DELAY, Handled, Instant};

/// Datagrams after which an acknowledgement does not wait for the end of the burst any longer.
const BURST: u32 = 16;
/// The same while the peer says that nobody waits for it.
const LAZY_BURST: u32 = 32;

/// What follows a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Nothing: it was not the peer's.
    Nothing,
    /// The burst ends at [`Burst::end_by`] at the latest.
    Wait,
    /// The burst ends once what has arrived already is handled.
    Soon,
    /// The burst is over.
    End,
}

/// The datagrams since the last burst of a connection was over.
#[derive(Debug, Default)]
pub struct Burst {
    count: u32,
    /// Bytes of the longest datagram ever.
    longest: u32,
    end_by: Option<Instant>,
}

impl Burst {
    /// A datagram of `len` bytes was handled. `may_wait`: [`super::Connection::may_wait`], and delayed
    /// acknowledgements are wanted.
    pub fn on_datagram(
        &mut self,
        now: Instant,
        handled: Handled,
        len: u32,
        may_wait: bool,
    ) -> Then {
        if matches!(handled, Handled::Ignored | Handled::Malformed) {
            return Then::Nothing;
        }
        // A short datagram ends a message or is one: what it leads to must not wait, unless the
        // peer says so. In a run of full ones the rest of the burst is waited for, but not for long.
        self.count = self.count.saturating_add(1);
        let full = len >= self.longest;
        self.longest = self.longest.max(len);
        if may_wait && self.count < LAZY_BURST {
            if self.end_by.is_none() {
                self.end_by = Some(now.after(ACK_DELAY));
            }
            Then::Wait
        } else if full && self.count < BURST {
            Then::Soon
        } else {
            Then::End
        }
    }

    /// The burst is over.
    pub fn ended(&mut self) {
        self.count = 0;
        self.end_by = None;
    }

    /// When it has to be over, if it may wait.
    pub fn end_by(&self) -> Option<Instant> {
        self.end_by
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(1_000_000);

    #[test]
    fn forged_datagrams_change_nothing() {
        let mut burst = Burst::default();
        assert_eq!(
            burst.on_datagram(NOW, Handled::Accepted, 1500, false),
            Then::Soon
        );
        for handled in [Handled::Ignored, Handled::Malformed] {
            // One that is longer than any the peer can send, and many.
            for len in [0, 60_000].into_iter().cycle().take(100) {
                assert_eq!(burst.on_datagram(NOW, handled, len, true), Then::Nothing);
            }
        }
        assert_eq!(burst.end_by(), None);
        for _ in 2..16 {
            let then = burst.on_datagram(NOW, Handled::Accepted, 1500, false);
            assert_eq!(then, Then::Soon);
        }
    }

    #[test]
    fn a_burst_ends_with_a_short_datagram_or_after_a_number_of_full_ones() {
        let mut burst = Burst::default();
        for n in 1..16 {
            let then = burst.on_datagram(NOW, Handled::Accepted, 1500, false);
            assert_eq!(then, Then::Soon, "{n}");
        }
        let then = burst.on_datagram(NOW, Handled::Accepted, 1500, false);
        assert_eq!(then, Then::End);
        burst.ended();
        burst.on_datagram(NOW, Handled::Accepted, 1500, false);
        let then = burst.on_datagram(NOW, Handled::Feedback, 72, false);
        assert_eq!(then, Then::End);
    }

    #[test]
    fn what_nobody_waits_for_is_delayed_once_and_for_a_number_of_datagrams() {
        let mut burst = Burst::default();
        let mut now = NOW;
        for _ in 1..32 {
            let then = burst.on_datagram(now, Handled::Accepted, 1500, true);
            assert_eq!(then, Then::Wait);
            assert_eq!(burst.end_by(), Some(NOW.after(ACK_DELAY)));
            now = now.after(ACK_DELAY);
        }
        let then = burst.on_datagram(now, Handled::Accepted, 1500, true);
        assert_eq!(then, Then::End);
        burst.ended();
        assert_eq!(burst.end_by(), None);
    }
}
