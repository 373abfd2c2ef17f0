#!/usr/bin/env bash
# Unit tests, in the form of go test -json: tools/unit.sh PACKAGE…
# The race detector watches what has goroutines, the receivers on the probes of this kernel
# among it. Patterns have none; distro links the whole collector, another six minutes of
# compiling, for code that is tested below it. Left out are packages that other stages test.
#
#   tools/unit.sh --host   prints the packages of the stage `host`
set -euo pipefail
cd "$(dirname "$0")/.."
watched='^github.com/tracecoreai/tracecore/(internal|processors|exporters|extensions|receivers)/'
# Tests that the detector is left out of, and where they are: of sizes, too slow or too large
# under it, and of a process whose capabilities a build with cgo keeps.
plain='^(TestAMillionKeysInFlatMemory|TestAJobThatDiesDoesNotFillTheScreen|TestWhyAFileIsNotReadIsTold|TestTheReaderHasNoRights)$'
where='/(patterndetectorprocessor|terminalexporter|ncclfrreceiver/internal/process)$'

host() { go run ./vmtests -list | grep -vE "$watched"; }
if [ "${1:?usage: tools/unit.sh PACKAGE…}" = --host ]; then
	host
	exit
fi
packages=$(go list "$@" | grep -vxFf <(host; go list ./charts/...) || true)
run() { # GREP-OPTION EXPRESSION go test ARGUMENTS…
	local chosen
	chosen=$(grep "$1" "$2" <<<"$packages") || return 0
	# shellcheck disable=SC2086 # one argument for each package
	"${@:3}" $chosen
}
status=0
run -E "$watched" env CGO_ENABLED=1 go test -json -race -skip "$plain" || status=1
run -E "$where" go test -json -run "$plain" || status=1
run -vE "$watched" go test -json || status=1
exit $status
