package kerneleventsreceiver

import (
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/golden"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/plogtest"
	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/ports"
)

// adapters are the ports of a machine, as a test sets them.
type adapters struct {
	now   atomic.Pointer[[]ports.Port] // nil: they cannot be read
	looks atomic.Int64
}

func (a *adapters) are(all ...ports.Port) { a.now.Store(&all) }

func (b *bench) withPorts() *adapters {
	a := &adapters{}
	b.ports = func() ([]ports.Port, error) {
		a.looks.Add(1)
		if all := a.now.Load(); all != nil {
			return *all, nil
		}
		return nil, syscall.EMFILE
	}
	return a
}

func port(state string) ports.Port { return ports.Port{Device: "mlx5_0", Number: 1, State: state} }

// nextPort is the state that the next record tells, and whether it was so for some time.
func (b *bench) nextPort(t *testing.T) (state string, inactive bool) {
	r := b.Next(t)
	require.Equal(t, "network.rdma.port", r.EventName())
	a := r.Attributes().AsRaw()
	require.Equal(t, "proven", a["tracecore.trust"])
	return a["network.rdma.port.state"].(string), a["network.rdma.port.inactive_ns"].(int64) > 0
}

func (b *bench) tells(t *testing.T, want string) {
	t.Helper()
	state, _ := b.nextPort(t)
	require.Equal(t, want, state)
}

func TestPortThatWasActiveIsToldOf(t *testing.T) {
	b := newBench(t)
	a := b.withPorts()
	a.are(port("down"))
	b.start(t)
	a.are(port("active"))
	b.tells(t, "active") // and not that it was down before
	a.are(port("down"))
	b.tells(t, "down")
	a.are(port("active"))
	b.tells(t, "active")
}

func TestPortsThatCannotBeReadForAWhileAreNotForgotten(t *testing.T) {
	b := newBench(t)
	a := b.withPorts()
	a.are(port("active"))
	b.start(t)
	b.tells(t, "active")
	a.now.Store(nil)
	before := a.looks.Load()
	require.Eventually(t, func() bool { return a.looks.Load() > before+2 }, hosttest.Patience, time.Millisecond)
	a.are(port("down"))
	b.tells(t, "down")
}

func TestPortIsStillDownAfterARestart(t *testing.T) {
	b, folder := newBench(t), t.TempDir()
	a := b.withPorts()
	a.are(port("active"))
	b.run(t, folder, func() {
		b.tells(t, "active")
		a.are(port("down"))
		b.tells(t, "down")
	})
	b.run(t, folder, func() {
		state, since := b.nextPort(t)
		require.Equal(t, "down", state)
		require.True(t, since, "it has been down since before the restart")
		a.are(port("active"))
		b.tells(t, "active")
	})
}

func TestWithoutAStorageARestartKnowsNoPort(t *testing.T) {
	b := newBench(t)
	a := b.withPorts()
	a.are(port("down"))
	b.start(t)
	a.are(port("down"), ports.Port{Device: "mlx5_1", Number: 1, State: "active"})
	require.Equal(t, "mlx5_1", b.Next(t).Attributes().AsRaw()["network.rdma.device"], "nobody saw mlx5_0 active")
}

func TestPortsKeptInAnotherBootAreForgotten(t *testing.T) {
	b, folder := newBench(t), t.TempDir()
	end := b.keeps(t, folder)
	defer end()
	for _, boot := range []string{"BOOT", "NEXT"} {
		w := newWatched(b.Settings, &storageID, boot)
		require.NoError(t, w.open(t.Context(), b.Host))
		require.Nil(t, w.kept(t.Context(), portsKey))
		require.NoError(t, w.keep(portsKey, []byte(`[]`)))
		require.Equal(t, `[]`, string(w.kept(t.Context(), portsKey)))
		w.close()
	}
}

func TestGoldenPorts(t *testing.T) {
	of := func(rank int) identity.Process { return identity.Process{Rank: rank, JobID: "llm", Domain: "slurm 7"} }
	news := []ports.Seen{
		{Port: ports.Port{Device: "mlx5_0", Number: 1, Interface: "ibs3", State: "active"}},
		{Port: ports.Port{Device: "mlx5_1", Number: 1, State: "down", Physical: "polling", Reason: ports.NoLink}, Inactive: 65 * time.Second},
		{Port: ports.Port{Device: "mlx5_2", Number: 2, Interface: "eth4", State: "down", Physical: "disabled", Reason: ports.SwitchedOff}, Inactive: time.Hour},
	}
	got := newTestConverter().ports(news, []identity.Process{of(3), of(1)}, start)
	file := filepath.Join("testdata", "golden", "ports.yaml")
	if *update {
		require.NoError(t, golden.WriteLogs(t, file, got))
	}
	want, err := golden.ReadLogs(file)
	require.NoError(t, err)
	require.NoError(t, plogtest.CompareLogs(want, got))
}

func TestJobHereIsTheOnlyOne(t *testing.T) {
	rank := func(pid uint32, job string) identity.Process {
		return identity.Process{PID: pid, RankPID: pid, Rank: int(pid), JobID: job}
	}
	child, drill := rank(3, "b"), rank(4, "drill")
	child.Inherited, drill.Drill = true, true
	require.Empty(t, (&worker{}).jobHere(), "nobody knows")
	for name, tc := range map[string]struct {
		here []identity.Process
		want int
	}{
		"nobody":                   {nil, 0},
		"one job":                  {[]identity.Process{rank(1, "a"), rank(2, "a")}, 2},
		"a worker, and a drill":    {[]identity.Process{rank(1, "a"), child, drill}, 1},
		"two jobs: nobody's alone": {[]identity.Process{rank(1, "a"), rank(2, "b")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.Resolver.Know(tc.here...)
			require.Len(t, (&worker{resolver: b.Resolver}).jobHere(), tc.want)
		})
	}
}
