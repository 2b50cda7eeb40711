#!/usr/bin/env bash
# Installs what is missing on a Debian or Ubuntu machine. Does nothing, and says nothing, where all is there.
#
#   e2e/setup.sh          what building and `make run` need
#   e2e/setup.sh --image  also what building the container image needs, and running it
#   e2e/setup.sh --release   also what packaging and signing a release needs, and a registry to try it on
#   e2e/setup.sh --workflows  also what checks the workflows of .github
#   e2e/setup.sh --vm     also what booting kernels in qemu needs
#   e2e/setup.sh --compilers  the same, and another clang for the eBPF programs
#   e2e/setup.sh --arm64  also what building and trying the programs for arm64 needs
#   e2e/setup.sh --tests  also what the end-to-end tests need: Go, gdb, perf, the programs that they profile, a browser, and
#                         the tools that render and judge the charts
#   e2e/setup.sh --charts these tools alone
#   e2e/setup.sh --cluster also an API server of Kubernetes, on which the charts are tried
#   e2e/setup.sh --kyverno also Kyverno's command line, which applies our policy to pods
#   e2e/setup.sh --corpus also the programs of the corpus that the tests do without, this API server among them
set -euo pipefail

rust_minimum=1.88
go_minimum=1.25   # what OpenTelemetry Collector 0.159 asks for; Go fetches it by itself from 1.21 on

packages=(clang llvm libclang-dev libelf-dev zlib1g-dev pkg-config gcc g++ libc6-dev make ca-certificates)
case "${1:-}" in --tests|--corpus|--charts|--cluster|--compilers|--vm) packages+=(python3 python3-pip) ;; esac
# What the page is looked at with.
if [ "${1:-}" = --tests ]; then
    # `podman`: a runtime of containers that are known by name. `python3-jsonschema` judges configurations. `jq` reads how tests
    # ended.
    packages+=(chromium fonts-dejavu-core podman python3-jsonschema jq)
fi
case "${1:-}" in --tests|--corpus)
    # Where the distribution has it.
    if apt-cache show chromium-headless-shell >/dev/null 2>&1; then packages+=(chromium-headless-shell); fi ;;
esac
case "${1:-}" in --tests|--corpus|--cluster)
    packages+=(xz-utils sqlite3 openssl libcap2-bin util-linux gzip gdb linux-perf crun musl-tools fp-compiler)
    packages+=(libboost-context-dev luajit pypy3 debuginfod)
    # For arm64, the eBPF programs are compiled, and a program whose unwind information is read.
    packages+=(gcc-aarch64-linux-gnu linux-libc-dev-arm64-cross)
    # Their names of code that they make are looked at.
    command -v node >/dev/null || packages+=(nodejs)
    command -v npm >/dev/null || packages+=(npm)
    command -v javac >/dev/null || packages+=(default-jdk-headless)
    command -v mvn >/dev/null || packages+=(maven)
    command -v mcs >/dev/null || packages+=(mono-mcs) ;;
esac
if [ "${1:-}" = --corpus ]; then
    packages+=(perl lua5.4 redis-server ocaml-nox zstd bzip2 postgresql)
fi

# The autotools are for libelf, which goes into the static binary.
[ "${1:-}" = --image ] && packages+=(git jq binutils libcap2-bin podman crun autoconf automake autopoint gettext flex bison gawk)
[ "${1:-}" = --release ] && packages+=(git jq skopeo openssl binutils)
case "${1:-}" in --vm|--compilers) packages+=(qemu-system-x86 busybox-static cpio) ;; esac
[ "${1:-}" = --arm64 ] && packages+=(mmdebstrap gcc-aarch64-linux-gnu g++-aarch64-linux-gnu gcc-arm-linux-gnueabihf
    libc6-dev-armhf-cross qemu-system-arm cpio qemu-user-static gdb-multiarch)

say() { echo "setup: $*" >&2; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"
    elif command -v sudo >/dev/null; then sudo "$@"
    else say "needs root to run: $*"; exit 3
    fi
}

