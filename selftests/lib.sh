# shellcheck shell=bash
# Shared by all selftests: KTAP output, topologies in network namespaces,
# impairments, waiting, and a clean-up that leaves nothing behind.
#
# Variables: DRIVER (metaroce, rxe or siw), METAROCE_PORT (its UDP port),
# OUTDIR (where logs and captures go), LIB_PLAIN (set: no KTAP lines).
#
# After topo_pair: namespaces $A and $B, RDMA devices $DEV_A and $DEV_B,
# network interfaces eth0 in both, addresses $IP_A $IP_B $IP6_A $IP6_B.

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
DRIVER=${DRIVER:-metaroce}
METAROCE_PORT=${METAROCE_PORT:-4794}
case $DRIVER in
rxe) MODULE=rdma_rxe UDP_PORT=4791 ;;
siw) MODULE=siw UDP_PORT=0 ;;
*) MODULE=$DRIVER UDP_PORT=$METAROCE_PORT ;;
esac
export DRIVER MODULE UDP_PORT
[[ -n ${OUTDIR:-} ]] || OUTDIR=$(mktemp -d)
mkdir -p "$OUTDIR"
TMP=$(mktemp -d)
ID=$$

if [[ -r $HERE/ktap_helpers.sh ]]; then
	# The kernel's own helpers, put beside this file when the guest is packed.
	. "$HERE/ktap_helpers.sh"
else
	echo "1..0 # SKIP ktap_helpers.sh of the kernel source is missing"
	exit 4
fi
[[ -n ${LIB_PLAIN:-} ]] || ktap_print_header

# Short names for what tests build.
A=mr$ID-a B=mr$ID-b FABRIC1=mr$ID-f1 FABRIC2=mr$ID-f2
DEV_A=mr${ID}a DEV_B=mr${ID}b
IP_A=10.77.1.1 IP_B=10.77.1.2 IP6_A=fd77:1::1 IP6_B=fd77:1::2
# shellcheck disable=SC2034
PORT=18515
NETNS=() DEVICES=() SKIPPED_ALL=

say() { printf '# %s\n' "$*"; }
show() { sed 's/^/#   /' "$1"; }

# wait_for SECONDS COMMAND...: until it succeeds; false when time is over.
wait_for() {
	local limit=$((${EPOCHREALTIME/./} + $1 * 1000000))
	shift
	until "$@" >/dev/null 2>&1; do
		((${EPOCHREALTIME/./} < limit)) || return 1
		sleep 0.05
	done
}

on() { local ns=$1; shift; ip netns exec "$ns" "$@"; }
on_a() { on "$A" "$@"; }
on_b() { on "$B" "$@"; }

# check DESCRIPTION COMMAND...: one test case; output is shown on failure.
check() {
	local what=$1 log=$TMP/check.log rc=0
	shift
	"$@" >"$log" 2>&1 || rc=$?
	if ((rc == 0)); then
		ktap_test_pass "$what"
	elif ((rc == 4)); then
		show "$log"
		ktap_test_skip "$what"
	else
		say "failed with status $rc: $*"
		show "$log"
		ktap_test_fail "$what"
	fi
	cp "$log" "$OUTDIR/$(tr -c 'a-zA-Z0-9.\n' _ <<<"$what" | cut -c1-80).log" 2>/dev/null
	return 0
}

skip_all() {
	ktap_skip_all "$*"
	SKIPPED_ALL=1
	exit 4
}

# Ends the test: the plan comes last, when the number of cases is known.
finish() {
	cleanup
	check "nothing is left behind" nothing_left
	ktap_set_plan $((KTAP_TESTNO - 1))
	trap - EXIT
	rm -rf "$TMP"
	ktap_finished
}

need_driver() {
	modprobe "$MODULE" >"$TMP/modprobe.log" 2>&1 ||
		{ show "$TMP/modprobe.log"; skip_all "the module $MODULE cannot be loaded"; }
}

new_netns() {
	ip netns add "$1" || return 1
	NETNS+=("$1")
	on "$1" ip link set lo up
	on "$1" sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0
}

