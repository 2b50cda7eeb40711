# What there is to do with this repository: `make help`.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: packages packages-test summary forget form release built-tests built-benches built-examples workspace-tests end-to-end-tests measured-tests record-tests other-end-to-end-tests other-measured-tests list-commit-tests list-other-tests bombs compilers-test help setup run span-picture picture architecture-picture unit test test-all charts vm-test build-arm64 bench conservation corpus stacks oracle names-oracle fuzz lint deny image-tools image image-test image-twice clean faults collectors pods libraries-test python-test java-test node-test cluster-test kyverno-test backends-test fresh-test release-check workflows generated

export PATH := $(HOME)/.cargo/bin:$(PATH)
target := $(or $(CARGO_TARGET_DIR),target)
# Where cargo puts the release, and what it builds for tests.
built := $(abspath $(target))/release
sidewinder := $(built)/sidewinder
compiled := $(abspath $(target))/e2e
# Kept between runs, as the tests have it.
cache := $(abspath $(or $(SIDEWINDER_CACHE),e2e/.cache))
as_root := $(if $(filter 0,$(shell id -u)),,sudo)

# Cargo chooses the features of dependencies for all packages that are named: naming the whole workspace each time, the release and the
# tests are made of the same dependencies, which are built once (see `[profile.bench]`).
build_release := cargo build --release --workspace --bin sidewinder
for_tests := --profile bench --workspace

# Seconds that `make run` profiles for.
SECONDS_TO_PROFILE ?= 10

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 13

setup: ## Install what is missing, on Debian and Ubuntu
	@e2e/setup.sh --tests

run: ## Profile a C++ program without frame pointers; look at it live on localhost:7878, and afterwards in ./profile.html
	@e2e/setup.sh
	$(build_release)
	@mkdir -p $(compiled)
	c++ -O2 -fomit-frame-pointer e2e/workloads/words.cc -o $(compiled)/words
	$(as_root) $(sidewinder) record -F 997 --table --ui -o profile.html -- $(compiled)/words $(SECONDS_TO_PROFILE)
	@echo "The flame graph is in ./profile.html: one file, opens in any browser without a network."

picture: ## Regenerate the picture in the README, of what `make run` profiles
	@e2e/setup.sh --tests
	$(build_release)
	@mkdir -p $(compiled)
	c++ -O2 -fomit-frame-pointer -g e2e/workloads/words.cc -o $(compiled)/words
	$(as_root) $(sidewinder) record -F 997 -o $(compiled)/picture.html -- $(compiled)/words $(SECONDS_TO_PROFILE)
	node e2e/page/picture.mjs $(compiled)/picture.html receiver/page/picture.png

span-picture: ## Record one span of the example service while it runs; the flame graph goes to otlp/span.svg
	@e2e/setup.sh
	$(build_release)
	$(as_root) e2e/span-picture $(sidewinder) otlp/span.svg

architecture-picture: ## Draw docs/architecture.svg from docs/architecture.dot; wants graphviz
	dot -Tsvg docs/architecture.dot | sed -e '/^<!-- Generated/,/-->$$/d' > docs/architecture.svg

unit: ## Run the fast tests: no end-to-end tests, no root (eBPF is then skipped)
	@e2e/setup.sh
	cargo test $(for_tests) --exclude 'sidewinder-e2e*'

# What `make test` makes, and what `make test-all` and `.ci/run` make after it. The attribute of an end-to-end test says to which of
# them it belongs (e2e/promise).
commit_tests := forget form release built-tests built-benches workflows workspace-tests end-to-end-tests measured-tests
other_tests := fuzz other-end-to-end-tests other-measured-tests record-tests

test: ## Check form and lints, and run unit and property tests and an end-to-end test for each promise of the README; eBPF wants root
	@e2e/setup.sh --tests
	@$(MAKE) --no-print-directory --jobs=1 $(commit_tests) summary

test-all: ## The same, then all other end-to-end tests, those for both forms by `record` too, the fuzz targets, and two compilers for eBPF
	@e2e/setup.sh --tests
	@e2e/setup.sh --compilers
	@$(MAKE) --no-print-directory --jobs=1 $(commit_tests) compilers-test $(other_tests) summary

