// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Output: repairs first, then new packets, stream by stream.

use super::super::api::{Host, PayloadSource, Store, StreamError, Transmit, TxOutcome, WcStatus};
use super::super::path::{Content, TxSlot};
use super::super::seq::Psn;
use super::super::stream::{Piece, Stream};
use super::super::time::Instant;
use super::super::wire::{Kind, FLAG_LAZY, MAX_DATA_HEADER, MAX_HEADER};
use super::{Connection, StreamId};

/// Packets in flight before the receiver has answered with a grant: hundreds may begin at once.
const FIRST_FLIGHT: u64 = 8;
/// Bytes a stream may send in its turn.
const QUANTUM: i32 = 16 * 1024;

impl<S: Store, H: Host> Connection<S, H> {
    /// Sends all that the windows allow.
    pub(super) fn pump(&mut self, now: Instant, host: &mut H) {
        if !self.hs.established {
            return;
        }
        self.repair_all(now, host);
        let room = self.max_payload.saturating_add(MAX_DATA_HEADER as u32);
        while let Some(slot) = self.streams.front() {
            if self.over_grant(room) {
                break;
            }
            let Some(path) = self.next_path(now, room) else {
                break;
            };
            let max = self
                .paths
                .get(usize::from(path))
                .map_or(self.max_payload, |p| p.tx.mtu.limit());
            let window = self.peer_window;
            let Some((id, stream)) = self.streams.at(slot) else {
                self.streams.pop_front();
                continue;
            };
            let next = next_piece(stream, now, max, window, host);
            // The first request after a pause begins to wait here; so does a READ, which is asked again
            // before the time of its stream is over.
            let asks = next.is_some_and(|(_, piece)| piece.len == 0);
            if !stream.watched || asks {
                let at = stream.requester.deadline(self.heard);
                self.streams.watch(now, id, at);
            }
            let Some((content, piece)) = next else {
                self.streams.pop_front();
                continue;
            };
            let Some(stream) = self.streams.get_mut(id) else {
                continue;
            };
            let cost = i32::try_from(piece.len)
                .unwrap_or(i32::MAX)
                .saturating_add(64);
            stream.deficit = stream.deficit.saturating_sub(cost);
            let over = stream.deficit <= 0;
            if over {
                stream.deficit = stream.deficit.saturating_add(QUANTUM).min(QUANTUM);
            }
            self.send_new(now, path, id, content, piece, host);
            if over {
                self.streams.pop_front();
                self.streams.activate(id);
            }
        }
        if self.repair != 0 {
            // Faults on the way have left VOIDs to be sent.
            self.repair_all(now, host);
        }
    }

    /// The path for the next packet of at most `bytes`.
    #[inline]
    fn next_path(&mut self, now: Instant, bytes: u32) -> Option<u8> {
        let current = self.paths.get_mut(usize::from(self.spray.current()));
        if current.is_some_and(|path| self.spray.stays(&mut path.tx, bytes)) {
            return Some(self.spray.current());
        }
        let paths = self.paths.get_mut(..self.active_paths)?;
        let first = self.spray.first(paths.len());
        let (before, after) = paths.split_at_mut_checked(first)?;
        let in_turn = after.iter_mut().chain(before).map(|p| &mut p.tx);
        self.spray.pick(now, in_turn, self.active_paths, bytes)
    }

