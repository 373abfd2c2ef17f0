package ncclcallreceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclcall"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver/probereceivertest"
	"github.com/tracecoreai/tracecore/receivers/ncclcallreceiver/internal/metadata"
)

// strangers is a resolver that knows processes of which nothing says their rank.
type strangers struct {
	probereceivertest.Resolver
	processes []identity.Process
	told      map[uint32]identity.Place
}

func (s *strangers) Unranked() []identity.Process { return s.processes }

func (s *strangers) Ranked(p identity.Process, is identity.Place) { s.told[p.PID] = is }

// seated is a receiver that has looked for processes once.
func seated(t *testing.T, processes ...identity.Process) (*ncclCall, *strangers) {
	t.Helper()
	b := newBench(t)
	s := &strangers{processes: processes, told: map[uint32]identity.Place{}}
	telemetry, err := metadata.NewTelemetryBuilder(b.Settings.TelemetrySettings)
	require.NoError(t, err)
	t.Cleanup(telemetry.Shutdown)
	r := &ncclCall{config: b.config, resolver: s, telemetry: telemetry}
	r.watched(t.Context())
	return r, s
}

func stranger(pid uint32) identity.Process {
	return identity.Process{PID: pid, StartTime: start, Rank: identity.Unknown}
}

func member(pid uint32, address, hash uint64, rank, size int32) ncclcall.Communicator {
	return ncclcall.Communicator{PID: pid, Address: address, Identity: ncclcall.Known, Hash: hash, Rank: rank, Size: size, First: start.Add(time.Duration(address) * time.Second)}
}

func TestAProcessWithoutARankIsTheOneOfItsLargestCommunicator(t *testing.T) {
	r, s := seated(t, stranger(7), stranger(8), stranger(9), stranger(10), stranger(11))
	unread := member(10, 1, 0x10, 1, 4)
	unread.Identity = ncclcall.Unread
	r.seat(&ncclcall.Scan{Communicators: []ncclcall.Communicator{
		member(7, 2, 0x22, 1, 2), member(7, 1, 0x11, 3, 8), member(7, 3, 0x33, 5, 8), // a group, the world, and another of all
		member(8, 1, 0x11, 6, 8), member(8, 2, 0x11, 4, 8), // a process with two GPUs
		member(9, 1, 0x44, 0, 2), member(9, 2, 0x44, 1, 2), // one that has them all
		unread, member(11, 1, 0x55, 0, 1), member(12, 1, 0x11, 2, 8), // nobody knows; one GPU; a rank
	}}, &look{})
	require.Equal(t, map[uint32]identity.Place{
		7: {Rank: 3, WorldSize: 8, Rendezvous: "communicator 0x11/8"},
		8: {Rank: 4, WorldSize: 8, Rendezvous: "communicator 0x11/8"},
	}, s.told)
}

func TestAProcessWithoutARankThatWaitsForOthersIsTheOneItSays(t *testing.T) {
	r, s := seated(t, stranger(7), stranger(8))
	event := ncclcall.Event{Kind: ncclcall.InitRank, PID: 7, Rank: 2, Size: 4, Hash: 0x11}
	alone := event
	alone.PID, alone.Size, alone.Rank = 8, 1, 0
	by, before := stranger(7), stranger(7)
	before.StartNS = 70
	look := &look{changes: []change{{what: waiting, pid: 7, init: &event, by: &before}, {what: waiting, pid: 8, init: &alone, by: &s.processes[1]}}}
	r.seat(&ncclcall.Scan{}, look)
	require.Empty(t, s.told, "another process has the number of who waited")
	look.changes[0].by = &by
	r.seat(&ncclcall.Scan{}, look)
	require.Equal(t, map[uint32]identity.Place{7: {Rank: 2, WorldSize: 4, Rendezvous: "communicator 0x11/4"}}, s.told)
}

// TestProcessesWithoutARankAreWatchedAfterTheRanks: they get the room that is left.
func TestProcessesWithoutARankAreWatchedAfterTheRanks(t *testing.T) {
	r, s := seated(t, stranger(9), stranger(7))
	s.Know(identity.Process{PID: 42, StartTime: start, Rank: 1, WorldSize: 2})
	r.config.MaxProcesses = 2
	require.Equal(t, []uint32{42, 7}, pids(r.watched(t.Context())))
	s.Know(identity.Process{PID: 42, WorldSize: 2}, identity.Process{PID: 43, WorldSize: 2}, identity.Process{PID: 44, WorldSize: 2})
	require.Equal(t, []uint32{42, 43}, pids(r.watched(t.Context())), "no room is left")
	for i := range s.processes {
		s.processes[i].Domain = "user 2"
	}
	require.Equal(t, []uint32{42, 7}, pids(r.watched(t.Context())), "another user's ranks take none of it")
	r.resolver = &s.Resolver // of a collector whose extension knows none
	require.Equal(t, []uint32{42, 43}, pids(r.watched(t.Context())))
	r.seat(&ncclcall.Scan{}, &look{})
}

func pids(list []identity.Process) (all []uint32) {
	for _, p := range list {
		all = append(all, p.PID)
	}
	return all
}
