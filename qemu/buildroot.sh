#!/bin/bash
# Runs a command inside the build chroot, with the source tree and the cache
# at the same absolute paths as outside and the current directory kept.
# Usage: qemu/buildroot.sh COMMAND [ARG...]
# METAROCE_BIND=DIR[:DIR...] makes further directories visible.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

(($#)) || die "Usage: qemu/buildroot.sh COMMAND [ARG...]"
need_root "makes a chroot and mounts"
root=${METAROCE_ROOT:-$BUILDROOT}
[[ -x $root/bin/bash ]] || die "There is no build chroot at $root yet; run 'make setup' first."

export root TREE CACHE BUILD cwd=$PWD
exec unshare --mount --propagation private /bin/bash -c '
	set -eu
	mount --rbind /proc "$root/proc"
	mount --rbind /sys "$root/sys"
	mount --rbind /dev "$root/dev"
	mount -t tmpfs tmpfs "$root/run"
	if [ -e /etc/resolv.conf ]; then
		rm -f "$root/etc/resolv.conf"
		cp -L /etc/resolv.conf "$root/etc/resolv.conf"
	fi
	IFS=:
	for dir in /tmp "$TREE" "$CACHE" "$BUILD" "$cwd" ${METAROCE_BIND-}; do
		[ -d "$dir" ] || continue
		[ "$dir" != / ] || continue
		mkdir -p "$root$dir"
		mount --bind "$dir" "$root$dir"
	done
	unset IFS
	exec chroot "$root" /usr/bin/env -u CARGO_HOME -u RUSTUP_HOME -u root -u cwd -u RUSTUP_TOOLCHAIN \
		HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		/bin/bash -c '\''cd "$1" 2>/dev/null || cd /; shift; exec "$@"'\'' bash "$cwd" "$@"
' bash "$@"
