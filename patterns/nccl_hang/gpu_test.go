package ncclhang

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
)

// gpuOf is the GPU of a rank of a test: eight to a host.
func gpuOf(rank int) string { return fmt.Sprintf("0000:%02x:00.0", 16+rank%8) }

// gpu says what the GPUs of ranks do, from ten seconds after now.
func (c *calls) gpu(state string, ranks ...int) *calls {
	return c.gpuLike(state, nil, ranks...)
}

func (c *calls) gpuLike(state string, edit func(pcommon.Map), ranks ...int) *calls {
	return c.gpuRecord(eventGPU, 30*time.Second, func(a pcommon.Map) {
		a.PutStr("gpu.activity.state", state)
		a.PutInt("gpu.activity.readings", 3)
		a.PutInt("gpu.activity.since_unix_nano", c.at.Add(10*time.Second).UnixNano())
		if edit != nil {
			edit(a)
		}
	}, ranks...)
}

func (c *calls) xid(xid int64, after time.Duration, ranks ...int) *calls {
	return c.gpuRecord(eventXid, after, func(a pcommon.Map) { a.PutInt("kernelevents.xid", xid) }, ranks...)
}

func (c *calls) gpuRecord(event string, after time.Duration, edit func(pcommon.Map), ranks ...int) *calls {
	at := c.at
	c.at = at.Add(after)
	for _, rank := range ranks {
		c.record(event, comm{}, rank, func(a pcommon.Map) {
			a.PutStr("gpu.id", gpuOf(rank))
			if edit != nil {
				a2 := c.at
				c.at = at
				edit(a)
				c.at = a2
			}
		})
	}
	c.at = at
	return c
}

// waits has all ranks wait in a collective, with and without calls.
var waits = map[string]func(*calls){
	"by calls": func(c *calls) { c.stands(c.all(), 10, "overdue", but(c.world)...).stacks("gpu", but(c.world)...) },
	"by calls, one of which a rank lacks": func(c *calls) {
		c.stands(c.all(), 10, "overdue", but(c.world, 0)...).stands(c.all(), 9, "overdue", 0).stacks("gpu", but(c.world)...)
	},
	"by stacks": func(c *calls) { c.stand(inCollective, but(c.world)...) },
}

// said is what is told of a standstill of eight ranks once all records have come.
func saidOf(t *testing.T, waits, gpus func(*calls)) *Finding {
	t.Helper()
	c := newCalls(8)
	waits(c)
	gpus(c)
	j := newJoin(DefaultOptions)
	j.Add(c.list, c.at)
	findings(j.Advance(c.at.Add(settled)))
	j = requireSameState(t, j)
	f := findings(j.Advance(c.at.Add(DefaultOptions.StuckWait)))
	require.Len(t, f, 1)
	require.True(t, f[0].below())
	require.NotEqual(t, Certain, f[0].Sure)
	return &f[0]
}

