package ranks

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

var began = time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)

// bench is a book that is told records.
type bench struct {
	*Book
	of  RunOf
	now time.Duration
}

func newBench(most int) *bench { return &bench{Book: NewBook(most), of: Recorded()} }

type attributes map[string]any

// of is the identity of a rank on the node of its eighth, of an attempt that began then.
func of(rank int, start time.Duration, more attributes) attributes {
	all := attributes{
		"gen_ai.training.rank": rank, "gen_ai.training.job_id": "llm", "gen_ai.training.world_size": 16, "gen_ai.training.local_rank": rank % 8,
		"gen_ai.training.rank_pid": 1000 + rank + int(start/time.Second), "gen_ai.training.rank_start_unix_nano": began.Add(start).UnixNano(),
		"process.pid": 1000 + rank + int(start/time.Second), "process.executable.name": "python3", "tracecore.trust": "proven",
	}
	for key, value := range more {
		all[key] = value
	}
	return all
}

func (b *bench) tell(t testing.TB, at time.Duration, event string, rank int, a attributes) {
	t.Helper()
	b.now = at
	b.Logs(logsOf(t, at, event, rank, a), b.of)
}

func logsOf(t testing.TB, at time.Duration, event string, rank int, a attributes) plog.Logs {
	t.Helper()
	logs := plog.NewLogs()
	resource := logs.ResourceLogs().AppendEmpty()
	resource.Resource().Attributes().PutStr("host.name", fmt.Sprint("node-", rank/8))
	record := resource.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	record.SetEventName(event)
	record.SetTimestamp(pcommon.NewTimestampFromTime(began.Add(at)))
	require.NoError(t, record.Attributes().FromRaw(a))
	return logs
}

// states are the groups of the only job.
func (b *bench) states(t testing.TB) (list []string) {
	t.Helper()
	jobs, _ := b.States(began.Add(b.now))
	require.Len(t, jobs, 1)
	for _, g := range jobs[0].Groups {
		list = append(list, g.State+" "+g.Ranks)
	}
	return list
}

func stalled(id string, age time.Duration) attributes {
	return attributes{
		"nccl.socket.stall.id": id, "nccl.socket.stall.age_ns": int64(age), "nccl.socket.direction": "receive", "nccl.socket.cause": "waiting",
		"nccl.rank.state": "sleeping", "nccl.rank.syscall": "futex", "network.local.address": "10.0.0.1", "network.local.port": 1, "network.peer.address": "10.0.0.4", "network.peer.port": 40003,
	}
}

