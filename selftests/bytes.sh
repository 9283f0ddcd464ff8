#!/bin/bash
# timeout: 300
# Exact sizes by SEND, WRITE, WRITE with immediate and READ, bytes compared.
. "$(dirname "$0")/lib.sh"
need_driver
topo_pair 1500 || { say "the topology could not be made"; exit 1; }
TOOL_LIMIT=200
python_pair bytes.py
finish
