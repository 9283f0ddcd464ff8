#!/bin/bash
# Packs what changes often (module, provider, tests, guest scripts) into a tar
# file that the guest reads as its second disk.
# Usage: qemu/payload.sh TARFILE [EXEC-SCRIPT...]
# METAROCE_MODULE and METAROCE_PROVIDER name other build results than ours;
# METAROCE_EXTRA=FILE[:FILE...] puts further files or directories into extra/;
# METAROCE_MORE_MODULES (files, separated by colons) come along.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

tarfile=${1:?}
shift
module=${METAROCE_MODULE:-$BUILD/module/metaroce.ko}
provider=${METAROCE_PROVIDER:-$BUILD/provider}
work=$(mktemp -d "$CACHE/payload.XXXXXX")
trap 'rm -rf "$work"' EXIT
kver=$(kver)

mkdir -p "$work/qemu" "$work/exec" "$work/selftests"
cp "$QEMU_DIR/guest-init.sh" "$work/qemu/"
chmod +x "$work/qemu/guest-init.sh"
cp -a "$TREE/selftests/." "$work/selftests/"
cp "$KSRC/tools/testing/selftests/kselftest/ktap_helpers.sh" "$work/selftests/"
[[ ! -d $BUILD/tools ]] || cp -a "$BUILD/tools" "$work/tools"
for file; do cp "$file" "$work/exec/$(basename "$file")"; done
if [[ -n ${METAROCE_EXTRA:-} ]]; then
	mkdir "$work/extra"
	IFS=: read -r -a extra <<<"$METAROCE_EXTRA"
	cp -a "${extra[@]}" "$work/extra/"
fi
{
	printf 'export DRIVER=%q METAROCE_PORT=%q\n' "${DRIVER:-metaroce}" "${METAROCE_PORT:-4794}"
	[[ -z ${METAROCE_ENV:-} ]] || printf 'export %s\n' "$METAROCE_ENV"
} >"$work/env"

if [[ -f $module ]]; then
	# modprobe's index is made here, where it is quick.
	stock=$CACHE/guestroot/usr/lib/modules/$kver
	stage=$work/stage/lib/modules/$kver
	mkdir -p "$stage/updates"
	ln -s "$stock/kernel" "$stage/kernel"
	cp "$stock"/modules.{builtin,builtin.modinfo,order} "$stage/" 2>/dev/null || true
	cp "$module" "$stage/updates/metaroce.ko"
	IFS=: read -r -a more <<<"${METAROCE_MORE_MODULES:-}"
	[[ ${#more[@]} -eq 0 ]] || cp "${more[@]}" "$stage/updates/"
	in_buildroot bash -c 'strip --strip-debug "$@"' bash "$stage"/updates/*.ko
	in_buildroot depmod -b "$work/stage" "$kver" 2>&1 | grep -v 'needs unknown symbol' || true
	rm "$stage/kernel"
	mv "$stage" "$work/modules"
	rm -rf "$work/stage"
elif [[ ${DRIVER:-metaroce} == metaroce ]]; then
	die "The module is not built: $module does not exist; run 'make modules'."
fi
if [[ -d $provider ]]; then
	mkdir "$work/provider"
	cp "$provider"/*.so "$provider"/*.driver "$work/provider/"
elif [[ ${DRIVER:-metaroce} == metaroce ]]; then
	die "The provider is not built: $provider does not exist; run 'make provider'."
fi
tar -C "$work" --owner=0 --group=0 -cf "$tarfile.new" .
mv "$tarfile.new" "$tarfile"
