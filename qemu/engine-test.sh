#!/bin/bash
# Runs the engine's tests.
exec "$(dirname "${BASH_SOURCE[0]}")/cargo.sh" test --workspace --no-fail-fast "$@"
