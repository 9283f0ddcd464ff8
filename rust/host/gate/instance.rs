// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

// Instance of the engine for panic-gate.sh: external functions stand for everything outside of it.

use core::ops::{Deref, DerefMut};
use engine::api::*;
use engine::*;

extern "C" {
    fn outside(a: u64, b: u64) -> u64;
    fn allocate(n: usize) -> *mut u8;
}

fn ask(a: u64, b: u64) -> u64 {
    // SAFETY: never run.
    unsafe { outside(a, b) }
}

pub struct Block<T> {
    ptr: *mut T,
    len: usize,
}

impl<T> Deref for Block<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: never run.
        unsafe { core::slice::from_raw_parts(self.ptr, self.len) }
    }
}

impl<T> DerefMut for Block<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: never run.
        unsafe { core::slice::from_raw_parts_mut(self.ptr, self.len) }
    }
}

pub struct Blocks;

impl Store for Blocks {
    type Buf<T> = Block<T>;
    type Error = ();
    fn buf<T>(len: usize, mut fill: impl FnMut(usize) -> T) -> Result<Block<T>, ()> {
        // SAFETY: never run.
        let ptr = unsafe { allocate(len) }.cast::<T>();
        if ptr.is_null() {
            return Err(());
        }
        let mut i = 0usize;
        while i < len {
            // SAFETY: never run.
            unsafe { ptr.wrapping_add(i).write(fill(i)) };
            i = i.wrapping_add(1);
        }
        Ok(Block { ptr, len })
    }
}

pub struct Outside;

fn refusal(x: u64) -> Result<(), Refusal> {
    match ask(x, 9) {
        0 => Ok(()),
        1 => Err(Refusal::Rnr { timer: 3 }),
        2 => Err(Refusal::NotReady),
        3 => Err(Refusal::Length),
        4 => Err(Refusal::InvalidRequest),
        5 => Err(Refusal::Access),
        _ => Err(Refusal::Operation),
    }
}

impl Host for Outside {
    type Qp = u64;
    type Target = [u64; 3];
    fn pull_request(&mut self, qp: &u64) -> Option<Request> {
        let v = ask(*qp, 0);
        if v == 0 {
            return None;
        }
        Some(Request {
            wqe: WqeId(ask(v, 1)),
            opcode: match ask(v, 2) {
                0 => Opcode::Send,
                1 => Opcode::SendImm,
                2 => Opcode::SendInv,
                3 => Opcode::Write,
                4 => Opcode::WriteImm,
                5 => Opcode::Read,
                6 => Opcode::CmpSwap,
                7 => Opcode::FetchAdd,
                8 => Opcode::AtomicWrite,
                9 => Opcode::Flush,
                _ => Opcode::Local,
            },
            len: ask(v, 3) as u32,
            imm: ask(v, 4) as u32,
            rkey: ask(v, 5) as u32,
            va: ask(v, 6),
            compare: ask(v, 7),
            swap: ask(v, 8),
            fence: ask(v, 10) == 0,
            solicited: ask(v, 11) == 0,
            signaled: ask(v, 13) == 0,
            local: if ask(v, 12) == 0 {
                WcStatus::Success
            } else {
                WcStatus::MwBindErr
            },
        })
    }
    fn execute_local(&mut self, qp: &u64, wqe: WqeId) -> WcStatus {
        match ask(*qp, wqe.0) {
            0 => WcStatus::Success,
            _ => WcStatus::MwBindErr,
        }
    }
    fn complete_request(&mut self, qp: &u64, wqe: WqeId, s: WcStatus, n: u32) {
        ask(*qp ^ wqe.0, s as u64 ^ u64::from(n));
    }
    fn place_response(&mut self, q: &u64, w: WqeId, o: u32, d: Payload) -> Result<(), Refusal> {
        refusal(*q ^ w.0 ^ u64::from(o) ^ u64::from(d.len ^ d.offset))
    }
    fn place_atomic(&mut self, q: &u64, w: WqeId, v: u64) -> Result<(), Refusal> {
        refusal(*q ^ w.0 ^ v)
    }
    fn match_recv(&mut self, q: &u64, ssn: u32, n: u32) -> Result<[u64; 3], Refusal> {
        refusal(*q ^ u64::from(ssn ^ n)).map(|()| [ask(1, 1); 3])
    }
    fn match_invalidate(&mut self, q: &u64, k: u32) -> Result<(), Refusal> {
        refusal(*q ^ u64::from(k))
    }
    fn match_remote(
        &mut self,
        q: &u64,
        a: RemoteAccess,
        k: u32,
        va: u64,
        n: u32,
    ) -> Result<[u64; 3], Refusal> {
        let a = match a {
            RemoteAccess::Write => 0,
            RemoteAccess::Read => 1,
            RemoteAccess::Atomic => 2,
            RemoteAccess::AtomicWrite => 3,
            RemoteAccess::Flush(how) => u64::from(how.to_wire()),
        };
        refusal(*q ^ a ^ u64::from(k ^ n) ^ va).map(|()| [ask(1, 2); 3])
    }
    fn place(&mut self, q: &u64, t: &[u64; 3], o: u32, d: Payload) -> Result<(), Refusal> {
        refusal(*q ^ t[0] ^ u64::from(o ^ d.len ^ d.offset))
    }
    fn atomic(&mut self, q: &u64, t: &[u64; 3], op: AtomicOp) -> Result<u64, Refusal> {
        let v = match op {
            AtomicOp::CmpSwap { compare, swap } => compare ^ swap,
            AtomicOp::FetchAdd { add } => add,
            AtomicOp::Write { value } => value,
        };
        refusal(*q ^ t[0] ^ v).map(|()| ask(1, 3))
    }
    fn flush(&mut self, q: &u64, t: &[u64; 3], how: Flush) -> Result<(), Refusal> {
        refusal(*q ^ t[0] ^ u64::from(how.to_wire()))
    }
    fn complete_recv(&mut self, q: &u64, t: [u64; 3], d: RecvDone) {
        ask(*q ^ t[0], u64::from(d.imm ^ d.len ^ d.ssn));
    }
    fn stream_error(&mut self, q: &u64, e: StreamError) {
        ask(*q, matches!(e, StreamError::PeerRestarted) as u64);
    }
    fn transmit(&mut self, p: &Transmit<'_, u64, [u64; 3]>) -> TxOutcome {
        match ask(p.header.as_ptr() as u64, p.header.len() as u64) {
            0 => TxOutcome::Sent,
            1 => TxOutcome::Dropped,
            _ => TxOutcome::Fault,
        }
    }
    fn event(&mut self, e: ConnEvent) {
        ask(7, matches!(e, ConnEvent::Silent) as u64);
    }
}

