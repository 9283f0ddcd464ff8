// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Input: datagrams of a burst, then the end of the burst.

use super::super::api::{Handled, Host, Payload, PayloadSource, RxMeta, Store, Transmit};
use super::super::path::{Answers, Arrival, Content};
use super::super::seq::Psn;
use super::super::time::{Instant, Span};
use super::super::wire::{
    self, Ack, Common, Data, Kind, Nak, NakReason, Packet, ACK_LEN, FLAG_CANDIDATE, FLAG_LAZY,
    FLAG_PROBE, NAK_LEN,
};
use super::Connection;

/// An acknowledgement leaves within a burst after so many packets of a path.
const ACK_EVERY: u32 = 32;

impl<S: Store, H: Host> Connection<S, H> {
    /// Handles one datagram. `head` are its first bytes: all of it, or at least
    /// [`wire::MAX_HEADER`]. Payload is placed, completions are reported and NAKs sent from within;
    /// acknowledgements and further data wait for [`Self::end_of_burst`].
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        meta: &RxMeta,
        head: &[u8],
        host: &mut H,
    ) -> Handled {
        let Ok((common, packet)) = wire::parse(head, meta.len) else {
            return Handled::Malformed;
        };
        match packet {
            Packet::Init(hs) => {
                self.on_init(now, common.tx_count, &hs, host);
                return Handled::Control;
            }
            Packet::Reset => {
                return if self.on_reset(now, &common, host) {
                    Handled::Control
                } else {
                    Handled::Ignored
                };
            }
            _ => {}
        }
        if common.conn_id != self.local.conn_id || common.tag != self.local_tag {
            return Handled::Ignored;
        }
        if let Packet::InitAck(hs) = packet {
            self.on_init_ack(now, &hs, host);
            return Handled::Control;
        }
        if !self.hs.established {
            // The peer is ready before us: ask (again).
            if self.hs.opening {
                self.start_init(now, host);
            }
            return Handled::Ignored;
        }
        if usize::from(common.path) >= self.active_paths {
            return Handled::Malformed;
        }
        self.heard = now;
        self.silent = false;
        let lazy = common.flags & FLAG_LAZY != 0 && matches!(packet, Packet::Data(_)) && !meta.ce;
        let handled = match packet {
            Packet::Data(data) => self.on_sequenced(now, meta, &common, Some(&data), host),
            Packet::Void => self.on_sequenced(now, meta, &common, None, host),
            Packet::Probe => self.on_probe(now, meta, &common, host),
            Packet::Ack(ack) => self.on_ack(now, &common, &ack, host),
            Packet::Nak(nak) => self.on_nak(now, &common, nak, host),
            _ => Handled::Ignored,
        };
        // After a gap the sender learns of a loss by each acknowledgement.
        let in_order = self
            .paths
            .get(usize::from(common.path))
            .is_some_and(|path| !path.rx.has_gaps());
        self.urgent |= !(lazy && in_order && handled == Handled::Accepted);
        handled
    }

    /// Whether the end of the burst may wait for more packets, until [`wire::ACK_DELAY`] after the first: the
    /// peer has said of all packets since the last one that nobody waits for
    /// their acknowledgement, and there is nothing to send.
    pub fn may_wait(&self) -> bool {
        !self.urgent && self.repair == 0 && self.streams.front().is_none()
    }

    fn on_sequenced(
        &mut self,
        now: Instant,
        meta: &RxMeta,
        common: &Common,
        data: Option<&Data>,
        host: &mut H,
    ) -> Handled {
        let id = usize::from(common.path);
        let seq = Psn::new(common.seq);
        let Some(path) = self.paths.get_mut(id) else {
            return Handled::Malformed;
        };
        path.rx.plane = meta.plane;
        match path.rx.on_arrival(now, seq, common.tx_count, meta.ce) {
            Arrival::Beyond => return Handled::Ignored,
            Arrival::Duplicate => {
                self.owe_ack(common.path);
                return Handled::Duplicate;
            }
            Arrival::New => {}
        }
        if let Some(data) = data {
            if let Err((reason, timer)) = self.deliver(now, data, host) {
                self.send_nak(common, reason, timer, host);
                return Handled::Refused;
            }
        }
        let mut unreported = 0;
        if let Some(path) = self.paths.get_mut(id) {
            path.rx.accept(seq);
            unreported = path.rx.unreported();
        }
        self.owe_ack(common.path);
        if unreported >= ACK_EVERY {
            self.send_ack(now, common.path, host);
        }
        Handled::Accepted
    }

    /// Answers a PROBE at once: others that follow ask about other routes. When answers do not get through, the
    /// route of this direction changes, too.
    fn on_probe(&mut self, now: Instant, meta: &RxMeta, common: &Common, host: &mut H) -> Handled {
        let id = usize::from(common.path);
        let Some(path) = self.paths.get_mut(id) else {
            return Handled::Malformed;
        };
        path.rx.plane = meta.plane;
        let candidate = common.flags & FLAG_CANDIDATE != 0;
        let missed = path
            .rx
            .on_probe(now, common.seq, common.tx_count, candidate);
        self.send_ack(now, common.path, host);
        if missed {
            self.move_path(now, id, host);
        }
        Handled::Control
    }

    /// Gives the content of a packet to its stream.
    fn deliver(&mut self, now: Instant, data: &Data, host: &mut H) -> Result<(), (NakReason, u8)> {
        let payload = Payload {
            offset: data.header_len,
            len: data.payload_len,
        };
        let Some(id) = self.streams.find(data.dst_qpn, data.src_qpn) else {
            // A response to a QP that is gone concerns nobody; a request may be too early.
            return if data.op.is_response() {
                Ok(())
            } else {
                Err((NakReason::NotReady, 0))
            };
        };
        let Some(stream) = self.streams.get_mut(id) else {
            return Err((NakReason::NotReady, 0));
        };
        if data.op.is_response() {
            stream.touched = true;
            stream
                .requester
                .on_response(now, data, payload, &stream.qp, host);
            let error = stream.requester.complete(now, &stream.qp, host);
            stream.raise(error, host);
            self.streams.activate(id);
            return Ok(());
        }
        let outcome = stream.responder.on_request(data, payload, &stream.qp, host);
        stream.touched |= outcome.is_ok();
        if !stream.error_raised {
            let error = stream.responder.advance(&stream.qp, host);
            stream.raise(error, host);
        }
        if stream.responder.has_work() {
            self.streams.activate(id);
        }
        outcome
    }

    fn on_ack(&mut self, now: Instant, common: &Common, ack: &Ack, host: &mut H) -> Handled {
        let id = usize::from(common.path);
        let answers = if common.flags & FLAG_PROBE == 0 {
            Answers::Packet
        } else if self.on_size_answer(now, id, ack.echo_seq, host) {
            Answers::Candidate
        } else {
            let delay = Span::from_micros(u64::from(ack.delay_us));
            self.on_answer(now, common.path, ack.echo_seq, delay)
        };
        let shared = self.shared;
        let streams = &mut self.streams;
        let Some(path) = self.paths.get_mut(id) else {
            return Handled::Malformed;
        };
        let ok = path
            .tx
            .on_ack(now, Psn::new(common.seq), ack, answers, &shared, |slot| {
                let Some(stream) = streams.get_mut(slot.stream) else {
                    return;
                };
                match slot.content {
                    Content::Void => return,
                    Content::Request => {
                        stream.touched = true;
                        stream.requester.on_acked(now, slot.index);
                        let error = stream.requester.complete(now, &stream.qp, host);
                        stream.raise(error, host);
                    }
                    Content::Response => {
                        stream.responder.on_acked(slot.index);
                        if !stream.error_raised {
                            let error = stream.responder.advance(&stream.qp, host);
                            stream.raise(error, host);
                        }
                    }
                }
                if !stream.active {
                    streams.activate(slot.stream);
                }
            });
        if !ok {
            return Handled::Malformed;
        }
        self.grant_in = ack.grant;
        if answers == Answers::Candidate {
            self.judge_candidates(now, common.path, host);
        }
        self.repair |= 1u64.wrapping_shl(u32::from(common.path));
        self.search_more(now, id, host);
        Handled::Feedback
    }

    fn on_nak(&mut self, now: Instant, common: &Common, nak: Nak, host: &mut H) -> Handled {
        let Some(path) = self.paths.get_mut(usize::from(common.path)) else {
            return Handled::Malformed;
        };
        let Some(slot) = path
            .tx
            .on_nak(now, Psn::new(common.seq), common.tx_count, &self.shared)
        else {
            return Handled::Ignored;
        };
        self.repair |= 1u64.wrapping_shl(u32::from(common.path));
        if let Some(stream) = self.streams.get_mut(slot.stream) {
            match slot.content {
                Content::Void => {}
                Content::Request => {
                    let r = &mut stream.requester;
                    r.on_nak(now, slot.index, slot.attempt, nak.reason, nak.timer);
                    let error = r.complete(now, &stream.qp, host);
                    let at = r.deadline(self.heard);
                    stream.raise(error, host);
                    self.streams.watch(now, slot.stream, at);
                }
                Content::Response => stream.responder.on_acked(slot.index),
            }
            self.streams.activate(slot.stream);
        }
        Handled::Feedback
    }

    fn owe_ack(&mut self, path: u8) {
        self.ack_due |= 1u64.wrapping_shl(u32::from(path));
    }

    fn send_nak(&mut self, refused: &Common, reason: NakReason, timer: u8, host: &mut H) {
        let mut common = self.common(Kind::Nak, refused.path, refused.seq);
        common.tx_count = refused.tx_count;
        let mut buf = [0u8; NAK_LEN];
        let n = Nak { reason, timer }.emit(common, &mut buf);
        let other = if refused.tx_count > 3 {
            u32::from(refused.tx_count)
        } else {
            0
        };
        self.send_control(refused.path, other, buf.get(..n).unwrap_or(&[]), host);
    }

    fn send_ack(&mut self, now: Instant, id: u8, host: &mut H) {
        self.ack_due &= !1u64.wrapping_shl(u32::from(id));
        let Some(path) = self.paths.get_mut(usize::from(id)) else {
            return;
        };
        let (cum, ack) = path.rx.report(now, self.grant_out);
        let probed = path.rx.answers_probe();
        let mut common = self.common(Kind::Ack, id, cum.get());
        if probed {
            common.flags |= FLAG_PROBE;
        }
        let mut buf = [0u8; ACK_LEN];
        let n = ack.emit(common, &mut buf);
        let bytes = buf.get(..n).unwrap_or(&[]);
        match (probed, ack.echo_tx) {
            (true, 2..) => {
                // Whichever way works: the peer has missed an answer.
                self.send_control(id, 0, bytes, host);
                self.send_control(id, ack.echo_seq, bytes, host);
            }
            (false, 4..) => self.send_control(id, u32::from(ack.echo_tx), bytes, host),
            _ => self.send_control(id, 0, bytes, host),
        }
    }

    /// Sends feedback over the plane on which the path's last packet came in, and the path's own port. When the
    /// peer had to repeat itself, that port may be the cause: `other` than 0 names another one.
    fn send_control(&mut self, path: u8, other: u32, bytes: &[u8], host: &mut H) {
        let mut route = self.route_of(usize::from(path));
        let heard = self.paths.get(usize::from(path)).map_or(0, |p| p.rx.plane);
        route.plane = heard.min(self.config.planes.saturating_sub(1));
        let port = other
            .wrapping_mul(7)
            .wrapping_add(u32::from(route.port_slot))
            .checked_rem(u32::from(self.config.ports_per_plane))
            .unwrap_or(0);
        route.port_slot = u8::try_from(port).unwrap_or(0);
        host.transmit(&Transmit {
            header: bytes,
            payload: PayloadSource::None,
            route,
            path,
            ect: false,
        });
    }

    /// Ends a burst of datagrams: sends what acknowledgements are due and all data that the windows now allow.
    pub fn end_of_burst(&mut self, now: Instant, host: &mut H) {
        self.urgent = false;
        while self.ack_due != 0 {
            let path = self.ack_due.trailing_zeros();
            self.send_ack(now, u8::try_from(path).unwrap_or(0), host);
        }
        self.rejoin(now, host);
        self.explore(now, host);
        self.adapt_paths(now);
        self.pump(now, host);
    }
}
