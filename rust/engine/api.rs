// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! What the engine and its embedder say to each other.

use super::seq::Msn;
use super::time::Span;
use core::ops::DerefMut;

/// Where the engine's windows live. The engine allocates nothing while it runs: only the
/// constructors ([`super::Connection::new`], [`super::Stream::new`], [`super::StreamTable::new`]) call [`Store::buf`],
/// in process context.
pub trait Store {
    /// A fixed-length buffer.
    type Buf<T>: DerefMut<Target = [T]>;
    /// Why a buffer could not be had.
    type Error;
    /// A buffer of `len` elements, element `i` being `fill(i)`.
    fn buf<T>(len: usize, fill: impl FnMut(usize) -> T) -> Result<Self::Buf<T>, Self::Error>;
}

/// The embedder's name for a work queue entry of a send queue. Opaque to the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WqeId(pub u64);

/// What a work request asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Opcode {
    /// SEND.
    #[default]
    Send,
    /// SEND with immediate.
    SendImm,
    /// SEND with invalidate; the R_Key is in [`Request::imm`].
    SendInv,
    /// RDMA WRITE.
    Write,
    /// RDMA WRITE with immediate.
    WriteImm,
    /// RDMA READ.
    Read,
    /// Atomic compare and swap, 8 bytes.
    CmpSwap,
    /// Atomic fetch and add, 8 bytes.
    FetchAdd,
    /// Atomic write of the 8 bytes in [`Request::swap`].
    AtomicWrite,
    /// FLUSH of a range, or of all of its region; how is in [`Request::imm`], see [`Flush`].
    Flush,
    /// Executed by the embedder (local invalidate, memory registration, bind) in
    /// [`Host::execute_local`], when all earlier requests have been sent and before any later one
    /// is; with [`Request::fence`], when all earlier requests are complete. Takes no part in the
    /// protocol, but completes in posting order.
    Local,
}

impl Opcode {
    /// Whether the message consumes a receive at the responder.
    pub const fn consumes_receive(self) -> bool {
        matches!(
            self,
            Opcode::Send | Opcode::SendImm | Opcode::SendInv | Opcode::WriteImm
        )
    }

    /// Whether the request is answered, with data or with the news that it was executed.
    pub const fn expects_response(self) -> bool {
        matches!(
            self,
            Opcode::Read | Opcode::CmpSwap | Opcode::FetchAdd | Opcode::AtomicWrite | Opcode::Flush
        )
    }
}

/// One work request, copied once from the send queue and validated by the embedder.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    /// Name of the queue entry, given back at completion.
    pub wqe: WqeId,
    /// Operation.
    pub opcode: Opcode,
    /// Bytes of the message (SEND, WRITE), to be read (READ) or flushed (FLUSH), 8 for atomics; at
    /// most 2^31.
    pub len: u32,
    /// Immediate value or R_Key to invalidate, as a number; what it means is up to the ends. For
    /// FLUSH, [`Flush::to_wire`].
    pub imm: u32,
    /// Remote key (WRITE, READ, atomics).
    pub rkey: u32,
    /// Remote virtual address (WRITE, READ, atomics).
    pub va: u64,
    /// Compare operand (compare and swap).
    pub compare: u64,
    /// Swap operand, or the value to add. For an atomic write the bytes, as a big-endian number.
    pub swap: u64,
    /// Begin only when all earlier READs and atomics of the stream are complete.
    pub fence: bool,
    /// Ask for a solicited event at the responder.
    pub solicited: bool,
    /// The embedder reports success too, so that someone may wait for it: the acknowledgement of the
    /// last packet is not to be delayed.
    pub signaled: bool,
    /// Anything but `Success` fails an [`Opcode::Local`] request in its turn, without executing it.
    pub local: WcStatus,
}

/// Completion status, named as in the IB verbs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WcStatus {
    /// Done.
    #[default]
    Success,
    /// Local length error.
    LocLenErr,
    /// Local QP operation error.
    LocQpOpErr,
    /// Local protection error.
    LocProtErr,
    /// Flushed.
    WrFlushErr,
    /// Memory window bind error.
    MwBindErr,
    /// Bad response.
    BadRespErr,
    /// Local access error.
    LocAccessErr,
    /// Remote invalid request.
    RemInvReqErr,
    /// Remote access error.
    RemAccessErr,
    /// Remote operation error.
    RemOpErr,
    /// Transport retry counter exceeded.
    RetryExcErr,
    /// RNR retry counter exceeded.
    RnrRetryExcErr,
}

