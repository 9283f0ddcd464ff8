#!/bin/bash
# Runs cargo on the host workspace, with results in the cache: this machine's
# cargo when it is new enough, else the one in the build chroot.
# Usage: qemu/cargo.sh COMMAND [ARGS...]
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

command=${1:?Usage: qemu/cargo.sh COMMAND [ARGS...]}
shift
manifest=$TREE/rust/host/Cargo.toml
[[ -f $manifest ]] || die "There is no engine workspace at $manifest."
export CARGO_TARGET_DIR=$BUILD/cargo
mkdir -p "$CARGO_TARGET_DIR"
new_enough() {
	local version
	version=$(rustc --version 2>/dev/null | sed -n 's/^rustc \([0-9]*\.[0-9]*\).*/\1/p')
	[[ -n $version ]] && command -v cargo >/dev/null &&
		[[ $(printf '1.85\n%s\n' "$version" | sort -V | head -n 1) == 1.85 ]]
}
cargo=(cargo)
if ! new_enough; then
	say "using the build chroot's cargo: this machine has none of version 1.85 or newer"
	cargo=("$QEMU_DIR/buildroot.sh" cargo)
	CARGO_TARGET_DIR=$BUILD/cargo-chroot
fi
exec "${cargo[@]}" "$command" --manifest-path "$manifest" "$@"
