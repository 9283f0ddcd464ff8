#!/bin/bash
# timeout: 400
# FLUSH and ATOMIC WRITE, over a network that loses and reorders.
. "$(dirname "$0")/lib.sh"
need_driver
topo_pair 1500 || { say "the topology could not be made"; exit 1; }
TOOL_LIMIT=300
for side in "$A" "$B"; do impair "$side" eth0 delay 1ms 1ms loss 2%; done
python_pair flush.py
finish