    /// Whether another packet would exceed what the receiver granted, or, before it has granted
    /// anything, the first flight.
    ///
    /// ```text
    /// inflight <= grant * max(5/4 min_rtt + 20 us, 7/8 srtt)
    /// ```
    ///
    /// `min_rtt` is that of the shortest path, as all others may have been measured under load, `srtt` the mean of the
    /// paths in use, weighted by what is in flight. Less than one `srtt`, so that a queue goes away.
    fn over_grant(&self, bytes: u32) -> bool {
        let paths = || self.paths.iter().take(self.active_paths);
        if self.grant_in == 0 && paths().any(|p| p.tx.rtt.is_proven()) {
            return false;
        }
        let (mut inflight, mut weighted, mut min) = (0u64, 0u64, u64::MAX);
        for path in paths() {
            let n = u64::from(path.tx.inflight());
            inflight = inflight.saturating_add(n);
            let Some(srtt) = path.tx.rtt.smoothed() else {
                continue;
            };
            weighted = weighted.saturating_add(n.saturating_mul(srtt.as_nanos()));
            min = min.min(path.tx.rtt.min().as_nanos());
        }
        if inflight == 0 {
            return false;
        }
        let mut limit = u64::from(bytes).saturating_mul(FIRST_FLIGHT);
        if self.grant_in != 0 {
            let least = if min == u64::MAX { 0 } else { min };
            let least = least.saturating_add(least / 4).saturating_add(20_000);
            let srtt = weighted.checked_div(inflight).unwrap_or(0);
            // KiB/ms * ns = bytes * 1000000/1024.
            limit = u64::from(self.grant_in).saturating_mul(least.max(srtt - srtt / 8)) / 976;
        }
        inflight.saturating_add(u64::from(bytes)) > limit
    }

    fn repair_all(&mut self, now: Instant, host: &mut H) {
        let mut left = self.repair;
        while left != 0 {
            let id = left.trailing_zeros();
            left &= left.wrapping_sub(1);
            let mut bounded = 2 * super::super::path::WINDOW;
            while bounded > 0 {
                bounded = bounded.wrapping_sub(1);
                let Some(path) = self.paths.get_mut(id as usize) else {
                    break;
                };
                let Some(psn) = path.tx.next_lost() else {
                    break;
                };
                self.send_slot(now, id as usize, psn, host);
            }
            if let Some(path) = self.paths.get(id as usize) {
                if !path.tx.has_lost() {
                    self.repair &= !1u64.wrapping_shl(id);
                }
            }
        }
    }

    fn send_new(
        &mut self,
        now: Instant,
        id: u8,
        stream: StreamId,
        content: Content,
        piece: Piece,
        host: &mut H,
    ) {
        let slot = TxSlot {
            content,
            stream,
            index: piece.index,
            offset: piece.offset,
            len: piece.len,
            attempt: piece.attempt,
            ..TxSlot::default()
        };
        let Some(path) = self.paths.get_mut(usize::from(id)) else {
            return;
        };
        let psn = path.tx.push(slot);
        self.send_slot(now, usize::from(id), psn, host);
    }

    /// Sends the packet of `psn`, for the first time or again.
    pub(super) fn send_slot(&mut self, now: Instant, id: usize, psn: Psn, host: &mut H) {
        let mut common = self.common(Kind::Void, u8::try_from(id).unwrap_or(0), psn.get());
        let Some(path) = self.paths.get_mut(id) else {
            return;
        };
        let Some(slot) = path.tx.slot(psn).copied() else {
            return;
        };
        common.flags = path.tx.epoch_bit();
        // While half of the window is free, nothing of the path waits for an acknowledgement.
        if slot.tx_count == 0 && self.grant_in == 0 && path.tx.inflight() < path.tx.cc.window() / 2
        {
            common.flags |= FLAG_LAZY;
        }
        common.tx_count = slot.tx_count.wrapping_add(1);
        let route = path.tx.route;
        let mut buf = [0u8; MAX_HEADER];
        let mut payload = PayloadSource::None;
        let mut len = None;
        if let Some(stream) = self.streams.get(slot.stream) {
            len = build(stream, &slot, common, &mut buf, &mut payload);
        }
        let content = if len.is_some() {
            slot.content
        } else {
            Content::Void
        };
        let n = match len {
            Some(n) => n,
            None => common.emit_alone(&mut buf),
        };
        let bytes = u32::try_from(n).unwrap_or(0).saturating_add(payload.len());
        path.tx.on_transmit(now, psn, bytes);
        if content == Content::Void && slot.content != Content::Void {
            path.tx.forget(psn);
        }
        let suspect = content != Content::Void
            && path
                .tx
                .mtu
                .suspects(now, slot.len, slot.tx_count.wrapping_add(1));
        let outcome = host.transmit(&Transmit {
            header: buf.get(..n).unwrap_or(&[]),
            payload,
            route,
            path: u8::try_from(id).unwrap_or(0),
            ect: true,
        });
        if suspect {
            self.search(now, id, host);
        }
        if outcome == TxOutcome::Fault && content != Content::Void {
            self.on_fault(now, id, psn, &slot, host);
        }
    }