apt_updated=
apt_install() {
    if ! command -v apt-get >/dev/null; then
        say "this is no Debian or Ubuntu: install by hand what corresponds to: $*"
        exit 2
    fi
    [ -n "$apt_updated" ] || as_root apt-get update -qq
    apt_updated=yes
    say "installing $*"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        -o DPkg::Lock::Timeout=300 "$@" >/dev/null
}

# at_least MINIMUM VERSION
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

rust_version() { rustc --version 2>/dev/null | cut -d ' ' -f 2; }
go_version() { go env GOVERSION 2>/dev/null | sed 's/^go//'; }

missing=()
for package in "${packages[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] || apt_install "${missing[@]}"

[ -d "$HOME/.cargo/bin" ] && PATH="$HOME/.cargo/bin:$PATH"
if ! command -v cargo >/dev/null || ! at_least "$rust_minimum" "$(rust_version)"; then
    if ! command -v rustup >/dev/null; then
        if apt-cache show rustup >/dev/null 2>&1; then
            apt_install rustup
        else
            command -v curl >/dev/null || apt_install curl
            say "installing Rust with https://sh.rustup.rs"
            curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal --quiet
            PATH="$HOME/.cargo/bin:$PATH"
        fi
    fi
    rustup toolchain install stable --profile minimal --component rustfmt,clippy
    rustup default stable
fi
at_least "$rust_minimum" "$(rust_version)" || { say "Rust $rust_minimum or later is needed, $(rust_version) is found"; exit 2; }

case "${1:-}" in --tests|--corpus|--charts|--cluster|--kyverno|--arm64|--release|--workflows)
    if ! command -v go >/dev/null || ! at_least 1.21 "$(go_version)"; then
        for package in golang-1.26-go golang-1.25-go golang-1.24-go golang-1.23-go golang-go; do
            # Backports carry the newer ones; the first that can be had is taken.
            apt-cache show "$package" >/dev/null 2>&1 || continue
            apt_install "$package"
            [ -d "/usr/lib/${package%-go}" ] && as_root ln -sf "/usr/lib/${package%-go}/bin/go" /usr/local/bin/go
            break
        done
    fi
    if ! command -v go >/dev/null || ! at_least 1.21 "$(go_version)"; then
        say "the end-to-end tests build a Collector with Go $go_minimum: install it from https://go.dev/dl"
        exit 2
    fi ;;
esac

# Where the tests look for the tools of the charts: nothing of this is installed outside of the repository.
tools="${CARGO_TARGET_DIR:-target}/e2e/tools"
kubernetes_validate=1.37.0

# go_tool NAME PACKAGE [MODULE [LINKER'S OPTIONS]]: builds it, in the version that MODULE/go.mod pins, once. Other clones have it
# too where they share $SIDEWINDER_CACHE.
go_tool() {
    local module="${3:-e2e/charts/tools}"
    local stamp; stamp="$2 ${4:-} $(find "$module" -name go.sum -o -name '*.go' | sort | xargs sha256sum)"
    [ -x "$tools/$1" ] && [ "$(cat "$tools/$1.stamp" 2>/dev/null)" = "$stamp" ] && return
    local kept; kept="${SIDEWINDER_CACHE:-e2e/.cache}/tools/$1-$(sha256sum <<<"$stamp" | cut -c 1-16)"
    if [ ! -x "$kept" ]; then
        say "building $1 (once; takes a few minutes where nothing is in Go's cache)"
        mkdir -p "$(dirname "$kept")"
        CGO_ENABLED=0 GOTOOLCHAIN=auto GOWORK=off \
            go -C "$module" build -mod=readonly -trimpath -ldflags="-s ${4:-}" -o "$(realpath -m "$kept").$$" "$2"
        mv "$kept.$$" "$kept"
    fi
    ln -sf "$(realpath "$kept")" "$tools/$1"
    echo "$stamp" > "$tools/$1.stamp"
}

