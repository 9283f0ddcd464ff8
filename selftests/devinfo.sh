#!/bin/bash
# A device's attributes: GUIDs, port state by carrier, MTU, GIDs.
. "$(dirname "$0")/lib.sh"
need_driver
topo_pair 1500 || { say "the topology could not be made"; exit 1; }

attr() { cat "/sys/class/infiniband/$1/$2"; }
state_is() { [[ $(attr "$DEV_A" ports/1/state) == *"$1"* ]]; }
guid_not_zero() { [[ $(attr "$DEV_A" "$1") =~ [1-9a-f] ]]; }
guids_differ() { [[ $(attr "$DEV_A" "$1") != "$(attr "$DEV_B" "$1")" ]]; }
devinfo_says() { on_a ibv_devinfo -d "$DEV_A" -v >"$TMP/info"; cat "$TMP/info"; grep -qE "$1" "$TMP/info"; }
gids_there() { wait_gid "$DEV_A" "$IP_A" && wait_gid "$DEV_A" "$IP6_A"; }
active_mtu() { on_a ibv_devinfo -d "$DEV_A" | awk '/active_mtu/ {print $2}'; }
mtu_becomes() { [[ $(active_mtu) == "$1" ]]; }
change_mtu() {
	on_b ip link set eth0 mtu "$1" && on_a ip link set eth0 mtu "$1" || return 1
	wait_for 5 mtu_becomes "$2" || { echo "active_mtu is $(active_mtu), not $2"; return 1; }
}
carrier() {
	on_b ip link set eth0 "$1"
	wait_for 5 state_is "$2" || { attr "$DEV_A" ports/1/state; return 1; }
}
rename() {
	rdma dev set "$DEV_A" name "x$DEV_A" || return 1
	device_there "x$DEV_A" || return 1
	rdma dev set "x$DEV_A" name "$DEV_A"
}

check "node_guid is not zero" guid_not_zero node_guid
check "sys_image_guid is not zero" guid_not_zero sys_image_guid
check "node_guid differs between devices" guids_differ node_guid
check "ibv_devinfo lists the device as Ethernet" devinfo_says 'link_layer:.*Ethernet'
check "port is active" state_is ACTIVE
check "GIDs for the IPv4 and the IPv6 address" gids_there
check "active_mtu is 1024 at MTU 1500" mtu_becomes 1024
check "MTU 9000 gives active_mtu 4096" change_mtu 9000 4096
check "back to MTU 1500 gives active_mtu 1024" change_mtu 1500 1024
check "port goes down with the carrier" carrier down DOWN
check "port comes back with the carrier" carrier up ACTIVE
check "a device can be renamed" rename
finish