func TestWhatGPUsSayOfAStandstillBelowTheProgram(t *testing.T) {
	for name, tc := range map[string]struct {
		gpus   func(*calls)
		clear  string // where the fault is, "" for not clear
		all    string
		rank   int
		device string
	}{
		"nothing": {gpus: func(*calls) {}, rank: -1},
		"one idle, all others busy": {
			gpus:  func(c *calls) { c.gpu("busy", but(8, 5)...).gpu("idle", 5) },
			clear: "the kernel of rank 5 does not run on GPU 0000:15:00.0 of node-0", rank: 5, device: "0000:15:00.0",
			all: "no kernel runs on GPU 0000:15:00.0 of rank 5 on node-0; a kernel runs on the GPUs of 7 ranks, as one of NCCL does while it waits",
		},
		"all busy": {
			gpus:  func(c *calls) { c.gpu("busy", but(8)...) },
			clear: "a kernel runs on all GPUs: look at the links between them", rank: -1,
			all: "a kernel runs on each of their GPUs, as one of NCCL does while it waits",
		},
		"all idle": {
			gpus: func(c *calls) { c.gpu("idle", but(8)...) }, rank: -1,
			all: "no kernel runs on any of their GPUs",
		},
		"two idle": {
			gpus: func(c *calls) { c.gpu("busy", but(8, 2, 5)...).gpu("idle", 2, 5) }, rank: -1,
			all: "no kernel runs on the GPUs of ranks 2, 5; a kernel runs on the GPUs of 6 ranks, as one of NCCL does while it waits",
		},
		"one idle, of one nothing is known": {
			gpus: func(c *calls) { c.gpu("busy", but(8, 2, 5)...).gpu("idle", 5) }, rank: -1,
			all: "no kernel runs on GPU 0000:15:00.0 of rank 5 on node-0; a kernel runs on the GPUs of 6 ranks, as one of NCCL does while it waits; of the GPU of rank 2 no reading came",
		},
		"one idle, one is busy now and then": {
			gpus: func(c *calls) { c.gpu("busy", but(8, 2, 5)...).gpu("idle", 5).gpu("varies", 2) }, rank: -1,
			all: "no kernel runs on GPU 0000:15:00.0 of rank 5 on node-0; a kernel runs on the GPUs of 6 ranks, as one of NCCL does while it waits; kernels run for a part of the time on the GPU of rank 2",
		},
		"one idle, a busy one has other users": {
			gpus: func(c *calls) {
				c.gpu("busy", but(8, 2, 5)...).gpu("idle", 5).gpuLike("busy", func(a pcommon.Map) { a.PutBool("gpu.activity.shared", true) }, 2)
			},
			rank: -1,
			all:  "no kernel runs on GPU 0000:15:00.0 of rank 5 on node-0; a kernel runs on the GPUs of 6 ranks, as one of NCCL does while it waits; of the GPU of rank 2 no reading came",
		},
		"idle before it stood": {
			gpus: func(c *calls) {
				c.gpu("busy", but(8, 5)...).gpuLike("idle", func(a pcommon.Map) { a.PutInt("gpu.activity.since_unix_nano", c.at.Add(-5*time.Second).UnixNano()) }, 5)
			},
			rank: -1,
			all:  "a kernel runs on the GPUs of 7 ranks, as one of NCCL does while it waits; of the GPU of rank 5 no reading came",
		},
		"idle at first, then busy": {
			gpus: func(c *calls) {
				c.gpu("busy", but(8)...)
				c.gpuRecord(eventGPU, 20*time.Second, func(a pcommon.Map) {
					a.PutStr("gpu.activity.state", "idle")
					a.PutInt("gpu.activity.since_unix_nano", c.at.Add(time.Second).UnixNano())
				}, 5)
			},
			clear: "a kernel runs on all GPUs: look at the links between them", rank: -1,
			all: "a kernel runs on each of their GPUs, as one of NCCL does while it waits",
		},
		"hot": {
			gpus: func(c *calls) {
				c.gpu("busy", but(8, 2, 5)...).gpuLike("busy", func(a pcommon.Map) { a.PutInt("gpu.activity.clock_percent", 17) }, 2)
				c.gpuLike("busy", func(a pcommon.Map) {
					a.PutEmptySlice("gpu.activity.throttle_reasons").AppendEmpty().SetStr("hw_thermal_slowdown")
				}, 5)
			},
			clear: "a kernel runs on all GPUs: look at the links between them", rank: -1,
			all: "a kernel runs on each of their GPUs, as one of NCCL does while it waits; GPU 0000:12:00.0 of rank 2 on node-0 runs at 17 % of its highest clock; GPU 0000:15:00.0 of rank 5 on node-0 is held down (hw_thermal_slowdown)",
		},
		"an Xid": {
			gpus:  func(c *calls) { c.xid(119, -20*time.Second, 5) },
			clear: "GPU 0000:15:00.0 of rank 5 on node-0 reported Xid 119", rank: 5, device: "0000:15:00.0",
			all: "GPU 0000:15:00.0 of rank 5 on node-0 reported Xid 119; of the GPUs of ranks 0-7 no reading came",
		},
		"a GPU is lost while the others are busy": {
			gpus:  func(c *calls) { c.gpu("busy", but(8, 5)...).gpuRecord(eventGPULost, time.Second, nil, 5) },
			clear: "GPU 0000:15:00.0 of rank 5 on node-0 no longer answers", rank: 5, device: "0000:15:00.0",
			all: "GPU 0000:15:00.0 of rank 5 on node-0 no longer answers; a kernel runs on the GPUs of 7 ranks, as one of NCCL does while it waits; of the GPU of rank 5 no reading came",
		},
		"an Xid on one, another is idle": {
			gpus: func(c *calls) { c.gpu("busy", but(8, 2)...).gpu("idle", 2).xid(119, 0, 5) }, rank: -1,
			all: "GPU 0000:15:00.0 of rank 5 on node-0 reported Xid 119; no kernel runs on GPU 0000:12:00.0 of rank 2 on node-0; a kernel runs on the GPUs of 7 ranks, as one of NCCL does while it waits",
		},
		"an Xid on the idle one": {
			gpus:  func(c *calls) { c.gpu("busy", but(8, 5)...).gpu("idle", 5).xid(119, 0, 5) },
			clear: "GPU 0000:15:00.0 of rank 5 on node-0 reported Xid 119", rank: 5, device: "0000:15:00.0",
			all: "GPU 0000:15:00.0 of rank 5 on node-0 reported Xid 119; no kernel runs on GPU 0000:15:00.0 of rank 5 on node-0; a kernel runs on the GPUs of 7 ranks, as one of NCCL does while it waits",
		},
		"Xids on two": {
			gpus: func(c *calls) { c.xid(119, 0, 2, 5) }, rank: -1,
			all: "GPU 0000:12:00.0 of rank 2 on node-0 reported Xid 119; GPU 0000:15:00.0 of rank 5 on node-0 reported Xid 119; of the GPUs of ranks 0-7 no reading came",
		},
		"an Xid two minutes before":    {gpus: func(c *calls) { c.xid(119, -2*time.Minute, 5) }, rank: -1},
		"an Xid two minutes later":     {gpus: func(c *calls) { c.xid(119, 2*time.Minute, 5) }, rank: -1},
		"a GPU that was back at once":  {gpus: func(c *calls) { c.gpuRecord(eventGPULost, 0, nil, 5).gpuRecord(eventGPURecovered, time.Second, nil, 5) }, rank: -1},
		"an Xid of a test":             {gpus: xidLike(func(a pcommon.Map) { a.PutBool("kernelevents.injected", true) }), rank: -1},
		"an Xid of an application":     {gpus: xidLike(func(a pcommon.Map) { a.PutBool("kernelevents.application_caused", true) }), rank: -1},
		"an Xid that is no fault":      {gpus: xidLike(func(a pcommon.Map) { a.PutStr("kernelevents.severity", "info") }), rank: -1},
		"an Xid of a drill":            {gpus: xidLike(func(a pcommon.Map) { a.PutStr("tracecore.drill", "x") }), rank: -1},
		"an Xid that a process claims": {gpus: xidLike(func(a pcommon.Map) { a.PutStr("tracecore.trust", "claimed") }), rank: -1},
		"an Xid of a stranger":         {gpus: xidLike(func(a pcommon.Map) { a.PutStr("tracecore.trust", "foreign") }), rank: -1},
		"an Xid of nobody known":       {gpus: xidLike(func(a pcommon.Map) { a.Remove("tracecore.trust") }), rank: -1},
		"idle, as a process claims": {
			gpus: func(c *calls) {
				c.gpu("busy", but(8, 5)...).gpuLike("idle", func(a pcommon.Map) { a.PutStr("tracecore.trust", "claimed") }, 5)
			},
			rank: -1, all: "a kernel runs on the GPUs of 7 ranks, as one of NCCL does while it waits; of the GPU of rank 5 no reading came",
		},
		"words that nobody knows": {
			gpus: func(c *calls) {
				c.gpuLike("busy", func(a pcommon.Map) { a.PutStr("gpu.activity.state", "on fire") }, but(8)...)
				c.gpuLike("busy", func(a pcommon.Map) { a.PutInt("gpu.activity.since_unix_nano", -1) }, but(8)...)
				c.gpuLike("busy", func(a pcommon.Map) { a.PutInt("gpu.activity.since_unix_nano", 1<<62) }, but(8)...)
				c.gpuLike("busy", func(a pcommon.Map) { a.PutStr("gpu.id", "") }, but(8)...)
				c.gpuLike("busy", func(a pcommon.Map) { a.PutInt("process.pid", 7); a.PutStr("gpu.id", "elsewhere") }, but(8)...)
			}, rank: -1,
		},
	} {
		for by, wait := range waits {
			t.Run(name+", "+by, func(t *testing.T) {
				f := saidOf(t, wait, tc.gpus)
				require.Equal(t, tc.clear, f.GPU)
				require.Equal(t, tc.all, f.GPUs)
				require.Equal(t, tc.rank, f.Rank())
				require.Equal(t, tc.device, f.Device)
				require.Equal(t, doubtBelow, f.Because[0])
				require.Empty(t, f.Culprits)
				if tc.rank >= 0 {
					require.EqualValues(t, 1000+tc.rank, f.Host.PID)
					require.EqualValues(t, 1000+tc.rank, f.Process.PID)
				}
				if tc.clear != "" {
					require.Contains(t, f.String(), "; "+tc.clear)
					require.Equal(t, f.Kind != Apart, strings.Contains(f.String(), ": the fault is below the program; "))
				}
			})
		}
	}
}

