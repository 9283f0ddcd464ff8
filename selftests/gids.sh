#!/bin/bash
# timeout: 600
# Every GID that a device lists carries messages, over the interface that it
# belongs to: IPv4, IPv6 global and link-local, on the device's own interface,
# on a VLAN and on a macvlan. What cannot work is not listed, and a queue pair
# that cannot be connected leaves the reason in the kernel log.
. "$(dirname "$0")/lib.sh"
need_driver
topo_pair 1500 || { say "the topology could not be made"; exit 1; }

# sub_interface NETNS NAME NUMBER LINK-TYPE...: on top of eth0, with addresses.
sub_interface() {
	local ns=$1 name=$2 number=$3 host=1
	shift 3
	[[ $ns == "$A" ]] || host=2
	on "$ns" ip link add link eth0 name "$name" type "$@" || return 1
	on "$ns" ip addr add "10.77.$number.$host/24" dev "$name"
	on "$ns" ip addr add "fd77:$number::$host/64" dev "$name" nodad
	on "$ns" ip link set "$name" up
}
for ns in "$A" "$B"; do
	sub_interface "$ns" vlan5 5 vlan id 5 || { say "no VLAN"; exit 1; }
	# A link-local address of its own; the VLAN has that of eth0.
	sub_interface "$ns" macv 6 macvlan mode bridge || { say "no macvlan"; exit 1; }
done
on_a ip addr add 10.77.7.1/24 dev eth0
on_b ip addr add 10.77.7.2/24 dev eth0

# gids DEVICE: index, GID, type and interface of each.
gids() {
	local dir=/sys/class/infiniband/$1/ports/1 i gid
	for i in {0..63}; do
		[[ -e $dir/gids/$i ]] || break
		gid=$(<"$dir/gids/$i")
		[[ $gid == 0000:0000:0000:0000:0000:0000:0000:0000 ]] && continue
		printf '%s %s %s %s\n' "$i" "$gid" "$(tr -d ' ' <"$dir/gid_attrs/types/$i")" "$(<"$dir/gid_attrs/ndevs/$i")"
	done
}
# Which of the other side's GIDs a GID talks to: same interface, same kind.
kind() {
	case $1 in
	0000:0000:0000:0000:0000:ffff:0a4d:*) echo "IPv4 net ${1:35:2}" ;;
	fe80:*) echo link-local ;;
	*) echo "IPv6 net ${1:5:4}" ;;
	esac
}
counts() { gids "$1" | awk -v dev="$2" '$4 == dev' | wc -l; }
# Two addresses of each family but the link-local one, on three interfaces.
complete() {
	local dev
	for dev in "$DEV_A" "$DEV_B"; do
		(($(counts "$dev" eth0) >= 4 && $(counts "$dev" vlan5) >= 3 && $(counts "$dev" macv) >= 3)) || return 1
	done
}
check "GIDs of all addresses are listed" wait_for 10 complete
gids "$DEV_A" >"$TMP/a"
gids "$DEV_B" >"$TMP/b"
say "GIDs of A:"
show "$TMP/a"
only_udp() { ! awk '$3 != "RoCEv2"' "$TMP/a" "$TMP/b" | grep .; }
if [[ $DRIVER == metaroce ]]; then check "only RoCE v2 GIDs are listed" only_udp; fi

# by_gid GID-A GID-B INTERFACE TOOL ARGS...: the messages leave by that interface.
by_gid() {
	local ga=$1 gb=$2 ndev=$3 before sent
	shift 3
	before=$(link_packets "$B" "$ndev")
	SERVER_ARGS=(-d "$DEV_A" -g "$ga") CLIENT_ARGS=(-d "$DEV_B" -g "$gb")
	TOOL_LIMIT=15 client_server "$A" "$B" "$IP_A" "$@" || return 1
	sent=$(($(link_packets "$B" "$ndev") - before))
	echo "$sent packets left by $ndev"
	((sent >= 50))
}
to_self() {
	SERVER_ARGS=(-d "$DEV_A" -g "$1") CLIENT_ARGS=(-d "$DEV_A" -g "$1")
	TOOL_LIMIT=15 client_server "$A" "$A" "$IP_A" ibv_rc_pingpong -c -s 2000 -n 50
}
while read -r ga gid type ndev; do
	[[ $type == RoCEv2 ]] || continue
	name="$(kind "$gid") on $ndev"
	gb=
	while read -r index other other_type other_dev; do
		if [[ $other_type == "$type" && $other_dev == "$ndev" && $(kind "$other") == "$(kind "$gid")" ]]; then
			gb=$index
		fi
	done <"$TMP/b"
	if [[ -z $gb ]]; then
		ktap_test_fail "$name: the other side has such a GID"
		continue
	fi
	check "$name: RC" by_gid "$ga" "$gb" "$ndev" ibv_rc_pingpong -c -s 2000 -n 60
	[[ $ndev == eth0 && $gid != fe80:* ]] || check "$name: UD" by_gid "$ga" "$gb" "$ndev" ibv_ud_pingpong -c -s 1000 -n 60
	[[ $gid != fe80:* ]] || check "$name: RC to itself" to_self "$ga"
done <"$TMP/a"

if [[ $DRIVER == metaroce ]]; then
	# Interfaces without any IPv6 address, and one that has left the namespace.
	extra=mr${ID}x
	no_address() {
		on_a ip link add x0 type veth peer name x1 || return 1
		on_a sysctl -qw net.ipv6.conf.x0.addr_gen_mode=1
		on_a ip addr add 10.77.8.1/24 dev x0
		on_a ip link set x1 up
		on_a ip link set x0 up
		add_device "$A" "$extra" x0 || return 1
		gid_index "$extra" 10.77.8.1 || wait_gid "$extra" 10.77.8.1 || return 1
		gids "$extra"
		! gids "$extra" | grep ' fe80'
	}
	check "no link-local GID without that address" no_address
	later() {
		on_a sysctl -qw net.ipv6.conf.x0.addr_gen_mode=0
		on_a ip link set x0 down
		on_a ip link set x0 up
		wait_for 10 listed ' fe80' || { gids "$extra"; return 1; }
	}
	listed() { gids "$extra" | grep "$1"; }
	check "it comes with the address" later
	elsewhere() {
		on_a ip link add link x0 name x0v type vlan id 9 || return 1
		on_a ip link set x0v netns "$B"
		on_b ip addr add 10.77.9.1/24 dev x0v
		on_b ip link set x0v up
		# Of its own interface: what comes later is listed, so the other one was considered before.
		on_a ip addr add 10.77.8.9/24 dev x0
		wait_gid "$extra" 10.77.8.9 || return 1
		gids "$extra"
		! gids "$extra" | grep x0v
	}
	check "no GID of an interface in another namespace" elsewhere
	del_device "$extra"
	on_a ip link del x0

	refused() {
		on_a ip link set eth0 mtu 300
		local rc=0
		TOOL_LIMIT=10 pingpong "$IP_A" "$IP_B" -s 64 -n 10 || rc=$?
		on_a ip link set eth0 mtu 1500
		dmesg | tail -n 5
		((rc != 0)) && dmesg | grep -E "metaroce: QP 0x[0-9a-f]+ cannot be connected.*$IP_B.*MTU"
	}
	check "a QP that cannot be connected: the reason is in the log" refused
fi
finish