func TestTheLifeOfRanks(t *testing.T) {
	b := newBench(DefaultMost)
	for rank := range 8 {
		b.tell(t, time.Second, "process.start", rank, of(rank, 0, nil))
	}
	require.Equal(t, []string{"unseen 8-15", "goes_on 0-7"}, b.states(t))

	for rank := range 8 {
		if rank != 5 {
			b.tell(t, 10*time.Second, "nccl.socket.stall", rank, of(rank, 0, stalled("a", 3*time.Second)))
		}
	}
	b.tell(t, 10*time.Second, "nccl.socket.stall", 4, of(4, 0, stalled("b", 2*time.Second)))
	b.tell(t, 11*time.Second, "fuse.stall", 5, of(5, 0, attributes{"fuse.device": "0:52", "fuse.mount.point": "/ckpt", "fuse.opcode": "FSYNC", "fuse.stall.age_ns": int64(4 * time.Second), "fuse.stall.ranks": []any{6}}))
	require.Equal(t, []string{"blocked 5-6", "unseen 8-15", "waits 0-4,7"}, b.states(t))
	jobs, version := b.States(began.Add(b.now))
	require.Equal(t, began.Add(7*time.Second), *jobs[0].Since, "the oldest stall that lasts")
	require.Equal(t, began, *jobs[0].Began)
	require.Equal(t, []history.RankNode{{Host: "node-0", Ranks: "0-7"}}, jobs[0].Nodes)
	require.Equal(t, map[string]int{"blocked": 2, "unseen": 8, "waits": 6}, jobs[0].Counts)

	b.tell(t, 20*time.Second, "nccl.socket.stall", 4, of(4, 0, stalled("a", 13*time.Second)))
	_, again := b.States(began.Add(b.now))
	require.Equal(t, version, again, "a stall that is repeated is no news")

	b.tell(t, 21*time.Second, "nccl.socket.stall.end", 4, of(4, 0, stalled("a", 14*time.Second)))
	require.Contains(t, b.states(t), "waits 0-4,7", "it has another")
	b.tell(t, 21*time.Second, "nccl.socket.stall.end", 4, of(4, 0, stalled("b", 14*time.Second)))
	require.Equal(t, []string{"blocked 5-6", "unseen 8-15", "waits 0-3,7", "goes_on 4"}, b.states(t))
	_, again = b.States(began.Add(b.now))
	require.NotEqual(t, version, again)

	b.tell(t, 22*time.Second, "fuse.stall.end", 5, attributes{"fuse.device": "0:52"})
	require.Equal(t, []string{"unseen 8-15", "waits 0-3,6-7", "goes_on 4-5"}, b.states(t))

	b.tell(t, 23*time.Second, "process.exit", 0, of(0, 0, attributes{"process.exit.signal_name": "SIGABRT"}))
	b.tell(t, 23*time.Second, "process.exit", 1, of(1, 0, attributes{"process.exit.code": 0}))
	b.tell(t, 23*time.Second, "process.exit", 2, of(2, 0, attributes{"process.exit.code": 1, "process.pid": 77}))
	require.Equal(t, []string{"died 0", "unseen 8-15", "waits 2-3,6-7", "goes_on 4-5", "ended 1"}, b.states(t), "a child of rank 2 is not rank 2")
	b.tell(t, 23*time.Second, "process.exit", 2, of(2, 0, attributes{"process.exit.code": 1, "process.pid": 77, "process.exit.wrapper.pid": 1002}))
	require.Equal(t, []string{"died 0", "died 2", "unseen 8-15", "waits 3,6-7", "goes_on 4-5", "ended 1"}, b.states(t), "but where the outermost process of the rank passed its end on")
	b.tell(t, 23*time.Second, "process.exit", 9, of(9, 0, attributes{"process.exit.code": 1, "process.exit.helper": true}))
	b.tell(t, 23*time.Second, "process.exit", 9, of(9, 0, attributes{"process.exit.code": 1, "process.exit.inherited_identity": true, "gen_ai.training.job_domain": "unknown"}))
	require.Contains(t, b.states(t), "unseen 8-15", "neither what a launch script ran nor a child of nobody is a rank")
	b.tell(t, 24*time.Second, "nccl.socket.stall", 0, of(0, 0, stalled("a", 13*time.Second)))
	require.Contains(t, b.states(t), "died 0")

	d, ok := b.State("llm", "", 7, began.Add(b.now))
	require.True(t, ok)
	require.Equal(t, "node-0", d.Host)
	require.Equal(t, 7, *d.Local)
	require.Equal(t, "futex", d.Syscall)
	require.Equal(t, []history.RankWait{{For: "10.0.0.4:40003", What: "receive, waiting", Since: began.Add(7 * time.Second)}}, d.Waits)
	_, ok = b.State("llm", "", 99, began)
	require.False(t, ok)
}