/// A range of the datagram under reception, counted from the first byte after the UDP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// First byte.
    pub offset: u32,
    /// Number of bytes.
    pub len: u32,
}

/// Why the embedder does not take a packet or cannot serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No receive posted. The requester tries again after the delay of the 5-bit RNR timer code
    /// (the QP's `min_rnr_timer`).
    Rnr {
        /// IB RNR NAK timer field.
        timer: u8,
    },
    /// The QP is not (yet) able to receive: the requester tries again, within its retry budget.
    NotReady,
    /// The receive is too short for the message. Requester: REM_INV_REQ_ERR.
    Length,
    /// The request is malformed or unsupported. Requester: REM_INV_REQ_ERR.
    InvalidRequest,
    /// Key, bounds or access right violated. Requester: REM_ACCESS_ERR.
    Access,
    /// The responder failed on its own side (bad receive SGE, internal). Requester: REM_OP_ERR.
    Operation,
}

/// What a remote operation does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteAccess {
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
    /// Atomic that returns what it found.
    Atomic,
    /// Atomic write.
    AtomicWrite,
    /// Flush.
    Flush(Flush),
}

/// What a FLUSH is to achieve (IB specification annex A19).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush {
    /// Earlier writes are visible to everybody.
    pub global: bool,
    /// Earlier writes survive a loss of power.
    pub persistent: bool,
    /// All of the region, whatever the range.
    pub whole: bool,
}

impl Flush {
    /// As a number: bits 0 and 1 for what it achieves, bit 8 for all of the region.
    pub const fn to_wire(self) -> u32 {
        self.global as u32 | (self.persistent as u32) << 1 | (self.whole as u32) << 8
    }

    /// From that number, unless it has other bits or achieves nothing.
    pub const fn from_wire(v: u32) -> Option<Self> {
        if v & !0x103 != 0 || v & 3 == 0 {
            return None;
        }
        Some(Self {
            global: v & 1 != 0,
            persistent: v & 2 != 0,
            whole: v & 0x100 != 0,
        })
    }
}

/// An atomic operation on 8 bytes, operands in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// Store `swap` if the value equals `compare`.
    CmpSwap {
        /// Value expected.
        compare: u64,
        /// Value to store.
        swap: u64,
    },
    /// Add, wrapping.
    FetchAdd {
        /// Value to add.
        add: u64,
    },
    /// Store 8 bytes at once.
    Write {
        /// The bytes, as a big-endian number.
        value: u64,
    },
}

/// What a receive completion reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvDone {
    /// Send sequence number: which receive of a plain RQ.
    pub ssn: u32,
    /// Bytes of the message (SEND), or written (WRITE with immediate).
    pub len: u32,
    /// Operation: one of Send, SendImm, SendInv, WriteImm.
    pub opcode: Opcode,
    /// Immediate value or R_Key to invalidate.
    pub imm: u32,
    /// The sender asked for a solicited event.
    pub solicited: bool,
}

/// Why a QP must go to the error state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamError {
    /// The send side failed; the failing request has been completed with this status and the
    /// other pulled ones have been flushed. The embedder flushes what it has not handed out.
    Requester(WcStatus),
    /// The receive side refused a request for good. All earlier messages have been delivered.
    Responder {
        /// What the embedder (or the engine) said about the request.
        refusal: Refusal,
        /// The receive the request would have consumed, if it is of that kind: with
        /// [`Refusal::Length`] it completes with LOC_LEN_ERR.
        ssn: Option<u32>,
    },
    /// The peer's end was restarted and has no memory of this stream.
    PeerRestarted,
}

/// Where a datagram leaves: the embedder maps it to a tunnel socket (source address and port).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Route {
    /// Plane: which local interface/address pair.
    pub plane: u8,
    /// Which source port of the plane.
    pub port_slot: u8,
}

