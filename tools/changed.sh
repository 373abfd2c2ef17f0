#!/usr/bin/env bash
# Prints the packages that a change can break: those with a changed file, and those
# that import them. A file is changed when it differs from the commit where this branch
# left main (on main: from the commit before the last), or is not committed yet.
# A change of go.mod or go.sum changes every package.
set -euo pipefail
cd "$(dirname "$0")/.."

head=$(git rev-parse HEAD)
main=$(git rev-parse -q --verify origin/main || git rev-parse -q --verify main || echo "$head")
base=$(git merge-base HEAD "$main")
[ "$base" != "$head" ] || base=$(git rev-parse -q --verify HEAD~1 || echo "$head")

files=$({ git diff --name-only "$base"; git ls-files -o --exclude-standard; } | sort -u)
if grep -qxE 'go\.(mod|sum)' <<<"$files"; then
	echo ./...
	exit
fi
go list -f '{{.ImportPath}} {{.Dir}} {{join .Imports " "}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./... |
	awk -v root="$PWD/" '
		NR == FNR { files[$0]; next }
		{ folder[$1] = substr($2, length(root) + 1); package[folder[$1]] = $1; imports[$1] = $0 }
		END {
			for (file in files) # a file belongs to the nearest package above it
				while (sub("/[^/]*$", "", file))
					if (file in package) { changed[package[file]]; break }
			for (p in imports) {
				n = split(imports[p], names, " ")
				for (i = 1; i <= n; i++)
					if (i != 2 && names[i] in changed) { print "./" folder[p]; break }
			}
		}' <(echo "$files") - | sort
