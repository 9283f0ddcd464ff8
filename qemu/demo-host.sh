#!/bin/bash
# 'make demo': sets up, builds, and shows the main job in a guest.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

"$QEMU_DIR/setup.sh"
STEP_OF=2
build_steps
say "booting the guest (logs and captures: $OUT)"
if "$QEMU_DIR/run.sh" --quiet --timeout 180 --script "$QEMU_DIR/demo.sh"; then
	say ""
	say "demo: PASS"
else
	say "demo: FAIL (console and kernel log are under $OUT)"
	exit 1
fi
