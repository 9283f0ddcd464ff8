#!/bin/bash
# Prepares everything that building and testing need, in the cache directory:
# build chroot, kernel source, rdma-core source, guest image. Every step is
# skipped when nothing that it depends on has changed.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need_root "makes a chroot and mounts"
# Mounts that the chroots need live and die with this process.
if [[ -z ${METAROCE_MOUNTS:-} ]]; then
	METAROCE_MOUNTS=private exec unshare --mount --propagation private "${BASH_SOURCE[0]}" "$@"
fi
mkdir -p "$CACHE/logs" "$CACHE/stamps"
exec 9>"$CACHE/lock"
if ! flock -n 9; then
	say "another set-up is running in $CACHE; waiting for it"
	flock 9
fi
need_tool mmdebstrap mmdebstrap
need_tool qemu-system-x86_64 qemu-system-x86
need_tool mke2fs e2fsprogs
need_tool cpio cpio
need_tool python3 python3

# The mirror comes from this machine's own apt configuration.
find_mirror() {
	local uri
	if [[ -n ${METAROCE_MIRROR:-} ]]; then
		printf '%s\n' "${METAROCE_MIRROR%/}"
		return
	fi
	# shellcheck disable=SC2016
	uri=$(apt-get indextargets --format '$(LABEL)|$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
		sed -n 's/^Debian|//p' | head -n 1)
	if [[ -z $uri ]]; then
		uri=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list \
			/etc/apt/sources.list.d/*.sources 2>/dev/null |
			grep -v '^[[:space:]]*#' | grep -oE '(https?|file|ftp)://[^[:space:]]*/debian/?([[:space:]]|$)' |
			head -n 1 | tr -d '[:space:]')
	fi
	printf '%s\n' "${uri%/}"
}
MIRROR=$(find_mirror)
[[ -n $MIRROR ]] ||
	die "No Debian mirror was found in this machine's apt configuration; give one as METAROCE_MIRROR=URL."

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[[ -e $keyring ]] ||
	die "The Debian archive keys are missing; install the package 'debian-archive-keyring'."

# The cache grows to about 6 GiB; a full disk would show late and in odd places.
NEED_GIB=8
if [[ ! -f $CACHE/guest.img ]]; then
	free=$(df --output=avail -BG "$CACHE" | tail -n 1 | tr -dc 0-9)
	((free >= NEED_GIB)) ||
		die "$CACHE has $free GiB free, and the set-up needs $NEED_GIB; name a directory with more room as METAROCE_CACHE=DIR."
fi

apt_options() {
	# Proxy settings of this machine hold for the chroots too.
	apt-config dump 2>/dev/null | grep -E '^Acquire::[a-z]+::Proxy(::[^ ]*)? "[^"]+";' || true
	printf '%s\n' 'Acquire::Retries "3";' 'Acquire::Languages "none";'
}

sources() {
	local kinds=$1
	printf 'Types: %s\nURIs: %s\nSuites: %s %s-updates %s\nComponents: main\nSigned-By: %s\n' \
		"$kinds" "$MIRROR" "$SUITE" "$SUITE" "$SUITE_BACKPORTS" "$keyring"
}