    /// The memory of a packet cannot be read: the request fails; a response turns into an error.
    fn on_fault(&mut self, now: Instant, id: usize, psn: Psn, slot: &TxSlot, host: &mut H) {
        self.repair |= 1u64.wrapping_shl(u32::try_from(id).unwrap_or(0));
        let Some(path) = self.paths.get_mut(id) else {
            return;
        };
        let Some(stream) = self.streams.get_mut(slot.stream) else {
            return;
        };
        match slot.content {
            Content::Void => {}
            Content::Request => {
                path.tx.void(psn);
                stream.requester.on_unsent(slot.index);
                stream
                    .requester
                    .fail_local(slot.index, WcStatus::LocProtErr);
                let error = stream.requester.complete(now, &stream.qp, host);
                stream.raise(error, host);
            }
            Content::Response => {
                path.tx.again(psn);
                stream.responder.on_fault(slot.index);
                if !stream.error_raised {
                    let error = stream.responder.advance(&stream.qp, host);
                    stream.raise(error, host);
                }
            }
        }
        self.streams.activate(slot.stream);
    }
}

/// The next piece of a stream: responses first.
fn next_piece<S: Store, H: Host>(
    stream: &mut Stream<S, H>,
    now: Instant,
    max: u32,
    window: u32,
    host: &mut H,
) -> Option<(Content, Piece)> {
    if let Some(piece) = stream.responder.next_piece(max) {
        return Some((Content::Response, piece));
    }
    let mut error: Option<StreamError> = None;
    let piece = stream
        .requester
        .next_piece(now, max, window, &stream.qp, host, &mut error);
    stream.raise(error, host);
    piece.map(|p| (Content::Request, p))
}

/// Writes the header of a slot's packet; its length, or `None` if the packet has lost its meaning.
fn build<'a, S: Store, H: Host>(
    stream: &'a Stream<S, H>,
    slot: &TxSlot,
    mut common: super::super::wire::Common,
    buf: &mut [u8],
    payload: &mut PayloadSource<'a, H::Qp, H::Target>,
) -> Option<usize> {
    let mut data;
    match slot.content {
        Content::Void => return None,
        Content::Request => {
            let (d, req) = stream.requester.describe(slot.index, slot.attempt)?;
            data = d;
            data.offset = slot.offset;
            let last = slot.offset.saturating_add(slot.len) >= req.len;
            if (last && req.signaled) || !stream.requester.has_slack() {
                common.flags &= !FLAG_LAZY;
            }
            if slot.len > 0 {
                *payload = PayloadSource::Request {
                    qp: &stream.qp,
                    wqe: req.wqe,
                    offset: slot.offset,
                    len: slot.len,
                };
            }
        }
        Content::Response => {
            let piece = Piece {
                index: slot.index,
                offset: slot.offset,
                len: slot.len,
                attempt: slot.attempt,
            };
            let packet = stream.responder.describe(&piece)?;
            data = packet.data;
            if slot.offset.saturating_add(slot.len) >= data.total {
                common.flags &= !FLAG_LAZY;
            }
            if let (Some(target), true) = (packet.source, slot.len > 0) {
                *payload = PayloadSource::Remote {
                    qp: &stream.qp,
                    target,
                    offset: slot.offset,
                    len: slot.len,
                };
            }
        }
    }
    data.dst_qpn = stream.remote_qpn;
    data.src_qpn = stream.local_qpn;
    Some(data.emit(common, buf))
}
