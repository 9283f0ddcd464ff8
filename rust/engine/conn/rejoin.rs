// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! The way back to a plane that was left.
//!
//! Each path has a home plane, that of its first route. Away from it for [`AWAY`], one path of the
//! connection goes back as a scout; if it is answered there for [`SETTLED`], the others follow. If the plane is still
//! dead, only the scout's packets have to be sent again elsewhere.

use super::super::api::{Host, Route, Store};
use super::super::time::{Instant, Span};
use super::{initial_route, Connection};

/// A path looks for its home plane after so long elsewhere.
const AWAY: Span = Span::from_millis(250);
/// A plane on which a path has been answered for so long works.
const SETTLED: Span = Span::from_millis(20);

impl<S: Store, H: Host> Connection<S, H> {
    /// The carrier of a plane is back: the paths at home there return at once.
    pub fn plane_up(&mut self, now: Instant, plane: u8, host: &mut H) {
        for id in 0..self.active_paths {
            if initial_route(&self.config, id).plane == plane {
                self.go_home(now, id, plane, host);
            }
        }
        self.pump(now, host);
    }

    /// Sends paths home that have been away for long.
    pub(super) fn rejoin(&mut self, now: Instant, host: &mut H) {
        if self.config.planes < 2 {
            return;
        }
        for id in 0..self.active_paths {
            let home = initial_route(&self.config, id).plane;
            let Some(path) = self.paths.get(id) else {
                return;
            };
            if path.tx.route.plane == home || now.since(path.tx.moved_at) < AWAY {
                continue;
            }
            let (mut present, mut settled) = (false, false);
            for other in self.paths.iter().take(self.active_paths) {
                if other.tx.route.plane == home {
                    present = true;
                    settled |=
                        other.tx.unanswered() == 0 && now.since(other.tx.moved_at) >= SETTLED;
                }
            }
            if settled || !present {
                self.go_home(now, id, home, host);
            }
        }
    }

    fn go_home(&mut self, now: Instant, id: usize, plane: u8, host: &mut H) {
        let old = self.route_of(id);
        if old.plane != plane {
            self.set_route(now, id, Route { plane, ..old }, false, host);
        }
    }
}
