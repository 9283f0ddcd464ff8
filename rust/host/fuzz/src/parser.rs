// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! The parser: any bytes, any length; what it accepts it can write again.

use crate::Input;
use metaroce_engine::engine::wire::{
    parse, peek, reset_for, Common, Datagram, Kind, Packet, COMMON_LEN, DATAGRAM_LEN, MAX_HEADER,
};

/// Two bytes of instructions, then the datagram.
pub fn parser(data: &[u8]) {
    let mut x = Input::new(data);
    // The embedder hands over MAX_HEADER bytes or all; the datagram may be longer.
    let extra = x.size() & 0xffff;
    let head = x.rest();
    let head = &head[..head.len().min(MAX_HEADER)];
    let mut len = head.len() as u32;
    if head.len() == MAX_HEADER {
        len += extra;
    }
    datagram(head);
    let peeked = peek(head);
    let reset = reset_for(head);
    match parse(head, len) {
        Ok((common, packet)) => {
            let p = peeked.expect("parsed, but not to be peeked at");
            assert_eq!(
                (p.kind, p.dst_conn_id, p.tag),
                (common.kind, common.conn_id, common.tag)
            );
            again(head, len, common, &packet);
        }
        Err(error) => {
            assert!(head.len() >= COMMON_LEN || peeked.is_err());
            // The kind of error does not depend on how much follows.
            if peeked.is_err() {
                assert_eq!(peeked.err(), Some(error));
            }
        }
    }
    if let Some(reset) = reset {
        assert!(reset.len() <= head.len(), "the answer is longer");
        let (c, p) = parse(&reset, reset.len() as u32).expect("own RESET not accepted");
        assert!(matches!(p, Packet::Reset) && c.kind == Kind::Reset);
        assert_eq!(reset[4..12], head[4..12]);
        assert!(reset_for(&reset).is_none(), "a RESET is answered");
    }
}

/// A DATAGRAM is no packet of the engine, is parsed if it is long enough, and can be written again but for
/// its reserved bytes and an immediate that is not there.
fn datagram(head: &[u8]) {
    let parsed = Datagram::parse(head);
    assert_eq!(
        parsed.is_ok(),
        Datagram::is_one(head) && head.len() >= DATAGRAM_LEN
    );
    let Ok(d) = parsed else {
        return;
    };
    assert!(peek(head).is_err() && reset_for(head).is_none());
    assert!(d.dst_qpn < 1 << 24 && d.src_qpn < 1 << 24);
    let mut want = [0u8; DATAGRAM_LEN];
    want.copy_from_slice(&head[..DATAGRAM_LEN]);
    want[1] &= 0x12;
    want[2..5].fill(0);
    want[8] = 0;
    if d.imm.is_none() {
        want[16..20].fill(0);
    }
    assert_eq!(d.emit(), want);
}

/// Writes what was parsed; the bytes must be those that were read, but for reserved ones.
fn again(head: &[u8], len: u32, common: Common, packet: &Packet) {
    let mut buf = [0u8; MAX_HEADER];
    let mut want = [0u8; MAX_HEADER];
    want[..head.len()].copy_from_slice(head);
    let n = match packet {
        Packet::Data(d) => {
            assert_eq!(d.header_len + d.payload_len, len);
            assert!(d.total <= 1 << 31 && d.dst_qpn < 1 << 24 && d.src_qpn < 1 << 24);
            if d.op.has_payload() {
                assert!(u64::from(d.offset) + u64::from(d.payload_len) <= u64::from(d.total));
                assert!(d.payload_len > 0 || d.total == 0);
            } else {
                assert_eq!(d.payload_len, 0);
            }
            let n = d.emit(common, &mut buf);
            assert_eq!(n, d.header_len as usize);
            n
        }
        Packet::Void | Packet::Reset | Packet::Probe => common.emit_alone(&mut buf),
        Packet::Ack(a) => {
            want[21] = 0;
            a.emit(common, &mut buf)
        }
        Packet::Nak(k) => {
            want[17] &= 31;
            want[18..20].fill(0);
            k.emit(common, &mut buf)
        }
        Packet::Init(h) | Packet::InitAck(h) => {
            assert!(h.conn_id != 0 && h.paths != 0 && h.window != 0);
            want[50..52].fill(0);
            h.emit(common, &mut buf)
        }
    };
    assert_eq!(buf[..n], want[..n]);
    assert!(matches!(packet, Packet::Data(_) | Packet::Probe) || n as u32 == len);
    // Less of it is not a packet.
    for short in 0..n {
        assert!(parse(&head[..short], short as u32).is_err());
    }
}
