#!/bin/bash
# timeout: 120
# The way from A to B silently swallows packets above 1280 bytes (a path-MTU
# black hole); the way back tells the sender of them.
. "$(dirname "$0")/lib.sh"
need_driver
topo_routed 1500 && add_device "$A" "$DEV_A" eth0 && add_device "$B" "$DEV_B" eth0 ||
	{ say "the topology could not be made"; exit 1; }

# A veth device does not forward a packet that exceeds its peer's MTU by more
# than a VLAN tag, unless it is a burst still to be cut apart.
on_a ethtool -K eth0 gso off tso off tx-udp-segmentation off >/dev/null
on_b ethtool -K eth0 gso off tso off tx-udp-segmentation off >/dev/null
swallows() {
	on "$FABRIC1" ip link set ra mtu 1280
	on_a ping -c 1 -W 5 -M "do" -s 1252 "$IP_B" &&
		! on_a ping -c 1 -W 1 -M "do" -s 1257 "$IP_B"
}
noticed() { dmesg | grep -q 'path [0-9]* to .*: 1[0-9]* bytes per packet get through'; }
check "pingpong while all packets pass" pingpong "$IP_A" "$IP_B" -s 20000 -n 100
check "packets above 1280 bytes are swallowed" swallows
check "pingpong" pingpong "$IP_A" "$IP_B" -s 20000 -n 100
check "pingpong, IPv6" pingpong "$IP6_A" "$IP6_B" -s 20000 -n 100
check "READ of memory behind it" perftest ib_read_bw -s 65536 -n 100
check "the log tells" noticed
finish
