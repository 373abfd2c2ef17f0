package ncclcallreceiver

import (
	"flag"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/golden"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/plogtest"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclcall"
	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/receivers/internal/activity"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/ncclcallreceiver/internal/metadata"
)

var update = flag.Bool("update", false, "rewrite the golden records")

func newTestConverter() *converter {
	builder := metadata.NewLogsBuilder(metadata.DefaultLogsBuilderConfig(), receivertest.NewNopSettings(metadata.Type))
	return newConverter(builder, record.Host{Name: "node-1", ID: "0123456789abcdef0123456789abcdef", NodeName: "node-1"})
}

// full is a communicator of which everything is known.
func full() *ncclcall.Communicator {
	last := ncclcall.Call{Time: start.Add(-10 * time.Second), Operation: ncclcall.Broadcast, Type: 9, Count: 4096, Root: 2}
	c := &ncclcall.Communicator{
		PID: 42, Address: 0x7f00, Identity: ncclcall.Known, Hash: 0x35391f0e, Rank: 5, Size: 1024, Device: 3, GPU: "0000:1b:00.0",
		Exact: true, First: start.Add(-time.Hour), Collectives: 10432, Last: last, GroupDepth: 1,
		Recent: []ncclcall.Numbered{
			{Number: 10430, Call: ncclcall.Call{Time: start.Add(-11 * time.Second), Operation: ncclcall.AllReduce, Type: 7, Count: 1, Root: -1}}, {Number: 10431, Call: last},
		},
	}
	c.Calls[ncclcall.Send], c.Calls[ncclcall.Recv] = 2, 1
	return c
}

// rests is a process whose main thread is asleep.
func rests() *process {
	p, since := &process{}, start.Add(-10*time.Second)
	p.called(1, since, since)
	for ago := 4; ago >= 0; ago-- {
		p.Look(&activity.Process{CPU: activity.Unknown, MainCPU: activity.Unknown, State: socketstall.Sleeping, Inside: &activity.Inside{
			Compared: true, Syscall: "futex", Channel: "futex_do_wait", File: "pipe:[9]", Tree: []uint32{51}, Busiest: activity.Child{PID: 51, Comm: "worker", Share: 0.1},
		}}, start.Add(time.Duration(-ago)*time.Second))
	}
	p.Silence = socketstall.Overdue
	return p
}

// waitsForAChild is a process that reads the pipe of a child which is stopped.
func waitsForAChild() *process {
	p := rests()
	p.Now.Inside.Syscall, p.Now.Inside.Channel = "read", "pipe_read"
	p.Now.Inside.Holder = &activity.Holder{PID: 52, Comm: "ffmpeg", State: socketstall.Stopped, Awaited: true}
	return p
}

// waits is a rank in a function that makes a communicator.
func waits() *ncclcall.Event {
	return &ncclcall.Event{Kind: ncclcall.InitRankConfig, PID: 42, Rank: 3, Size: 8, Hash: 0xabc, Root: netip.MustParseAddrPort("10.0.0.1:48579")}
}