# For `.ci/run`, which names and times each.
list-commit-tests: ; @echo $(commit_tests)
list-other-tests: ; @echo $(other_tests) summary

# Tests that could not run here, and those that passed only when nothing ran beside them.
skipped := $(compiled)/skipped.txt
again := $(compiled)/again.txt

forget:
	@rm -f $(skipped) $(again)

summary:
	@if [ -s $(skipped) ]; then echo; echo "Not run here:"; cat $(skipped); fi
	@if [ -s $(again) ]; then echo; echo "Passed only when run again, alone:"; cat $(again); fi

release:
	$(build_release)

# Lints are found where the tests are built, by the compiler that `make lint` runs, too. Those of fuzz targets are found by `fuzz`.
compiled_with_lints := built-tests built-benches workspace-tests end-to-end-tests measured-tests other-end-to-end-tests \
	other-measured-tests record-tests compilers-test
$(compiled_with_lints): export RUSTC_WORKSPACE_WRAPPER := $(abspath .ci/lint-compiler)

# As the tests build them when they are missing.
built-examples:
	for folder in service examples/custom_labels; do \
		(cd e2e/$$folder && CARGO_TARGET_DIR=$(cache)/examples/$$folder cargo build --release --locked) || exit 1; \
	done

built-tests:
	cargo test $(for_tests) --no-run

# Every feature but `static`, which compiles the C libraries that a distribution has, and those of the fuzz targets.
all_features := --features sidewinder-unwind-oracle/machine

# What the tests leave out: with them and the fuzz targets, all that `lint` looks at.
built-benches:
	cargo build $(for_tests) --benches $(all_features)

workspace-tests:
	cargo test $(for_tests) --exclude sidewinder-e2e

# End-to-end tests that run at a time: as many as keep two CPUs busy.
END_TO_END_THREADS ?= 4

# $(call end_to_end,PROGRAM,TESTS_AT_A_TIME,ARGUMENTS OF THE HARNESS)
end_to_end = mkdir -p $(compiled) && \
	SIDEWINDER=$(sidewinder) CARGO_TEST="cargo test $(for_tests)" .ci/end-to-end $(1) $(2) $(again) $(3)

end-to-end-tests:
	$(call end_to_end,end_to_end,$(END_TO_END_THREADS))

# One at a time, with nothing beside them: they measure rates, shares, memory and times.
measured-tests:
	$(call end_to_end,measured,1)

other-end-to-end-tests:
	$(call end_to_end,end_to_end,$(END_TO_END_THREADS),--ignored)

other-measured-tests:
	$(call end_to_end,measured,1,--ignored)

# Tests that are written for both forms of what ships; and those that are not, of the same files or with such a name.
both_forms := change:: completeness:: ends:: guesses:: hybrid:: java:: locks:: names:: node:: off_cpu:: python:: stacks::perf_ two_runtimes:: wall::
one_form := backends:: java::users:: names::foreign:: names::interface::a_user_ names::interface::what_ names::lines_and_ names::traps:: \
	python::forms:: python::users::a_user_
both_forms_measured := corpus:: young_processes::
# The longer runs of some of them take one form after the other.
in_both_forms = for form in service record; do SIDEWINDER_FORM=$$form $(1) || exit 1; done

record-tests: export SIDEWINDER_FORM := record
record-tests:
	$(call end_to_end,end_to_end,$(END_TO_END_THREADS),--include-ignored $(both_forms) $(one_form:%=--skip=%))
	$(call end_to_end,measured,1,--include-ignored $(both_forms_measured))

charts: ## Test the Helm charts and the kustomize component
	@e2e/setup.sh --charts
	$(build_release)
	SIDEWINDER=$(sidewinder) cargo test $(for_tests) --test end_to_end charts:: -- --include-ignored

