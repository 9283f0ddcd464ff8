#!/bin/bash
# timeout: 180
# Unreliable datagrams: data, GRH, immediate, Q_Key, errors; over IPv4 and IPv6.
. "$(dirname "$0")/lib.sh"

need_driver
check "two namespaces joined by a veth pair" topo_pair 1500
export VIA=" over IPv4"
python_pair ud.py
V4_A=$IP_A V4_B=$IP_B
IP_A=$IP6_A IP_B=$IP6_B
export VIA=" over IPv6"
python_pair ud.py
IP_A=$V4_A IP_B=$V4_B

ud_pingpong() {
	local ga gb
	ga=$(wait_gid "$DEV_A" "$1") && gb=$(wait_gid "$DEV_B" "$2") || return 1
	SERVER_ARGS=(-d "$DEV_A" -g "$ga") CLIENT_ARGS=(-d "$DEV_B" -g "$gb")
	client_server "$A" "$B" "$IP_A" ibv_ud_pingpong -c -n 500 -s 1024
}
check "ibv_ud_pingpong over IPv4" ud_pingpong "$IP_A" "$IP_B"
check "ibv_ud_pingpong over IPv6" ud_pingpong "$IP6_A" "$IP6_B"
check "ib_send_bw over UD" perftest ib_send_bw -c UD -s 1024 -n 1000
check "ib_send_lat over UD" perftest ib_send_lat -c UD -s 64 -n 500
finish