func TestGoldenRecords(t *testing.T) {
	rank := &identity.Process{
		PID: 42, ParentPID: 7, Comm: "python", ContainerID: "c0ffee", PodUID: "u-1", Rank: 13, LocalRank: 5, WorldSize: 2048, JobID: "job-1",
	}
	absurd := &ncclcall.Communicator{PID: 42, Identity: ncclcall.NoLayout, Rank: -1, Collectives: math.MaxUint64, Last: ncclcall.Call{
		Time: start, Operation: ncclcall.AllReduce, Type: math.MaxUint32, Count: math.MaxUint64, Root: -1,
	}}
	unread := &ncclcall.Communicator{PID: 42, Identity: ncclcall.Unread, Rank: -1, Last: ncclcall.Call{Time: start, Operation: ncclcall.Send, Root: 1}}
	for name, tc := range map[string]struct {
		make  func(*converter) plog.Logs
		event string
	}{
		"stopped": {func(c *converter) plog.Logs {
			return c.change(&change{Communicator: full(), what: stopped, pid: 42, at: start, idle: 10 * time.Second, launches: 7, process: rests()}, rank, start)
		}, "nccl.call.stopped"},
		"stopped_older_than_the_probe": {func(c *converter) plog.Logs {
			older := full()
			older.Exact, older.Aligned, older.Before = false, true, 1_000_000
			return c.change(&change{Communicator: older, what: stopped, pid: 42, at: start, idle: 10 * time.Second}, rank, start)
		}, "nccl.call.stopped"},
		"stopped_nothing_known": {func(c *converter) plog.Logs {
			return c.change(&change{Communicator: absurd, what: stopped, pid: 42, at: start, idle: 10 * time.Second, twins: true}, nil, start)
		}, "nccl.call.stopped"},
		"moving": {func(c *converter) plog.Logs {
			return c.change(&change{Communicator: full(), what: moving, pid: 42, at: start, idle: 41 * time.Second}, rank, start)
		}, "nccl.call.moving"},
		"moving_unread": {func(c *converter) plog.Logs {
			return c.change(&change{Communicator: unread, what: moving, pid: 42, at: start, idle: time.Minute}, nil, start)
		}, "nccl.call.moving"},
		"end": {func(c *converter) plog.Logs {
			return c.change(&change{Communicator: full(), what: ended, pid: 42, at: start, idle: time.Minute, reason: "aborted"}, rank, start)
		}, "nccl.call.end"},
		"doing": {func(c *converter) plog.Logs {
			return c.change(&change{what: doing, pid: 42, at: start, idle: time.Minute, process: rests()}, rank, start)
		}, "nccl.call.doing"},
		"doing_held_by_a_child": {func(c *converter) plog.Logs {
			return c.change(&change{what: doing, pid: 42, at: start, idle: time.Minute, process: waitsForAChild()}, rank, start)
		}, "nccl.call.doing"},
		"init_waiting": {func(c *converter) plog.Logs {
			return c.change(&change{what: waiting, pid: 42, at: start, idle: 10 * time.Second, init: waits()}, rank, start)
		}, "nccl.call.init.waiting"},
		"init_done": {func(c *converter) plog.Logs {
			return c.change(&change{what: done, pid: 42, at: start, idle: time.Minute, init: waits(), reason: "exited"}, rank, start)
		}, "nccl.call.init.done"},
		"arrivals": {func(c *converter) plog.Logs {
			c.clock = func() (time.Duration, bool) { return 3 * time.Millisecond, true }
			return c.change(&change{Communicator: full(), what: arrival, pid: 42, at: start, peers: []uint64{0xabc}, samples: []ncclcall.Sample{
				{Number: 10400, Time: start.Add(-20 * time.Second), Pause: time.Second}, {Number: 10431, Time: start.Add(-10 * time.Second), Pause: 2 * time.Second},
			}}, rank, start)
		}, "nccl.call.arrivals"},
		"arrivals_clock_unknown": {func(c *converter) plog.Logs {
			c.clock = func() (time.Duration, bool) { return 0, false }
			return c.change(&change{Communicator: full(), what: arrival, pid: 42, at: start, samples: []ncclcall.Sample{{Number: 1, Time: start.Add(time.Second)}}}, nil, start)
		}, "nccl.call.arrivals"},
		"init": {func(c *converter) plog.Logs {
			return c.init(&ncclcall.Event{
				Time: start, Kind: ncclcall.InitRankConfig, PID: 42, Rank: 3, Size: 8, Hash: 0xabc, Root: netip.MustParseAddrPort("10.0.0.1:48579"),
			}, rank, start)
		}, "nccl.call.init"},
		"init_split": {func(c *converter) plog.Logs {
			return c.init(&ncclcall.Event{Time: start, Kind: ncclcall.Split, PID: 42, Rank: -1, Hash: 0xabc, Color: 2}, nil, start)
		}, "nccl.call.init"},
		"limited": {func(c *converter) plog.Logs {
			return c.limited(limited{42, ncclcall.NoPointToPoint}, rank, start, start)
		}, "nccl.call.limited"},
		"limited_to_lifetimes": {func(c *converter) plog.Logs {
			return c.limited(limited{42, ncclcall.NoCalls}, rank, start, start)
		}, "nccl.call.limited"},
		"static": {func(c *converter) plog.Logs {
			return c.unseen(ncclcall.Unseen{PID: 42, Why: ncclcall.Static, File: "/app/train"}, rank, start, start)
		}, "nccl.call.limited"},
		"gpu_initiated": {func(c *converter) plog.Logs {
			return c.unseen(ncclcall.Unseen{PID: 42, Why: ncclcall.GPUInitiated, File: "/opt/nvshmem_transport_ibgda.so.103"}, rank, start, start)
		}, "nccl.call.limited"},
		"limited_no_more": {func(c *converter) plog.Logs {
			return c.limited(limited{42, ncclcall.Unlimited}, rank, start, start)
		}, "nccl.call.limited"},
	} {
		t.Run(name, func(t *testing.T) {
			logs := tc.make(newTestConverter())
			file := filepath.Join("testdata", "golden", name+".yaml")
			if *update {
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
				require.NoError(t, golden.WriteLogsToFile(file, logs))
			}
			want, err := golden.ReadLogs(file)
			require.NoError(t, err)
			require.NoError(t, plogtest.CompareLogs(want, logs))
			require.Equal(t, tc.event, want.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).EventName())
		})
	}
}