# bootstrap DIRECTORY KINDS PACKAGE...: a fresh root at DIRECTORY, put in
# place only when complete.
bootstrap() {
	local dir=$1 kinds=$2 IFS=,
	shift 2
	local list="$*" opts=()
	unset IFS
	mapfile -t opts < <(apt_options | sed 's/^/--aptopt=/')
	rm -rf --one-file-system "$dir.new"
	sources "$kinds" | mmdebstrap --variant=minbase --mode=root --include="$list" \
		--skip=cleanup/apt/lists "${opts[@]}" \
		--dpkgopt=path-exclude=/usr/share/doc/* --dpkgopt=path-exclude=/usr/share/man/* \
		--dpkgopt=path-exclude=/usr/share/locale/* --dpkgopt=force-unsafe-io \
		"$SUITE" "$dir.new" -
	rm -rf --one-file-system "$dir.old"
	[[ ! -e $dir ]] || mv "$dir" "$dir.old"
	mv "$dir.new" "$dir"
	rm -rf --one-file-system "$dir.old"
}

make_buildroot() { bootstrap "$BUILDROOT" "deb deb-src" "${BUILD_PACKAGES[@]}"; }

# Picks a kernel for which image, headers and source have the same version.
choose_kernel() {
	in_buildroot bash -s "$PINNED_KVER" "$KVER_PATTERN" >"$CACHE/kernel.new" <<'CHOOSE'
set -euo pipefail
version() { apt-cache madison "$1" 2>/dev/null | awk '{print $3}' | sort -V | tail -n 1; }
series() { sed -E 's/^([0-9]+\.[0-9]+).*/\1/' <<<"$1"; }
fits() {
	local v
	v=$(version "linux-headers-$1")
	[[ -n $v && $(version "linux-source-$(series "$1")") == "$v" && $(version "linux-image-$1") == "$v" ]]
}
for kver in "$1" $(apt-cache search --names-only "$2" | awk '{print $1}' | sed 's/^linux-image-//' | sort -rV); do
	if fits "$kver"; then
		printf '%s %s %s\n' "$kver" "$(series "$kver")" "$(version "linux-headers-$kver")"
		exit 0
	fi
done
echo "no kernel has image, headers and source of one version" >&2
exit 1
CHOOSE
	cat "$CACHE/kernel.new"
	mv "$CACHE/kernel.new" "$CACHE/kernel"
}

fetch_kernel() {
	local kver series version dir=$CACHE/debs
	read -r kver series version <"$CACHE/kernel"
	rm -rf "$dir" && mkdir -p "$dir"
	cd "$dir"
	# Newer kernels keep image and modules in packages that the image's
	# package depends on.
	in_buildroot bash -euc 'kver=$1 version=$2 series=$3
		want=("linux-source-$series=$version" "linux-headers-$kver=$version" "linux-image-$kver=$version")
		for part in base binary modules; do
			[[ -z $(apt-cache madison "linux-$part-$kver") ]] || want+=("linux-$part-$kver=$version")
		done
		apt-get -o APT::Sandbox::User=root download "${want[@]}"' \
		bash "$kver" "$version" "$series"
}

# The source with Debian's configuration, symbols and the Rust crates built.
make_linux() {
	local kver series version dir work
	read -r kver series version <"$CACHE/kernel"
	dir=$CACHE/linux-$kver
	work=$CACHE/linux-unpack
	rm -f "$CACHE/linux.ready"
	rm -rf "$dir" "$work"
	mkdir -p "$work" "$dir"
	dpkg-deb -x "$CACHE"/debs/linux-headers-"$kver"_*.deb "$work/headers"
	dpkg-deb -x "$CACHE"/debs/linux-source-"$series"_*.deb "$work/source"
	echo "unpacking linux-source-$series"
	tar -xf "$work/source/usr/src/linux-source-$series.tar.xz" -C "$dir" --strip-components=1
	cp "$work/headers/usr/src/linux-headers-$kver/.config" \
		"$work/headers/usr/src/linux-headers-$kver/Module.symvers" "$dir/"
	rm -rf "$work"
	cd "$dir"
	in_buildroot make -j"$(nproc)" CROSS_COMPILE=x86_64-linux-gnu- \
		KERNELRELEASE="$kver" modules_prepare
	ln -sfn "linux-$kver" "$CACHE/linux"
	printf '%s\n' "$kver" >"$CACHE/kver.new"
	mv "$CACHE/kver.new" "$CACHE/kver"
	touch "$CACHE/linux.ready"
}

