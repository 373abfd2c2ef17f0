package stall

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclsock"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// learned is a job whose phases are known, with pauses of one kind.
func learned(rank int, how socketstall.Activity, at time.Duration, lengths ...time.Duration) *phases {
	p := &phases{traffic: Defaults().PhaseLearning}
	for _, d := range lengths {
		p.learn(rank, how, pause{at, at + d})
		at += d + time.Second
	}
	return p
}

func TestAPauseIsUsualWhenItHasRepeated(t *testing.T) {
	o := Defaults()
	require.Equal(t, o.PhaseUnlearned, new(phases).usual(0, socketstall.Idle, 0, &o))
	p := learned(0, socketstall.Idle, 0, 5*time.Minute, 28*time.Second)
	require.Zero(t, p.usual(0, socketstall.Idle, time.Hour/2, &o), "two are an accident")
	p = learned(0, socketstall.Idle, 0, 5*time.Minute, 28*time.Second, 26*time.Second, 2*time.Second)
	require.Equal(t, 26*time.Second, p.usual(0, socketstall.Idle, time.Hour/2, &o))
	require.Zero(t, p.usual(2, socketstall.Idle, time.Hour/2, &o), "of another rank")
	require.Zero(t, p.usual(0, socketstall.IO, time.Hour/2, &o), "of another kind")
	require.Zero(t, p.usual(0, socketstall.Idle, 2*time.Hour, &o), "forgotten")
}

func TestAPauseThatNowThisRankMakesAndNowThatIsUsualForAll(t *testing.T) {
	o := Defaults()
	p := &phases{traffic: o.PhaseLearning}
	for rank := range 3 {
		at := time.Duration(rank) * time.Minute
		p.learn(rank, socketstall.Idle, pause{at, at + time.Duration(5+rank)*time.Second})
	}
	require.Equal(t, 5*time.Second, p.usual(7, socketstall.Idle, 5*time.Minute, &o))
	require.Zero(t, p.usual(7, socketstall.Idle, 2*time.Hour, &o), "forgotten")
}

func TestOnePauseIsToldByManyQueues(t *testing.T) {
	o := Defaults()
	p := &phases{traffic: o.PhaseLearning}
	for range 5 {
		p.learn(0, socketstall.Idle, pause{time.Second, 20 * time.Second})
		p.learn(0, socketstall.Idle, pause{2 * time.Second, 21 * time.Second})
	}
	require.Zero(t, p.usual(0, socketstall.Idle, time.Minute, &o))
	require.Len(t, p.pauses[kindOfPause{0, socketstall.Idle}], 1)
}

func TestWhatIsLearnedIsBounded(t *testing.T) {
	o := Defaults()
	p := &phases{traffic: o.PhaseLearning}
	for i := range time.Duration(2 * mostKinds) {
		p.learn(int(i), socketstall.Idle, pause{i * time.Minute, i*time.Minute + time.Second})
		p.learn(0, socketstall.Idle, pause{i * time.Minute, i*time.Minute + time.Second})
	}
	require.Len(t, p.pauses, mostKinds)
	require.Len(t, p.pauses[kindOfPause{0, socketstall.Idle}], mostPauses)
}

func TestSilenceOfAStoppedRankIsNoPhase(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	w.train(12)
	w.ranks[2].State = socketstall.Stopped
	w.idle(40)
	w.ranks[2].State = socketstall.Running
	w.pass(time.Second)
	for _, l := range w.links {
		l.send(1, 0)
	}
	w.look()
	w.train(3)
	events := w.idle(4)
	require.NotEmpty(t, events)
	require.Zero(t, events[0].Rank.UsualPhase)
}

