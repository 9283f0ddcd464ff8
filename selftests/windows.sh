#!/bin/bash
# timeout: 400
# Memory windows: what they grant, to whom, and how long; bad binds and keys.
. "$(dirname "$0")/lib.sh"
need_driver
topo_pair 1500 || { say "the topology could not be made"; exit 1; }
TOOL_LIMIT=300
python_pair windows.py
finish