func xidLike(edit func(pcommon.Map)) func(*calls) {
	return func(c *calls) {
		c.gpuRecord(eventXid, 0, func(a pcommon.Map) {
			a.PutInt("kernelevents.xid", 119)
			edit(a)
		}, 5)
	}
}

// TestAGPUIsJoinedByItsAddressWhereTheCommunicatorHasIt: a process may have memory on other GPUs, and
// an Xid may come without a process.
func TestAGPUIsJoinedByItsAddressWhereTheCommunicatorHasIt(t *testing.T) {
	called := func(c *calls) {
		for rank := range 8 {
			c.record(eventCallStopped, c.all(), rank, func(a pcommon.Map) {
				stoodAt(10, c.at.Add(-3*time.Second), "overdue")(a)
				a.PutStr("gpu.id", gpuOf(rank))
			})
		}
		c.stacks("gpu", but(8)...)
	}
	elsewhere := func(c *calls) {
		c.gpu("busy", but(8, 5)...).gpu("idle", 5)
		c.gpuLike("idle", func(a pcommon.Map) { a.PutStr("gpu.id", "0000:99:00.0") }, but(8)...)
	}
	require.Equal(t, 5, saidOf(t, called, elsewhere).Rank())
	f := saidOf(t, waits["by stacks"], elsewhere)
	require.Equal(t, -1, f.Rank(), "on which of two GPUs a rank waits, nobody knows")
	require.Empty(t, f.GPUs)

	nobody := xidLike(func(a pcommon.Map) {
		a.Remove("process.pid")
		a.Remove("gen_ai.training.rank")
	})
	require.Equal(t, 5, saidOf(t, called, nobody).Rank())
	require.Equal(t, -1, saidOf(t, waits["by stacks"], nobody).Rank())
}