func TestKindByHandshake(t *testing.T) {
	first := func(magic uint64, kind uint32) []byte {
		return append(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, magic), kind), 7)
	}
	for name, tc := range map[string]struct {
		bytes []byte
		want  socketstall.Kind
	}{
		"data":                          {first(magicNCCL, 3), socketstall.Data},
		"bootstrap has a random magic":  {first(0x1234567890abcdef, 1), socketstall.Bootstrap},
		"proxy":                         {first(0x1234567890abcdef, 2), socketstall.Proxy},
		"keys of the InfiniBand path":   {first(magicNCCL, 4), socketstall.Proxy},
		"RAS":                           {first(magicNCCL, 5), socketstall.RAS},
		"unknown type":                  {first(magicNCCL, 0), undecided},
		"a type there is not":           {first(magicNCCL, 77), undecided},
		"Gloo: sequence, then a header": {first(3, 48), undecided},
		"Gloo with an odd length":       {first(3, 3), undecided},
		"HTTP":                          {[]byte("GET / HTTP/1.1"), undecided},
		"TLS":                           {[]byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 0x11}, undecided},
		"short":                         {first(magicNCCL, 3)[:11], undecided},
		"nothing":                       {nil, undecided},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, kindByHandshake(tc.bytes)) })
	}
}

func TestKindIsRememberedAndSharedByBothEnds(t *testing.T) {
	w := newWorld(t, 2, Defaults())
	w.links[0].in.Handshake = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, magicNCCL), 3)
	w.train(1)
	w.links[0].in.Handshake = nil
	w.train(1)
	for _, s := range []*ncclsock.Socket{w.links[0].out, w.links[0].in} {
		require.Equal(t, socketstall.Data, w.tracker.sockets.byCookie[s.Cookie].kind)
	}
	require.Equal(t, socketstall.Gloo, w.tracker.sockets.byCookie[w.links[1].out.Cookie].kind)
	w.ranks[1].NCCL = true
	w.train(1)
	require.Equal(t, socketstall.Data, w.tracker.sockets.byCookie[w.links[1].out.Cookie].kind, "a process with NCCL in it")
}

func TestProcessesOfOneRankAreNoPeers(t *testing.T) {
	w := newWorld(t, 2, Defaults())
	w.ranks = append(w.ranks, &Process{Process: w.ranks[1].Process})
	w.ranks[2].PID, w.ranks[2].Inherited = 1002, true
	l := w.connect(1, 2, 900, 41000, 42000)
	w.extra = append(w.extra, l.out, l.in)
	w.train(1)
	require.Equal(t, socketstall.Other, w.tracker.sockets.byCookie[900].kind)
}

// TestHealthyJobIsNeverAccused lives through an hour of a job whose ranks
// compute for different random times, so that early ranks leave bytes in the
// queues of late ones, and asleep, so that no CPU use excuses anybody.
func TestHealthyJobIsNeverAccused(t *testing.T) {
	for seed := range uint64(5) {
		random := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t, 8, Defaults())
		for step := 0; w.at.Sub(began) < time.Hour; step++ {
			late := 0
			longest := time.Duration(0)
			for r := range w.ranks {
				if d := time.Duration(random.Int64N(int64(3 * time.Second))); d > longest {
					late, longest = r, d
				}
			}
			for _, l := range w.links {
				l.send(1<<20, 0)
			}
			w.links[(late+7)%8].deliver(48, 0)
			for end := w.at.Add(longest); w.at.Before(end); {
				w.pass(min(time.Second, end.Sub(w.at)))
				require.Empty(t, w.look(), "seed %d, step %d, phases up to 3 s", seed, step)
			}
			w.links[(late+7)%8].read()
		}
	}
}

func BenchmarkSnapshot(b *testing.B) {
	o := Defaults()
	t := New(o)
	round := Round{Time: began, Processes: map[uint32]Process{}}
	for r := range 64 {
		pid := uint32(1000 + r)
		round.Processes[pid] = Process{Process: identity.Process{PID: pid, Rank: r, WorldSize: 64, JobID: "job"}, State: socketstall.Sleeping}
	}
	for i := range 10_000 {
		round.Sockets = append(round.Sockets, ncclsock.Socket{
			Cookie: uint64(i + 1), PID: uint32(1000 + i%64), State: ncclsock.Established, SendWindowBytes: 65536,
			Local: netip.AddrPortFrom(address(1), uint16(33000+i)), Remote: netip.AddrPortFrom(address(2+i%16), 40000),
		})
	}
	b.ReportAllocs()
	for b.Loop() {
		round.Time = round.Time.Add(time.Second)
		for i := range round.Sockets {
			s := &round.Sockets[i]
			s.BytesSent, s.BytesAcked = s.BytesSent+1500, s.BytesAcked+1500
		}
		if events := t.Observe(&round); len(events) > 0 {
			b.Fatal(events[0])
		}
	}
}