make_rdma_core() {
	local dir=$CACHE/rdma-core-unpack
	rm -f "$CACHE/rdma-core.ready"
	rm -rf "$dir" && mkdir -p "$dir"
	cd "$dir"
	# Some mirrors lack the small .dsc file: the two archives are enough.
	in_buildroot apt-get -o APT::Sandbox::User=root source --download-only rdma-core || true
	mkdir src
	tar -xf rdma-core_*.orig.tar.* -C src --strip-components=1
	tar -xf rdma-core_*.debian.tar.* -C src
	in_buildroot bash -euc 'cd src
		[ ! -e debian/patches/series ] || grep -v "^#" debian/patches/series |
			while read -r p; do [ -z "$p" ] || patch -p1 <"debian/patches/$p"; done'
	cd "$CACHE"
	rm -rf "$CACHE/rdma-core"
	mv "$dir/src" "$CACHE/rdma-core"
	rm -rf "$dir"
	mkdir "$CACHE/rdma-core/build"
	cd "$CACHE/rdma-core/build"
	in_buildroot cmake -GNinja -DCMAKE_BUILD_TYPE=Release -DNO_MAN_PAGES=1 -DNO_PYVERBS=1 -DENABLE_VALGRIND=0 ..
	in_buildroot ninja kern-abi ccan/libccan_pic.a util/librdma_util_pic.a
	touch "$CACHE/rdma-core.ready"
}

make_guestroot() { bootstrap "$CACHE/guestroot" "deb" "${GUEST_PACKAGES[@]}"; }

# Drivers of hardware that no guest has; leaving them out keeps the image small.
NO_DRIVERS=(
	drivers/gpu drivers/media drivers/net/ethernet drivers/net/wireless
	drivers/staging drivers/iio drivers/hwmon drivers/usb drivers/mtd
	drivers/input drivers/scsi drivers/hid drivers/isdn drivers/bluetooth
	drivers/accel drivers/platform drivers/comedi drivers/crypto sound
)

# The guest's root with the stock kernel's modules, as one ext4 image.
make_guest_image() {
	local kver work=$CACHE/guest-unpack dir
	kver=$(kver)
	rm -rf "$work" && mkdir -p "$work"
	for sub in "$CACHE"/debs/linux-{image,base,binary,modules}-"$kver"_*.deb; do
		[[ ! -e $sub ]] || dpkg-deb -x "$sub" "$work"
	done
	find "$work" -name 'vmlinuz*' -type f -exec cp {} "$CACHE/vmlinuz.new" ';'
	mv "$CACHE/vmlinuz.new" "$CACHE/vmlinuz"
	rm -rf "$CACHE/guestroot/lib/modules"
	mkdir -p "$CACHE/guestroot/usr/lib/modules"
	dir=$work/usr/lib/modules/$kver
	[[ -d $dir ]] || dir=$work/lib/modules/$kver
	for sub in "${NO_DRIVERS[@]}"; do rm -rf "$dir/kernel/$sub"; done
	mv "$dir" "$CACHE/guestroot/usr/lib/modules/$kver"
	rm -rf "$work"
	mkdir -p "$CACHE/guestroot/out" "$CACHE/guestroot/payload"
	METAROCE_ROOT=$CACHE/guestroot in_buildroot depmod "$kver" 2>&1 | grep -v 'needs unknown symbol' || true
	printf 'metaroce-guest\n' >"$CACHE/guestroot/etc/hostname"
	printf '127.0.0.1 localhost metaroce-guest\n::1 localhost\n' >"$CACHE/guestroot/etc/hosts"
	# libibverbs warns about each provider that is named and not there.
	(
		cd "$CACHE/guestroot/etc/libibverbs.d"
		for sub in *.driver; do
			[[ $sub == rxe.driver || $sub == siw.driver ]] || rm -f "$sub"
		done
	)
	rm -f "$CACHE/guest.img.new"
	truncate -s 3G "$CACHE/guest.img.new"
	mke2fs -q -t ext4 -O '^has_journal' -m 0 -d "$CACHE/guestroot" "$CACHE/guest.img.new"
	mv "$CACHE/guest.img.new" "$CACHE/guest.img"
}

