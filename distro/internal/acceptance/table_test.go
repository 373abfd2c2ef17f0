//go:build linux && (amd64 || arm64)

package acceptance

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/fusefault/hangfs"
	"github.com/tracecoreai/tracecore/bpf/ncclcall"
	"github.com/tracecoreai/tracecore/bpf/ncclcall/fakejob"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// rankFault is something that happens to rank 1 of a job that has no socket, and what must be said.
type rankFault struct {
	name   string
	bare   bool   // no environment says which rank it is: its calls do
	static bool   // no call is seen, as where NCCL is linked statically: stacks alone tell
	order  string // of the rank instead of its step; "": none, it stays in the collective before
	all    bool   // it happens to all ranks, and none of them is to blame
	file   bool   // it has a file of a mount that answers nobody any more
	make   func(pid int) error
	// pattern is that of the cause, and says what it says of the rank.
	pattern, says string
}

func rankFaults() []rankFault {
	asleep := func(function string) string {
		return `its main thread is asleep in .*, at 0 % CPU, at job\.py:\d+ in ` + function + ` < main$`
	}
	loops := func(who, function string) string {
		return strings.Replace(who, " called A", "( yet)? called A", 1) + `rank 1 executes nothing but a loop at job\.py:\d+ in ` + function + ` < main`
	}
	below := func(static bool) string {
		if static {
			return `^all 3 ranks wait in a collective \(all_reduce\): the fault is below the program$`
		}
		return `^all ranks of .* have called AllReduce #\d+ \(4,096 x bf16\), and all wait: the fault is below the program$`
	}
	stop := func(pid int) error { return syscall.Kill(pid, syscall.SIGSTOP) }
	kill := func(pid int) error { return exec.Command("/bin/sh", "-c", fmt.Sprint("kill -9 ", pid)).Run() }
	var all []rankFault
	for _, static := range []bool{false, true} {
		who := `^rank 1 on \S+ has not called AllReduce #\d+ \(4,096 x bf16\), which 2 ranks have called: `
		if static {
			who = `^2 ranks wait in a collective \(all_reduce\) for rank 1 on \S+: `
		}
		all = append(all,
			rankFault{name: "stopped", static: static, make: stop, pattern: "nccl_hang", says: who + `its process is stopped`},
			rankFault{name: "asleep in its own code", static: static, order: "save 600", pattern: "nccl_hang", says: who + asleep("save_checkpoint")},
			rankFault{name: "deadlocked", static: static, order: "deadlock 600", pattern: "nccl_hang", says: who + asleep("deadlock")},
			rankFault{name: "spinning", static: static, order: "spin 600", pattern: "nccl_hang", says: loops(who, "spin")},
			rankFault{name: "spinning in C", static: static, order: "spin_in_c free", pattern: "nccl_hang", says: loops(who, "spin_in_c")},
			rankFault{name: "spinning in C with the GIL", static: static, order: "spin_in_c gil", pattern: "nccl_hang", says: loops(who, "spin_in_c")},
			rankFault{name: "asleep in C with the GIL", static: static, order: "hold_gil 600", pattern: "nccl_hang", says: who + asleep("hold_gil")},
			rankFault{name: "a collective that does not end", static: static, all: true, pattern: "nccl_hang", says: below(static)},
		)
	}
	who := `^rank 1 on \S+ has not called AllReduce #\d+ \(4,096 x bf16\), which 2 ranks have called: `
	return append(all,
		rankFault{name: "stopped", bare: true, make: stop, pattern: "nccl_hang", says: who + `its process is stopped`},
		rankFault{name: "asleep in its own code", bare: true, order: "save 600", pattern: "nccl_hang", says: who + asleep("save_checkpoint")},
		rankFault{name: "spinning", bare: true, order: "spin 600", pattern: "nccl_hang", says: loops(who, "spin")},
		rankFault{name: "raises an exception", bare: true, order: "fail bad batch 3", pattern: "rank_exit", says: `rank 1 .*ValueError: bad batch 3 at job\.py:\d+ in fail`},
		rankFault{name: "asleep in a group of calls", order: "coalesce 600", pattern: "nccl_hang",
			says: strings.Replace(who, "called A", "launched A", 1) + `its main thread is asleep in .*, at job\.py:\d+ in save_checkpoint < coalesce < main; it has called it in a group that has not ended \(ncclGroupEnd\)$`},
		rankFault{name: "a GPU kernel that does not end", order: "synchronize", all: true, pattern: "nccl_hang", says: below(false)},
		rankFault{name: "page fault on a mount that is stuck", order: "load 8388608", file: true, pattern: "fuse_stall", says: `^daemon hangfs .* does not answer a page fault for .*; rank 1 of job \S+ waits`},
		rankFault{name: "write to a mount that is stuck", order: "write 1048576", file: true, pattern: "fuse_stall", says: `^daemon hangfs .* does not answer a WRITE for .*; rank 1 of job \S+ waits`},
		rankFault{name: "raises an exception", order: "fail bad batch 3", pattern: "rank_exit", says: `rank 1 .*ValueError: bad batch 3 at job\.py:\d+ in fail`},
		rankFault{name: "killed by another process", make: kill, pattern: "rank_exit", says: `rank 1 .*SIGKILL.*, sent by sh \(pid \d+\)`},
	)
}

