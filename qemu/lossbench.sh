#!/bin/bash
# Measures metaroce, rdma_rxe, siw and TCP over lossy and multipath networks in
# virtual time. Usage: qemu/lossbench.sh [options of qemu/lossbench.py]
# Without options: every case, results under out/lossbench. QUICK=1: a few.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need_root "makes a chroot and mounts"
need_tool python3 python3
UML=$CACHE/uml
PAYLOAD=$BUILD/lossbench

if [[ -z ${METAROCE_NO_SETUP:-} ]]; then
	"$QEMU_DIR/setup.sh"
	"$QEMU_DIR/uml-setup.sh"
fi

make_uml_module() {
	mkdir -p "$BUILD/uml-module" "$PAYLOAD"
	exec 8>"$BUILD/lock"
	flock 8
	# The module loader of ARCH=um knows no relocations through a GOT, and modules
	# lie far from the kernel.
	in_buildroot make -j"$(nproc)" -C "$UML/linux" ARCH=um M="$TREE" MO="$BUILD/uml-module" \
		RUSTFLAGS_MODULE="-Crelocation-model=static -Ccode-model=large" modules
	cp "$BUILD/uml-module/metaroce.ko" "$PAYLOAD/metaroce.ko.new"
	in_buildroot strip --strip-debug "$PAYLOAD/metaroce.ko.new"
	mv "$PAYLOAD/metaroce.ko.new" "$PAYLOAD/metaroce.ko"
}

make_uml_payload() {
	local src=$TREE/selftests/lossbench
	mkdir -p "$PAYLOAD/bin" "$PAYLOAD/lib"
	in_buildroot gcc -O2 -g -std=gnu11 -Wall -Wextra -Wmissing-prototypes -Wstrict-prototypes -Wshadow \
		-I"$CACHE/rdma-core/build/include" -o "$PAYLOAD/bin/flow.new" "$src/flow.c" \
		-libverbs "$(echo "$CACHE"/guestroot/usr/lib/*/librdmacm.so.1)"
	mv "$PAYLOAD/bin/flow.new" "$PAYLOAD/bin/flow"
	in_buildroot gcc -O2 -std=gnu11 -Wall -Wextra -Wno-missing-prototypes -shared -fPIC \
		-o "$PAYLOAD/uml-seed.so" "$QEMU_DIR/uml-seed.c"
	cp "$BUILD"/provider/libmetaroce-rdmav*.so "$PAYLOAD/lib/"
	cp "$src/init" "$src/case.py" "$PAYLOAD/"
}

STEP_NO=0 STEP_OF=3
step provider always step_provider "building the provider"
step lossbench-module always make_uml_module "building the kernel module for user-mode Linux"
step lossbench-payload always make_uml_payload "building the traffic tool"
mkdir -p "$OUT/lossbench"
# The user-mode kernel runs in the chroot whose C library it was built with.
export METAROCE_BIND=$OUT
exec python3 "$QEMU_DIR/lossbench.py" --chroot "$QEMU_DIR/buildroot.sh" --kernel "$UML/vmlinux" \
	--initramfs "$UML/initramfs" --root "$CACHE/guestroot" --payload "$PAYLOAD" --out "$OUT/lossbench" \
	${QUICK:+--quick} "$@"