// TestGPUsOfAnotherHostSayNothing: pids and addresses are the same on every machine.
func TestGPUsOfAnotherHostSayNothing(t *testing.T) {
	f := saidOf(t, waits["by calls"], func(c *calls) {
		other := newCalls(8)
		other.gpu("busy", but(8, 5)...).gpu("idle", 5).xid(79, 0, 5)
		for _, r := range other.list.ResourceLogs().All() {
			r.Resource().Attributes().PutStr("host.name", "node-9")
			r.CopyTo(c.list.ResourceLogs().AppendEmpty())
		}
	})
	require.Empty(t, f.GPUs)
	require.Equal(t, -1, f.Rank())
}

// TestWhatGPUsSayLaterIsToldOnceMore: the stop is the same, and nothing is told twice.
func TestWhatGPUsSayLaterIsToldOnceMore(t *testing.T) {
	c := newCalls(8)
	waits["by calls"](c)
	j := newJoin(DefaultOptions)
	j.Add(c.list, c.at)
	j.Advance(c.at.Add(settled))
	f := findings(j.Advance(c.at.Add(DefaultOptions.StuckWait)))
	require.Len(t, f, 1)
	require.Empty(t, f[0].GPUs)

	c.list = plog.NewLogs()
	c.gpu("busy", but(8, 5)...).gpu("idle", 5)
	now := c.at.Add(DefaultOptions.StuckWait + time.Second)
	j.Add(c.list, now)
	later := findings(j.Advance(now.Add(settled)))
	require.Len(t, later, 1)
	require.Equal(t, f[0].Stop, later[0].Stop)
	require.Equal(t, 5, later[0].Rank())
	j.Add(c.list, now.Add(time.Second))
	require.Empty(t, findings(j.Advance(now.Add(time.Second+settled))))
}

