#!/bin/bash
# 'make userfuzz': the selftest userfuzz for long. Usage: qemu/userfuzz.sh [MINUTES]
# USERFUZZ_SEED chooses the seed; RUN_ARGS goes to qemu/run.py.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

minutes=${1:-3}
[[ $minutes =~ ^[0-9]+$ ]] || die "MINUTES must be a number, not '$minutes'."
[[ -n ${METAROCE_NO_SETUP:-} ]] || "$QEMU_DIR/setup.sh"
build_steps
# Three parts of equal length.
export METAROCE_ENV="USERFUZZ_SECONDS=$((minutes * 20))${USERFUZZ_SEED:+ USERFUZZ_SEED=$USERFUZZ_SEED}"
rc=0
# shellcheck disable=SC2086
"$QEMU_DIR/run.sh" --timeout-scale "$((minutes + 4))" ${RUN_ARGS:-} userfuzz || rc=$?
grep -E '^#' "$OUT/tests/userfuzz/output.log" || true
exit "$rc"
