// SPDX-License-Identifier: GPL-2.0

//! A door that can be closed and waited at.

use kernel::{
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        Completion,
    },
};

/// Top bit: no new users. The other bits count the users inside.
const CLOSED: u32 = 1 << 31;

/// Counts the users of a resource and lets teardown wait until there are none.
///
/// [`enter`](Gate::enter) never sleeps and may be called in any context. After
/// [`close_and_wait`](Gate::close_and_wait) nobody is inside and nobody can get in, so the resource
/// behind the gate may be released although an `Arc` to its owner still exists somewhere.
///
/// # Invariants
///
/// `state` is the number of live [`GateGuard`]s, plus [`CLOSED`] once the gate was closed.
#[pin_data]
pub struct Gate {
    state: Atomic<u32>,
    #[pin]
    empty: Completion,
}

impl Gate {
    /// An open gate with nobody inside.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            // INVARIANT: No guard exists yet.
            state: Atomic::new(0),
            empty <- Completion::new(),
        })
    }

    /// Registers a user, unless the gate is closed. Any context.
    #[inline]
    pub fn enter(&self) -> Option<GateGuard<'_>> {
        let mut seen = self.state.load(ordering::Relaxed);
        loop {
            // Besides a closed gate this refuses a count that would run into the flag bit.
            if seen >= CLOSED - 1 {
                return None;
            }
            // INVARIANT: Counts the guard made here. Acquire pairs with the full barrier in
            // `close_and_wait`: what was set up before the gate opened is visible inside.
            match self.state.cmpxchg(seen, seen + 1, ordering::Acquire) {
                Ok(_) => return Some(GateGuard { gate: self }),
                Err(now) => seen = now,
            }
        }
    }

    /// Whether the gate was closed. Only a hint while other threads may close it.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.state.load(ordering::Relaxed) & CLOSED != 0
    }

    /// Refuses new users from now on, without waiting for those inside. Any context.
    pub fn close(&self) {
        let mut seen = self.state.load(ordering::Relaxed);
        while seen & CLOSED == 0 {
            match self.state.cmpxchg(seen, seen | CLOSED, ordering::Full) {
                Ok(0) => {
                    self.empty.complete_all();
                    return;
                }
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Closes the gate and sleeps until the last user has left. Process context; not while holding
    /// a guard of the same gate. Calling it again is harmless.
    pub fn close_and_wait(&self) {
        self.close();
        self.empty.wait_for_completion();
    }

    #[inline]
    fn leave(&self) {
        // INVARIANT: Called once per guard, when it dies. Release: whatever the user did is done
        // before teardown, which waits for the completion, goes on.
        if self.state.fetch_sub(1, ordering::Full) == CLOSED + 1 {
            self.empty.complete_all();
        }
    }
}

/// A user inside a [`Gate`]; leaves when dropped.
#[must_use = "the gate is left at once when the guard is unused"]
pub struct GateGuard<'a> {
    gate: &'a Gate,
}

impl Drop for GateGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.gate.leave();
    }
}