# A small first root: loads the disk drivers, unpacks the payload, moves on.
make_initramfs() {
	local kver work=$CACHE/initramfs-unpack mod
	kver=$(kver)
	rm -rf "$work"
	mkdir -p "$work"/{bin,dev,proc,sys,root,mods}
	cp "$CACHE/guestroot/usr/bin/busybox" "$work/bin/busybox"
	ln -s busybox "$work/bin/sh"
	for mod in virtio_pci virtio_blk ext4; do
		METAROCE_ROOT=$CACHE/guestroot in_buildroot modprobe -S "$kver" --show-depends "$mod"
	done | awk '$1 == "insmod" && !seen[$2]++ {print $2}' >"$work/mods/paths"
	while read -r mod; do
		case $mod in
		*.xz) xz -dc "$CACHE/guestroot$mod" ;;
		*.zst) zstd -dc "$CACHE/guestroot$mod" ;;
		*) cat "$CACHE/guestroot$mod" ;;
		esac >"$work/mods/$(basename "$mod" | sed 's/\.ko.*/.ko/')"
		basename "$mod" | sed 's/\.ko.*/.ko/' >>"$work/mods/order"
	done <"$work/mods/paths"
	cat >"$work/init" <<'INIT'
#!/bin/sh
# First program of the guest: finds its disks and starts the payload's init.
B=/bin/busybox
$B mount -t proc proc /proc
$B mount -t sysfs sysfs /sys
$B mount -t devtmpfs dev /dev
while read -r m; do $B insmod /mods/$m; done </mods/order
n=0
while [ ! -b /dev/vda ] || [ ! -b /dev/vdb ]; do
	n=$((n + 1)); [ $n -lt 100 ] || { echo "the guest's disks did not appear"; $B poweroff -f; }
	$B usleep 50000
done
$B mount -t ext4 -o noatime /dev/vda /root || $B poweroff -f
$B mount -t tmpfs -o size=256m tmpfs /root/payload
$B tar -xf /dev/vdb -C /root/payload || $B poweroff -f
for d in proc sys dev; do $B mount -o move /$d /root/$d; done
exec $B switch_root /root /payload/qemu/guest-init.sh
INIT
	chmod +x "$work/init"
	(cd "$work" && find . | cpio -o -H newc --quiet) >"$CACHE/initramfs.new"
	mv "$CACHE/initramfs.new" "$CACHE/initramfs"
	rm -rf "$work"
}


STEP_OF=8
h_build=$(hash_of "$SUITE" "${BUILD_PACKAGES[@]}" "$(declare -f bootstrap sources)")
step buildroot "$h_build" make_buildroot "a chroot with compilers (about a minute)"
h_kernel=$(hash_of "$h_build" "$PINNED_KVER" "$KVER_PATTERN")
step kernel-version "$h_kernel" choose_kernel "choosing the kernel"
read -r chosen _ <"$CACHE/kernel"
[[ $chosen == "$PINNED_KVER" ]] ||
	say "note: the mirror no longer has kernel $PINNED_KVER complete; taking $chosen instead"
h_kernel=$(hash_of "$(<"$CACHE/kernel")" "$(declare -f fetch_kernel)")
step kernel-packages "$h_kernel" fetch_kernel "downloading kernel image, headers and source"
h_linux=$(hash_of "$h_kernel" "$h_build" "$(declare -f make_linux)")
step linux "$h_linux" make_linux "kernel source with Rust support prepared (about two minutes)"
step rdma-core "$(hash_of "$h_build" "$(declare -f make_rdma_core)")" make_rdma_core "source of rdma-core"
h_guestroot=$(hash_of "$SUITE" "${GUEST_PACKAGES[@]}" "$(declare -f bootstrap sources)")
step guestroot "$h_guestroot" make_guestroot "a root file system for the guest"
h_image=$(hash_of "$h_guestroot" "$h_kernel" "${NO_DRIVERS[@]}" "$(declare -f make_guest_image)")
step guest-image "$h_image" make_guest_image "the guest's disk image"
step initramfs "$(hash_of "$h_image" "$(declare -f make_initramfs)")" make_initramfs "the guest's first root"
