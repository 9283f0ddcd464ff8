// SPDX-License-Identifier: GPL-2.0

//! One connection: the engine's state under a lock, its timer, its lifetime.
//!
//! ```text
//!   new --> in the tables, live --> (no stream for LINGER) --> closed
//!                  |                                             ^
//!                  +-- device goes away --------------------------+
//! ```
//!
//! Whatever needs process context to be released lies in [`Live`], which
//! [`Conn::close`] takes out. A reference that a softirq still holds then keeps
//! an empty shell.

use super::{
    host::ConnHost,
    port::Hints,
    shared::PeerKey,
    store::KernelStore,
    transport, //
};
use crate::{
    engine::{
        burst::{
            Burst,
            Then, //
        },
        hints::Member,
        Connection,
        Handled,
        Instant,
        PathInfo,
        RxMeta, //
    },
    net::{
        deferred::{
            Softirq,
            SoftirqCalls, //
        },
        skb::RxPacket,
        socket::RxInfo,
    },
    new_spinlock_bh,
    sync::{
        ktime_now_ns,
        Counter,
        SpinLockBh, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            ordering::Relaxed,
            Atomic, //
        },
        Arc, //
    },
};

/// Congestion Experienced in the two ECN bits (RFC 3168 section 5).
const CE: u8 = 0b11;
/// How long a connection stays after its last stream, in nanoseconds: long
/// enough to acknowledge what the peer sends again, and to be found by the next
/// QP of an application that opens one after the other.
const LINGER_NS: u64 = 5_000_000_000;

/// The engine instance of a connection.
pub(super) type Engine = Connection<KernelStore, ConnHost>;

/// Datagrams a connection received, by what became of them.
#[derive(Default)]
pub struct ConnCounters {
    /// Data placed.
    pub accepted: Counter,
    /// Data that had been placed before.
    pub duplicate: Counter,
    /// Data refused with a NAK.
    pub refused: Counter,
    /// Acknowledgements and NAKs.
    pub feedback: Counter,
    /// Handshake packets.
    pub control: Counter,
    /// Not for this connection (wrong tag, for instance).
    pub ignored: Counter,
    /// Malformed.
    pub malformed: Counter,
}

/// See the module's description.
#[pin_data]
pub struct Conn {
    id: u32,
    key: PeerKey,
    /// What was received.
    pub counters: ConnCounters,
    /// When a datagram of the peer was last received, in monotonic nanoseconds.
    heard: Atomic<u64>,
    /// When the last stream left, in monotonic nanoseconds; 0 while there is one.
    idle_since: Atomic<u64>,
    #[pin]
    live: SpinLockBh<Option<KBox<Live>>>,
}

/// What exists until the connection is closed.
pub(super) struct Live {
    pub(super) engine: Engine,
    pub(super) host: ConnHost,
    softirq: Softirq<Conn>,
    /// When the timer will fire, in monotonic nanoseconds.
    armed: Option<u64>,
    hints: Arc<Hints>,
    member: Member,
    /// When the engine is to be told that a burst is over.
    burst: Burst,
    /// Whether acknowledgements that nobody waits for are delayed at all.
    lazy: bool,
}

impl Live {
    /// Acknowledges what was received since the last call and sends what may be sent now.
    fn end_of_burst(&mut self, now: Instant) {
        self.burst.ended();
        let grant = self.hints.grant(now, &mut self.member);
        self.engine.set_grant(grant);
        self.engine.end_of_burst(now, &mut self.host);
    }

    /// What is left to do after each call of the engine.
    fn finish(&mut self) {
        while let Some(qp) = self.host.failed.pop() {
            if let Some(link) = transport::link(&qp) {
                self.engine.fail(link.id(), &mut self.host);
            }
        }
        self.host.flush();
    }

    /// Makes the timer fire no later than the engine wants. A timer that fires
    /// early costs less than moving it with every packet.
    fn rearm(&mut self) {
        let deadline = Instant::earliest(self.engine.next_deadline(), self.burst.end_by());
        let Some(deadline) = deadline.map(Instant::as_nanos) else {
            return;
        };
        if self.armed.is_none_or(|armed| deadline < armed) {
            self.armed = Some(deadline);
            self.softirq.arm(deadline);
        }
    }
}

