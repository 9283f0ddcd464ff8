# SPDX-License-Identifier: GPL-2.0
# Thin front of the scripts under qemu/: 'make help' lists what there is.
# (The kernel's build system reads Kbuild, not this file.)

.DEFAULT_GOAL := help
TESTS := $(filter-out lib run,$(basename $(notdir $(wildcard selftests/*.sh))))
MAKEFLAGS += --no-print-directory
.PHONY: help demo test setup modules provider install selftest selftests pyverbs perftest engine-test fuzz netfuzz userfuzz sim bench lossbench lint shell clean distclean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 14
	@echo 'Selftests: $(TESTS)'
	@echo 'Variables: DRIVER=metaroce|rxe, KDIR=prepared kernel tree of your own, METAROCE_CACHE=DIR,'
	@echo '           METAROCE_BUILD=DIR (build results), METAROCE_OUT=DIR (test results),'
	@echo '           METAROCE_MIRROR=URL, DESTDIR=DIR, RUN_ARGS="options of qemu/run.py"'

demo: ## prepares everything, boots a guest and shows the device at work
	@qemu/demo-host.sh

test: ## engine tests, builds, and all selftests in a guest
	@qemu/test.sh

setup: ## chroot, kernel source, rdma-core source and guest image, in the cache
	@qemu/setup.sh

modules: ## the kernel module (KDIR=... builds natively against your tree)
	@qemu/build.sh module

provider: ## the provider for libibverbs
	@qemu/build.sh provider

install: ## module and provider on this machine (DESTDIR supported)
	@qemu/install.sh

selftest: ## one selftest in a guest: make selftest T=pingpong [DRIVER=rxe]
	@test -n "$(T)" || { echo "error: Name the test: make selftest T=pingpong" >&2; exit 1; }
	@for t in $(T); do test -f selftests/$$t.sh || { \
		echo "error: There is no selftest '$$t'; there are: $(TESTS)." >&2; exit 1; }; done
	@qemu/run.sh $(RUN_ARGS) $(T)

selftests: ## all selftests in a guest
	@selftests/run.sh $(RUN_ARGS)

pyverbs: ## rdma-core's own tests over metaroce and rxe, with a table [LOSS=per cent]
	@qemu/pyverbs.sh

perftest: ## all of perftest's tools, many options, in a guest
	@qemu/run.sh $(RUN_ARGS) long/perftest_all

engine-test: ## the transport engine's tests, with cargo
	@qemu/engine-test.sh

fuzz: ## fuzzes the transport engine: make fuzz [MINUTES=3]
	@qemu/fuzz.sh $(or $(MINUTES),3)

netfuzz: ## a million hostile datagrams at a guest under traffic: make netfuzz [MINUTES=3]
	@qemu/netfuzz.sh $(or $(MINUTES),3)

userfuzz: ## hostile processes beside a transfer in a guest: make userfuzz [MINUTES=3]
	@qemu/userfuzz.sh $(or $(MINUTES),3)

sim: ## network simulations: tables, and plots under out/sim
	@qemu/cargo.sh run --release -p metaroce-sim -- all --out out/sim

bench: ## speed beside rxe, siw and TCP (QUICK=1, BASE=old bench.json)
	@qemu/bench.sh

lossbench: ## lossy and multipath networks in virtual time, with peers (QUICK=1: a few cases; STOCK=1: short, on the stock kernel)
	@qemu/lossbench.sh $(LOSSBENCH_ARGS)

lint: ## shell, C and Rust checks
	@qemu/lint.sh

shell: ## a shell in a guest with module and provider installed
	@qemu/run.sh --shell --timeout 86400

clean: ## removes build results
	@qemu/clean.sh build

distclean: ## removes the whole cache directory
	@qemu/clean.sh all
