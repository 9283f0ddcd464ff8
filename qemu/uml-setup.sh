#!/bin/bash
# Prepares what `make lossbench` needs in the cache directory: a user-mode
# kernel that runs in virtual time, built from the same kernel source as the
# module, and the first root of its guests.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need_root "makes a chroot and mounts"
[[ -s $CACHE/kernel && -x $CACHE/guestroot/usr/bin/busybox ]] ||
	die "Kernel source and guest root are not there yet; run 'make setup' first."
UML=$CACHE/uml
mkdir -p "$UML"
exec 9>"$UML/lock"
if ! flock -n 9; then
	say "another set-up is running in $UML; waiting for it"
	flock 9
fi

# A source tree of its own: one kernel tree has one architecture.
make_uml_source() {
	local kver series work=$UML/unpack
	read -r kver series _ <"$CACHE/kernel"
	echo "unpacking linux-source-$series for $kver"
	rm -rf "$UML/linux" "$UML/linux.new" "$work"
	mkdir -p "$work" "$UML/linux.new"
	dpkg-deb -x "$CACHE"/debs/linux-source-"$series"_*.deb "$work"
	tar -xf "$work/usr/src/linux-source-$series.tar.xz" -C "$UML/linux.new" --strip-components=1
	rm -rf "$work"
	mv "$UML/linux.new" "$UML/linux"
}

make_uml_kernel() {
	local missing
	cd "$UML/linux"
	in_buildroot make ARCH=um x86_64_defconfig
	in_buildroot scripts/kconfig/merge_config.sh -m .config "$QEMU_DIR/uml.config"
	in_buildroot make ARCH=um olddefconfig
	missing=$(grep -E '^CONFIG_[A-Z0-9_]+=y' "$QEMU_DIR/uml.config" | grep -vxFf .config || true)
	[[ -z $missing ]] || { echo "The kernel's configuration does not take: $missing"; exit 1; }
	in_buildroot make ARCH=um -j"$(nproc)" linux modules
	cp linux "$UML/vmlinux.new"
	in_buildroot strip --strip-debug "$UML/vmlinux.new"
	mv "$UML/vmlinux.new" "$UML/vmlinux"
}

# The guest's first program: its root is the guest root over hostfs, never
# written to; the payload of the run comes over hostfs too.
make_uml_initramfs() {
	local work=$UML/initramfs-unpack
	rm -rf "$work"
	mkdir -p "$work"/{bin,dev,proc,root}
	cp "$CACHE/guestroot/usr/bin/busybox" "$work/bin/busybox"
	cat >"$work/init" <<'INIT'
#!/bin/busybox sh
B=/bin/busybox
$B mount -t proc proc /proc
$B mount -t devtmpfs dev /dev
for word in $($B cat /proc/cmdline); do
	case $word in
	metaroce.root=*) root=${word#*=} ;;
	metaroce.payload=*) payload=${word#*=} ;;
	metaroce.out=*) out=${word#*=} ;;
	esac
done
$B mount -t hostfs -o "ro,$root" none /root &&
	$B mount -t hostfs -o "ro,$payload" none /root/payload &&
	$B mount -t hostfs -o "$out" none /root/out || $B poweroff -f
for d in proc dev; do $B mount -o move /$d /root/$d; done
exec $B switch_root /root /payload/init
INIT
	chmod +x "$work/init"
	(cd "$work" && find . | cpio -o -H newc --quiet) >"$UML/initramfs.new"
	mv "$UML/initramfs.new" "$UML/initramfs"
	rm -rf "$work"
}

STEP_OF=3
h_source=$(hash_of "$(<"$CACHE/kernel")" "$(declare -f make_uml_source)")
step uml-source "$h_source" make_uml_source "unpacking the kernel source once more"
step uml-kernel "$(hash_of "$h_source" "$(<"$QEMU_DIR/uml.config")" "$(declare -f make_uml_kernel)")" \
	make_uml_kernel "a user-mode kernel for virtual time (about five minutes)"
step uml-initramfs "$(hash_of "$h_source" "$(declare -f make_uml_initramfs)")" \
	make_uml_initramfs "the first root of its guests"