// nameEachFaultWithoutASocket: its ranks are programs in Python that call a stand-in for NCCL. Each
// fault has a job of its own; all are watched by one agent, and happen beside each other.
func nameEachFaultWithoutASocket(t *testing.T, library string) {
	a := startAgent(t, t.TempDir(), "--set=receivers.ncclcall.look_interval=1s", "--set=receivers.stacks.look_interval=1s")
	faults := rankFaults()
	jobs, names := make([]*pythonJob, len(faults)), make([]string, len(faults))
	for i := range faults {
		names[i] = fmt.Sprint("row-", i)
		if faults[i].static {
			jobs[i] = startPythonJob(t, names[i], 3)
			continue
		}
		id := make([]byte, fakejob.IDBytes)
		copy(id, names[i])
		nccl := fmt.Sprintf("STANDIN_NCCL=%s:%d:%d:%d:%d:%d", library, fakejob.Offset("ncclCommInitRank"), fakejob.Offset("ncclAllReduce"), fakejob.Offset("ncclGroupStart"), rankOffset, ncclcall.IDHash(id))
		if faults[i].bare {
			jobs[i] = startPythonRanks(t, names[i], 3, func(int) []string { return []string{nccl} })
			names[i] = fmt.Sprintf("communicator 0x%x/3", ncclcall.IDHash(id))
			continue
		}
		jobs[i] = startPythonJob(t, names[i], 3, nccl)
	}
	a.awaitWatched(t)
	time.Sleep(2 * time.Second) // looks that find the other jobs, too
	mounts := map[*pythonJob]*hangfs.FS{}
	for i, job := range jobs {
		for rank, r := range job.ranks {
			require.True(t, r.enters(t.Context().Done()))
			order := "init"
			if rank == 1 && faults[i].file {
				mounts[job] = startMount(t)
				order += " " + mounts[job].Path(hangfs.Cached)
			}
			r.goes(order)
		}
		job.run("step")
	}
	time.Sleep(25 * time.Second) // until their pauses are known
	for _, v := range a.verdicts(t) {
		require.NotContains(t, names, v.Culprit["job"], "all are healthy: %s", v.Headline)
	}
	var made sync.WaitGroup // each waits for a threshold: at once, whatever -parallel is
	defer made.Wait()
	for i, fault := range faults {
		job := jobs[i]
		title := fault.name
		if fault.static {
			title += ", by stacks alone"
		}
		if fault.bare {
			title += ", known by its calls alone"
		}
		made.Go(func() {
			t.Run(title, func(t *testing.T) { a.names(t, job, names[i], &fault, mounts[job]) })
		})
	}
}

func startMount(t *testing.T) *hangfs.FS {
	t.Helper()
	fs, err := hangfs.Start(hangfs.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, fs.Close()) })
	return fs
}

// names breaks a job, and expects that the cause is told, and nothing else.
func (a agent) names(t *testing.T, job *pythonJob, name string, fault *rankFault, mount *hangfs.FS) {
	t.Helper()
	t.Cleanup(job.kill)
	job.halt()
	for _, r := range job.ranks {
		require.True(t, r.enters(t.Context().Done()))
	}
	if mount != nil {
		require.NoError(t, mount.Freeze())
	}
	made := cause(t, "ncclcall", fault.name)
	if fault.make != nil {
		require.NoError(t, fault.make(job.ranks[1].cmd.Process.Pid))
	}
	who := "1"
	if fault.all {
		who = ""
		if fault.order != "" {
			for _, r := range job.ranks {
				r.goes(fault.order)
			}
		}
	} else {
		job.all(t, 1, fault.order)
	}
	v := a.await(t, fault.name, func(v verdict.Verdict) bool {
		return v.Pattern == fault.pattern && v.Culprit["job"] == name && v.Severity != verdict.Info
	})
	made.named()
	t.Logf("named after %v: %s", made.delay.Round(time.Millisecond), v.Headline)
	require.Equal(t, verdict.RootCause, v.Role)
	require.Equal(t, who, v.Culprit["rank"])
	defer func() {
		for _, w := range a.verdicts(t) {
			if t.Failed() && w.Culprit["job"] == name {
				t.Logf("%s %s %s %s: %s", w.Updated.Format(time.TimeOnly), w.Status, w.Role, w.Confidence, w.Headline)
				for _, e := range w.Evidence {
					t.Logf("  %s", e.Shows)
				}
			}
		}
	}()
	v = a.await(t, fault.name+", with its cause", func(w verdict.Verdict) bool {
		return w.ID == v.ID && regexp.MustCompile(fault.says).MatchString(w.Headline)
	})
	t.Logf("complete after %v: %s", time.Since(made.cause).Round(time.Millisecond), v.Headline)
	time.Sleep(3 * time.Second) // what comes of it
	for _, w := range a.verdicts(t) {
		if w.Culprit["job"] == name && w.Role == verdict.RootCause && w.Severity != verdict.Info {
			require.Equal(t, v.ID, w.ID, "another cause: %s", w.Headline)
		}
	}
}
