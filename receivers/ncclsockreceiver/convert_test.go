package ncclsockreceiver

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/golden"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/plogtest"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/pmetrictest"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclsock"
	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/receivers/internal/activity"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/ncclsockreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/ncclsockreceiver/internal/stall"
)

var update = flag.Bool("update", false, "rewrite the golden records")

func newTestConverter() *converter {
	config := createDefaultConfig().(*Config)
	settings := receivertest.NewNopSettings(metadata.Type)
	return newConverter(metadata.NewLogsBuilder(config.LogsBuilderConfig, settings), metadata.NewMetricsBuilder(config.MetricsBuilderConfig, settings),
		record.Host{Name: "node-1", ID: "0123456789abcdef0123456789abcdef", NodeName: "node-1"})
}

// full is an event of which everything is known.
func full() stall.Event {
	p := rank(42, 3)
	p.ContainerID, p.PodUID = "c0ffee", "0a1b2c3d-0000-4000-8000-123456789abc"
	s := unread()
	s.Local, s.Remote = netip.MustParseAddrPort("[::ffff:10.0.0.3]:41000"), netip.MustParseAddrPort("[::ffff:10.0.0.2]:42000")
	s.LastSentAge, s.LastReceivedAge, s.BytesSent, s.Retransmits = 3*time.Second, 2*time.Second, 1<<30, 4
	return stall.Event{
		ID: "00c0ffee00c0ffee", Time: start, Cause: socketstall.NotReading, Direction: socketstall.Receive, Kind: socketstall.Data, Process: p, Age: 2500 * time.Millisecond,
		Socket: s, Count: 16, Errno: 110, PeerRank: 2, PeerReceived: 4096,
		Rank: stall.RankFacts{LastSentAge: time.Second, LastReceivedAge: 2 * time.Second, Tick: 4 * time.Millisecond, CPUShare: 1.25, MainCPUShare: 0.25, State: socketstall.Stopped, UsualPhase: time.Minute,
			Awaits:   netip.MustParseAddrPort("10.0.0.9:8000"),
			Activity: socketstall.Idle, Rest: 2 * time.Second, Watched: time.Hour, Silence: socketstall.Overdue, Inside: &stall.Inside{
				Compared: true, Pauses: true, Busiest: stall.Child{PID: 77, Comm: "pt_data_worker", Share: 0.1}, Tree: []uint32{77, 78}, Syscall: "futex", Channel: "futex_do_wait",
				Limit: stall.CPULimit{Cgroup: "/pod/c", Cores: 1.5, Throttled: 0.871}, Pressure: 64.9,
			}},
	}
}

func TestGoldenRecords(t *testing.T) {
	ended := full()
	ended.End = socketstall.Closed
	network := full()
	network.Cause, network.Direction, network.Kind, network.Errno, network.PeerRank = socketstall.Network, socketstall.Send, socketstall.Gloo, 0, stall.Unknown
	network.Socket.UnackedBytes, network.Socket.Backoff, network.Socket.ReceiveQueueBytes = 4096, 3, 0
	waiting := full()
	waiting.Cause, waiting.Errno = socketstall.Waiting, 0
	held := waiting
	inside := *held.Rank.Inside
	inside.Holder = &activity.Holder{
		PID: 78, Comm: "pt_data_worker", State: socketstall.DiskSleep, Awaited: true, Syscall: "read", Channel: "rpc_wait_bit_killable", File: "/data/shard",
	}
	held.Rank.Inside, held.Rank.State = &inside, socketstall.Sleeping
	bare := stall.Event{
		ID: "1", Time: start, Cause: socketstall.Connecting, Direction: socketstall.Send, Kind: socketstall.Store, Count: 1, Errno: 111, PeerRank: stall.Unknown, PeerReceived: stall.Unknown,
		Process: identity.Process{PID: 42, Rank: 3, LocalRank: identity.Unknown, WorldSize: identity.Unknown},
		Socket:  ncclsock.Socket{Remote: netip.MustParseAddrPort("10.0.0.1:29500"), State: ncclsock.SynSent, LastSentAge: -1, LastReceivedAge: -1},
		Rank:    stall.RankFacts{LastSentAge: -1, LastReceivedAge: -1, CPUShare: -1, MainCPUShare: -1, UsualPhase: -1, Rest: -1, Watched: -1},
	}
	for name, event := range map[string]stall.Event{"not_reading": full(), "ended": ended, "network": network, "waiting": waiting, "held_by_a_child": held, "refused": bare} {
		t.Run(name, func(t *testing.T) {
			logs := newTestConverter().records([]stall.Event{event}, nil, nil, start, start.Add(time.Minute))
			file := filepath.Join("testdata", "golden", name+".yaml")
			if *update {
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
				require.NoError(t, golden.WriteLogsToFile(file, *logs))
			}
			want, err := golden.ReadLogs(file)
			require.NoError(t, err)
			require.NoError(t, plogtest.CompareLogs(want, *logs))
		})
	}
}

func TestGoldenRecordOfAWatchedJob(t *testing.T) {
	all := []stall.Watched{{Process: rank(42, 3)}, {Process: rank(43, 4), Since: start.Add(-time.Second)}, {Process: rank(44, 5), Since: start.Add(time.Second)}} // the clock was set back
	logs := newTestConverter().records(nil, all, nil, start, start.Add(time.Minute))
	file := filepath.Join("testdata", "golden", "watched.yaml")
	if *update {
		require.NoError(t, golden.WriteLogsToFile(file, *logs))
	}
	want, err := golden.ReadLogs(file)
	require.NoError(t, err)
	require.NoError(t, plogtest.CompareLogs(want, *logs))
	require.Nil(t, newTestConverter().records(nil, nil, nil, start, start), "nothing is said")
}