// A rank that ended while no agent ran is not there any more: how it ended, nobody saw.
func TestARankThatEndedUnseen(t *testing.T) {
	b := newBench(DefaultMost)
	for rank := range 4 {
		b.tell(t, time.Second, "process.start", rank, of(rank, 0, nil))
	}
	b.tell(t, 10*time.Second, "process.gone", 1, of(1, 0, attributes{"process.gone.unwatched_ns": 1_000_000_000}))
	b.tell(t, 10*time.Second, "process.gone", 2, of(2, 0, attributes{"process.gone.unwatched_ns": 1_000_000_000, "process.gone.again": true}))
	b.tell(t, 10*time.Second, "process.exit", 3, of(3, 0, attributes{"process.exit.code": 1}))
	b.tell(t, 11*time.Second, "process.gone", 3, of(3, 0, attributes{"process.gone.unwatched_ns": 1_000_000_000}))
	require.Equal(t, []string{"died 3", "unseen 4-15", "goes_on 0,2", "ended 1"}, b.states(t), "rank 2 runs again, and of rank 3 the end was seen")
	d, ok := b.State("llm", "", 1, began.Add(b.now))
	require.True(t, ok)
	require.Equal(t, Unseen, d.How)
}

// A node whose agent died tells nothing more: its ranks neither wait nor go on.
func TestAStallThatNobodyRepeatsIsNotJudged(t *testing.T) {
	b := newBench(DefaultMost)
	b.tell(t, 10*time.Second, "nccl.socket.stall", 0, of(0, 0, stalled("a", 3*time.Second)))
	b.tell(t, 12*time.Second, "nccl.socket.stall", 1, of(1, 0, stalled("a", 3*time.Second)))
	require.Contains(t, b.states(t), "waits 0-1")
	_, before := b.States(began.Add(b.now))
	b.now = 10*time.Second + time.Duration(quiet)
	require.Equal(t, []string{"silent 0", "unseen 2-15", "waits 1"}, b.states(t))
	_, after := b.States(began.Add(b.now))
	require.NotEqual(t, before, after)
	b.tell(t, b.now+time.Second, "nccl.socket.stall", 0, of(0, 0, stalled("a", 3*time.Second)))
	require.Contains(t, b.states(t), "waits 0-1")
}

// The same ranks as later processes are another start: nothing of the first is left.
func TestARestartBeginsAnew(t *testing.T) {
	b := newBench(DefaultMost)
	for rank := range 16 {
		b.tell(t, time.Second, "process.start", rank, of(rank, 0, nil))
		b.tell(t, 10*time.Second, "nccl.socket.stall", rank, of(rank, 0, stalled("a", 3*time.Second)))
	}
	b.tell(t, time.Hour, "process.start", 3, of(3, time.Hour, nil))
	require.Equal(t, []string{"unseen 0-2,4-15", "goes_on 3"}, b.states(t))
	b.tell(t, time.Hour+time.Second, "process.exit", 4, of(4, 0, attributes{"process.exit.code": 1}))
	require.Equal(t, []string{"unseen 0-2,4-15", "goes_on 3"}, b.states(t), "a late end of the first start")
}

// Who may not be believed about a job changes nothing of it, but for where a stack is.
func TestWhatIsTrustedLessChangesNothing(t *testing.T) {
	b := newBench(DefaultMost)
	b.tell(t, time.Second, "process.start", 0, of(0, 0, nil))
	forged := of(0, 0, attributes{"process.exit.code": 1, "tracecore.trust": "foreign"})
	b.tell(t, 2*time.Second, "process.exit", 0, forged)
	b.tell(t, 2*time.Second, "nccl.socket.stall", 0, of(0, 0, attributes{"tracecore.trust": "claimed", "nccl.socket.stall.id": "a"}))
	require.Equal(t, []string{"unseen 1-15", "goes_on 0"}, b.states(t))
	b.tell(t, 3*time.Second, "process.stack", 0, of(0, 0, attributes{"tracecore.trust": "claimed", "process.stack.where": "train.py:120 in save < main", "process.stack.hash": "ab"}))
	d, _ := b.State("llm", "", 0, began)
	require.Equal(t, "train.py:120 in save < main", d.Stack.Where)
	b.tell(t, 4*time.Second, "process.stack.moving", 0, of(0, 0, attributes{"tracecore.trust": "claimed"}))
	d, _ = b.State("llm", "", 0, began)
	require.Nil(t, d.Stack, "it moves again")

	c := newBench(DefaultMost)
	c.tell(t, time.Second, "process.start", 0, of(0, 0, attributes{"tracecore.trust": "claimed"}))
	c.tell(t, 2*time.Second, "process.start", 1, of(1, 0, nil))
	require.Equal(t, []string{"unseen 0,2-15", "goes_on 1"}, c.states(t), "what is proven takes the place of what is claimed")
	jobs, _ := c.States(began)
	require.Equal(t, verdict.Proven, jobs[0].Trust)
}

