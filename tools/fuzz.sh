#!/usr/bin/env bash
# Runs every fuzz target of the module for a while: tools/fuzz.sh DURATION OTHERS.
# DURATION is for those that read what comes from outside as it comes (kernel
# text, rule files, dumps, events of probes: FuzzParse and FuzzDecode).
# Prints results as go test -json does.
# When the time is up, go test sometimes reports its own deadline as the failure
# (golang/go#75804): that, with no input written, is no finding and is tried once more.
set -euo pipefail
cd "$(dirname "$0")/.."
usage='usage: tools/fuzz.sh DURATION OTHERS'
duration=${1:?$usage} others=${2:?$usage}

targets=$(grep -rHo --include='*_test.go' --exclude-dir=.cache '^func Fuzz[A-Za-z0-9_]*' . | sed -E 's|^(.*)/[^/]*:func (.*)$|\1 \2|' | sort -u)
[ -n "$targets" ] || { echo "tools/fuzz.sh: no fuzz target found" >&2; exit 1; }

log=$(mktemp)
trap 'rm -f "$log"' EXIT

fuzz() { # PACKAGE TARGET DURATION
	local try
	for try in 1 2; do
		if go test -json -run '^$' -fuzz "^$2\$" -fuzztime "$3" -fuzzminimizetime 10x "$1" >"$log"; then
			cat "$log"
			return 0
		fi
		if [ "$try" = 2 ] || grep -q 'Failing input' "$log" || ! grep -q 'context deadline exceeded' "$log"; then
			cat "$log"
			return 1
		fi
		echo "fuzz $1 $2: stopped by its own deadline without a finding; once more" >&2
	done
}

status=0
while read -r package name; do
	case $name in FuzzParse | FuzzDecode) time=$duration ;; *) time=$others ;; esac
	echo "fuzz $package $name for $time" >&2
	fuzz "$package" "$name" "$time" || status=1
done <<<"$targets"
exit $status
