package ncclsockreceiver

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclsock"
)

// candidates are a resolver that knows processes without a rank.
type candidates struct {
	identity.Resolver
	processes []identity.Process
}

func (c candidates) Unranked() []identity.Process { return c.processes }

func (candidates) Ranked(identity.Process, identity.Place) {}

// connected are both ends of a connection between two processes.
func connected(a, b uint32, moved uint64) []ncclsock.Socket {
	at := func(pid, port uint32) netip.AddrPort {
		return netip.MustParseAddrPort(fmt.Sprintf("10.0.0.%d:%d", pid, 40000+port))
	}
	one := ncclsock.Socket{PID: a, Local: at(a, b), Remote: at(b, 100+a), State: ncclsock.Established, BytesSent: moved}
	other := one
	other.PID, other.Local, other.Remote, other.BytesSent, other.BytesReceived = b, one.Remote, one.Local, 0, moved
	return []ncclsock.Socket{one, other}
}

// sockets are those of a shape: pairs of processes.
func sockets(moved uint64, pairs ...[2]uint32) (all []ncclsock.Socket) {
	for _, p := range pairs {
		all = append(all, connected(p[0], p[1], moved)...)
	}
	return all
}

func TestAGroupWhoseRanksNobodyKnowsIsSaidOnce(t *testing.T) {
	ring := sockets(1<<20, [2]uint32{1, 2}, [2]uint32{2, 3}, [2]uint32{3, 4}, [2]uint32{4, 1})
	low := sockets(1<<20, [2]uint32{1, 2}, [2]uint32{2, 1})
	for i := range low {
		low[i].Local = netip.AddrPortFrom(low[i].Local.Addr(), 8080)
	}
	for name, c := range map[string]struct {
		sockets []ncclsock.Socket
		plain   uint32 // has no library of collectives
		group   int64
	}{
		"a ring":                   {ring, 0, 4},
		"two, as NCCL has them":    {sockets(1<<20, [2]uint32{1, 2}, [2]uint32{2, 1}), 0, 2},
		"a mesh":                   {sockets(1<<20, [2]uint32{1, 2}, [2]uint32{2, 3}, [2]uint32{1, 3}), 0, 3},
		"a service and clients":    {sockets(1<<20, [2]uint32{1, 2}, [2]uint32{1, 3}, [2]uint32{1, 4}), 0, 0},
		"a service that is no job": {sockets(1<<20, [2]uint32{1, 2}, [2]uint32{2, 3}, [2]uint32{1, 3}), 2, 0},
		"nothing moves":            {sockets(100, [2]uint32{1, 2}, [2]uint32{2, 1}), 0, 0},
		"a port of its own choice": {low, 0, 0},
		"nothing":                  {},
	} {
		t.Run(name, func(t *testing.T) {
			core, logs := observer.New(zap.WarnLevel)
			u := newUnranked(createDefaultConfig().(*Config), zap.New(core), func(pid uint32) bool { return pid != c.plain })
			s := &fakeSource{looked: make(chan struct{}, 100), sockets: c.sockets}
			var who candidates
			for pid := range uint32(4) {
				who.processes = append(who.processes, identity.Process{PID: pid + 1, StartTime: start, Comm: "python3\x1b"})
			}
			for at := start; at.Before(start.Add(unrankedAfter)); at = at.Add(time.Second) {
				u.look(who, s, at)
				require.Zero(t, logs.Len(), "they may say it yet")
			}
			for at := range 300 {
				u.look(who, s, start.Add(unrankedAfter+time.Duration(at)*time.Second))
			}
			require.Equal(t, c.group, u.count.Load())
			require.LessOrEqual(t, len(s.looked), 14, "it is looked at now and then")
			if c.group == 0 {
				require.Zero(t, logs.Len())
				return
			}
			require.Equal(t, 1, logs.Len())
			require.Contains(t, logs.All()[0].Message, "SLURM_PROCID and SLURM_STEP_NUM_TASKS (srun)")
			fields := logs.All()[0].ContextMap()
			require.Equal(t, c.group, fields["processes"])
			require.NotContains(t, fields["process"], "\x1b")

			who.processes = who.processes[:1] // they have said it, or are gone
			u.look(who, s, start.Add(time.Hour))
			require.Zero(t, u.count.Load())
			require.Empty(t, u.seen)
		})
	}
}