impl Conn {
    /// An object without engine; see [`Conn::start`].
    pub(super) fn new(id: u32, key: PeerKey) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                id,
                key,
                counters: ConnCounters::default(),
                heard: Atomic::new(0),
                idle_since: Atomic::new(0),
                live <- new_spinlock_bh!(None, "metaroce conn"),
            }),
            GFP_KERNEL,
        )
    }

    /// Gives the connection its engine and begins the handshake. Process
    /// context; the connection is in the tables already.
    pub(super) fn start(
        self: &Arc<Self>,
        engine: Engine,
        host: ConnHost,
        hints: Arc<Hints>,
        lazy: bool,
    ) -> Result {
        // Memory first: the timer object must not be made and then dropped.
        let room = KBox::<Live>::new_uninit(GFP_KERNEL)?;
        let softirq = Softirq::new(self.clone())?;
        let live = KBox::write(
            room,
            Live {
                engine,
                host,
                softirq,
                armed: None,
                hints,
                member: Member::default(),
                burst: Burst::default(),
                lazy,
            },
        );
        *self.live.lock() = Some(live);
        self.with(|live, now| live.engine.open(now, &mut live.host));
        Ok(())
    }

    /// Our connection id.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Addresses and namespace.
    pub fn key(&self) -> &PeerKey {
        &self.key
    }

    /// Runs `f` under the lock, then sets the timer. `None` once closed.
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut Live, Instant) -> R) -> Option<R> {
        let mut guard = self.live.lock();
        let live = (*guard).as_mut()?;
        let result = f(live, Instant::from_nanos(ktime_now_ns()));
        live.finish();
        live.rearm();
        Some(result)
    }

    /// One datagram for this connection. Softirq.
    pub(super) fn receive(&self, packet: RxPacket, info: &RxInfo, head: &[u8]) {
        let meta = RxMeta {
            len: info.len,
            ce: info.ecn == CE,
            plane: 0,
        };
        let mut guard = self.live.lock();
        let Some(live) = (*guard).as_mut() else {
            return;
        };
        let live = &mut **live;
        live.host.packet = Some(packet);
        let now_ns = ktime_now_ns();
        let now = Instant::from_nanos(now_ns);
        let handled = live
            .engine
            .handle_datagram(now, &meta, head, &mut live.host);
        let packet = live.host.packet.take();
        live.finish();
        let may_wait = live.lazy && live.engine.may_wait();
        let waits = live.burst.end_by().is_some();
        let then = live.burst.on_datagram(now, handled, info.len, may_wait);
        if then != Then::Nothing {
            self.heard.store(now_ns, Relaxed);
        }
        match then {
            // The timer is set already.
            Then::Wait if waits => (),
            Then::Nothing | Then::Wait => live.rearm(),
            Then::Soon => live.softirq.raise(),
            Then::End => {
                live.end_of_burst(now);
                live.finish();
                live.rearm();
            }
        }
        drop(guard);
        drop(packet);
        let c = &self.counters;
        match handled {
            Handled::Accepted => c.accepted.inc(),
            Handled::Duplicate => c.duplicate.inc(),
            Handled::Refused => c.refused.inc(),
            Handled::Feedback => c.feedback.inc(),
            Handled::Control => c.control.inc(),
            Handled::Ignored => c.ignored.inc(),
            Handled::Malformed => c.malformed.inc(),
        }
    }

    /// Notes whether the connection has streams. Process context, under the
    /// port's lock.
    pub(super) fn set_idle(&self, idle: bool) {
        let since = if idle { ktime_now_ns().max(1) } else { 0 };
        self.idle_since.store(since, Relaxed);
    }

    /// Whether there is no stream, and if so, whether for long enough. While the
    /// peer still sends, it would only have to begin anew.
    pub(super) fn idle(&self, now_ns: u64) -> Option<bool> {
        match self.idle_since.load(Relaxed) {
            0 => None,
            since => {
                let since = since.max(self.heard.load(Relaxed));
                Some(now_ns.saturating_sub(since) >= LINGER_NS)
            }
        }
    }

    /// Ends the connection: afterwards no timer runs and no packet is sent.
    /// Process context, without the connection's lock; may sleep. All streams
    /// have been detached, or their QPs get no further call.
    pub(super) fn close(&self) {
        let live = self.live.lock().take();
        if let Some(live) = live {
            let live = KBox::into_inner(live);
            drop(live.softirq.shutdown());
            drop(live.engine);
            drop(live.host);
        }
    }

    /// Calls `f` with each path and its UDP source port. Any context but
    /// hardirq; `f` runs under the lock and must not sleep.
    pub fn for_each_path(&self, mut f: impl FnMut(&PathInfo, u16)) {
        let guard = self.live.lock();
        if let Some(live) = (*guard).as_ref() {
            for path in live.engine.paths() {
                f(&path, live.host.source_port(path.route.port_slot));
            }
        }
    }

    /// Whether the handshake is complete, and the number of streams.
    pub fn summary(&self) -> Option<(bool, usize)> {
        let guard = self.live.lock();
        let live = (*guard).as_ref()?;
        Some((live.engine.is_established(), live.engine.stream_count()))
    }
}

impl SoftirqCalls for Conn {
    fn on_timer(&self) {
        self.with(|live, now| {
            live.armed = None;
            if live.burst.end_by().is_some_and(|at| at <= now) {
                live.end_of_burst(now);
            }
            live.engine.handle_timeout(now, &mut live.host);
        });
    }

    fn on_raised(&self) {
        self.with(|live, now| live.end_of_burst(now));
    }
}