# add_device NETNS DEVICE NETDEV
add_device() {
	on "$1" rdma link add "$2" type "$DRIVER" netdev "$3" || return 1
	DEVICES+=("$2")
	wait_for 5 test -e "/sys/class/infiniband/$2/ports/1/gids/0"
}

del_device() { rdma link delete "$1"; }
device_there() { [[ -e /sys/class/infiniband/$1 ]]; }
device_gone() { [[ ! -e /sys/class/infiniband/$1 ]]; }

# topo_pair [MTU]: A and B joined by one veth, one RDMA device in each.
topo_pair() {
	local mtu=${1:-1500}
	new_netns "$A" && new_netns "$B" || return 1
	ip link add eth0 netns "$A" mtu "$mtu" type veth peer name eth0 netns "$B" mtu "$mtu" || return 1
	on_a ip addr add "$IP_A/24" dev eth0
	on_b ip addr add "$IP_B/24" dev eth0
	on_a ip addr add "$IP6_A/64" dev eth0 nodad
	on_b ip addr add "$IP6_B/64" dev eth0 nodad
	on_a ip link set eth0 up
	on_b ip link set eth0 up
	add_device "$A" "$DEV_A" eth0 && add_device "$B" "$DEV_B" eth0 || return 1
	wait_for 5 on_a ping -c 1 -W 1 "$IP_B"
}

# topo_routed [MTU]: A and B, each joined by a veth pair to the router $FABRIC1
# (interfaces ra and rb there). Adds no RDMA devices.
topo_routed() {
	local mtu=${1:-1500} ns
	IP_A=10.77.1.1 IP_B=10.77.2.1 IP6_A=fd77:1::1 IP6_B=fd77:2::1
	for ns in "$A" "$B" "$FABRIC1"; do new_netns "$ns" || return 1; done
	on "$FABRIC1" sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
	ip link add eth0 netns "$A" mtu "$mtu" type veth peer name ra netns "$FABRIC1" mtu "$mtu" || return 1
	ip link add eth0 netns "$B" mtu "$mtu" type veth peer name rb netns "$FABRIC1" mtu "$mtu" || return 1
	on_a ip addr add 10.77.1.1/24 dev eth0
	on_b ip addr add 10.77.2.1/24 dev eth0
	on_a ip addr add fd77:1::1/64 dev eth0 nodad
	on_b ip addr add fd77:2::1/64 dev eth0 nodad
	on "$FABRIC1" ip addr add 10.77.1.254/24 dev ra
	on "$FABRIC1" ip addr add 10.77.2.254/24 dev rb
	on "$FABRIC1" ip addr add fd77:1::fe/64 dev ra nodad
	on "$FABRIC1" ip addr add fd77:2::fe/64 dev rb nodad
	for ns in "$A" "$B"; do on "$ns" ip link set eth0 up; done
	on "$FABRIC1" ip link set ra up
	on "$FABRIC1" ip link set rb up
	on_a ip route add default via 10.77.1.254
	on_b ip route add default via 10.77.2.254
	on_a ip route add default via fd77:1::fe
	on_b ip route add default via fd77:2::fe
	wait_for 5 on_a ping -c 1 -W 1 "$IP_B"
}

