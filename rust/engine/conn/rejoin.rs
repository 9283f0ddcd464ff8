// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! The way back to a plane that was left.
//!
//! Each path has a home plane, that of its first route. While a path is away from it, the plane is asked with a
//! PROBE every [`AWAY`]; when it answers, all paths at home there return. No data is risked on a plane that is still dead.

use super::super::api::{Host, Route, Store};
use super::super::time::{Instant, Span};
use super::routes::Why;
use super::{initial_route, Connection};

/// A path looks for its home plane after so long elsewhere, and so often.
const AWAY: Span = Span::from_millis(100);

impl<S: Store, H: Host> Connection<S, H> {
    /// The carrier of a plane is back: the paths at home there return at once.
    pub fn plane_up(&mut self, now: Instant, plane: u8, host: &mut H) {
        self.return_to(now, plane, host);
        self.pump(now, host);
    }

    /// Asks the home planes of paths that are away.
    pub(super) fn rejoin(&mut self, now: Instant, host: &mut H) {
        if self.config.planes < 2 || now.since(self.rejoin_at) < AWAY {
            return;
        }
        let mut asked = 0u64;
        for id in 0..self.active_paths {
            let home = initial_route(&self.config, id).plane;
            let bit = 1u64.wrapping_shl(u32::from(home));
            let away = self.paths.get(id).is_some_and(|path| {
                path.tx.route.plane != home && now.since(path.tx.moved_at) >= AWAY
            });
            if away && asked & bit == 0 {
                asked |= bit;
                self.rejoin_at = now;
                self.try_routes(now, id, 2, Why::Home, host);
            }
        }
    }

    /// The home plane of a path has answered.
    pub(super) fn return_home(&mut self, now: Instant, id: usize, host: &mut H) {
        self.return_to(now, initial_route(&self.config, id).plane, host);
    }

    fn return_to(&mut self, now: Instant, plane: u8, host: &mut H) {
        for id in 0..self.active_paths {
            let old = self.route_of(id);
            if initial_route(&self.config, id).plane == plane && old.plane != plane {
                self.set_route(now, id, Route { plane, ..old }, None, false, host);
            }
        }
    }
}
