#!/usr/bin/env bash
# Rebuilds every generated file: BPF objects and their Go (clang 16), what
# the go:generate lines of the components make of each metadata.yaml.
#
#   tools/generate.sh          rebuild in place
#   tools/generate.sh --check  rebuild in a copy of the tree, and fail when what is here differs:
#                              others may read this tree meanwhile
set -euo pipefail
cd "$(dirname "$0")/.."

die() {
	echo "tools/generate.sh: $1" >&2
	exit 1
}

metadata() { find receivers processors connectors exporters extensions -name metadata.yaml | sort; }

# generated lists what the recipes below write.
generated() {
	find bpf -name '*_bpfel.go' -o -name '*_bpfel.o'
	echo receivers/internal/record/generated_groups.go
	metadata | while read -r file; do
		local dir=${file%/*}
		find "$dir" -maxdepth 1 -name 'generated_*' -o -maxdepth 1 -name documentation.md
		[ ! -d "$dir/internal/metadata" ] || find "$dir/internal/metadata" "$dir/internal/metadatatest" -type f 2>/dev/null || true
	done
}

# picture prints a digest for each generated file.
picture() { generated | sort -u | xargs -r sha256sum; }

rebuild() {
	bpf/generate.sh
	metadata | while read -r file; do
		grep -qs '^//go:generate .*\(mdatagen\|/events\) ' "${file%/*}"/*.go || die "${file%/*} has a metadata.yaml and no //go:generate line"
	done
	go generate ./receivers/... ./processors/... ./connectors/... ./exporters/... ./extensions/... >/dev/null
}

[ "${1:-}" = --check ] || { rebuild; exit; }
before=$(picture)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -co --exclude-standard -z | while IFS= read -r -d '' file; do [ ! -e "$file" ] || printf '%s\0' "$file"; done | xargs -0 cp --parents -t "$copy"
cd "$copy"
rebuild
after=$(picture)
if [ "$before" != "$after" ]; then
	echo "tools/generate.sh: generated files are out of date: run make generate and commit" >&2
	diff <(echo "$before") <(echo "$after") | awk '/^[<>]/ { print "  " $3 }' | sort -u >&2
	exit 1
fi