# The tests that compare these files write them. What is generated from a generated file comes after it.
generated: export GENERATED := accept
generated: ## Regenerate the files that are generated and committed; .gitattributes lists them
	@e2e/setup.sh --tests
	cargo test $(for_tests) --test generated
	cargo test $(for_tests) --exclude sidewinder-e2e metrics_are_documented
	cargo test $(for_tests) --test end_to_end charts::made::schemas_ -- --include-ignored
	cargo test $(for_tests) --test end_to_end charts::made:: -- --include-ignored
	npm --prefix receiver/page run build

faults: ## What happens to events when receivers fail, at full length: a Collector that is stopped for a minute
	@e2e/setup.sh --tests
	$(build_release)
	SIDEWINDER=$(sidewinder) SIDEWINDER_WHOLE_FAULTS=1 cargo test $(for_tests) --test end_to_end delivery:: -- \
		--include-ignored --test-threads=1 --nocapture

collectors: ## The delivery and conformance tests with each Collector that they know: 0.159, 0.161 and 0.165
	@e2e/setup.sh --tests
	$(build_release)
	for version in 0.159.0 0.161.0 0.165.0; do \
		SIDEWINDER=$(sidewinder) SIDEWINDER_COLLECTOR=$$version cargo test $(for_tests) --test end_to_end delivery:: -- \
			--include-ignored --test-threads=1 && \
		SIDEWINDER=$(sidewinder) SIDEWINDER_COLLECTOR=$$version cargo test $(for_tests) --test measured conservation:: -- \
			--include-ignored --test-threads=1 || exit 1; \
	done

pods: ## The sidecar in pods, until a million events beside a neighbour have come and none of them was the neighbour's
	@e2e/setup.sh --tests
	$(build_release)
	SIDEWINDER=$(sidewinder) SIDEWINDER_WHOLE_PODS=1 cargo test $(for_tests) --test measured neighbours:: -- \
		--include-ignored --test-threads=1 --nocapture

bombs: ## All hostile files and mappings at once beside a sidecar, for ten minutes
	@e2e/setup.sh --tests
	$(build_release)
	SIDEWINDER=$(sidewinder) SIDEWINDER_WHOLE_BOMBS=1 cargo test $(for_tests) --test measured bombs::all_ -- \
		--include-ignored --test-threads=1 --nocapture

cluster-test: ## Try the charts, the injector and a Collector's k8s_attributes on an API server of Kubernetes
	@e2e/setup.sh --cluster
	$(build_release)
	SIDEWINDER=$(sidewinder) SIDEWINDER_CLUSTER=1 CI=true \
		cargo test $(for_tests) --test end_to_end cluster:: -- --include-ignored --test-threads=1

kyverno-test: ## Have Kyverno's engine apply our policy to pods; builds its command line once
	@e2e/setup.sh --kyverno
	SIDEWINDER_KYVERNO=1 CI=true cargo test $(for_tests) --test end_to_end charts::kyverno:: -- --include-ignored --test-threads=1

# Servers of Parca and Pyroscope, which are released as programs: neither is available from a module proxy.
PARCA ?=
PYROSCOPE ?=

backends-test: ## Query back from PARCA=program and PYROSCOPE=program what was sent to them, directly and through Collectors
	@[ -n "$(PARCA)$(PYROSCOPE)" ] || { echo "name a server's program: make backends-test PARCA=... PYROSCOPE=..." >&2; exit 2; }
	@e2e/setup.sh --tests
	$(build_release)
	SIDEWINDER=$(sidewinder) $(if $(PARCA),SIDEWINDER_PARCA=$(abspath $(PARCA))) \
		$(if $(PYROSCOPE),SIDEWINDER_PYROSCOPE=$(abspath $(PYROSCOPE))) \
		cargo test $(for_tests) --test end_to_end backends:: -- --include-ignored --test-threads=1 --nocapture

libraries-test: ## Which span a thread is in, with glibc 2.31 to 2.41 of Debian's suites and with musl
	@e2e/setup.sh --tests
	$(build_release)
	SIDEWINDER=$(sidewinder) SIDEWINDER_LIBRARIES=1 CI=true \
		cargo test $(for_tests) --test end_to_end trace::libraries:: -- --include-ignored --test-threads=1 --nocapture

