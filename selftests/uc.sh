#!/bin/bash
# timeout: 400
# UC queue pairs, over a network that loses and reorders.
. "$(dirname "$0")/lib.sh"
need_driver
topo_pair 1500 || { say "the topology could not be made"; exit 1; }
TOOL_LIMIT=120
uc_pingpong() {
	local ga gb
	ga=$(wait_gid "$DEV_A" "$IP_A") && gb=$(wait_gid "$DEV_B" "$IP_B") || return 1
	SERVER_ARGS=(-d "$DEV_A" -g "$ga") CLIENT_ARGS=(-d "$DEV_B" -g "$gb")
	client_server "$A" "$B" "$IP_A" ibv_uc_pingpong -c -n 500
}
check "ib_write_bw, both ways" perftest ib_write_bw -c UC -b -s 65536 -n 200
check "ib_send_lat" perftest ib_send_lat -c UC -s 2 -n 500
check "ib_write_lat" perftest ib_write_lat -c UC -s 4096 -n 200
check "ibv_uc_pingpong" uc_pingpong
for side in "$A" "$B"; do impair "$side" eth0 delay 1ms 1ms loss 2%; done
python_pair uc.py
finish
