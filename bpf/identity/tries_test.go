//go:build linux && (amd64 || arm64)

package identity

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Pid 10 is a shell, which has the rank or exports it, and each line after it is a program that it runs.
func TestWhatFailsAgainAndAgainIsTheRank(t *testing.T) {
	const segv = 11
	type run struct {
		at, lived float64
		pid       uint32
		comm      string
		arguments string
		status    uint32
		raised    bool
		under     uint32 // 0: the shell
	}
	try := func(at float64, pid uint32) run {
		return run{at: at, lived: 0.3, pid: pid, comm: "python3.11", arguments: "train.py", status: 1 << 8, raised: true}
	}
	with := func(r run, change func(*run)) run {
		change(&r)
		return r
	}
	sleeps := func(at, lived float64, pid uint32) run {
		return run{at: at, lived: lived, pid: pid, comm: "sleep", arguments: "1"}
	}
	three := []run{try(1, 20), sleeps(1.4, 1, 21), try(2.5, 22), sleeps(2.9, 1, 23), try(4, 24)}
	changed := func(change func(*run)) (all []run) {
		for _, r := range three {
			if r.comm != "sleep" {
				change(&r)
			}
			all = append(all, r)
		}
		return all
	}
	beside := run{at: 0.5, lived: 100, pid: 50, comm: "python", arguments: "serve.py"}
	const all = "20 rank of 20, 22 rank of 22, 24 rank of 24"
	for name, tc := range map[string]struct {
		runs             []run
		wrapper, scripts string // the ends that are told as those of the rank, under a shell that has it and under one that exports it
	}{
		"three tries":                        {three, all, all},
		"a fourth":                           {append(three[:5:5], try(5.5, 30)), all + ", 30 rank of 30", all + ", 30 rank of 30"},
		"two tries":                          {three[:4], "", "23 rank of 23"},
		"it crashes":                         {changed(func(r *run) { r.status, r.raised = segv, false }), all, all},
		"the first is not seen to raise":     {append([]run{with(try(0.1, 19), func(r *run) { r.raised = false })}, three...), "19 rank of 19, " + all, "19 rank of 19, " + all},
		"it ends with a status alone":        {changed(func(r *run) { r.raised = false }), "", "24 rank of 24"},
		"grep":                               {changed(func(r *run) { r.comm, r.raised = "grep", false }), "", "24 rank of 24"},
		"for one file after the other":       {changed(func(r *run) { r.arguments = fmt.Sprint("convert.py ", r.pid) }), "", "24 rank of 24"},
		"it ends well in between":            {append(three[:4:4], with(try(4, 24), func(r *run) { r.status, r.raised = 0, false }), try(5, 25), sleeps(5.5, 1, 26), try(7, 27)), "", "27 rank of 27"},
		"a health check beside the rank":     {append([]run{beside}, changed(func(r *run) { r.at += 10 })...), "", "50 rank of 50"},
		"six minutes apart":                  {[]run{try(1, 20), try(361, 22), try(721, 24)}, "", "20 rank of 20, 22 rank of 22, 24 rank of 24"},
		"seven seconds apart":                {[]run{try(1, 20), sleeps(1.4, 7, 21), try(8.5, 22), sleeps(9, 7, 23), try(17, 24)}, all, all},
		"a program of Python that runs them": {[]run{{at: 0.5, pid: 40, comm: "python", arguments: "sweep.py", lived: 100}, with(try(1, 20), func(r *run) { r.under = 40 }), with(try(2, 22), func(r *run) { r.under = 40 }), with(try(3, 24), func(r *run) { r.under = 40 })}, "", "40 rank of 40"},
		"under timeout":                      {[]run{{at: 0.5, pid: 40, comm: "timeout", arguments: "9 train.py", lived: 1, status: 1 << 8}, with(try(1, 20), func(r *run) { r.under = 40 }), {at: 1.6, pid: 41, comm: "timeout", arguments: "9 train.py", lived: 1, status: 1 << 8}, with(try(2, 22), func(r *run) { r.under = 41 }), {at: 2.8, pid: 42, comm: "timeout", arguments: "9 train.py", lived: 1.3, status: 1 << 8}, with(try(3.5, 24), func(r *run) { r.under = 42 })}, all, all},
	} {
		for _, late := range []bool{false, true} { // the exception is read after the end
			for shell, want := range map[string]string{"wrapper": tc.wrapper, "script": tc.scripts} {
				t.Run(fmt.Sprintf("%s, %s, late %v", name, shell, late), func(t *testing.T) {
					var ends []string
					tracker := &Tracker{proc: newReader(t.TempDir()), table: newTable(100, DefaultRetention), host: "n1", opts: Options{MaxProcesses: 100}, source: newScript()}
					tracker.launches = newLaunches(func(e Exit) {
						if tracker.dies(&e); told(e) == "rank" && e.PID != 10 {
							ends = append(ends, fmt.Sprint(e.PID, " rank of ", e.RankPID))
						}
					}, nobody)
					own := map[string][]string{"wrapper": rank3()}[shell]
					lines := []signalledLine{{line: line{0, "exec", 10, 1, 0, "bash", own}}}
					for _, r := range tc.runs {
						under := max(r.under, 10)
						lines = append(lines, signalledLine{line: line{r.at, "exec", r.pid, under, 0, r.comm, rank3()}, arguments: append([]string{r.comm}, strings.Fields(r.arguments)...)})
						raises := signalledLine{line: line{at: r.at + 0.1, does: "raises", pid: r.pid}}
						if r.raised && !late {
							lines = append(lines, raises)
						}
						lines = append(lines, signalledLine{line: line{r.at + r.lived, "exit", r.pid, under, r.status, r.comm, nil}})
						if raises.at += r.lived; r.raised && late {
							lines = append(lines, raises)
						}
					}
					playInto(tracker, inOrder(lines))
					tracker.launches.expire(scriptNS(900))
					require.Equal(t, want, strings.Join(ends, ", "))
				})
			}
		}
	}
}
