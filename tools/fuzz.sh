#!/usr/bin/env bash
# Runs every fuzz target of the module for a while: tools/fuzz.sh DURATION.
# Prints results as go test -json does.
set -euo pipefail
cd "$(dirname "$0")/.."
duration=${1:?usage: tools/fuzz.sh DURATION}

targets=$(grep -rHo --include='*_test.go' --exclude-dir=.cache '^func Fuzz[A-Za-z0-9_]*' . | sed -E 's|^(.*)/[^/]*:func (.*)$|\1 \2|' | sort -u)
[ -n "$targets" ] || { echo "tools/fuzz.sh: no fuzz target found" >&2; exit 1; }

status=0
while read -r package name; do
	echo "fuzz $package $name for $duration" >&2
	go test -json -run '^$' -fuzz "^$name\$" -fuzztime "$duration" -fuzzminimizetime 10x "$package" || status=1
done <<<"$targets"
exit $status