# topo_fabric N [MTU]: hosts A and B, each at a switch; N links between the
# switches (p1..pN in $FABRIC1 and $FABRIC2), chosen by flow hash over the
# UDP ports. Impair one link's directions with
#   impair $FABRIC1 p1 ...  (A to B)   and   impair $FABRIC2 p1 ...  (B to A).
topo_fabric() {
	local n=$1 mtu=${2:-1500} i v4a=() v4b=() v6a=() v6b=() ns
	IP_A=10.77.1.1 IP_B=10.77.2.1 IP6_A=fd77:1::1 IP6_B=fd77:2::1
	for ns in "$A" "$B" "$FABRIC1" "$FABRIC2"; do new_netns "$ns" || return 1; done
	for ns in "$FABRIC1" "$FABRIC2"; do
		on "$ns" sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 \
			net.ipv4.fib_multipath_hash_policy=1 net.ipv6.fib_multipath_hash_policy=1
	done
	ip link add eth0 netns "$A" mtu "$mtu" type veth peer name h0 netns "$FABRIC1" mtu "$mtu" || return 1
	ip link add eth0 netns "$B" mtu "$mtu" type veth peer name h0 netns "$FABRIC2" mtu "$mtu" || return 1
	on_a ip addr add 10.77.1.1/24 dev eth0
	on_a ip addr add fd77:1::1/64 dev eth0 nodad
	on_b ip addr add 10.77.2.1/24 dev eth0
	on_b ip addr add fd77:2::1/64 dev eth0 nodad
	on "$FABRIC1" ip addr add 10.77.1.254/24 dev h0
	on "$FABRIC1" ip addr add fd77:1::fe/64 dev h0 nodad
	on "$FABRIC2" ip addr add 10.77.2.254/24 dev h0
	on "$FABRIC2" ip addr add fd77:2::fe/64 dev h0 nodad
	for ns in "$A" "$B"; do on "$ns" ip link set eth0 up; done
	for ns in "$FABRIC1" "$FABRIC2"; do on "$ns" ip link set h0 up; done
	on_a ip route add default via 10.77.1.254
	on_a ip route add default via fd77:1::fe
	on_b ip route add default via 10.77.2.254
	on_b ip route add default via fd77:2::fe
	for ((i = 1; i <= n; i++)); do
		ip link add "p$i" netns "$FABRIC1" mtu "$mtu" type veth peer name "p$i" netns "$FABRIC2" mtu "$mtu" || return 1
		on "$FABRIC1" ip addr add "10.78.$i.1/24" dev "p$i"
		on "$FABRIC2" ip addr add "10.78.$i.2/24" dev "p$i"
		on "$FABRIC1" ip addr add "fd78:$i::1/64" dev "p$i" nodad
		on "$FABRIC2" ip addr add "fd78:$i::2/64" dev "p$i" nodad
		on "$FABRIC1" ip link set "p$i" up
		on "$FABRIC2" ip link set "p$i" up
		v4a+=(nexthop via "10.78.$i.2" dev "p$i")
		v4b+=(nexthop via "10.78.$i.1" dev "p$i")
		v6a+=(nexthop via "fd78:$i::2" dev "p$i")
		v6b+=(nexthop via "fd78:$i::1" dev "p$i")
	done
	on "$FABRIC1" ip route add 10.77.2.0/24 "${v4a[@]}"
	on "$FABRIC2" ip route add 10.77.1.0/24 "${v4b[@]}"
	on "$FABRIC1" ip route add fd77:2::/64 "${v6a[@]}"
	on "$FABRIC2" ip route add fd77:1::/64 "${v6b[@]}"
	add_device "$A" "$DEV_A" eth0 && add_device "$B" "$DEV_B" eth0 || return 1
	wait_for 5 on_a ping -c 1 -W 1 "$IP_B"
}

# impair NETNS NETDEV NETEM-ARGUMENTS...
impair() {
	local ns=$1 dev=$2
	shift 2
	on "$ns" tc qdisc replace dev "$dev" root netem limit 100000 "$@"
}

# Packets that the queue of NETNS NETDEV dropped, and that it passed.
dropped() { on "$1" tc -s -j qdisc show dev "$2" | jq '[.[].drops] | add'; }
passed() { on "$1" tc -s -j qdisc show dev "$2" | jq '[.[].packets] | add'; }

# link_packets NETNS NETDEV: packets sent
link_packets() { on "$1" ip -s -j link show dev "$2" | jq '.[0].stats64.tx.packets'; }