python-test: ## Frames of every CPython that is installed, 3.8 to 3.14, a million of each, beside those of py-spy and pystack
	@e2e/setup.sh --tests
	$(build_release)
	$(call in_both_forms,SIDEWINDER=$(sidewinder) SIDEWINDER_PYTHON=1 \
		cargo test $(for_tests) --test end_to_end python:: -- --include-ignored --test-threads=1 --nocapture)

node-test: ## Functions of Node.js 18 to 26, which are fetched from npm, beside V8's own map of their names
	@e2e/setup.sh --tests
	$(build_release)
	$(call in_both_forms,SIDEWINDER=$(sidewinder) SIDEWINDER_NODE=$(or $(SIDEWINDER_NODE),all) \
		cargo test $(for_tests) --test end_to_end node:: -- --include-ignored --test-threads=1 --nocapture)

java-test: ## Stacks of Java 8, 11, 17, 21, 25 and 26, with each compiler, the interpreter and ZGC; fetches those that are not installed
	@e2e/setup.sh --tests
	$(build_release)
	$(call in_both_forms,SIDEWINDER=$(sidewinder) SIDEWINDER_JAVA=1 \
		cargo test $(for_tests) --test end_to_end java:: -- --include-ignored --test-threads=1 --nocapture)

fresh-test: ## `make run` from a clean clone in a Debian of its own (debootstrap), as a new user would; SUITE names another one
	$(as_root) e2e/fresh-run $(SUITE)

build-arm64: ## Build Sidewinder for arm64, to be tried: target/arm64/sidewinder, smaller and slower than the image's
	@e2e/setup.sh --arm64
	$(as_root) .ci/build-arm64

# ARCH=arm64 is emulated, too, and takes what `make build-arm64` builds.
vm-test: profiled-by = $(if $(ARCH),$(abspath $(target))/$(ARCH)/sidewinder,$(sidewinder))
vm-test: $(if $(filter arm64,$(ARCH)),build-arm64) ## Boot Debian's kernels in qemu and profile there; KERNELS=newest: that one, VERIFIER=accept takes new instruction counts as the baseline; ARCH=arm64: kernels for arm64, of which RECORDINGS=signals,throws makes these alone
	@e2e/setup.sh --vm
	$(if $(ARCH),,$(build_release))
	cargo build $(for_tests) --example vm-test
	SIDEWINDER=$(profiled-by) VERIFIER=$(VERIFIER) RECORDINGS=$(RECORDINGS) $(examples)/vm-test $(ARCH) $(KERNELS)
	SIDEWINDER=$(profiled-by) $(examples)/vm-test $(if $(ARCH),$(ARCH)-python,runtimes $(KERNELS))
	$(if $(ARCH),SIDEWINDER=$(profiled-by) $(examples)/vm-test $(ARCH)-java)

examples := $(built)/examples
# The newest compiler that is tried; the distribution's is the oldest.
clang_21 := $(compiled)/tools/clang-21
by_clang_21 := --features sidewinder-bpf/second-compiler

compilers-test: ## Have the distribution's clang and clang 21 make the eBPF programs, and Linux 5.10 in qemu load both
	@e2e/setup.sh --compilers
	@mkdir -p $(compiled)
	cargo build $(for_tests) --example verify --example vm-test
	cp $(examples)/verify $(compiled)/verify
	CLANG=$(clang_21) cargo build $(for_tests) --example verify $(by_clang_21)
	cp $(examples)/verify $(compiled)/verify-clang-21
	CLANG=$(clang_21) cargo test $(for_tests) --lib --no-run $(by_clang_21)
	@# Of the libraries, that with the programs alone.
	cd bpf && "$$(CLANG=$(clang_21) cargo test $(for_tests) --lib --no-run --message-format=json $(by_clang_21) 2>/dev/null | \
		sed -n 's|.*"executable":"\([^"]*/sidewinder_bpf-[^"]*\)".*|\1|p')"
	$(examples)/vm-test compilers $(compiled)/verify $(compiled)/verify-clang-21

