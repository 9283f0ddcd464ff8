#!/bin/bash
# 'make install': the module for kernel KVER (default: the running one) and
# the provider, below DESTDIR when given.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

dest=${DESTDIR:-}
release=${KVER:-$(uname -r)}
module=$BUILD/module/metaroce.ko
provider=$BUILD/provider
[[ -n $dest ]] || need_root "writes to /lib/modules and /etc (DESTDIR=DIR installs elsewhere)"
[[ -f $module ]] || die "The module is not built; run 'make modules' first."
compgen -G "$provider/*.so" >/dev/null || die "The provider is not built; run 'make provider' first."

magic=$(grep -aoE 'vermagic=[^ ]+' "$module" | cut -d= -f2 | head -n 1)
[[ $magic == "$release" ]] ||
	die "The module was built for kernel $magic, not for $release; build it with KDIR= against that kernel's prepared tree, or give KVER=$magic."
install -D -m 644 "$module" "$dest/lib/modules/$release/updates/metaroce.ko"
if [[ -z $dest ]]; then
	need_tool depmod kmod
	depmod -a "$release"
else
	say "note: run 'depmod -a $release' where $dest ends up"
fi

if [[ -n ${LIBDIR:-} ]]; then
	libdir=$LIBDIR
else
	lib=$(ldconfig -p 2>/dev/null | awk '/libibverbs\.so\.1 .*x86-64/ {print $NF; exit}')
	[[ -n $lib ]] || die "libibverbs is not installed here; install it, or name its directory as LIBDIR=DIR."
	libdir=$(dirname "$lib")
	have=$(grep -aoE 'IBVERBS_PRIVATE_[0-9]+' "$lib" | sed 's/.*_//' | sort -u | head -n 1)
	file=$(basename "$provider"/libmetaroce-rdmav*.so)
	[[ $file == "libmetaroce-rdmav$have.so" ]] ||
		die "The provider $file does not fit the installed libibverbs, whose private ABI is $have."
fi
for file in "$provider"/libmetaroce-rdmav*.so; do
	install -D -m 644 "$file" "$dest$libdir/libibverbs/$(basename "$file")"
done
install -D -m 644 "$provider/metaroce.driver" "$dest/etc/libibverbs.d/metaroce.driver"
say "installed the module for $release and the provider in $libdir/libibverbs"