# gid_of_address ADDRESS: its GID in the form of sysfs.
gid_of_address() {
	local head tail part words=() left right
	if [[ $1 != *:* ]]; then
		IFS=. read -r -a words <<<"$1"
		printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x\n' "${words[@]}"
		return
	fi
	head=${1%%::*} tail=""
	[[ $1 != *::* ]] || tail=${1#*::}
	IFS=: read -r -a left <<<"$head"
	IFS=: read -r -a right <<<"$tail"
	words=("${left[@]}")
	while ((${#words[@]} + ${#right[@]} < 8)); do words+=(0); done
	words+=("${right[@]}")
	part=$(printf ':%04x' "${words[@]/#/0x}")
	echo "${part#:}"
}

# gid_index DEVICE ADDRESS: the index of the GID that belongs to the address.
gid_index() {
	local dir=/sys/class/infiniband/$1/ports/1 want i
	want=$(gid_of_address "$2")
	for i in {0..63}; do
		[[ -e $dir/gids/$i ]] || break
		[[ $(<"$dir/gids/$i") == "$want" ]] || continue
		[[ $(cat "$dir/gid_attrs/types/$i" 2>/dev/null) == "RoCE v2" ]] || continue
		echo "$i"
		return 0
	done
	return 1
}
wait_gid() { gid_index "$1" "$2" || { wait_for 10 gid_index "$1" "$2" && gid_index "$1" "$2"; }; }

listens() { [[ -n $(on "$1" ss -Hltn "sport = :$2") ]]; }

# client_server COMMAND: runs the tool as server in A and as client in B.
# Variables SERVER_ARGS, CLIENT_ARGS (arrays) and TOOL_LIMIT (seconds).
SERVER_ARGS=() CLIENT_ARGS=() TOOL_LIMIT=60
client_server() {
	local server_ns=$1 client_ns=$2 address=$3 rc=0 server srv_rc=0
	shift 3
	PORT=$((PORT + 1))
	on "$server_ns" timeout -k 5 "$TOOL_LIMIT" "$@" -p "$PORT" "${SERVER_ARGS[@]}" >"$TMP/server.log" 2>&1 &
	server=$!
	if ! wait_for 20 listens "$server_ns" "$PORT"; then
		echo "the server does not listen"
		kill "$server" 2>/dev/null
		wait "$server"
		cat "$TMP/server.log"
		return 1
	fi
	on "$client_ns" timeout -k 5 "$TOOL_LIMIT" "$@" -p "$PORT" "${CLIENT_ARGS[@]}" "$address" 2>&1 || rc=$?
	if ((rc != 0)); then
		kill "$server" 2>/dev/null
		wait "$server"
		echo "client ended with status $rc; the server said:"
		cat "$TMP/server.log"
		return 1
	fi
	wait "$server" || srv_rc=$?
	if ((srv_rc != 0)); then
		echo "server ended with status $srv_rc"
		cat "$TMP/server.log"
		return 1
	fi
}

# pingpong ADDRESS-OF-A ADDRESS-OF-B ARGS...: ibv_rc_pingpong with data check.
# The tool exchanges its parameters by TCP over IPv4 in any case.
pingpong() {
	local ga gb
	ga=$(wait_gid "$DEV_A" "$1") || { echo "no GID for $1 on $DEV_A"; return 1; }
	gb=$(wait_gid "$DEV_B" "$2") || { echo "no GID for $2 on $DEV_B"; return 1; }
	shift 2
	SERVER_ARGS=(-d "$DEV_A" -g "$ga") CLIENT_ARGS=(-d "$DEV_B" -g "$gb")
	client_server "$A" "$B" "$IP_A" ibv_rc_pingpong -c "$@"
}

# perftest TOOL ARGS...: over IPv4 from B (client) to A.
perftest() {
	local tool=$1 ga gb
	shift
	ga=$(wait_gid "$DEV_A" "$IP_A") || { echo "no GID for $IP_A"; return 1; }
	gb=$(wait_gid "$DEV_B" "$IP_B") || { echo "no GID for $IP_B"; return 1; }
	SERVER_ARGS=(-d "$DEV_A" -x "$ga") CLIENT_ARGS=(-d "$DEV_B" -x "$gb")
	client_server "$A" "$B" "$IP_A" "$tool" -F "$@"
}

# python_pair SCRIPT ARGS...: a pyverbs program with one process in A and one
# in B. Its lines "PASS what", "FAIL what: why", "SKIP what" become cases.
python_pair() { pair_begin "$@" && pair_end "$1"; }

# pair_begin SCRIPT ARGS...: the same, in the background until pair_end SCRIPT.
declare -A PAIR_A=() PAIR_B=()
pair_begin() {
	local ga gb script=$1 sock=$TMP/$1.sock
	shift
	ga=$(wait_gid "$DEV_A" "$IP_A") && gb=$(wait_gid "$DEV_B" "$IP_B") ||
		{ ktap_test_fail "$script: GIDs for $IP_A and $IP_B"; return 1; }
	rm -f "$sock"
	on_b timeout -k 5 "$TOOL_LIMIT" python3 "$HERE/$script" --side b --socket "$sock" \
		--device "$DEV_B" --gid "$gb" "$@" >"$OUTDIR/$script.b.log" 2>&1 &
	PAIR_B[$script]=$!
	on_a timeout -k 5 "$TOOL_LIMIT" python3 "$HERE/$script" --side a --socket "$sock" \
		--device "$DEV_A" --gid "$ga" "$@" >"$OUTDIR/$script.a.log" 2>&1 &
	PAIR_A[$script]=$!
}
pair_end() {
	local script=$1 rc_a=0 rc_b=0 word rest
	wait "${PAIR_A[$script]}" || rc_a=$?
	wait "${PAIR_B[$script]}" || rc_b=$?
	while read -r word rest; do
		case $word in
		PASS) ktap_test_pass "$rest" ;;
		FAIL) ktap_test_fail "$rest" ;;
		SKIP) ktap_test_skip "$rest" ;;
		*) printf '#   %s %s\n' "$word" "$rest" ;;
		esac
	done <"$OUTDIR/$script.a.log"
	if ((rc_a != 0 || rc_b != 0)); then
		say "side a ended with status $rc_a, side b with $rc_b; b said:"
		tail -n 20 "$OUTDIR/$script.b.log" | sed 's/^/#   /'
		ktap_test_fail "$script runs to its end"
	fi
}

