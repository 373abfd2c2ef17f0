package ncclsockreceiver

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/receivers/ncclsockreceiver/internal/stall"
)

// parsed is the record of an event, as those behind the receiver read it.
func parsed(t *testing.T, e stall.Event) socketstall.Record {
	t.Helper()
	logs := newTestConverter().records([]stall.Event{e}, nil, nil, start, start)
	require.Equal(t, 1, logs.LogRecordCount())
	resource := logs.ResourceLogs().At(0)
	r := resource.ScopeLogs().At(0).LogRecords().At(0)
	record, ok := socketstall.Parse(r.EventName(), int64(r.Timestamp()), resource.Resource().Attributes(), r.Attributes())
	require.True(t, ok)
	return record
}

// TestWhatIsWrittenIsWhatIsRead: nothing that the readers of a stall record use is
// lost on the way, or has another name.
func TestWhatIsWrittenIsWhatIsRead(t *testing.T) {
	e := full()
	at := start.UnixNano()
	want := socketstall.Record{
		JobID: e.Process.JobID, Job: e.Process.JobID, World: e.Process.WorldSize, ID: e.ID, Time: at,
		Identity: socketstall.Identity{
			Host: "node-1", Node: "node-1", PID: int64(e.Process.PID), Process: e.Process.Comm, Pod: e.Process.PodUID, Container: e.Process.ContainerID,
		},
		Rank: e.Process.Rank, State: socketstall.Stopped,
		Doing: socketstall.Doing{
			At: at, Activity: socketstall.Idle, Silence: socketstall.Overdue, Learned: true, Watched: at - int64(time.Hour), Acted: at - int64(2*time.Second), Pauses: true, Awaits: "10.0.0.9:8000", Syscall: "futex", Channel: "futex_do_wait",
			Child: "pt_data_worker", ChildPID: 77, Tree: []int64{77, 78}, Limit: "/pod/c", Milli: 1500, Throttle: 88, Pressure: 64,
		},
		Sent: at - int64(time.Second), Received: at - int64(2*time.Second), Tick: int64(4 * time.Millisecond),
		Stall: socketstall.Stall{
			Cause: socketstall.NotReading, Direction: socketstall.Receive, Kind: socketstall.Data, Error: "ETIMEDOUT", PeerRank: 2,
			Local: netip.MustParseAddrPort("10.0.0.3:41000"), Peer: netip.MustParseAddrPort("10.0.0.2:42000"), Unread: int64(e.Socket.ReceiveQueueBytes),
			Out: int64(e.Socket.BytesSent), Unacked: int64(e.Socket.UnackedBytes), In: int64(e.Socket.BytesReceived), PeerIn: 4096,
			Sent: at - int64(3*time.Second), Received: at - int64(2*time.Second), Onset: at - int64(e.Age), First: at, Last: at, Turned: at,
		},
	}
	require.NotZero(t, want.World)
	require.NotZero(t, want.Stall.Unread)
	require.Equal(t, want, parsed(t, e))

	e.End = socketstall.Exited
	want.End, want.Stall.Ended = socketstall.Exited, at
	require.Equal(t, want, parsed(t, e))
}

// TestWhatIsNotKnownIsReadAsSuch: the number that stands for it does not become an
// age or a rank.
func TestWhatIsNotKnownIsReadAsSuch(t *testing.T) {
	e := full()
	e.PeerReceived = stall.Unknown
	e.PeerRank, e.Socket.LastSentAge, e.Socket.LastReceivedAge, e.Errno = stall.Unknown, stall.Unknown, stall.Unknown, 0
	e.Rank = stall.RankFacts{LastSentAge: stall.Unknown, LastReceivedAge: stall.Unknown, CPUShare: stall.Unknown, MainCPUShare: stall.Unknown, UsualPhase: stall.Unknown, Rest: stall.Unknown, Watched: stall.Unknown}
	r := parsed(t, e)
	require.Equal(t, socketstall.Unknown, r.Stall.PeerRank)
	require.EqualValues(t, socketstall.Unknown, r.Stall.PeerIn)
	require.Equal(t, socketstall.Doing{At: r.Time}, r.Doing)
	require.Equal(t, []int64{0, 0, 0, 0}, []int64{r.Sent, r.Received, r.Stall.Sent, r.Stall.Received})
	require.Empty(t, r.State)
	require.Empty(t, r.Stall.Error)
}
