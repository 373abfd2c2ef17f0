#!/usr/bin/env bash
# Runs every fuzz target of the module for a while: tools/fuzz.sh DURATION.
# Prints results as go test -json does.
# When the time is up, go test sometimes reports its own deadline as the failure
# (golang/go#75804): that, with no input written, is no finding and is tried once more.
set -euo pipefail
cd "$(dirname "$0")/.."
duration=${1:?usage: tools/fuzz.sh DURATION}

targets=$(grep -rHo --include='*_test.go' --exclude-dir=.cache '^func Fuzz[A-Za-z0-9_]*' . | sed -E 's|^(.*)/[^/]*:func (.*)$|\1 \2|' | sort -u)
[ -n "$targets" ] || { echo "tools/fuzz.sh: no fuzz target found" >&2; exit 1; }

log=$(mktemp)
trap 'rm -f "$log"' EXIT

fuzz() { # PACKAGE TARGET
	local try
	for try in 1 2; do
		if go test -json -run '^$' -fuzz "^$2\$" -fuzztime "$duration" -fuzzminimizetime 10x "$1" >"$log"; then
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
	echo "fuzz $package $name for $duration" >&2
	fuzz "$package" "$name" || status=1
done <<<"$targets"
exit $status
