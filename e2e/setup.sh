#!/usr/bin/env bash
# Installs what is missing on a Debian or Ubuntu machine. Does nothing, and says nothing, where all is there.
#
#   e2e/setup.sh          what building and `make run` need
#   e2e/setup.sh --vm     also what booting kernels in qemu needs
#   e2e/setup.sh --tests  also what the end-to-end tests need: Go, gdb, perf and the programs that they profile
#   e2e/setup.sh --corpus also the programs of the corpus that the tests do without
set -euo pipefail

rust_minimum=1.88
go_minimum=1.25   # what OpenTelemetry Collector 0.159 asks for; Go fetches it by itself from 1.21 on

packages=(clang llvm libclang-dev libelf-dev zlib1g-dev pkg-config gcc g++ libc6-dev make ca-certificates)
case "${1:-}" in --tests|--corpus)
    packages+=(python3 xz-utils sqlite3 openssl libcap2-bin util-linux gzip gdb linux-perf) ;;
esac
if [ "${1:-}" = --corpus ]; then
    packages+=(perl lua5.4 redis-server ocaml-nox zstd bzip2)
    command -v node >/dev/null || packages+=(nodejs)
    command -v javac >/dev/null || packages+=(default-jdk-headless)
fi

[ "${1:-}" = --vm ] && packages+=(qemu-system-x86 busybox-static cpio)

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
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
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

case "${1:-}" in --tests|--corpus)
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
