#!/bin/bash
# Measures metaroce, rdma_rxe, siw and TCP over lossy and multipath networks in
# virtual time. Usage: qemu/lossbench.sh [options of qemu/lossbench.py]
# Without options: every case, results under out/lossbench. QUICK=1: a few.
# STOCK=1: a short version on the stock kernel under QEMU, under out/lossbench-stock.
# Ends with status 3 when everything ran, but a goal was missed.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need_root "makes a chroot and mounts"
need_tool python3 python3
UML=$CACHE/uml
PAYLOAD=$BUILD/lossbench

if [[ -z ${METAROCE_NO_SETUP:-} ]]; then
	"$QEMU_DIR/setup.sh"
	[[ -n ${STOCK:-} ]] || "$QEMU_DIR/uml-setup.sh"
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

make_flow() {
	local src=$TREE/selftests/lossbench
	mkdir -p "$PAYLOAD/bin"
	in_buildroot gcc -O2 -g -std=gnu11 -Wall -Wextra -Wmissing-prototypes -Wstrict-prototypes -Wshadow \
		-I"$CACHE/rdma-core/build/include" -o "$PAYLOAD/bin/flow.new" "$src/flow.c" \
		-libverbs "$(echo "$CACHE"/guestroot/usr/lib/*/librdmacm.so.1)"
	mv "$PAYLOAD/bin/flow.new" "$PAYLOAD/bin/flow"
}

make_uml_payload() {
	mkdir -p "$PAYLOAD/lib"
	in_buildroot gcc -O2 -std=gnu11 -Wall -Wextra -Wno-missing-prototypes -shared -fPIC \
		-o "$PAYLOAD/uml-seed.so" "$QEMU_DIR/uml-seed.c"
	cp "$BUILD"/provider/libmetaroce-rdmav*.so "$PAYLOAD/lib/"
	cp "$TREE/selftests/lossbench/init" "$TREE/selftests/lossbench/case.py" "$PAYLOAD/"
}
step_siw() { "$QEMU_DIR/build.sh" siw; }

if [[ -n ${STOCK:-} ]]; then
	STEP_NO=0 STEP_OF=4
	build_steps
	step siw always step_siw "building siw for comparison"
	step lossbench-flow always make_flow "building the traffic tool"
	METAROCE_MORE_MODULES=$BUILD/siw/siw.ko exec python3 "$QEMU_DIR/lossbench.py" --stock \
		--payload "$PAYLOAD" --out "$OUT/lossbench-stock" --command "STOCK=1 make lossbench" "$@"
fi

STEP_NO=0 STEP_OF=4
step provider always step_provider "building the provider"
step lossbench-module always make_uml_module "building the kernel module for user-mode Linux"
step lossbench-flow always make_flow "building the traffic tool"
step lossbench-payload always make_uml_payload "building the traffic tool"
mkdir -p "$OUT/lossbench"
# The user-mode kernel runs in the chroot whose C library it was built with.
export METAROCE_BIND=$OUT
exec python3 "$QEMU_DIR/lossbench.py" --chroot "$QEMU_DIR/buildroot.sh" --kernel "$UML/vmlinux" \
	--initramfs "$UML/initramfs" --root "$CACHE/guestroot" --payload "$PAYLOAD" --out "$OUT/lossbench" \
	--command "${QUICK:+QUICK=1 }make lossbench" ${QUICK:+--quick} "$@"
