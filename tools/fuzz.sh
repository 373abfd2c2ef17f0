#!/usr/bin/env bash
# Runs every fuzz target of the module for a while: tools/fuzz.sh DURATION OTHERS,
# or compiles them all and runs none: tools/fuzz.sh build.
# DURATION is for those that read what comes from outside as it comes (kernel
# text, rule files, dumps, events of probes: FuzzParse and FuzzDecode).
# One target on each CPU at a time. Prints results as go test -json does.
# When the time is up, go test sometimes reports its own deadline as the failure
# (golang/go#75804): that, with no input written, is no finding and is tried once more.
set -euo pipefail
cd "$(dirname "$0")/.."
usage='usage: tools/fuzz.sh DURATION OTHERS | build'

targets=$(grep -rHo --include='*_test.go' --exclude-dir=.cache '^func Fuzz[A-Za-z0-9_]*' . | sed -E 's|^(.*)/[^/]*:func (.*)$|\1 \2|' | sort -u)
[ -n "$targets" ] || { echo "tools/fuzz.sh: no fuzz target found" >&2; exit 1; }

if [ "${1:?$usage}" = build ]; then # instrumented, each package and all that it imports is compiled anew
	while read -r package target; do
		go test -c -run '^$' -fuzz "^$target\$" -o /dev/null "$package"
	done < <(sort -u -k1,1 <<<"$targets")
	exit
fi
export DURATION=$1 OTHERS=${2:?$usage}

LOGS=$(mktemp -d)
export LOGS
trap 'rm -rf "$LOGS"' EXIT

fuzz() { # PACKAGE TARGET
	local log=$LOGS/$BASHPID time=$OTHERS status=0 try
	case $2 in FuzzParse | FuzzDecode) time=$DURATION ;; esac
	for try in 1 2; do
		echo "fuzz $1 $2 for $time" >&2
		go test -json -run '^$' -fuzz "^$2\$" -fuzztime "$time" -fuzzminimizetime 10x -parallel 1 "$1" >"$log" && break
		if [ "$try" = 2 ] || grep -q 'Failing input' "$log" || ! grep -q 'context deadline exceeded' "$log"; then
			status=1
			break
		fi
		echo "fuzz $1 $2: stopped by its own deadline without a finding" >&2
	done
	flock "$LOGS" cat "$log"
	return $status
}
export -f fuzz

xargs -P "$(nproc)" -L 1 bash -c 'set -euo pipefail; fuzz "$@"' fuzz <<<"$targets"
