#!/bin/bash
# 'make pyverbs': rdma-core's own tests, unmodified, over metaroce and over
# rxe in one boot, with a table of both. Fails when a test that
# qemu/pyverbs.required names does not pass on metaroce.
# Usage: qemu/pyverbs.sh [MODULE|TEST...]   (default: all generic modules)
# LOSS=N drops N per cent of the packets; DRIVERS names other drivers.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

[[ -e $CACHE/rdma-core.ready ]] || die "The source of rdma-core is not there yet; run 'make setup' first."

STEP_OF=2
build_steps
loss=${LOSS:-}
read -r -a drivers <<<"${DRIVERS:-metaroce rxe}"
extra=$BUILD/pyverbs
rm -rf "$extra" && mkdir -p "$extra"
cp -a "$CACHE/rdma-core/tests" "$extra/"
find "$extra" -name __pycache__ -prune -exec rm -rf {} +
rm -rf "$OUT/tests/pyverbs-guest.sh"
rc=0
METAROCE_EXTRA=$extra/tests \
	METAROCE_ENV="PYVERBS_DRIVERS='${drivers[*]}' PYVERBS_ONLY='$*' PYVERBS_LOSS='$loss'" \
	"$QEMU_DIR/run.sh" --timeout 1500 --script "$QEMU_DIR/pyverbs-guest.sh" || rc=$?
required=$QEMU_DIR/pyverbs.required
(($# == 0)) || required=""
python3 "$QEMU_DIR/pyverbs.py" --logs "$OUT/tests/pyverbs-guest.sh" --table "$OUT/pyverbs.txt" \
	${required:+--required "$required"} "${drivers[@]}" || rc=1
((rc == 0)) || die "pyverbs: FAIL (logs: $OUT/tests/pyverbs-guest.sh)"
say "pyverbs: PASS (table: $OUT/pyverbs.txt)"