// A flood of jobs takes room from itself.
func TestAFloodLeavesTheJobsOfOthers(t *testing.T) {
	b := newBench(256)
	for rank := range 8 {
		b.tell(t, time.Second, "process.start", rank, of(rank, 0, attributes{"gen_ai.training.job_domain": "a"}))
	}
	for i := range 1000 {
		b.tell(t, time.Minute, "process.start", i%8, of(i%8, 0, attributes{"gen_ai.training.job_domain": "b", "gen_ai.training.job_id": fmt.Sprint("flood-", i)}))
	}
	jobs, _ := b.States(began.Add(time.Minute))
	require.LessOrEqual(t, b.count, 256)
	require.Len(t, jobs[len(jobs)-1:], 1)
	found := 0
	for _, j := range jobs {
		if j.Domain == "a" {
			found = j.Counts[history.RankGoesOn]
		}
	}
	require.Equal(t, 8, found)

	one := newBench(64)
	for rank := range 100 {
		one.tell(t, time.Second, "process.start", rank, of(rank, 0, nil))
	}
	jobs, _ = one.States(began)
	require.Equal(t, 64, jobs[0].Counts[history.RankGoesOn], "a job that takes all there is")
}

func TestAJobThatEndedLeaves(t *testing.T) {
	b := newBench(DefaultMost)
	b.tell(t, time.Second, "process.start", 0, of(0, 0, nil))
	b.tell(t, 2*time.Second, "process.exit", 0, of(0, 0, attributes{"process.exit.code": 0}))
	jobs, _ := b.States(began.Add(time.Minute))
	require.Len(t, jobs, 1)
	jobs, _ = b.States(began.Add(2 * time.Hour))
	require.Empty(t, jobs)
	require.Zero(t, b.count)
}

func TestHostileNamesAreShownForWhatTheyAre(t *testing.T) {
	b := newBench(DefaultMost)
	name := "\x1b[2J\u202ex"
	b.tell(t, time.Second, "process.start", 0, of(0, 0, attributes{"gen_ai.training.job_id": name, "process.executable.name": name}))
	jobs, _ := b.States(began)
	require.Equal(t, `\x1b[2J\u202ex`, jobs[0].Job)
	d, ok := b.State(jobs[0].Job, "", 0, began)
	require.True(t, ok)
	require.Equal(t, `\x1b[2J\u202ex`, d.Process)
}

func FuzzBook(f *testing.F) {
	f.Add(int64(1), "process.start", "llm", int64(3), int64(7), "a")
	f.Add(int64(2), "nccl.socket.stall", "llm", int64(3), int64(7), "b")
	f.Add(int64(1<<62), "fuse.stall", "x", int64(1<<40), int64(-1), "")
	f.Fuzz(func(t *testing.T, at int64, event, job string, rank, start int64, text string) {
		b := newBench(64)
		for step := range int64(3) {
			logs := plog.NewLogs()
			resource := logs.ResourceLogs().AppendEmpty()
			resource.Resource().Attributes().PutStr("host.name", text)
			record := resource.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
			record.SetEventName([]string{event, "process.start", "nccl.socket.stall"}[step])
			record.SetTimestamp(pcommon.Timestamp(at))
			a := record.Attributes()
			for _, key := range []string{"gen_ai.training.job_id", "fuse.mount.point", "process.stack.where", "process.exit.signal_name", "nccl.socket.stall.id"} {
				a.PutStr(key, job+text)
			}
			for key, n := range map[string]int64{"gen_ai.training.rank": rank, "gen_ai.training.rank_pid": start, "gen_ai.training.rank_start_unix_nano": start, "gen_ai.training.world_size": rank, "process.pid": start, "gen_ai.training.local_rank": rank, "fuse.stall.age_ns": rank} {
				a.PutInt(key, n+step)
			}
			a.PutEmptySlice("fuse.stall.ranks").AppendEmpty().SetInt(rank)
			b.Logs(logs, b.of)
		}
		jobs, _ := b.States(time.Unix(0, at))
		for _, j := range jobs {
			b.State(j.Job, j.Domain, int(rank), time.Unix(0, at))
		}
	})
}

