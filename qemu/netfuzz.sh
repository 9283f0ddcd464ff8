#!/bin/bash
# 'make netfuzz': the selftest netfuzz for long, with at least a million hostile
# datagrams. Usage: qemu/netfuzz.sh [MINUTES]
# NETFUZZ_COUNT (default 1000000) and NETFUZZ_SEED choose others; RUN_ARGS goes to qemu/run.py.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

minutes=${1:-3}
[[ $minutes =~ ^[0-9]+$ ]] || die "MINUTES must be a number, not '$minutes'."
[[ -n ${METAROCE_NO_SETUP:-} ]] || "$QEMU_DIR/setup.sh"
build_steps
export METAROCE_ENV="NETFUZZ_SECONDS=$((minutes * 60)) NETFUZZ_COUNT=${NETFUZZ_COUNT:-1000000}${NETFUZZ_SEED:+ NETFUZZ_SEED=$NETFUZZ_SEED}"
rc=0
# shellcheck disable=SC2086
"$QEMU_DIR/run.sh" --timeout-scale "$((minutes + 12))" ${RUN_ARGS:-} netfuzz || rc=$?
grep -E '^# (seed|figures|  sent in all|  victim|connections)' "$OUT/tests/netfuzz/output.log" || true
exit "$rc"
