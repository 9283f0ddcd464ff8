// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! The handshake: each end asks (INIT) and believes only an answer (INIT_ACK) that echoes its nonce.
//!
//! Answering is stateless. An established end does not answer an INIT from an instance of the peer other
//! than the one it knows: it asks itself, and only the answer to its own question makes it
//! begin anew. A forged INIT or RESET can thus cause a question, never harm.

use super::super::api::{ConnEvent, Host, PayloadSource, Store, StreamError, Transmit};
use super::super::mtu::Mtu;
use super::super::path::RxPath;
use super::super::stream::STREAM_WINDOW;
use super::super::time::{Instant, Span};
use super::super::wire::{Common, Handshake, Kind, HANDSHAKE_LEN};
use super::{controller, initial_route, Connection, Remote};

/// First and longest interval between questions.
const INIT_FIRST: Span = Span::from_millis(5);
const INIT_MAX: Span = Span::from_millis(500);
/// Questions are never closer together than this.
const INIT_MIN_GAP: Span = Span::from_millis(1);
/// An established end gives up asking after so many tries (until there is a new reason).
const REVALIDATE_TRIES: u8 = 8;

/// State of the handshake.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Handshaking {
    pub(super) opening: bool,
    pub(super) established: bool,
    /// Nonce of the question under way.
    nonce: Option<u64>,
    tries: u8,
    sent_at: Option<Instant>,
    pub(super) retry_at: Option<Instant>,
}

impl<S: Store, H: Host> Connection<S, H> {
    fn own_handshake(&self, nonce: u64) -> Handshake {
        Handshake {
            nonce,
            epoch: self.local.epoch,
            conn_id: self.local.conn_id,
            tag: self.local_tag,
            features: 0,
            paths: self.config.paths,
            planes: self.config.planes,
            max_payload: self.config.max_payload,
            window: STREAM_WINDOW as u16,
        }
    }

    /// Each try takes another route, there and back: one of them will work.
    fn send_handshake(&self, common: Common, hs: &Handshake, host: &mut H) {
        let mut buf = [0u8; HANDSHAKE_LEN];
        let n = hs.emit(common, &mut buf);
        host.transmit(&Transmit {
            header: buf.get(..n).unwrap_or(&[]),
            payload: PayloadSource::None,
            route: initial_route(&self.config, usize::from(common.tx_count)),
            path: 0,
            ect: false,
        });
    }

    /// Asks the peer who it is, unless that has just been done.
    pub(super) fn start_init(&mut self, now: Instant, host: &mut H) {
        if self
            .hs
            .sent_at
            .is_some_and(|at| now.since(at) < INIT_MIN_GAP)
        {
            let soon = Some(now.after(INIT_MIN_GAP));
            self.hs.retry_at = Instant::earliest(self.hs.retry_at, soon);
            return;
        }
        self.hs.tries = 0;
        self.send_init(now, host);
    }

    fn send_init(&mut self, now: Instant, host: &mut H) {
        let nonce = match self.hs.nonce {
            Some(nonce) => nonce,
            None => {
                let nonce = self.draw();
                self.hs.nonce = Some(nonce);
                nonce
            }
        };
        let common = Common {
            kind: Kind::Init,
            flags: 0,
            path: 0,
            tx_count: self.hs.tries,
            conn_id: 0,
            tag: 0,
            seq: 0,
        };
        self.send_handshake(common, &self.own_handshake(nonce), host);
        self.hs.sent_at = Some(now);
        self.hs.retry_at = Some(now.after(INIT_FIRST.backed_off(self.hs.tries, INIT_MAX)));
        self.hs.tries = match self.hs.tries {
            u8::MAX => REVALIDATE_TRIES,
            tries => tries.wrapping_add(1),
        };
    }

    /// Time for another try?
    pub(super) fn handshake_timeout(&mut self, now: Instant, host: &mut H) {
        if self.hs.retry_at.is_none_or(|at| at > now) {
            return;
        }
        if self.hs.established && self.hs.tries >= REVALIDATE_TRIES {
            self.hs.retry_at = None;
            self.hs.nonce = None;
            return;
        }
        self.send_init(now, host);
    }

