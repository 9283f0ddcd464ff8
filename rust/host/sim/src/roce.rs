// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! The yardstick: a model of a RoCEv2 NIC. One path per QP, go-back-N, DCQCN.
//!
//! DCQCN after Zhu et al., "Congestion Control for Large-Scale RDMA Deployments" (SIGCOMM 2015),
//! sections 5 and 6: the parameters are those of the paper, its increase steps scaled from 40 Gbit/s to the link's rate.

use crate::net::{FabricSpec, OVERHEAD};

/// UDP payload of a packet without data: BTH, ICRC.
pub const HEADER: u32 = 16;
/// At most one congestion notification per QP in this time.
const CNP_INTERVAL: u64 = 50_000;
/// Period of the increase timer and of the decay of alpha.
const TIMER: u64 = 55_000;
/// Bytes between increases by count.
const BYTE_COUNTER: u64 = 10 << 20;
/// Stages of fast recovery.
const FAST: u32 = 5;
/// Retransmission time-out: short for a NIC, to its favour.
const RTO: u64 = 1_000_000;
/// An acknowledgement every so many packets.
const ACK_EVERY: u64 = 16;

/// A packet.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Data { psn: u64, len: u32 },
    Ack { next: u64 },
    Nak { next: u64 },
    Cnp,
}

/// Both ends of a QP that sends one way.
pub struct RoceQp {
    pub src: usize,
    pub dst: usize,
    pub sport: u16,
    msg_len: u32,
    mtu: u32,
    per_msg: u64,
    // Sender.
    limit: u64,
    una: u64,
    next: u64,
    high: u64,
    ready: u64,
    deadline: u64,
    timer: bool,
    line: f64,
    rate: f64,
    target: f64,
    alpha: f64,
    cnp_at: u64,
    timer_from: u64,
    alpha_from: u64,
    stage_time: u32,
    stage_bytes: u32,
    bytes: u64,
    // Receiver.
    expected: u64,
    nak_sent: bool,
    cnp_sent: u64,
    unacked: u64,
    pub placed: u64,
    /// Messages received and not yet reported.
    pub arrived: u64,
    pub sent: u64,
    pub resent: u64,
    pub timeouts: u64,
}

impl RoceQp {
    pub fn new(
        src: usize,
        dst: usize,
        sport: u16,
        msg_len: u32,
        mtu: u16,
        spec: &FabricSpec,
    ) -> Self {
        // Bytes per nanosecond.
        let line = spec.gbps as f64 / 8.0;
        Self {
            src,
            dst,
            sport,
            msg_len,
            mtu: u32::from(mtu),
            per_msg: u64::from(msg_len.div_ceil(u32::from(mtu)).max(1)),
            limit: 0,
            una: 0,
            next: 0,
            high: 0,
            ready: 0,
            deadline: 0,
            timer: false,
            line,
            rate: line,
            target: line,
            alpha: 1.0,
            cnp_at: 0,
            timer_from: 0,
            alpha_from: 0,
            stage_time: 0,
            stage_bytes: 0,
            bytes: 0,
            expected: 0,
            nak_sent: false,
            cnp_sent: 0,
            unacked: 0,
            placed: 0,
            arrived: 0,
            sent: 0,
            resent: 0,
            timeouts: 0,
        }
    }

    /// Posts messages.
    pub fn post(&mut self, messages: u64) {
        self.limit = self
            .limit
            .saturating_add(messages.saturating_mul(self.per_msg));
    }

    fn len_of(&self, psn: u64) -> u32 {
        if psn % self.per_msg == self.per_msg - 1 {
            self.msg_len - (self.per_msg - 1) as u32 * self.mtu
        } else {
            self.mtu
        }
    }

    /// When the next packet may leave, if there is one.
    pub fn ready_at(&self) -> Option<u64> {
        (self.next < self.limit).then_some(self.ready)
    }

    /// Takes the next packet.
    pub fn send(&mut self, now: u64) -> (Kind, u32) {
        self.increase(now);
        let psn = self.next;
        let len = self.len_of(psn);
        self.next += 1;
        self.sent += u64::from(psn >= self.high);
        self.resent += u64::from(psn < self.high);
        self.high = self.high.max(self.next);
        let bytes = len + HEADER + 16;
        let wire = f64::from(bytes + OVERHEAD);
        self.ready = self.ready.max(now) + (wire / self.rate) as u64;
        self.bytes += u64::from(bytes);
        if self.bytes >= BYTE_COUNTER {
            self.bytes = 0;
            self.stage_bytes += 1;
            self.raise();
        }
        if psn == self.una {
            self.deadline = now + RTO;
        }
        (Kind::Data { psn, len }, bytes)
    }