/// Where the payload of a datagram comes from.
#[derive(Debug)]
pub enum PayloadSource<'a, Q, T> {
    /// No payload.
    None,
    /// So many zeros.
    Padding(u32),
    /// Bytes `offset..offset+len` of the message of a pulled request.
    Request {
        /// The QP.
        qp: &'a Q,
        /// Its queue entry.
        wqe: WqeId,
        /// First byte of the message.
        offset: u32,
        /// Number of bytes.
        len: u32,
    },
    /// Bytes `offset..offset+len` of local memory that the peer reads.
    Remote {
        /// The QP.
        qp: &'a Q,
        /// What [`Host::match_remote`] returned.
        target: &'a T,
        /// First byte, from the start of the range.
        offset: u32,
        /// Number of bytes.
        len: u32,
    },
}

impl<Q, T> PayloadSource<'_, Q, T> {
    /// Bytes of payload.
    pub fn len(&self) -> u32 {
        match self {
            PayloadSource::None => 0,
            PayloadSource::Padding(len) => *len,
            PayloadSource::Request { len, .. } | PayloadSource::Remote { len, .. } => *len,
        }
    }

    /// Whether there is no payload.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One datagram to send.
#[derive(Debug)]
pub struct Transmit<'a, Q, T> {
    /// Protocol header, complete; the first bytes after the UDP header.
    pub header: &'a [u8],
    /// What follows the header.
    pub payload: PayloadSource<'a, Q, T>,
    /// Where it leaves.
    pub route: Route,
    /// Path, for statistics.
    pub path: u8,
    /// Mark ECN-capable (ECT(0)): data is, control is not.
    pub ect: bool,
}

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxOutcome {
    /// Handed to the network.
    Sent,
    /// Lost on the way out for a passing reason (memory, queue full): repaired as any loss.
    Dropped,
    /// The local memory cannot be read (protection error). The request fails.
    Fault,
}

/// What happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnEvent {
    /// The handshake is complete.
    Established,
    /// The peer's end is a new one; streams that had exchanged packets have failed.
    PeerRestarted,
    /// A path was moved to another route.
    PathMoved {
        /// Path id.
        path: u8,
        /// Its new route.
        route: Route,
    },
    /// A path's packets are limited to another size from now on.
    PathPayload {
        /// Path id.
        path: u8,
        /// Bytes of payload in a packet at most.
        bytes: u16,
    },
    /// Nothing was heard for long although packets are outstanding.
    Silent,
}

/// What the engine asks of its embedder. Called synchronously, under the connection's lock, in
/// softirq or with bottom halves disabled; must not call back into the connection.
pub trait Host {
    /// Handle attached to a stream.
    type Qp;
    /// What a message under reception writes to: a matched receive or a resolved remote range.
    type Target;

    /// The next work request of the send queue; `None` when it is empty (or held).
    fn pull_request(&mut self, qp: &Self::Qp) -> Option<Request>;
    /// Executes an [`Opcode::Local`] request, once. Anything but `Success` fails the stream.
    fn execute_local(&mut self, qp: &Self::Qp, wqe: WqeId) -> WcStatus;
    /// A pulled request is over. In posting order, once each.
    fn complete_request(&mut self, qp: &Self::Qp, wqe: WqeId, status: WcStatus, byte_len: u32);
    /// READ data for bytes from `offset` of the request.
    fn place_response(
        &mut self,
        qp: &Self::Qp,
        wqe: WqeId,
        offset: u32,
        data: Payload,
    ) -> Result<(), Refusal>;
    /// The value an atomic found, to be stored in host order.
    fn place_atomic(&mut self, qp: &Self::Qp, wqe: WqeId, original: u64) -> Result<(), Refusal>;