    pub(super) fn on_init(&mut self, now: Instant, tries: u8, hs: &Handshake, host: &mut H) {
        let peer = Remote {
            conn_id: hs.conn_id,
            tag: hs.tag,
            epoch: hs.epoch,
        };
        if self.hs.established && peer != self.remote {
            self.start_init(now, host);
            return;
        }
        let common = Common {
            kind: Kind::InitAck,
            flags: 0,
            path: 0,
            tx_count: tries,
            conn_id: hs.conn_id,
            tag: hs.tag,
            seq: 0,
        };
        self.send_handshake(common, &self.own_handshake(hs.nonce), host);
        if !self.hs.established && self.hs.opening {
            self.start_init(now, host);
        }
    }

    pub(super) fn on_init_ack(&mut self, now: Instant, hs: &Handshake, host: &mut H) {
        if self.hs.nonce != Some(hs.nonce) {
            return;
        }
        let peer = Remote {
            conn_id: hs.conn_id,
            tag: hs.tag,
            epoch: hs.epoch,
        };
        let sample = match (self.hs.tries, self.hs.sent_at) {
            (1, Some(at)) => Some(now.since(at)),
            _ => None,
        };
        self.hs.nonce = None;
        self.hs.retry_at = None;
        self.heard = now;
        if self.hs.established {
            if peer != self.remote {
                self.restart(now, host);
            }
            return;
        }
        self.remote = peer;
        self.active_paths = usize::from(self.config.paths.min(hs.paths));
        let max_payload = self.config.max_payload.min(hs.max_payload);
        self.max_payload = u32::from(max_payload);
        self.peer_window = u32::from(hs.window).min(STREAM_WINDOW);
        self.reset_paths(max_payload);
        // The other paths may be very different: they measure for themselves.
        if let (Some(rtt), Some(path)) = (sample, self.paths.first_mut()) {
            path.tx.rtt.sample(now, rtt);
        }
        self.hs.established = true;
        self.hs.opening = true;
        self.notify(ConnEvent::Established, host);
        for slot in 0..u32::try_from(self.streams.capacity()).unwrap_or(0) {
            if let Some((id, _)) = self.streams.at(slot) {
                self.streams.activate(id);
            }
        }
    }

    /// All paths begin anew, with packets of `max_payload` bytes; nothing is owed to the peer.
    fn reset_paths(&mut self, max_payload: u16) {
        let cc = controller(&self.config, max_payload);
        for path in self.paths.iter_mut() {
            path.tx.reset(cc, Mtu::new(max_payload));
            path.rx = RxPath::default();
        }
        self.ack_due = 0;
        self.repair = 0;
    }

    /// The peer's end is a new one: this end becomes a new one too, in place. Streams that had
    /// exchanged packets fail, the others start again.
    fn restart(&mut self, now: Instant, host: &mut H) {
        self.local_tag = self.draw() as u32;
        self.hs.established = false;
        self.hs.sent_at = None;
        self.reset_paths(self.config.max_payload);
        for slot in 0..u32::try_from(self.streams.capacity()).unwrap_or(0) {
            let Some((_, stream)) = self.streams.at(slot) else {
                continue;
            };
            if stream.touched {
                stream
                    .requester
                    .fail_oldest_for_restart(now, &stream.qp, host);
                stream.responder.close();
                stream.raise(Some(StreamError::PeerRestarted), host);
            } else {
                stream.requester.rewind();
            }
        }
        self.notify(ConnEvent::PeerRestarted, host);
        self.start_init(now, host);
    }

    pub(super) fn on_reset(&mut self, now: Instant, common: &Common, host: &mut H) -> bool {
        let ours = common.conn_id == self.remote.conn_id && common.tag == self.remote.tag;
        if self.hs.established && ours {
            self.start_init(now, host);
        }
        ours
    }
}
