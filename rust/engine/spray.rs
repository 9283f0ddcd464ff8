// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Which path the next packets take: the one that delivers them first.
//!
//! ```text
//! cost = srtt/2 + srtt * inflight/cwnd      expected delivery time of one more packet
//! ```
//!
//! A path once chosen keeps [`BURST`] packets, so that the network stack sees bursts of one flow.

use super::api::Store;
use super::path::TxPath;

/// Packets in a row on one path.
pub const BURST: u32 = 8;

/// The spraying decision.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sprayer {
    current: u8,
    left: u32,
}

impl Sprayer {
    /// The path for the next packet of at most `bytes`; `None` when all windows are full.
    pub fn pick<'a, S: Store + 'a>(
        &mut self,
        paths: impl ExactSizeIterator<Item = &'a mut TxPath<S>>,
        bytes: u32,
    ) -> Option<u8> {
        let n = paths.len();
        let mut best: Option<(u64, u32, u8)> = None;
        let mut next = 0u8;
        for path in paths {
            let id = next;
            next = next.wrapping_add(1);
            if path.unanswered() >= 2 || !path.has_room(bytes) {
                continue;
            }
            if id == self.current && self.left > 0 {
                self.left = self.left.wrapping_sub(1);
                return Some(id);
            }
            let srtt = path.rtt.smoothed().map_or(0, |s| s.as_nanos());
            let load = srtt
                .saturating_mul(u64::from(path.inflight()))
                .checked_div(u64::from(path.cc.window()))
                .unwrap_or(u64::MAX);
            let cost = (srtt / 2).saturating_add(load);
            // Equal costs: go round, beginning after the current one.
            let after = u32::from(id)
                .wrapping_add(u32::try_from(n).unwrap_or(0))
                .wrapping_sub(u32::from(self.current))
                .wrapping_sub(1)
                .checked_rem(u32::try_from(n).unwrap_or(1))
                .unwrap_or(0);
            if best.is_none_or(|(c, a, _)| (cost, after) < (c, a)) {
                best = Some((cost, after, id));
            }
        }
        let (_, _, id) = best?;
        self.current = id;
        self.left = BURST.wrapping_sub(1);
        Some(id)
    }
}
