#!/bin/bash
# timeout: 300
# Completion statuses of what must fail, and the order of flushes.
. "$(dirname "$0")/lib.sh"
need_driver
topo_pair 1500 || { say "the topology could not be made"; exit 1; }
TOOL_LIMIT=240
python_pair errors.py
finish
