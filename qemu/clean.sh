#!/bin/bash
# 'make clean' removes build results, 'make distclean' the whole cache.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

case ${1:-} in
build)
	rm -rf "$BUILD"/{module,provider,provider.new,provider.old,cargo,cargo-chroot,lock} "$CACHE/run" "$TREE/out"
	;;
all)
	[[ -d $CACHE ]] || exit 0
	if grep -q " $CACHE/" /proc/mounts; then
		die "Something is still mounted below $CACHE; unmount it first."
	fi
	rm -rf --one-file-system "$CACHE" "$TREE/out"
	;;
*) die "Usage: qemu/clean.sh build|all" ;;
esac
