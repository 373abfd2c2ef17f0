#!/usr/bin/env bash
# Runs benchmarks: tools/bench.sh PACKAGE…; those of ./... also go into BENCHMARKS.md.
set -euo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT
go test -run '^$' -bench . -benchmem -timeout 2h "$@" | tee "$log"
[ "$*" = ./... ] || exit 0
{
	echo "# Benchmarks"
	echo
	echo "Made by \`make bench\`; not edited. Commit $(git rev-parse --short HEAD), $(date -u +%F), $(nproc) virtual CPUs," \
		"$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), Linux $(uname -r | cut -d- -f1), $(go env GOVERSION)."
	echo
	echo "| package | benchmark | times | figures |"
	echo "| --- | --- | --- | --- |"
	awk -v own="$(go list -m)/" '
		/^pkg: / { package = substr($2, length(own) + 1) }
		/^Benchmark.*[0-9]/ {
			sub(/-[0-9]+$/, "", $1)
			printf "| `%s` | %s | %s | %s %s", package, substr($1, 10), $2, $3, $4
			for (i = 5; i < NF; i += 2) printf ", %s %s", $i, $(i + 1)
			print " |"
		}' "$log"
} >BENCHMARKS.md
