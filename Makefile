# What there is to do with this repository: `make help`.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup run test vm-test bench oracle lint clean

export PATH := $(HOME)/.cargo/bin:$(PATH)
target := $(or $(CARGO_TARGET_DIR),target)
sidewinder := $(abspath $(target))/release/sidewinder
compiled := $(abspath $(target))/e2e
as_root := $(if $(filter 0,$(shell id -u)),,sudo)

# Seconds that `make run` profiles for.
SECONDS_TO_PROFILE ?= 10

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: ## Install what is missing, on Debian and Ubuntu
	@e2e/setup.sh --tests

run: ## Profile a C++ program without frame pointers; the flame graph goes to ./profile.html
	@e2e/setup.sh
	cargo build --release -p sidewinder
	@mkdir -p $(compiled)
	c++ -O2 -fomit-frame-pointer e2e/workloads/words.cc -o $(compiled)/words
	$(as_root) $(sidewinder) record -F 997 --table -o profile.html -- $(compiled)/words $(SECONDS_TO_PROFILE)
	@echo "The flame graph is in ./profile.html: one file, opens in any browser without a network."

test: ## Run every test; those that need eBPF want root
	@e2e/setup.sh --tests
	cargo build --release -p sidewinder
	cargo test --workspace --exclude sidewinder-e2e
	@rm -f $(compiled)/skipped.txt
	@# One test at a time: they measure rates and times.
	SIDEWINDER=$(sidewinder) cargo test -p sidewinder-e2e -- --test-threads=1
	@if [ -s $(compiled)/skipped.txt ]; then echo; echo "Not run here:"; cat $(compiled)/skipped.txt; fi

vm-test: ## Boot Debian's kernels in qemu and profile there; VERIFIER=accept takes new instruction counts as the baseline
	@e2e/setup.sh --vm
	cargo build --release -p sidewinder
	SIDEWINDER=$(sidewinder) VERIFIER=$(VERIFIER) cargo run -p sidewinder-e2e --bin vm-test

bench: ## Measure Sidewinder beside its peers; wants root and a quiet machine
	@e2e/setup.sh --tests
	cargo build --release -p sidewinder
	cargo bench -p sidewinder-bpf --bench tables
	SIDEWINDER=$(sidewinder) cargo bench -p sidewinder-e2e --bench side_by_side

# Where `make oracle` looks for ELF files.
SEARCHED ?= /

oracle: ## Compare the unwind rows of every ELF file of this machine with gimli's, and measure the tables
	cargo build --release -p sidewinder-unwind-oracle --features machine
	$(abspath $(target))/release/oracle $(SEARCHED)

lint: ## Check form and lints
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings

clean: ## Remove what was built, the Collector included
	cargo clean
	rm -rf e2e/.cache profile.html
