#!/usr/bin/env bash
# Runs a command as one test, and prints what it says in the form of go test -json:
# tools/as-test.sh NAME COMMAND…
set -uo pipefail
name=$1
shift
{
	echo "=== RUN   $name"
	verdict=PASS
	"$@" 2>&1 || verdict=FAIL
	echo "--- $verdict: $name ($SECONDS.00s)"
	echo $verdict
	[ $verdict = PASS ]
} | go tool test2json -t -p "$name"
