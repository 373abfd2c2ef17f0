#!/usr/bin/env bash
# Makes targets of the Makefile: tools/stages.sh TARGET… [-- TARGET…]… [--idle TARGET…]
# Each -- begins a lane: its targets are made one after the other, beside the other lanes.
# Machines mostly wait for one emulated CPU, tests on the host for pauses and thresholds; the
# lane behind --idle has what CPU they leave. What comes after the first lane is shown in the end.
# Each leaves what its tests said under .cache/results, in the form of go test -json.
# The output ends with the time of each stage, with what failed, and with the counts.
set -uo pipefail
cd "$(dirname "$0")/.."
results=.cache/results sum=.cache/bin/gotestsum
times=$results/times
: >"$times"

# record adds a failed test of a stage that failed without one, or that ran none.
record() { # STAGE STATUS
	local said
	said=$(cat "$results/$1".json "$results/$1".*.json 2>/dev/null)
	if [ "$2" != 0 ] && ! grep -q '"Action":"fail"' <<<"$said"; then
		tools/as-test.sh "$1" bash -c "echo 'make $1 ended with status $2'; false"
	elif [ "$2" = 0 ] && ! grep -q '"Action":"pass"' <<<"$said"; then
		tools/as-test.sh "$1" bash -c "echo 'make $1 recorded no test'; false"
	fi
}

TIMEFORMAT='%R %U %S'
make_stage() { # STAGE
	local stage=$1 status
	echo "== $stage"
	# In a shell of its own: this one is also charged for a lane that ends meanwhile.
	(time make --no-print-directory "$stage" 2>&3) 3>&2 2>"$results/$stage.time"
	status=$?
	record "$stage" $status >>"$results/$stage.status.json"
	awk -v stage="$stage" -v status=$status '{ printf "%-4s %-16s %6.0f s, %6.0f s of CPU\n", status ? "FAIL" : "ok", stage, $1, $2 + $3 }' <(tail -1 "$results/$stage.time") | tee -a "$times"
}

make_lane() { # STAGE…
	for stage in "$@"; do make_stage "$stage"; done
}

lane=() logs=() kind='' # of the lane that is read: '', -- or --idle
begin() {
	case $kind in
	'') first=("${lane[@]}") ;;
	*)
		logs+=("$results/${lane[0]}.log")
		{
			[ "$kind" = -- ] || renice -n 10 $BASHPID >/dev/null
			make_lane "${lane[@]}"
		} >"${logs[-1]}" 2>&1 &
		;;
	esac
	lane=()
}
for word in "$@"; do
	case $word in
	-- | --idle) begin && kind=$word ;;
	*) lane+=("$word") ;;
	esac
done
begin
make_lane "${first[@]}"
wait
cat "${logs[@]}" </dev/null

echo
echo "== what took how long"
cat "$times"
# Of each failed test the beginning and the end: a panic says at first what it is, an
# assertion that waited says it last. A long log is often kept by its end alone.
cat "$results"/*.json | $sum --raw-command --format none -- cat - |
	awk 'function rest() { if (n > 16) print "    … " n - 16 " lines"; for (i = n > 16 ? n - 9 : 7; i <= n; i++) print said[i]; n = 0 }
		/^(===|DONE)/ || /^$/ { rest(); print; next }
		{ said[++n] = $0; if (n <= 6) print }
		END { rest() }' | cut -c1-300

# A package that failed counts when no test of it did: it did not compile, or died.
read -r passed failed skipped < <(cat "$results"/*.json | awk '
	match($0, /"Package":"[^"]*"/) { package = substr($0, RSTART, RLENGTH) }
	/"Action":"pass".*"Test":/ { passed++ }
	/"Action":"skip".*"Test":/ { skipped++ }
	/"Action":"fail"/ { if (/"Test":/) { failed++; named[package] } else whole[package] }
	END { for (p in whole) if (!(p in named)) failed++; print passed + 0, failed + 0, skipped + 0 }')
echo
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
