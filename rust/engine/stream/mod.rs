// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Streams: what one RC QP needs of the protocol. Order lives here, not on the wire.

pub mod requester;
pub mod responder;

use super::api::{Host, Store, StreamAttr, StreamError};
use requester::Requester;
use responder::Responder;

/// Messages of a stream that a responder tracks at once.
pub const STREAM_WINDOW: u32 = 256;

/// A piece of a message about to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Request index or response slot.
    pub index: u32,
    /// First byte.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
    /// Attempt of the message.
    pub attempt: u8,
}

/// State of one RC QP on its connection.
pub struct Stream<S: Store, H: Host> {
    pub(super) qp: H::Qp,
    pub(super) local_qpn: u32,
    pub(super) remote_qpn: u32,
    pub(super) requester: Requester<S>,
    pub(super) responder: Responder<S, H::Target>,
    /// The peer has answered or sent something: a restarted peer cannot continue.
    pub(super) touched: bool,
    pub(super) error_raised: bool,
    /// Link of the connection's active list.
    pub(super) next_active: Option<u32>,
    pub(super) active: bool,
    /// The connection will look at it in time.
    pub(super) watched: bool,
    pub(super) deficit: i32,
}

impl<S: Store, H: Host> Stream<S, H> {
    /// A stream able to receive. Allocates its windows.
    pub fn new(qp: H::Qp, attr: &StreamAttr) -> Result<Self, S::Error> {
        let requester = Requester::new(attr.window)?;
        let responder = Responder::new(attr.first_msn, attr.responses)?;
        Ok(Self {
            qp,
            local_qpn: attr.local_qpn & 0x00ff_ffff,
            remote_qpn: attr.remote_qpn & 0x00ff_ffff,
            requester,
            responder,
            touched: false,
            error_raised: false,
            next_active: None,
            active: false,
            watched: false,
            deficit: 0,
        })
    }

    /// Raises an error once: flushes the pulled requests, stops reception, then tells the embedder.
    pub(super) fn raise(&mut self, error: Option<StreamError>, host: &mut H) {
        let Some(error) = error else { return };
        self.requester.flush(&self.qp, host);
        self.responder.close();
        if !self.error_raised {
            self.error_raised = true;
            host.stream_error(&self.qp, error);
        }
    }
}
