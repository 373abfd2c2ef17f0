#!/usr/bin/env bash
# Runs every fuzz target of the module: tools/fuzz.sh TIME.
# One target on each CPU at a time. Prints results as go test -json does.
# Only our own packages are instrumented: what they import is compiled already, and its
# branches are not what is searched. go test -fuzz would compile all of it again.
# When the time is up, a target sometimes reports its own deadline as the failure
# (golang/go#75804): that, with no input written, is no finding and is tried again.
set -euo pipefail
cd "$(dirname "$0")/.."
TIME=${1:?usage: tools/fuzz.sh TIME}
ROOT=$PWD BINARIES=$PWD/.cache/fuzz LOGS=$(mktemp -d)
export TIME ROOT BINARIES LOGS
mkdir -p "$BINARIES/passed"
trap 'rm -rf "$LOGS"' EXIT

targets=$(grep -rHo --include='*_test.go' --exclude-dir=.cache '^func Fuzz[A-Za-z0-9_]*' . | sed -E 's|^\./(.*)/[^/]*:func (.*)$|\1 \2|' | sort -u)
[ -n "$targets" ] || { echo "tools/fuzz.sh: no fuzz target found" >&2; exit 1; }

binary() { echo "$BINARIES/${1//\//_}.test"; } # PACKAGE
build() { go test -c -gcflags="$(go list -m)/...=-dwarf=false -d=libfuzzer" -o "$(binary "$1")" "./$1"; }

# What passed for as long with the same binary and the same files is told again.
fuzz() { # PACKAGE TARGET
	local log=$LOGS/$2.$BASHPID status try kept
	kept=$BINARIES/passed/$({ echo "$2 $TIME" && cat "$(binary "$1")" && find "$1" -path "*/testdata/*" -type f -exec sha256sum {} + | sort; } | sha256sum | cut -d' ' -f1)
	if [ -z "${FRESH:-}" ] && [ -s "$kept" ]; then
		flock "$LOGS" cat "$kept"
		return
	fi
	for try in 1 2 3 4 5; do
		status=0
		(cd "$1" && "$(binary "$1")" -test.run '^$' -test.fuzz "^$2\$" -test.fuzztime "$TIME" -test.fuzzminimizetime 10x -test.parallel 1 \
			-test.fuzzcachedir "$BINARIES/corpus/$1" -test.paniconexit0 -test.v=test2json 2>&1 | go tool test2json -t -p "$1") >"$log" || status=1
		[ $status = 1 ] || break
		if grep -q 'Failing input' "$log" || ! grep -q 'context deadline exceeded' "$log"; then break; fi
		echo "fuzz $1 $2: stopped by its own deadline without a finding" >&2
	done
	flock "$LOGS" cat "$log"
	[ $status = 0 ] || return $status
	# As go test says it.
	{ cat "$log" && printf '{"Action":"output","Package":"%s","Output":"ok  \\t%s\\t(cached)\\n"}\n' "$1" "$1"; } >"$kept.$BASHPID"
	mv "$kept.$BASHPID" "$kept"
}
export -f binary build fuzz

cut -d' ' -f1 <<<"$targets" | sort -u | xargs -P "$(nproc)" -L 1 bash -c 'set -euo pipefail; build "$@"' build
xargs -P "$(nproc)" -L 1 bash -c 'set -euo pipefail; fuzz "$@"' fuzz <<<"$targets"