// TestAGPUThatWasNamedIsTakenBack: another stands in its place, or none.
func TestAGPUThatWasNamedIsTakenBack(t *testing.T) {
	c := newCalls(8)
	waits["by calls"](c)
	c.gpu("busy", but(8, 5)...).gpu("idle", 5)
	j := newJoin(DefaultOptions)
	j.Add(c.list, c.at)
	j.Advance(c.at.Add(settled))
	now := c.at.Add(DefaultOptions.StuckWait)
	f := findings(j.Advance(now))
	require.Len(t, f, 1)
	require.Equal(t, 5, f[0].Rank())

	c.list = plog.NewLogs()
	c.gpuRecord(eventGPU, DefaultOptions.StuckWait, func(a pcommon.Map) {
		a.PutStr("gpu.activity.state", "varies")
		a.PutInt("gpu.activity.since_unix_nano", c.at.Add(30*time.Second).UnixNano())
	}, 5)
	j = requireSameState(t, j)
	j.Add(c.list, now)
	rounds := j.Advance(now.Add(settled))
	require.Len(t, rounds, 1)
	require.Len(t, rounds[0].Cleared, 1)
	require.Equal(t, f[0].Stop, rounds[0].Cleared[0].Stop)
	require.Len(t, rounds[0].Findings, 1)
	require.NotEqual(t, f[0].Stop, rounds[0].Findings[0].Stop)
	require.Equal(t, -1, rounds[0].Findings[0].Rank())
	j.Add(c.list, now.Add(time.Second))
	require.Empty(t, j.Advance(now.Add(time.Second+settled)))
}

// TestGPUsAreBounded: of hosts, GPUs, processes and faults.
func TestGPUsAreBounded(t *testing.T) {
	b := newGPUBook()
	for i := range maxGPUHosts + 10 {
		require.NotNil(t, b.gpu(fmt.Sprint("node-", i), "a"))
	}
	require.Len(t, b.hosts, maxGPUHosts)
	require.Equal(t, maxGPUHosts, b.order.Len())
	require.NotContains(t, b.hosts, "node-0")
	for i := range maxGPUs + 10 {
		b.gpu("node-100", fmt.Sprint(i))
	}
	require.Len(t, b.hosts["node-100"].gpus, maxGPUs)
	g := b.gpu("node-200", "a")
	for i := range int64(maxGPUFaults + 10) {
		g.fault(i+1, "reported Xid 79")
		g.fault(i+1, "reported Xid 79")
	}
	require.Len(t, g.Faults, maxGPUFaults)
	require.EqualValues(t, 11, g.Faults[0].At)
}

// TestAProcessThatCallsForSeveralGPUsHasNoReading: one reading is of one of them.
func TestAProcessThatCallsForSeveralGPUsHasNoReading(t *testing.T) {
	f := saidOf(t, func(c *calls) {
		for _, rank := range but(8) {
			gpus := []string{gpuOf(rank)}
			if rank == 5 {
				gpus = []string{gpuOf(rank), "0000:77:00.0", gpuOf(rank)}
			}
			for _, gpu := range gpus {
				c.record(eventCallStopped, c.all(), rank, func(a pcommon.Map) {
					stoodAt(10, c.at.Add(-3*time.Second), "overdue")(a)
					a.PutStr("gpu.id", gpu)
				})
			}
		}
		c.stacks("gpu", but(8)...)
	}, func(c *calls) { c.gpu("busy", but(8)...) })
	require.Empty(t, f.GPU)
	require.Contains(t, f.GPUs, "of the GPU of rank 5 no reading came")
}

// TestEarlierProcessesOfAGPUGiveWay: a GPU outlives many jobs.
func TestEarlierProcessesOfAGPUGiveWay(t *testing.T) {
	f := saidOf(t, waits["by stacks"], func(c *calls) {
		before := c.at
		c.at = before.Add(-time.Hour)
		for pid := range int64(maxGPURanks) {
			c.gpuLike("busy", func(a pcommon.Map) { a.PutInt("process.pid", 9000+pid) }, but(8)...)
			c.at = c.at.Add(time.Second)
		}
		c.at = before
		c.gpu("busy", but(8, 5)...).gpu("idle", 5)
	})
	require.Equal(t, "the kernel of rank 5 does not run on GPU 0000:15:00.0 of node-0", f.GPU)
}
