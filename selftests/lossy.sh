#!/bin/bash
# timeout: 1800
# 10,000 pingpong iterations while the network loses 5 % of the packets,
# reorders 25 % and delays by 1 ms, each way.
. "$(dirname "$0")/lib.sh"
need_driver
topo_pair 1500 || { say "the topology could not be made"; exit 1; }
TOOL_LIMIT=1500
# Drivers that go back to the last packet in order need minutes for a few.
[[ $DRIVER == metaroce ]] && ITERATIONS=10000 || ITERATIONS=200

for side in "$A" "$B"; do impair "$side" eth0 delay 1ms reorder 25% loss 5%; done
really_lossy() {
	local drops_a drops_b
	drops_a=$(dropped "$A" eth0) drops_b=$(dropped "$B" eth0)
	echo "netem dropped $drops_a and $drops_b packets, passed $(passed "$A" eth0) and $(passed "$B" eth0)"
	((drops_a > ITERATIONS / 50 && drops_b > ITERATIONS / 50))
}
check "$ITERATIONS iterations of 4097 bytes, data checked" \
	pingpong "$IP_A" "$IP_B" -s 4097 -n "$ITERATIONS"
check "netem really dropped packets" really_lossy
for side in "$A" "$B"; do impair "$side" eth0 delay 1ms 0.2ms loss 1% duplicate 1%; done
check "duplicates: 500 iterations of 33 bytes" pingpong "$IP_A" "$IP_B" -s 33 -n 500
check "ib_write_bw over loss" perftest ib_write_bw -s 65536 -n 200
check "ib_read_bw over loss" perftest ib_read_bw -s 65536 -n 200
finish
