# shellcheck shell=bash disable=SC2034
# What the set-up fetches: distribution suite, pinned kernel, package lists.
# Everything here goes into the hashes that decide whether a step runs again.

SUITE=trixie
SUITE_BACKPORTS=trixie-backports

# Stock kernel that the module is built for and tested on. When the mirror no
# longer has it, setup.sh takes the newest 7.x of the same suite and says so.
PINNED_KVER=7.3.4+deb13-amd64
KVER_PATTERN='^linux-image-7\.[0-9.]+\+deb13-amd64$'

# Compilers and libraries for module, provider and engine tests.
BUILD_PACKAGES=(
	apt-utils bc bindgen bison build-essential ca-certificates cargo clang
	cmake cpio dpkg-dev dwarves file flex gcc git kmod libclang-dev libelf-dev
	libibverbs-dev libnl-3-dev libnl-route-3-dev libssl-dev llvm make
	ninja-build pkgconf python3 rsync rust-clippy rust-src
	rustc rustfmt shellcheck sparse xz-utils zstd
)

# What runs inside the guest.
GUEST_PACKAGES=(
	bash busybox-static coreutils e2fsprogs ethtool fio gawk grep
	ibverbs-utils iperf3 iproute2 iptables iputils-ping jq
	kmod mount nfs-common nfs-kernel-server nftables nvme-cli perftest
	procps psmisc python3 python3-pyverbs rdma-core
	rdmacm-utils sed strace tcpdump util-linux
)
