// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Which path the next packets take: the one that delivers them first.
//!
//! ```text
//! cost = rtt/2 + rtt * inflight/cwnd      expected delivery time of one more packet
//! ```
//!
//! `rtt` is the smoothed one, or the smallest of a path that has not been used for a while. A path once chosen keeps
//! [`BURST`] packets, so that the network stack sees bursts of one flow. Of all paths the first so many that answer are
//! used; each connection counts from another one, so that all planes get their share.

use super::api::Store;
use super::path::TxPath;
use super::time::Instant;

/// Packets in a row on one path.
pub const BURST: u32 = 8;
/// A path with so many unanswered probes gets nothing new.
const SILENT: u8 = 2;

/// The spraying decision.
#[derive(Clone, Copy, Debug)]
pub struct Sprayer {
    current: u8,
    left: u32,
    /// Where counting begins.
    turn: u8,
    used: u8,
}

impl Default for Sprayer {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Sprayer {
    /// One that uses all paths, counted from the one that `draw` names.
    pub fn new(draw: u64) -> Self {
        Self {
            current: 0,
            left: 0,
            turn: draw.to_le_bytes()[0],
            used: u8::MAX,
        }
    }

    /// The path that is counted first, of `n`.
    pub fn first(&self, n: usize) -> usize {
        usize::from(self.turn).checked_rem(n).unwrap_or(0)
    }

    /// How many paths of `n` are used.
    pub fn used(&self, n: usize) -> usize {
        usize::from(self.used).clamp(1, n.max(1))
    }

    /// Uses so many paths from now on.
    pub fn set_used(&mut self, used: usize) {
        self.used = u8::try_from(used).unwrap_or(u8::MAX);
    }

    /// Whether path `id` of `n` is among those used while all answer.
    pub fn uses(&self, id: usize, n: usize) -> bool {
        let place = id
            .saturating_add(n)
            .saturating_sub(self.first(n))
            .checked_rem(n)
            .unwrap_or(0);
        place < self.used(n)
    }

    /// The path used last.
    #[inline]
    pub fn current(&self) -> u8 {
        self.current
    }

    /// Whether `path`, the current one, takes the next packet, too.
    #[inline]
    pub fn stays<S: Store>(&mut self, path: &mut TxPath<S>, bytes: u32) -> bool {
        if self.left == 0 || path.unanswered() >= SILENT || !path.has_room(bytes) {
            return false;
        }
        self.left = self.left.wrapping_sub(1);
        true
    }

    /// The path for the next packet of at most `bytes`; `None` when all windows are full. `in_turn` are all `n` paths,
    /// beginning with [`Self::first`].
    pub fn pick<'a, S: Store + 'a>(
        &mut self,
        now: Instant,
        in_turn: impl Iterator<Item = &'a mut TxPath<S>>,
        n: usize,
        bytes: u32,
    ) -> Option<u8> {
        let first = self.first(n);
        let behind = |id: usize| {
            let back = n.saturating_sub(usize::from(self.current));
            id.saturating_add(back).saturating_sub(1).checked_rem(n)
        };
        let mut best: Option<(u64, Option<usize>, usize)> = None;
        let (mut place, mut left) = (first, self.used(n));
        for path in in_turn {
            let id = place.checked_rem(n).unwrap_or(0);
            place = place.wrapping_add(1);
            if path.unanswered() >= SILENT {
                continue;
            }
            if left == 0 {
                break;
            }
            left = left.wrapping_sub(1);
            if !path.has_room(bytes) {
                continue;
            }
            let rtt = path.rtt.current(now).as_nanos();
            let load = rtt
                .saturating_mul(u64::from(path.inflight()))
                .checked_div(u64::from(path.cc.window()))
                .unwrap_or(u64::MAX);
            let cost = (rtt / 2).saturating_add(load);
            // Equal costs: go round, beginning after the current one.
            let after = behind(id);
            if best.is_none_or(|(c, a, _)| (cost, after) < (c, a)) {
                best = Some((cost, after, id));
            }
        }
        let (_, _, id) = best?;
        self.current = u8::try_from(id).unwrap_or(0);
        self.left = BURST.wrapping_sub(1);
        Some(self.current)
    }
}
