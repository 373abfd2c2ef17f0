#!/usr/bin/env bash
# Unit tests, in the form of go test -json, in two stages:
#
#   tools/unit.sh race PACKAGE…   what has goroutines, under the race detector: the receivers on the
#                                 probes of this kernel among it, which make faults and see those of others
#   tools/unit.sh calm PACKAGE…   the others, which take nothing but CPU. Patterns have no goroutines; distro
#                                 links the whole collector, another six minutes of compiling, for code that
#                                 is tested below it
#   tools/unit.sh host            prints the packages of the stage `host`
#
# Packages that other stages test are left out.
set -euo pipefail
cd "$(dirname "$0")/.."
# A test that is over in minutes needs its heap collected less often: the stories take a quarter
# less of CPU so, the detector of patterns under the race detector a sixth (2 virtual CPUs,
# Linux 6.18, 2026-11-29).
export GOGC=400
watched='^github.com/tracecoreai/tracecore/(internal|processors|connectors|exporters|extensions|receivers)/'
# Of those, packages in which nothing runs beside anything: the detector takes five to ten
# times as long there, and finds nothing. This script fails when one of them gets a goroutine or a lock.
calm='/(internal/(cut|fairlru|history|incidentview|otlpscan|safetext|safetext/safelog|setaside|socketstall|waitclass)|receivers/internal/catalogue|receivers/gpureceiver/internal/(inventory|storm)|receivers/k8seventsreceiver/internal/hint|receivers/kerneleventsreceiver/internal/(fold|topology)|receivers/ncclfrreceiver/internal/flightrecorder|receivers/ncclsockreceiver/internal/stall|.*/internal/metadatatest)$'
# Tests that the detector is left out of, and where they are: of sizes, of damage and of every
# story, which take minutes under it and run nothing beside anything; of a process whose
# capabilities a build with cgo keeps; of programs in a root of their own, where the libraries
# are not that such a build needs.
plain='TestAMillionKeysInFlatMemory|TestHostileMutesMuteNothing'
plain+='|TestAJobThatDiesDoesNotFillTheScreen'
plain+='|TestAttackByKills|TestAttackByDamage|TestRunsAreBounded|TestOneIncidentDoesNotFillTheFile|TestADamagedHeaderKeepsNoVerdictOut|TestMutesAreBounded'
plain+='|TestAStrangerMakesNoCertainVerdict|TestWhatWaitsIsBoundedInBytes|TestNoWrongStackIsBelieved'
plain+='|TestEveryTextOfALibraryIsBounded'
plain+='|TestWhyAFileIsNotReadIsTold|TestTheReaderHasNoRights|TestADumpIsFoundWhereItsRankWritesIt|TestWhatIsNotTheRanksOwnDumpIsNotRead|TestTheDumpOfARankThatHasEndedIsReadThroughAnother|TestWorkersOfARankAreLookedAtOnce'
where='/(incidenttracesconnector|patterndetectorprocessor|terminalexporter|historyextension/internal/store|internal/ingress|internal/pystack|gpureceiver/internal/protocol|ncclfrreceiver|ncclfrreceiver/internal/process)$'

host() { go run ./vmtests -list | grep -vE "$watched"; }
stage=${1:?usage: tools/unit.sh race|calm PACKAGE…, or host}
shift
if [ "$stage" = host ]; then
	host
	exit
fi
packages=$(go list "$@" | grep -vxFf <(host; go list ./charts/...) || true)
quiet=$(grep -E "$watched" <<<"$packages" | grep -E "$calm" || true)
raced=$(grep -E "$watched" <<<"$packages" | grep -vE "$calm" || true)
status=0
files() { sed -n '/metadatatest$/d; s|^github.com/tracecoreai/tracecore/\(.*\)|\1/*.go|p' <<<"$1"; } # metadatatest is mdatagen's
none() { # PACKAGES EXPRESSION WHAT-TO-DO
	local of
	of=$(files "$1")
	# shellcheck disable=SC2086 # patterns of files
	if [ -n "$of" ] && grep -nE "$2" $of >&2; then
		echo "tools/unit.sh: $3" >&2
		status=1
	fi
}
none "$quiet" '\<go (func|[[:alnum:]_.]+)\(|\.Go\(|"sync(/atomic)?"|t\.Parallel\(' "the race detector must watch these packages: take them off calm"
none "$(grep -vE "$where" <<<"$raced" || true)" "^func ($plain)\(" "these tests run nowhere: name them otherwise, or their package in where"
tested() { # PACKAGES go test ARGUMENTS…
	# shellcheck disable=SC2086 # one argument for each package
	[ -z "$1" ] || "${@:2}" $1
}
case $stage in
# At the end of each process the detector would wait for a second, for goroutines that main
# leaves behind. A race is told when it is seen, and tests check with goleak that nothing is
# left behind; those of slurmexporter alone start some 180 processes.
race) tested "$raced" env CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 go test -json -race -skip "^($plain)\$" || status=1 ;;
calm) # with what CPU other stages leave: a limit of time holds a test that hangs, not one that waits
	tested "$(grep -E "$where" <<<"$packages" || true)" go test -json -timeout 40m -run "^($plain)\$" || status=1
	tested "$(grep -vxF "$raced" <<<"$packages" || true)" go test -json -timeout 40m || status=1
	;;
*)
	echo "tools/unit.sh: no stage $stage: race, calm or host" >&2
	status=2
	;;
esac
exit $status
