#!/bin/bash
# Packs the payload and runs tests in the guest.
# Usage: qemu/run.sh [run.py options] [TEST...]
#        qemu/run.sh --script FILE     runs FILE in the guest, output shown
# DRIVER=rxe runs the same tests over the kernel's rxe. Results go to out/
# (or METAROCE_OUT).
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

[[ -f $CACHE/guest.img && -f $CACHE/vmlinuz && -f $CACHE/initramfs ]] ||
	die "The guest is not set up yet; run 'make setup' first."
scripts=() args=()
while (($#)); do
	if [[ $1 == --script ]]; then
		scripts+=("$2")
		args+=(--exec "$(basename "$2")")
		shift 2
	else
		args+=("$1")
		shift
	fi
done
mkdir -p "$OUT" "$CACHE/run"
payload=$(mktemp "$CACHE/run/payload.XXXXXX")
trap 'rm -f "$payload"' EXIT
"$QEMU_DIR/payload.sh" "$payload" "${scripts[@]}"
python3 "$QEMU_DIR/run.py" --cache "$CACHE" --tree "$TREE" --out "$OUT" \
	--payload "$payload" "${args[@]}"