type Conn = Connection<Blocks, Outside>;

#[no_mangle]
pub fn gate_new(c: &Config, l: LocalParams, n: usize) -> Option<Conn> {
    Conn::new(c, l, StreamTable::new(n).ok()?).ok()
}
#[no_mangle]
pub fn gate_stream(q: u64, a: &StreamAttr) -> Option<Stream<Blocks, Outside>> {
    Stream::new(q, a).ok()
}
#[no_mangle]
pub fn gate_attach(c: &mut Conn, s: Stream<Blocks, Outside>) -> Option<StreamId> {
    c.attach(s).ok()
}
#[no_mangle]
pub fn gate_detach(c: &mut Conn, id: StreamId) -> bool {
    c.detach(id).is_some()
}
#[no_mangle]
pub fn gate_grow(c: &mut Conn, t: StreamTable<Blocks, Outside>) -> usize {
    c.grow_streams(t).len()
}
#[no_mangle]
pub fn gate_open(c: &mut Conn, now: Instant, h: &mut Outside) {
    c.open(now, h);
}
#[no_mangle]
pub fn gate_start(c: &mut Conn, n: Instant, i: StreamId, a: &RequesterAttr, h: &mut Outside) {
    c.start_requester(n, i, a, h);
}
#[no_mangle]
pub fn gate_fail(c: &mut Conn, id: StreamId, h: &mut Outside) {
    c.fail(id, h);
}
#[no_mangle]
pub fn gate_kick(c: &mut Conn, now: Instant, id: StreamId, h: &mut Outside) {
    c.kick(now, id, h);
}
#[no_mangle]
pub fn gate_rx(c: &mut Conn, n: Instant, m: &RxMeta, head: &[u8], h: &mut Outside) -> Handled {
    c.handle_datagram(n, m, head, h)
}
#[no_mangle]
pub fn gate_end(c: &mut Conn, now: Instant, h: &mut Outside) {
    c.end_of_burst(now, h);
}
#[no_mangle]
pub fn gate_time(c: &mut Conn, now: Instant, h: &mut Outside) -> Option<Instant> {
    c.handle_timeout(now, h);
    c.plane_down(now, 0, h);
    c.next_deadline()
}
#[no_mangle]
pub fn gate_paths(c: &Conn) -> u32 {
    c.paths().fold(0, |a, p| a ^ p.una)
}
#[no_mangle]
pub fn gate_wire(head: &[u8]) -> bool {
    wire::peek(head).is_ok() && wire::reset_for(head).is_some()
}
#[no_mangle]
pub fn gate_hint(r: &mut hints::Receiver, m: &mut hints::Member, now: Instant) -> u32 {
    r.on_burst(now, m)
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
