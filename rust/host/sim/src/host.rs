// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Embedder of the real engine: messages are lengths only, there are no payload bytes.

use metaroce_engine::engine::wire::MAX_HEADER;
use metaroce_engine::engine::{
    AtomicOp, ConnEvent, Flush, Host, Opcode, Payload, RecvDone, Refusal, RemoteAccess, Request,
    Route, Store, StreamError, Transmit, TxOutcome, WcStatus, WqeId,
};
use std::cell::Cell;
use std::convert::Infallible;

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

/// Bytes that engine constructors have asked for on this thread.
pub fn allocated() -> usize {
    ALLOCATED.get()
}

/// Buffers on the heap, counted.
pub struct Heap;

impl Store for Heap {
    type Buf<T> = Vec<T>;
    type Error = Infallible;
    fn buf<T>(len: usize, fill: impl FnMut(usize) -> T) -> Result<Vec<T>, Infallible> {
        ALLOCATED.set(ALLOCATED.get() + len * size_of::<T>());
        Ok((0..len).map(fill).collect())
    }
}

/// A datagram the engine has sent.
#[derive(Clone, Copy)]
pub struct Datagram {
    pub head: [u8; MAX_HEADER],
    pub head_len: u8,
    /// Bytes after the UDP header.
    pub len: u32,
    pub route: Route,
    pub ect: bool,
}

/// One QP: a generator of equal messages and counters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Qp {
    /// Messages still to be posted.
    pub to_send: u64,
    pub msg_len: u32,
    pub posted: u64,
    pub completed: u64,
    /// Bytes placed at this end.
    pub placed: u64,
    /// Messages received at this end.
    pub received: u64,
    pub errors: u32,
}

/// The embedder of one end of a connection.
#[derive(Default)]
pub struct End {
    pub qps: Vec<Qp>,
    pub out: Vec<Datagram>,
    /// QPs that have received a message, since last looked at.
    pub arrived: Vec<u32>,
    pub moves: u64,
    pub established: bool,
}

impl Host for End {
    type Qp = u32;
    type Target = ();

    fn pull_request(&mut self, qp: &u32) -> Option<Request> {
        let q = &mut self.qps[*qp as usize];
        if q.to_send == 0 {
            return None;
        }
        q.to_send -= 1;
        q.posted += 1;
        Some(Request {
            wqe: WqeId(q.posted),
            opcode: Opcode::Send,
            len: q.msg_len,
            ..Request::default()
        })
    }

    fn execute_local(&mut self, _: &u32, _: WqeId) -> WcStatus {
        WcStatus::Success
    }

    fn complete_request(&mut self, qp: &u32, _: WqeId, status: WcStatus, _: u32) {
        let q = &mut self.qps[*qp as usize];
        q.completed += 1;
        q.errors += u32::from(status != WcStatus::Success);
    }

    fn place_response(&mut self, _: &u32, _: WqeId, _: u32, _: Payload) -> Result<(), Refusal> {
        Ok(())
    }

    fn place_atomic(&mut self, _: &u32, _: WqeId, _: u64) -> Result<(), Refusal> {
        Ok(())
    }

    fn match_recv(&mut self, _: &u32, _: u32, _: u32) -> Result<(), Refusal> {
        Ok(())
    }

    fn match_invalidate(&mut self, _: &u32, _: u32) -> Result<(), Refusal> {
        Ok(())
    }

    fn match_remote(
        &mut self,
        _: &u32,
        _: RemoteAccess,
        _: u32,
        _: u64,
        _: u32,
    ) -> Result<(), Refusal> {
        Ok(())
    }

    fn place(&mut self, qp: &u32, _: &(), _: u32, data: Payload) -> Result<(), Refusal> {
        self.qps[*qp as usize].placed += u64::from(data.len);
        Ok(())
    }

    fn atomic(&mut self, _: &u32, _: &(), _: AtomicOp) -> Result<u64, Refusal> {
        Ok(0)
    }

    fn flush(&mut self, _: &u32, _: &(), _: Flush) -> Result<(), Refusal> {
        Ok(())
    }

    fn complete_recv(&mut self, qp: &u32, _: (), _: RecvDone) {
        self.qps[*qp as usize].received += 1;
        self.arrived.push(*qp);
    }

    fn stream_error(&mut self, qp: &u32, _: StreamError) {
        self.qps[*qp as usize].errors += 1;
    }

    fn transmit(&mut self, packet: &Transmit<'_, u32, ()>) -> TxOutcome {
        let carried = packet.payload.len();
        let mut head = [0; MAX_HEADER];
        head[..packet.header.len()].copy_from_slice(packet.header);
        self.out.push(Datagram {
            head,
            head_len: packet.header.len() as u8,
            len: packet.header.len() as u32 + carried,
            route: packet.route,
            ect: packet.ect,
        });
        TxOutcome::Sent
    }

    fn event(&mut self, event: ConnEvent) {
        match event {
            ConnEvent::Established => self.established = true,
            ConnEvent::PathMoved { .. } => self.moves += 1,
            ConnEvent::PeerRestarted | ConnEvent::PathPayload { .. } | ConnEvent::Silent => {}
        }
    }
}