bench: ## Measure Sidewinder beside its peers; wants root and a quiet machine
	@e2e/setup.sh --tests
	$(build_release)
	cargo bench --profile release -p sidewinder-unwind-oracle --bench tables
	cargo bench --profile release -p sidewinder-otlp --bench encode
	cargo bench --profile release -p sidewinder-symbolize --bench names
	SIDEWINDER=$(sidewinder) cargo bench --profile release -p sidewinder-e2e --bench payload
	SIDEWINDER=$(sidewinder) cargo bench --profile release -p sidewinder-e2e --bench side_by_side
	SIDEWINDER=$(sidewinder) cargo bench --profile release -p sidewinder-e2e --bench scale
	SIDEWINDER=$(sidewinder) cargo bench --profile release -p sidewinder-e2e --bench large_files
	@e2e/setup.sh --corpus
	SIDEWINDER=$(sidewinder) cargo bench --profile release -p sidewinder-e2e --bench default_memory
	SIDEWINDER=$(sidewinder) cargo bench --profile release -p sidewinder-e2e --bench sidecars
	SIDEWINDER=$(sidewinder) cargo bench --profile release -p sidewinder-e2e --bench python
	SIDEWINDER=$(sidewinder) cargo bench --profile release -p sidewinder-e2e --bench node
	SIDEWINDER=$(sidewinder) cargo bench --profile release -p sidewinder-e2e --bench java
	SIDEWINDER=$(sidewinder) cargo bench --profile release -p sidewinder-e2e --bench page
	SIDEWINDER=$(sidewinder) cargo bench --profile release -p sidewinder-e2e --bench page_faults
	SIDEWINDER=$(sidewinder) cargo bench --profile release -p sidewinder-e2e --bench off_cpu

conservation: ## Compare the wall time of two hundred threads with the scheduler's accounts for a minute; make test does it for six seconds
	$(build_release)
	$(call in_both_forms,SIDEWINDER=$(sidewinder) SIDEWINDER_CONSERVATION_SECONDS=60 \
		cargo test $(for_tests) --test end_to_end wall:: -- --include-ignored --test-threads=1 --nocapture)

# Of the programs in e2e/corpus/src/programs.rs, those to take; all, where none is named.
PROGRAMS ?=

corpus: ## Profile some 70 programs of every sort, 21 of PyPI, Maven and npm among them, by `record` and by the service in 64Mi: how many of their stacks are complete, and whether any is wrong
	@e2e/setup.sh --corpus
	$(build_release)
	cargo build $(for_tests) --bin corpus
	SIDEWINDER=$(sidewinder) $(built)/corpus $(PROGRAMS)

# How often `make stacks` stops them all together, and what chooses where.
STOPS ?= 10000
SEED ?= 1

stacks: ## Stop the same programs at instructions chosen by SEED, and compare each stack with gdb's and framehop's; ARCH=arm64: programs for arm64, emulated
	@e2e/setup.sh $(if $(ARCH),--$(ARCH),--corpus)
	$(if $(ARCH),,$(build_release))
	cargo build $(for_tests) --bin stacks
	SIDEWINDER=$(sidewinder) ARCH=$(ARCH) STOPS=$(STOPS) SEED=$(SEED) $(built)/stacks $(PROGRAMS)

# Where `make oracle` looks for ELF files.
SEARCHED ?= /

oracle: ## Compare the unwind rows of every ELF file of this machine with gimli's, and measure the tables; ARCH=arm64: of Debian's packages
	cargo build --release --workspace $(all_features) --bin oracle
	$(if $(ARCH),cargo build $(for_tests) --bin $(ARCH)-packages)
	$(built)/oracle $(if $(ARCH),"$$($(built)/$(ARCH)-packages)",$(SEARCHED))

names-oracle: ## Compare names, lines and inlined calls of 22 programs, 10,000 addresses each, with llvm-symbolizer's
	@e2e/setup.sh --tests
	SIDEWINDER_WHOLE_ORACLE=1 CI=true cargo test $(for_tests) --test suite lines_and_inlined_calls -- --nocapture