    /// A receive for message `ssn` (plain RQ: the receive with that number since the QP became
    /// ready; SRQ: the next entry). `total_len` is what it must hold (0 for WRITE with immediate).
    fn match_recv(
        &mut self,
        qp: &Self::Qp,
        ssn: u32,
        total_len: u32,
    ) -> Result<Self::Target, Refusal>;
    /// Whether the peer may invalidate `rkey`, asked before the SEND that does so is matched. It is
    /// carried out in [`Host::complete_recv`].
    fn match_invalidate(&mut self, qp: &Self::Qp, rkey: u32) -> Result<(), Refusal>;
    /// Check key, bounds and rights of a whole remote operation.
    fn match_remote(
        &mut self,
        qp: &Self::Qp,
        access: RemoteAccess,
        rkey: u32,
        va: u64,
        len: u32,
    ) -> Result<Self::Target, Refusal>;
    /// Copy bytes of the current datagram to `offset` of the target.
    fn place(
        &mut self,
        qp: &Self::Qp,
        target: &Self::Target,
        offset: u32,
        data: Payload,
    ) -> Result<(), Refusal>;
    /// Execute an atomic, return the original value (anything for [`AtomicOp::Write`]).
    fn atomic(
        &mut self,
        qp: &Self::Qp,
        target: &Self::Target,
        op: AtomicOp,
    ) -> Result<u64, Refusal>;
    /// Execute a FLUSH: everything placed before has the effect asked for when it returns.
    fn flush(&mut self, qp: &Self::Qp, target: &Self::Target, how: Flush) -> Result<(), Refusal>;
    /// A message that consumed a receive is complete. In message order, once each.
    fn complete_recv(&mut self, qp: &Self::Qp, target: Self::Target, done: RecvDone);
    /// The QP must go to the error state. At most once per stream.
    fn stream_error(&mut self, qp: &Self::Qp, error: StreamError);

    /// Send one datagram.
    fn transmit(&mut self, packet: &Transmit<'_, Self::Qp, Self::Target>) -> TxOutcome;
    /// Something happened to the connection.
    fn event(&mut self, event: ConnEvent);
}

/// What is common to the connections of a device.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Paths wished for, 1..=64.
    pub paths: u8,
    /// Local planes, at least 1.
    pub planes: u8,
    /// Source ports (sockets) per plane, at least 1; routes name them by slot.
    pub ports_per_plane: u8,
    /// Largest payload of a datagram in bytes: route MTU - IP - UDP - [`super::wire::MAX_DATA_HEADER`].
    pub max_payload: u16,
    /// Initial window of a path in packets.
    pub initial_window: u16,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            paths: 8,
            planes: 1,
            ports_per_plane: 32,
            max_payload: 1400,
            initial_window: 32,
        }
    }
}

/// What tells this end of a connection from all others. Random values come from the embedder.
#[derive(Clone, Copy, Debug)]
pub struct LocalParams {
    /// Connection id under which the embedder finds this connection; not 0.
    pub conn_id: u32,
    /// Random value drawn when the device came up.
    pub epoch: u64,
    /// Secret random seed of this connection; tags and nonces are derived from it.
    pub seed: u64,
}

/// What the receive side of a stream needs (QP to RTR).
#[derive(Clone, Copy, Debug)]
pub struct StreamAttr {
    /// Local QP number, 24 bits.
    pub local_qpn: u32,
    /// The peer's QP number, 24 bits.
    pub remote_qpn: u32,
    /// First message number expected (the QP's rq_psn).
    pub first_msn: Msn,
    /// Requests in flight at most: a power of two, 4..=256.
    pub window: u16,
    /// READs and atomics that the peer may have outstanding, 0..=128 (max_dest_rd_atomic).
    pub responses: u8,
}

/// What the send side of a stream needs (QP to RTS).
#[derive(Clone, Copy, Debug)]
pub struct RequesterAttr {
    /// Time of one try; [`Span::ZERO`] means no limit.
    pub timeout: Span,
    /// Tries after the first.
    pub retry_cnt: u8,
    /// RNR tries after the first; 7 means no limit.
    pub rnr_retry: u8,
    /// READs and atomics in flight at most.
    pub max_rd_atomic: u8,
    /// First message number (the QP's sq_psn).
    pub first_msn: Msn,
}

/// What the embedder knows about a received datagram.
#[derive(Clone, Copy, Debug, Default)]
pub struct RxMeta {
    /// Length of the datagram: all bytes after the UDP header.
    pub len: u32,
    /// The packet carried Congestion Experienced.
    pub ce: bool,
    /// Plane it came in on.
    pub plane: u8,
}

/// What became of a received datagram, for the embedder's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// Data accepted.
    Accepted,
    /// Data already known.
    Duplicate,
    /// Data refused, a NAK was sent.
    Refused,
    /// Acknowledgement or NAK.
    Feedback,
    /// Handshake.
    Control,
    /// Not for this connection, or not acceptable in this state; dropped.
    Ignored,
    /// Not a well-formed packet; dropped.
    Malformed,
}