case "${1:-}" in --tests|--charts|--cluster)
    cd "$(dirname "$0")/.."
    mkdir -p "$tools"
    go_tool helm3 helm.sh/helm/v3/cmd/helm
    go_tool helm4 helm.sh/helm/v4/cmd/helm
    go_tool helm-unittest github.com/helm-unittest/helm-unittest/cmd/helm-unittest
    go_tool kustomize sigs.k8s.io/kustomize/kustomize/v5
    if [ ! -d "$tools/python/kubernetes_validate-$kubernetes_validate.dist-info" ]; then
        say "fetching Kubernetes' schemas"
        rm -rf "$tools/python"
        python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
            --target "$tools/python" "kubernetes-validate==$kubernetes_validate"
    fi ;;
esac

if [ "${1:-}" = --tests ]; then
    dotnet=3.1.23   # the newest that PyPI has
    if [ ! -d "$tools/dotnet/dotnetcore2-$dotnet.dist-info" ]; then
        say "fetching .NET"
        rm -rf "$tools/dotnet"
        python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps \
            --target "$tools/dotnet" "dotnetcore2==$dotnet"
    fi
    # The page's sources, its judges, and the example in JavaScript. Only what the lock files name; no package's own scripts are run.
    for folder in receiver/page e2e/page e2e/examples/node; do
        stamp="$folder/node_modules/.package-lock.json"
        [ -f "$stamp" ] && [ ! "$folder/package-lock.json" -nt "$stamp" ] && continue
        say "installing the packages of $folder"
        npm ci --prefix "$folder" --ignore-scripts --no-audit --no-fund --silent
        touch "$stamp"
    done
fi

case "${1:-}" in --release|--workflows)
    cd "$(dirname "$0")/.."
    mkdir -p "$tools" ;;
esac
if [ "${1:-}" = --release ]; then
    go_tool helm3 helm.sh/helm/v3/cmd/helm
    go_tool helm4 helm.sh/helm/v4/cmd/helm
    go_tool cosign github.com/sigstore/cosign/v2/cmd/cosign e2e/release/tools
    go_tool registry . e2e/release/tools
fi
if [ "${1:-}" = --workflows ]; then
    go_tool actionlint github.com/rhysd/actionlint/cmd/actionlint e2e/release/tools
fi

if [ "${1:-}" = --compilers ]; then
    # A static program with clang 21.1 in it, which Debian 12 lacks; the same bytes from PyPI everywhere.
    ziglang=0.16.0
    cd "$(dirname "$0")/.."
    mkdir -p "$tools"
    if [ ! -d "$tools/zig/ziglang-$ziglang.dist-info" ]; then
        say "fetching clang 21"
        rm -rf "$tools/zig"
        python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps \
            --target "$tools/zig" "ziglang==$ziglang"
    fi
    # Its own headers (stdbool.h) are not where clang looks.
    zig="$(realpath "$tools/zig/ziglang")"
    printf '#!/bin/sh\nexec "%s/zig" clang -isystem "%s/lib/include" "$@"\n' "$zig" "$zig" > "$tools/clang-21.part"
    chmod +x "$tools/clang-21.part"
    # Left alone where it is the same: what it made is not made anew.
    cmp -s "$tools/clang-21.part" "$tools/clang-21" && rm "$tools/clang-21.part" || mv "$tools/clang-21.part" "$tools/clang-21"
    "$tools/clang-21" --version | grep -q '^clang version 21\.' || { say "$tools/clang-21 is not clang 21"; exit 2; }
fi

if [ "${1:-}" = --kyverno ]; then
    cd "$(dirname "$0")/.."
    mkdir -p "$tools"
    go_tool kyverno github.com/kyverno/kyverno/cmd/cli/kubectl-kyverno e2e/charts/kyverno
fi

if [ "${1:-}" = --corpus ]; then
    cd "$(dirname "$0")/.."
    mkdir -p "$tools"
fi
case "${1:-}" in --cluster|--corpus)
    # As a build of Kubernetes' own does: charts ask for it.
    version="$(go -C e2e/cluster list -m -f '{{.Version}}' k8s.io/kubernetes)"
    go_tool cluster . e2e/cluster "-X k8s.io/component-base/version.gitVersion=$version" ;;
esac
if [ "${1:-}" = --cluster ]; then
    go_tool kubectl k8s.io/kubernetes/cmd/kubectl e2e/cluster
fi
