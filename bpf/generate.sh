#!/bin/sh
# Rebuilds the BPF objects and their Go bindings in every folder under bpf/.
# make check-generated compares them with those that are committed.
#
# One major version of clang, because another gives other bytes. Debian and
# Ubuntu: apt install clang-16 llvm-16. Elsewhere name the programs in BPF_CLANG
# and BPF_STRIP. Building and testing tracecore needs neither.
set -eu

MAJOR=16
CLANG=${BPF_CLANG:-clang-$MAJOR}
STRIP=${BPF_STRIP:-llvm-strip-$MAJOR}
cd "$(dirname "$0")"

die() {
	echo "bpf/generate.sh: $1" >&2
	exit 1
}

command -v "$CLANG" >/dev/null || die "$CLANG is not installed: install clang-$MAJOR and llvm-$MAJOR, or set BPF_CLANG"
command -v "$STRIP" >/dev/null || die "$STRIP is not installed: install llvm-$MAJOR, or set BPF_STRIP"
found=$(echo __clang_major__ | "$CLANG" -E -P -x c - | tail -n 1)
[ "$found" = "$MAJOR" ] || die "$CLANG is clang $found, the committed objects are made by clang $MAJOR: install clang-$MAJOR, or set BPF_CLANG"

export BPF2GO_CC="$CLANG" BPF2GO_STRIP="$STRIP"
# v2 (Linux 4.14) instead of bpf2go's v1: shorter comparisons. A program need not
# use its context.
export BPF2GO_CFLAGS="-O2 -g -mcpu=v2 -Wall -Wextra -Wno-unused-parameter -Wpadded -Werror -I../include"

exec go generate ./...