func BenchmarkBook(b *testing.B) {
	for _, ranks := range []int{8, 16384} {
		book := newBench(DefaultMost)
		for rank := range ranks {
			book.tell(b, time.Second, "process.start", rank, of(rank, 0, nil))
		}
		b.Run(fmt.Sprint("stall of ", ranks), func(b *testing.B) {
			logs := logsOf(b, 10*time.Second, "nccl.socket.stall", 3, of(3, 0, stalled("a", time.Second)))
			for b.Loop() {
				book.Logs(logs, book.of)
			}
		})
		b.Run(fmt.Sprint("states of ", ranks), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				for _, j := range book.jobs {
					j.told.stale = true
				}
				book.States(began.Add(20 * time.Second))
			}
		})
	}
}

// The frames of a stack are told once for each hash; they are a job's own.
func TestWhereARankStandsIsShownWithItsFrames(t *testing.T) {
	b := newBench(DefaultMost)
	stack := func(more attributes) attributes {
		all := attributes{"process.stack.hash": "beef", "process.stack.kernel_function": "futex_wait_queue", "process.stack.kernel_owner": "futex"}
		for key, value := range more {
			all[key] = value
		}
		return all
	}
	for rank := range 2 {
		b.tell(t, time.Second, "process.start", rank, of(rank, 0, nil))
	}
	b.tell(t, 2*time.Second, "process.stack", 0, of(0, 0, stack(attributes{
		"process.stack.native": []any{"pthread_cond_wait in libc.so.6"},
		"process.stack.frames": []any{map[string]any{"code.function.name": "train_step\x1b[2J", "code.file.path": "/srv/train.py", "code.line.number": 88}},
	})))
	b.tell(t, 3*time.Second, "process.stack", 1, of(1, 0, stack(nil)))
	want := []history.RankFrame{
		{Kind: "kernel", Function: "futex_wait_queue", Place: "futex"}, {Kind: "native", Function: "pthread_cond_wait", Place: "libc.so.6"},
		{Kind: "python", Function: `train_step\x1b[2J`, Place: "train.py:88"},
	}
	for rank := range 2 {
		d, ok := b.State("llm", "", rank, began.Add(b.now))
		require.True(t, ok)
		require.Equal(t, want, d.Stack.Frames)
	}
	other := attributes{"gen_ai.training.job_id": "other"}
	b.tell(t, 4*time.Second, "process.start", 0, of(0, 0, other))
	b.tell(t, 5*time.Second, "process.stack", 0, of(0, 0, stack(other)))
	d, ok := b.State("other", "", 0, began.Add(b.now))
	require.True(t, ok)
	require.Empty(t, d.Stack.Frames)
	for n := range 2 * mostHashes {
		b.tell(t, 6*time.Second, "process.stack", 0, of(0, 0, stack(attributes{
			"gen_ai.training.job_id": "other", "process.stack.hash": fmt.Sprint(n), "process.stack.native": []any{"spin in a.so"},
		})))
	}
	require.Len(t, b.frames.of, mostHashes)
	require.Len(t, b.frames.lists, mostHashes)
	d, _ = b.State("llm", "", 0, began.Add(b.now))
	require.Equal(t, want, d.Stack.Frames, "a flood takes room from itself")
}
