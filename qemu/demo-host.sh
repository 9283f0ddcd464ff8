#!/bin/bash
# 'make demo': sets up, builds, and shows the main job in a guest.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

"$QEMU_DIR/setup.sh"
build_module() { "$QEMU_DIR/build.sh" module; }
build_provider() { "$QEMU_DIR/build.sh" provider; }
STEP_OF=2
if [[ ${DRIVER:-metaroce} == metaroce ]]; then
	step module always build_module "building the kernel module"
	step provider always build_provider "building the provider"
fi
say "booting the guest (logs and captures: $OUT)"
if "$QEMU_DIR/run.sh" --quiet --timeout 180 --script "$QEMU_DIR/demo.sh"; then
	say ""
	say "demo: PASS"
else
	say "demo: FAIL (console and kernel log are under $OUT)"
	exit 1
fi
