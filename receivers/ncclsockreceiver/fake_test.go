package ncclsockreceiver

import (
	"net/netip"
	"sync"
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclsock"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver/probereceivertest"
)

var start = probereceivertest.Start

// fakeSource has the sockets a test gives it; each snapshot is a second later.
type fakeSource struct {
	*probereceivertest.Probe
	changes chan ncclsock.Change
	looked  chan struct{} // a word for each snapshot

	mu      sync.Mutex // guards what follows
	at      time.Time
	sockets []ncclsock.Socket
	err     error
	owners  []uint32
	over    int // sockets for which there is no room
}

func (f *fakeSource) set(err error, sockets ...ncclsock.Socket) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.sockets = err, sockets
}

func (f *fakeSource) asked() []uint32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.owners
}

func (f *fakeSource) Snapshot(owners []uint32, s *ncclsock.Snapshot) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looked <- struct{}{}
	f.at, f.owners = f.at.Add(time.Second), owners
	*s = ncclsock.Snapshot{Time: f.at, Sockets: append(s.Sockets[:0], f.sockets...), Unreadable: 1, Over: f.over}
	return f.err
}

func (f *fakeSource) ReadChange(c *ncclsock.Change) error {
	select {
	case *c = <-f.changes:
		return nil
	case <-f.Closed:
		return probe.ErrClosed
	}
}

// unread is a socket of process 42 whose peer's header nobody reads. RAS threads
// read in any phase, so no phases need be learned.
func unread() ncclsock.Socket {
	return ncclsock.Socket{
		Cookie: 7, NetNS: 4026531840, PID: 42, Local: netip.MustParseAddrPort("10.0.0.3:28028"), Remote: netip.MustParseAddrPort("10.0.0.2:41000"),
		State: ncclsock.Established, ReceiveQueueBytes: 48, SendWindowBytes: 65536, BytesReceived: 48, LastReceivedAge: 0, LastSentAge: -1,
	}
}

func rank(pid uint32, number int) identity.Process {
	return identity.Process{
		PID: pid, ParentPID: 7, StartTime: start.Add(-time.Hour), Comm: "python", Rank: number, LocalRank: number % 8, WorldSize: 16,
		JobID: "job-1", MasterAddr: "10.0.0.1", MasterPort: 29500,
	}
}