# Verified traffic between A and B in the background, until steady_end.
# steady_begin ARGS of steady.py...
steady_begin() {
	rm -f "$TMP/steady.stop" "$TMP/steady.ready"
	pair_begin steady.py --stop "$TMP/steady.stop" --ready "$TMP/steady.ready" "$@" || return 1
	wait_for 60 test -e "$TMP/steady.ready" || { tail -n 5 "$OUTDIR"/steady.py.?.log; return 1; }
}
steady_end() {
	touch "$TMP/steady.stop"
	pair_end steady.py
}

# Kernel memory in KiB that cannot be reclaimed.
kernel_memory() {
	echo 3 >/proc/sys/vm/drop_caches
	awk '/^(SUnreclaim|VmallocUsed|Percpu|KernelStack|PageTables):/ { sum += $2 } END { print sum }' /proc/meminfo
}

ns_pids_gone() { [[ -z $(ip netns pids "$1" 2>/dev/null) ]]; }

cleanup() {
	local ns dev job
	for job in $(jobs -p); do kill "$job" 2>/dev/null; done
	for ns in "${NETNS[@]}"; do
		for job in $(ip netns pids "$ns" 2>/dev/null); do kill -TERM "$job" 2>/dev/null; done
	done
	for ns in "${NETNS[@]}"; do
		wait_for 3 ns_pids_gone "$ns" ||
			for job in $(ip netns pids "$ns" 2>/dev/null); do kill -KILL "$job" 2>/dev/null; done
	done
	for dev in "${DEVICES[@]}"; do
		device_there "$dev" && rdma link delete "$dev" >/dev/null 2>&1
	done
	for ns in "${NETNS[@]}"; do ip netns del "$ns" 2>/dev/null; done
	DEVICES=() NETNS=()
	wait 2>/dev/null
	return 0
}

module_unloads() { [[ ! -e /sys/module/$MODULE ]] || modprobe -r "$MODULE"; }

# No device, no namespace, and the module can go.
nothing_left() {
	local left
	left=$(rdma link show 2>/dev/null | grep -c "mr$ID")
	((left == 0)) || { rdma link show; return 1; }
	left=$(ip netns list | grep -c "mr$ID")
	((left == 0)) || { ip netns list; return 1; }
	wait_for 15 module_unloads || { echo "the module $MODULE stays in use"; modprobe -r "$MODULE"; return 1; }
}

on_exit() {
	local rc=$?
	cleanup
	rm -rf "$TMP"
	[[ -n $SKIPPED_ALL || -n ${LIB_PLAIN:-} ]] || echo "# the test ended early with status $rc"
	exit "$rc"
}
trap on_exit EXIT
trap 'exit 143' TERM INT HUP