    /// Sets the timer; when, if it was not running.
    pub fn arm(&mut self, now: u64) -> Option<u64> {
        if self.timer {
            return None;
        }
        self.timer = true;
        self.deadline = now + RTO;
        Some(self.deadline)
    }

    /// The timer has come; when it should come again.
    pub fn on_timer(&mut self, now: u64) -> Option<u64> {
        if self.una == self.next {
            self.timer = false;
            return None;
        }
        if now >= self.deadline {
            self.timeouts += 1;
            self.next = self.una;
            self.ready = now;
            self.deadline = now + RTO;
        }
        Some(self.deadline)
    }

    fn increase(&mut self, now: u64) {
        while now >= self.alpha_from + TIMER {
            self.alpha_from += TIMER;
            self.alpha *= 255.0 / 256.0;
            if self.rate >= self.line {
                self.alpha_from = now;
            }
        }
        while now >= self.timer_from + TIMER {
            self.timer_from += TIMER;
            self.stage_time += 1;
            self.raise();
            if self.rate >= self.line {
                self.timer_from = now;
            }
        }
    }

    fn raise(&mut self) {
        let (low, high) = (
            self.stage_time.min(self.stage_bytes),
            self.stage_time.max(self.stage_bytes),
        );
        if low > FAST {
            self.target += self.line / 400.0; // 100 Mbit/s at 40 Gbit/s
        } else if high > FAST {
            self.target += self.line / 1000.0; // 40 Mbit/s at 40 Gbit/s
        }
        self.target = self.target.min(self.line);
        self.rate = (self.rate + self.target) / 2.0;
    }

    fn on_cnp(&mut self, now: u64) {
        self.increase(now);
        if now < self.cnp_at + CNP_INTERVAL && self.cnp_at != 0 {
            return;
        }
        self.cnp_at = now;
        self.target = self.rate;
        self.rate = (self.rate * (1.0 - self.alpha / 2.0)).max(self.line / 1000.0);
        self.alpha = self.alpha * 255.0 / 256.0 + 1.0 / 256.0;
        self.alpha_from = now;
        self.timer_from = now;
        self.stage_time = 0;
        self.stage_bytes = 0;
        self.bytes = 0;
    }

    /// Handles an arriving packet (at either end); what to answer.
    pub fn on_packet(&mut self, now: u64, kind: Kind, ce: bool) -> [Option<Kind>; 2] {
        let mut reply = [None, None];
        match kind {
            Kind::Data { psn, len } => {
                if ce && (self.cnp_sent == 0 || now >= self.cnp_sent + CNP_INTERVAL) {
                    self.cnp_sent = now;
                    reply[1] = Some(Kind::Cnp);
                }
                if psn == self.expected {
                    self.expected += 1;
                    self.nak_sent = false;
                    self.placed += u64::from(len);
                    self.unacked += 1;
                    let last = self.expected % self.per_msg == 0;
                    self.arrived += u64::from(last);
                    if last || self.unacked >= ACK_EVERY {
                        self.unacked = 0;
                        reply[0] = Some(Kind::Ack {
                            next: self.expected,
                        });
                    }
                } else if psn > self.expected {
                    if !self.nak_sent {
                        self.nak_sent = true;
                        reply[0] = Some(Kind::Nak {
                            next: self.expected,
                        });
                    }
                } else {
                    reply[0] = Some(Kind::Ack {
                        next: self.expected,
                    });
                }
            }
            Kind::Ack { next } => self.advance(now, next),
            Kind::Nak { next } => {
                self.advance(now, next);
                if next < self.next {
                    self.next = next.max(self.una);
                }
            }
            Kind::Cnp => self.on_cnp(now),
        }
        reply
    }

    fn advance(&mut self, now: u64, next: u64) {
        if next > self.una {
            self.una = next;
            self.next = self.next.max(next);
            self.deadline = now + RTO;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_back_on_a_gap() {
        let mut q = RoceQp::new(0, 1, 1, 10_000, 1000, &FabricSpec::new(2));
        q.post(1);
        for _ in 0..3 {
            q.send(0);
        }
        assert!(q.on_packet(1, Kind::Data { psn: 0, len: 1000 }, false)[0].is_none());
        let reply = q.on_packet(2, Kind::Data { psn: 2, len: 1000 }, false)[0];
        assert!(matches!(reply, Some(Kind::Nak { next: 1 })));
        q.on_packet(3, Kind::Nak { next: 1 }, false);
        assert!(matches!(q.send(4).0, Kind::Data { psn: 1, .. }));
        assert_eq!(q.resent, 1);
    }
}
