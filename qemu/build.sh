#!/bin/bash
# Builds the kernel module or the user-space provider, outside the tree; the
# programs of the selftests netfuzz and userfuzz; and siw, which the stock kernel lacks,
# for comparison ('make bench').
# Usage: qemu/build.sh module|provider|netfuzz|userfuzz|siw
# KDIR=DIR builds the module natively against a prepared kernel tree of your
# own instead of in the chroot; KVER=RELEASE then names its release.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

what=${1:?Usage: qemu/build.sh module|provider|netfuzz|userfuzz|siw}
mkdir -p "$BUILD" "$CACHE/logs"
exec 8>"$BUILD/lock"
flock -n 8 || { say "waiting for another build"; flock 8; }

build_module() {
	local dest=$BUILD/module args=()
	mkdir -p "$dest"
	if [[ -n ${KDIR:-} ]]; then
		[[ -f $KDIR/Module.symvers && -f $KDIR/.config ]] ||
			die "KDIR=$KDIR is not a prepared kernel tree: it lacks .config or Module.symvers."
		grep -q '^CONFIG_RUST=y' "$KDIR/.config" ||
			die "The kernel in KDIR=$KDIR is configured without CONFIG_RUST, which the module needs."
		[[ -f $KDIR/rust/libkernel.rmeta ]] ||
			die "The kernel tree in KDIR=$KDIR lacks the Rust crates: run 'make modules_prepare' there."
		[[ -z ${KVER:-} ]] || args+=(KERNELRELEASE="$KVER")
		make -j"$(nproc)" -C "$KDIR" M="$TREE" MO="$dest" "${args[@]}" modules
	else
		[[ -e $CACHE/linux.ready ]] || die "There is no prepared kernel source yet; run 'make setup' first."
		in_buildroot make -j"$(nproc)" -C "$KSRC" M="$TREE" MO="$dest" \
			CROSS_COMPILE=x86_64-linux-gnu- KERNELRELEASE="$(kver)" ${W:+W="$W"} ${C:+C="$C"} \
			${CLIPPY:+CLIPPY="$CLIPPY"} ${V:+V="$V"} modules
	fi
	[[ -f $dest/metaroce.ko ]] || die "The build ended without $dest/metaroce.ko."
	say "module: $dest/metaroce.ko"
}

build_provider() {
	local src=$TREE/rdma-core-provider rc=$CACHE/rdma-core dest=$BUILD/provider
	local suffix have hash files
	[[ -e $CACHE/rdma-core.ready ]] || die "The source of rdma-core is not there yet; run 'make setup' first."
	compgen -G "$src/*.c" >/dev/null || die "There is no provider source in rdma-core-provider/."
	suffix=$(sed -n 's/^set(IBVERBS_PABI_VERSION "\([0-9]*\)").*/\1/p' "$rc/CMakeLists.txt")
	have=$(grep -aoE 'IBVERBS_PRIVATE_[0-9]+' "$BUILDROOT"/usr/lib/*/libibverbs.so.1 | sed 's/.*_//' | sort -u | head -n 1)
	[[ $suffix == "$have" ]] ||
		die "The rdma-core source has private ABI $suffix, but the installed libibverbs has $have; both must be of one release."
	files=("$src"/*.[ch])
	hash=$(hash_of "$(hash_files "${files[@]}")" "$(declare -f build_provider)" "$suffix")
	if [[ -f $dest/.hash && $(<"$dest/.hash") == "$hash" ]]; then
		say "provider: $dest/libmetaroce-rdmav$suffix.so (up to date)"
		return
	fi
	rm -rf "$dest.new" && mkdir -p "$dest.new"
	in_buildroot gcc -shared -fPIC -O2 -g -std=gnu11 -DNDEBUG \
		-I"$rc/build/include" -I"$src" \
		-Wall -Wextra -Wno-sign-compare -Wno-unused-parameter -Wmissing-prototypes \
		-Wstrict-prototypes -Wshadow -Wwrite-strings -Werror=implicit-function-declaration \
		-Wl,--as-needed -Wl,--no-undefined \
		-Wl,--version-script,"$rc/buildlib/provider.map" \
		-o "$dest.new/libmetaroce-rdmav$suffix.so" "$src"/*.c \
		"$rc/build/ccan/libccan_pic.a" "$rc/build/util/librdma_util_pic.a" -libverbs -lpthread
	if [[ -f $src/metaroce.driver ]]; then
		cp "$src/metaroce.driver" "$dest.new/"
	else
		printf 'driver metaroce\n' >"$dest.new/metaroce.driver"
	fi
	printf '%s\n' "$hash" >"$dest.new/.hash"
	rm -rf "$dest.old"
	[[ ! -d $dest ]] || mv "$dest" "$dest.old"
	mv "$dest.new" "$dest"
	rm -rf "$dest.old"
	say "provider: $dest/libmetaroce-rdmav$suffix.so"
}

build_netfuzz() {
	local dest=$BUILD/tools file
	"$QEMU_DIR/cargo.sh" build --release -p metaroce-netfuzz
	mkdir -p "$dest"
	# Whichever cargo it was: the newest.
	for file in "$BUILD"/cargo*/release/metaroce-netfuzz; do
		[[ $file -ot $dest/metaroce-netfuzz ]] || cp -p "$file" "$dest/metaroce-netfuzz.new"
	done
	[[ ! -f $dest/metaroce-netfuzz.new ]] || mv "$dest/metaroce-netfuzz.new" "$dest/metaroce-netfuzz"
	say "netfuzz: $dest/metaroce-netfuzz"
}

build_userfuzz() {
	local dest=$BUILD/tools src=$TREE/selftests/userfuzz.c
	mkdir -p "$dest"
	if [[ $dest/userfuzz -nt $src ]]; then
		say "userfuzz: $dest/userfuzz (up to date)"
		return
	fi
	in_buildroot gcc -O2 -g -std=gnu11 -Wall -Wextra -Wmissing-prototypes -Wstrict-prototypes -Wshadow \
		-I"$CACHE/rdma-core/build/include" -o "$dest/userfuzz.new" "$src" -libverbs -lpthread
	mv "$dest/userfuzz.new" "$dest/userfuzz"
	say "userfuzz: $dest/userfuzz"
}

build_siw() {
	local dest=$BUILD/siw dir=drivers/infiniband/sw/siw
	[[ -e $CACHE/linux.ready ]] || die "There is no prepared kernel source yet; run 'make setup' first."
	if [[ -f $dest/siw.ko && $dest/siw.ko -nt $CACHE/linux.ready ]]; then
		say "siw: $dest/siw.ko (up to date)"
		return
	fi
	# A copy: the kernel's own tree stays as it is, and has the options of the stock kernel.
	rm -rf "$dest" && mkdir -p "$dest"
	cp "$KSRC/$dir"/{Makefile,*.[ch]} "$dest/"
	in_buildroot make -j"$(nproc)" -C "$KSRC" M="$dest" CROSS_COMPILE=x86_64-linux-gnu- \
		KERNELRELEASE="$(kver)" CONFIG_RDMA_SIW=m modules
	[[ -f $dest/siw.ko ]] || die "The build ended without $dest/siw.ko."
	say "siw: $dest/siw.ko"
}

case $what in
module) build_module ;;
provider) build_provider ;;
netfuzz) build_netfuzz ;;
userfuzz) build_userfuzz ;;
siw) build_siw ;;
*) die "Usage: qemu/build.sh module|provider|netfuzz|userfuzz|siw" ;;
esac