# Seconds for each of the fuzz targets.
FUZZ_SECONDS ?= 5
fuzz_features := $(patsubst %,--features sidewinder-%-fuzz/fuzz,config process render symbolize unwind vm)

fuzz: ## Feed every parser with malformed input, FUZZ_SECONDS each
	RUSTC_WORKSPACE_WRAPPER=$(abspath .ci/coverage-compiler) cargo build $(for_tests) --bin 'fuzz-*' $(fuzz_features)
	.ci/fuzz $(built) $(FUZZ_SECONDS)

lint: form workflows ## Check form, structure and lints
	cargo test $(for_tests) --test structure
	cargo clippy $(for_tests) --all-targets $(all_features) $(fuzz_features) -- -D warnings

form:
	.ci/architectures
	.ci/borders
	cargo fmt --all --check

# Other projects' programs, each in the version that was tried; one that is there already is left alone.
tools := $(abspath $(target))/tools
install := cargo install --quiet --locked --root $(tools) --target-dir $(tools)/build --version

deny: ## Check the licences and the sources of everything that this is built of
	$(install) 0.20.2 cargo-deny
	@# The advisories are a repository on the network: `cargo deny check advisories`, where it can be reached.
	PATH="$(tools)/bin:$$PATH" cargo deny --locked --all-features check licenses bans sources

image := $(abspath $(target))/image
# What the image and the packages are built for: ARCHITECTURES="amd64 arm64" is both.
ARCHITECTURES ?= $(native)
native = $(shell dpkg --print-architecture)
packages := $(abspath $(target))/packages

image-tools:
	@e2e/setup.sh --image
	$(if $(filter arm64,$(filter-out $(native),$(ARCHITECTURES))),@e2e/setup.sh --arm64)
	$(install) 0.7.7 cargo-auditable
	$(install) 0.5.9 cargo-cyclonedx

image: image-tools ## Build the container image: target/image/sidewinder.oci.tar, its parts list, its debug information; ARCHITECTURES="amd64 arm64": an index of both
	.ci/image $(image) $(tools)/bin $(ARCHITECTURES)

# The half for arm64 is emulated: in qemu-user, and with a kernel in qemu.
image-test: image ## Run what is in the image, with what Kubernetes grants a sidecar
	SIDEWINDER_IMAGE=$(image) SIDEWINDER=$(image)/$(native)/root/sidewinder CI=true \
		cargo test $(for_tests) --test end_to_end image:: -- --include-ignored --test-threads=1
	$(if $(filter arm64,$(filter-out $(native),$(ARCHITECTURES))),cargo build $(for_tests) --example vm-test && \
		CI=true $(examples)/vm-test image $(image))

packages: image ## Package the image's program: target/packages has a Debian package, an archive and checksums; ARCHITECTURES as for the image
	.ci/packages $(packages) $(image) $(ARCHITECTURES)

packages-test: packages ## Unpack the packages, and profile with what is in them
	SIDEWINDER_PACKAGES=$(packages) SIDEWINDER=$(image)/$(native)/root/sidewinder CI=true \
		cargo test $(for_tests) --test end_to_end packages:: -- --include-ignored --test-threads=1

image-twice: image ## Build the image of this commit once more, in another folder and from nothing, and compare
	.ci/image-twice $(image) $(tools)/bin $(ARCHITECTURES)

release-check: workflows ## Make the release VERSION from a clean clone, publish it to a registry of its own, and compare what users' tools say of it
	@[ -n "$(VERSION)" ] || { echo "name a version: make release-check VERSION=0.1.0" >&2; exit 2; }
	@e2e/setup.sh --release
	.ci/release-check $(VERSION) $(abspath $(target))/release-check

workflows: ## Check the workflows in .github
	@e2e/setup.sh --workflows
	$(compiled)/tools/actionlint .github/workflows/*.yaml

clean: ## Remove what was built, the Collector included
	cargo clean
	rm -rf e2e/.cache profile.html