func TestGoldenRecordsOfWhoLeft(t *testing.T) {
	all := []stall.Left{
		{Process: rank(42, 3), Time: start.Add(-2 * time.Second), First: true, Closed: 3},
		{Process: rank(43, 4), Time: start.Add(-time.Second), Closed: 2},
		{Process: rank(42, 3), Time: start, First: true, Closed: 3, End: socketstall.LeftGoesOn},
		{Process: rank(43, 4), Time: start, Closed: 2, End: socketstall.LeftJoined},
	}
	logs := newTestConverter().records(nil, nil, all, start, start.Add(time.Minute))
	file := filepath.Join("testdata", "golden", "left.yaml")
	if *update {
		require.NoError(t, golden.WriteLogsToFile(file, *logs))
	}
	want, err := golden.ReadLogs(file)
	require.NoError(t, err)
	require.NoError(t, plogtest.CompareLogs(want, *logs))
}

func TestGoldenRecordOfWhoKeptItsConnections(t *testing.T) {
	logs := newTestConverter().failed([]stall.Kept{{Process: rank(42, 3), Time: start}}, nil, nil, start.Add(time.Minute))
	file := filepath.Join("testdata", "golden", "kept.yaml")
	if *update {
		require.NoError(t, golden.WriteLogsToFile(file, *logs))
	}
	want, err := golden.ReadLogs(file)
	require.NoError(t, err)
	require.NoError(t, plogtest.CompareLogs(want, *logs))
}

func TestGoldenRecordsOfWhoLostAConnectionAndWhoClosedIt(t *testing.T) {
	peer := rank(43, 4)
	lost := []stall.Lost{
		{Process: rank(42, 3), Time: start, At: start.Add(-time.Second), How: socketstall.LostClosed, Peer: &peer},
		{Process: rank(44, 5), Time: start, At: start.Add(-2 * time.Second), How: socketstall.LostReset},
	}
	cut := []stall.Cut{
		{Process: peer, Time: start.Add(-time.Second), End: socketstall.CutEnded, Victim: rank(42, 3)},
		{Process: peer, Time: start.Add(-time.Second), End: socketstall.CutLives, Victim: rank(44, 5)},
	}
	logs := newTestConverter().failed(nil, lost, cut, start.Add(time.Minute))
	file := filepath.Join("testdata", "golden", "lost.yaml")
	if *update {
		require.NoError(t, golden.WriteLogsToFile(file, *logs))
	}
	want, err := golden.ReadLogs(file)
	require.NoError(t, err)
	require.NoError(t, plogtest.CompareLogs(want, *logs))
}

func series(fn func(*stall.Series)) {
	stalled := rank(42, 3)
	stalled.Trace = identity.Trace{TraceID: [16]byte{0: 1}, SpanID: [8]byte{0: 2}}
	fn(&stall.Series{
		JobID: "job-1", Domain: "user 1000", Peer: netip.MustParseAddr("10.0.0.2"), SentBytes: 1 << 30, ReceivedBytes: 2 << 30, Retransmits: 7,
		Stalled: map[socketstall.Cause]time.Duration{socketstall.Network: 2500 * time.Millisecond, socketstall.Waiting: time.Second},
		Longest: map[socketstall.Cause]stall.Standing{socketstall.Network: {Process: stalled, Age: 1500 * time.Millisecond}},
	})
	other := stall.Series{JobID: "job-1", Domain: "user 1001", Peer: netip.MustParseAddr("10.0.0.2"), Stalled: map[socketstall.Cause]time.Duration{socketstall.Network: 1}}
	fn(&other) // of another domain, and says the same id
	fn(&stall.Series{SentBytes: 1})
}

func TestGoldenMetrics(t *testing.T) {
	ranks := map[uint32]stall.Process{
		42: {Process: rank(42, 3), CPU: 90 * time.Second},
		43: {Process: rank(43, 4), CPU: activity.Unknown},
		44: {Process: identity.Process{PID: 44, Rank: 0}, CPU: 0},
	}
	first, second := ranks[42], ranks[44]
	lines := []line{
		{&first, netip.MustParseAddr("10.0.3.17"), "eth3", stall.Line{Sent: 5, Received: 6}}, {&second, netip.MustParseAddr("10.0.4.17"), "", stall.Line{Sent: 7}},
	}
	metrics := newTestConverter().measures(series, lines, ranks, start)
	file := filepath.Join("testdata", "metrics.yaml")
	if *update {
		require.NoError(t, golden.WriteMetricsToFile(file, *metrics))
	}
	want, err := golden.ReadMetrics(file)
	require.NoError(t, err)
	require.NoError(t, pmetrictest.CompareMetrics(want, *metrics, pmetrictest.IgnoreStartTimestamp(), pmetrictest.IgnoreTimestamp(), pmetrictest.IgnoreMetricDataPointsOrder()))
	require.Nil(t, newTestConverter().measures(func(func(*stall.Series)) {}, nil, nil, start), "no series, no metrics")
}

func TestNamesOfNumbersFromTheKernel(t *testing.T) {
	require.Equal(t, "close_wait", stateName(ncclsock.CloseWait))
	require.Equal(t, "closing", stateName(ncclsock.Closing))
	require.Equal(t, "unknown", stateName(200))
	require.Equal(t, "", errorName(0))
	require.Equal(t, "", errorName(-7))
	require.Equal(t, "ECONNRESET", errorName(104))
	require.Equal(t, "errno 4095", errorName(4095))
}
