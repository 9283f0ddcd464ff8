#!/bin/bash
# Runs rdma-core's own tests in the guest, one process per module, over a
# device of $DRIVER that talks to itself. Called by qemu/pyverbs.sh, once for
# each driver; the logs go to $OUTDIR/DRIVER/MODULE.log.
#
# PYVERBS_ONLY: modules (or tests) to run instead of all, PYVERBS_LOSS:
# per cent of packets to drop each way.
if [[ -z ${PYVERBS_DRIVER:-} ]]; then
	# The harness calls without a driver: all in turn.
	rc=0
	for name in ${PYVERBS_DRIVERS:-metaroce rxe}; do
		PYVERBS_DRIVER=$name DRIVER=$name bash "$0" || rc=1
	done
	exit "$rc"
fi
LIB_PLAIN=1
. /payload/selftests/lib.sh
cd /payload/extra || exit 1

# shellcheck disable=SC2153
logs=$OUTDIR/$DRIVER module=$MODULE
mkdir -p "$logs"
modprobe "$module" || { echo "pyverbs: the module $module cannot be loaded"; exit 1; }
modprobe -a rdma_ucm ib_umad ib_uverbs 2>/dev/null
topo_pair 1500 || { echo "pyverbs: the topology could not be made"; exit 1; }
gid=$(wait_gid "$DEV_A" "$IP_A") || { echo "pyverbs: no GID for $IP_A"; exit 1; }
if ((gid == 0)); then echo "pyverbs: the GID of $IP_A has index 0, which the suite takes for none"; exit 1; fi
if [[ -n ${PYVERBS_LOSS:-} ]]; then
	# What a device says to itself goes through the loopback interface.
	impair "$A" lo loss "$PYVERBS_LOSS%" || exit 1
	impair "$A" eth0 loss "$PYVERBS_LOSS%" || exit 1
fi

suite() { on_a timeout -k 10 300 python3 tests/run_tests.py --dev "$DEV_A" --gid "$gid" "$@"; }

# Listing runs nothing, which newer versions of unittest report as a failure.
suite --list-tests >"$logs/list" 2>"$logs/list.err"
grep -q '^tests\.' "$logs/list" || { cat "$logs/list.err"; exit 1; }
if [[ -n ${PYVERBS_ONLY:-} ]]; then
	read -r -a modules <<<"$PYVERBS_ONLY"
else
	# Tests of one vendor's interfaces (mlx5, efa, CUDA) need that vendor's device.
	mapfile -t modules < <(sed -nE 's/^(tests\.test_[a-z0-9_]+)\..*/\1/p' "$logs/list" |
		grep -vE '^tests\.test_(mlx5|efa|cuda)' | sort -u)
fi
for name in "${modules[@]}"; do
	start=$SECONDS rc=0
	suite -v "$name" >"$logs/$name.log" 2>&1 </dev/null || rc=$?
	printf '\n== %s ended with status %s after %s s\n' "$name" "$rc" "$((SECONDS - start))" >>"$logs/$name.log"
	echo "pyverbs: $DRIVER $name: status $rc, $((SECONDS - start)) s: $(grep -E '^(OK|FAILED)' "$logs/$name.log" | tail -n 1)"
done
cleanup
wait_for 15 module_unloads || { echo "pyverbs: the module $module stays in use"; exit 1; }
exit 0
