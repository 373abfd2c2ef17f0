//go:build linux && (amd64 || arm64)

package ncclsockreceiver

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/internal/standin"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver/probereceivertest"
	"github.com/tracecoreai/tracecore/receivers/ncclsockreceiver/internal/metadata"
)

var (
	soak   = flag.Duration("soak", 3*time.Second, "how long healthy jobs are watched")
	trials = flag.Int("trials", 1, "how often a ring is stalled with the default thresholds")
)

// playStandIn makes the test binary a rank of the stand-in job.
func playStandIn() {
	if standin.IsChild() {
		os.Exit(standin.Child())
	}
}

// tracker is the identity of this kernel as an extension.
type tracker struct {
	component.StartFunc
	component.ShutdownFunc
	*identity.Tracker
}

// ready is what the receiver needs on the probe of this kernel.
func ready(t *testing.T, adjust func(*Config)) (*probereceivertest.Host, *Config) {
	t.Helper()
	privtest.Require(t)
	ids, err := identity.Open(identity.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ids.Close()) })
	host := probereceivertest.NewHost()
	host.Extensions[probereceivertest.IdentityID] = tracker{Tracker: ids}
	config := createDefaultConfig().(*Config)
	config.Identity = &probereceivertest.IdentityID
	adjust(config)
	require.NoError(t, config.Validate())
	return host, config
}

// sink takes the records of one job.
type sink struct {
	*probereceivertest.Sink
	allMove atomic.Bool // the receiver has seen each of its ranks move data
}

// watch runs the receiver on the probe of this kernel.
func watch(t *testing.T, adjust func(*Config)) *sink {
	t.Helper()
	host, config := ready(t, adjust)
	records := &sink{Sink: probereceivertest.NewSink()}
	records.Wants = func(r plog.LogRecord) bool { // stalls; the jobs of other tests are seen too
		job, ok := r.Attributes().Get("gen_ai.training.job_id") // what was lost is of no job
		switch {
		case !ok || job.AsString() != t.Name():
			return false
		case r.EventName() == socketstall.EventWatched:
			if _, all := r.Attributes().Get("nccl.socket.watched_ns"); all {
				records.allMove.Store(true)
			}
			return false
		}
		return true
	}
	r, err := NewFactory().CreateLogs(t.Context(), receivertest.NewNopSettings(metadata.Type), config, records)
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context(), host))
	t.Cleanup(func() { require.NoError(t, r.Shutdown(context.Background())) })
	return records
}

// hasty are thresholds a fraction of the real ones, for jobs with phases as short. They
// are many times what a healthy rank is late by on a busy host or in an emulated machine.
func hasty(c *Config) {
	const unit = time.Second
	c.SnapshotInterval, c.RepeatInterval = 200*time.Millisecond, time.Second
	c.Patience.Halted, c.Patience.Asleep, c.Patience.Network = 2*unit, 5*unit, 4*unit
	c.Phases.Learning = 3
}

// work starts a job and waits until its ranks have done some steps.
func work(t *testing.T, o standin.Options) *standin.Job {
	t.Helper()
	o.JobID = t.Name()
	job, err := standin.Start(o)
	if o.Namespaces && (errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT)) {
		t.Logf("this kernel cannot join namespaces: %v", err)
		return nil
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, job.Close()) })
	steps(t, job, 2)
	return job
}

func steps(t *testing.T, job *standin.Job, n int64) {
	t.Helper()
	for r := range 4 {
		before, end := job.Steps(r), time.Now().Add(hosttest.Patience)
		for job.Steps(r) < before+n {
			require.True(t, time.Now().Before(end), "rank %d gets nowhere: %s", r, job.Error(r))
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// recordTime is where until puts the time of a record among its attributes.
const recordTime = "time of the record"

// until reads records of this job until one is what is wanted.
func until(t *testing.T, s *sink, wanted func(map[string]any) bool) map[string]any {
	t.Helper()
	for end := time.Now().Add(hosttest.Patience); ; {
		require.True(t, time.Now().Before(end), "no such record")
		r := s.Next(t)
		a := r.Attributes().AsRaw()
		a[recordTime] = r.Timestamp().AsTime()
		t.Logf("rank %v %v %v peer %v kind %v state %v age %v", a["gen_ai.training.rank"], a["nccl.socket.cause"], a["nccl.socket.direction"], a["nccl.peer.rank"],
			a["nccl.socket.kind"], a["nccl.rank.state"], time.Duration(a["nccl.socket.stall.age_ns"].(int64)))
		if wanted(a) {
			return a
		}
		refuseOthers(t, a)
	}
}

// refuseOthers fails on an accusation of anybody but rank 2.
func refuseOthers(t *testing.T, a map[string]any) {
	t.Helper()
	switch a["nccl.socket.cause"] {
	case "not_reading":
		require.EqualValues(t, 2, a["gen_ai.training.rank"], "%v", a)
	case "peer_not_reading", "network":
		require.Contains(t, []any{a["gen_ai.training.rank"], a["nccl.peer.rank"]}, int64(2), "%v", a)
	}
}

// says is a record of rank, with peer at the other end.
func says(rank int64, cause, direction string, peer int64) func(map[string]any) bool {
	return func(a map[string]any) bool {
		return a["gen_ai.training.rank"] == rank && a["nccl.socket.cause"] == cause && a["nccl.socket.direction"] == direction && a["nccl.peer.rank"] == peer
	}
}

func TestFaultsOfRankTwoAreItsOwn(t *testing.T) {
	stop := func(j *standin.Job) error { return j.Signal(2, syscall.SIGSTOP) }
	for name, tc := range map[string]struct {
		options standin.Options
		fault   func(*standin.Job) error
		want    func(map[string]any) bool
		state   []any
		kind    string
	}{
		"stopped, NCCL": {standin.Options{}, stop, says(2, "not_reading", "receive", 1), []any{"stopped"}, "data"},
		"stopped, its predecessor's view": {
			standin.Options{ChunkBytes: 1 << 20, BufferBytes: 64 << 10}, stop, says(1, "peer_not_reading", "send", 2), []any{"sleeping", "running"}, "data",
		},
		"main thread asleep, NCCL": {
			standin.Options{}, func(j *standin.Job) error { return j.Sleep(2) }, says(2, "not_reading", "receive", 1), []any{"sleeping"}, "data",
		},
		"does not read, Gloo": {
			standin.Options{Library: standin.Gloo}, func(j *standin.Job) error { return j.StopReading(2) }, says(2, "not_reading", "receive", 1), []any{"sleeping"}, "gloo",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			records := watch(t, hasty)
			tc.options.Phase = 50 * time.Millisecond
			job := work(t, tc.options)
			settle(t, records, job)
			require.NoError(t, tc.fault(job))
			a := until(t, records, tc.want)
			require.Contains(t, tc.state, a["nccl.rank.state"])
			if tc.kind != "data" { // whose handshake may have been over before the first snapshot
				require.Equal(t, tc.kind, a["nccl.socket.kind"])
			}
			require.NoError(t, job.Close())
			for a["nccl.socket.stall.end_reason"] == nil {
				a = until(t, records, says(a["gen_ai.training.rank"].(int64), a["nccl.socket.cause"].(string), a["nccl.socket.direction"].(string), a["nccl.peer.rank"].(int64)))
			}
			ends := []any{"exited", "closed"}
			if a["nccl.socket.cause"] == "peer_not_reading" {
				// Where the host is short of CPUs, a rank that dies slowly counts as at work.
				ends = append(ends, "progress")
			}
			require.Contains(t, ends, a["nccl.socket.stall.end_reason"])
		})
	}
}

// settle lets the receiver learn the phases of the job: a second of steps without a stall, once it has seen all
// ranks move. In an emulated machine a look may take many seconds. Beside much other work a first step may be late
// by hasty's thresholds; TestHealthyJobsHaveNoStall is the one that allows none.
func settle(t *testing.T, records *sink, job *standin.Job) {
	t.Helper()
	limit := time.Now().Add(hosttest.Patience)
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		steps(t, job, 1)
		if !records.allMove.Load() {
			end = time.Now().Add(time.Second)
		}
		for len(records.Records) > 0 {
			t.Logf("late while it starts: %v", records.Next(t).Attributes().AsRaw())
			end = time.Now().Add(time.Second)
		}
		require.True(t, time.Now().Before(limit), "a job that trains is not seen to, or has stall after stall")
	}
}

// TestMainThreadAsleepBesideItsIOThread is the second way in which a rank stops:
// every queue is empty, and all ranks say so with their ages.
func TestMainThreadAsleepBesideItsIOThread(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "stuck")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	for name, fault := range map[string]func(*standin.Job) error{
		"sleeps":            func(j *standin.Job) error { return j.Sleep(2) },
		"stuck in its file": func(j *standin.Job) error { return j.ReadFile(2, pipe) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			records := watch(t, hasty)
			job := work(t, standin.Options{Library: standin.Gloo, Phase: 50 * time.Millisecond})
			settle(t, records, job)
			require.NoError(t, fault(job))
			silent := map[any]time.Time{} // since when; records are of several snapshots
			for len(silent) < 4 {
				a := until(t, records, func(a map[string]any) bool { return a["nccl.socket.cause"] == "waiting" })
				require.Less(t, a["nccl.rank.main_thread_cpu_share"], 0.5)
				require.Contains(t, a, "nccl.rank.usual_phase_ns")
				silent[a["gen_ai.training.rank"]] = a[recordTime].(time.Time).Add(-time.Duration(a["nccl.rank.last_sent_age_ns"].(int64)))
			}
			for r, since := range silent {
				// The kernel notes the time of the last data in jiffies, of up to 10 ms.
				require.False(t, since.Add(10*time.Millisecond).Before(silent[int64(2)]), "rank %v fell silent before rank 2: %v", r, silent)
			}
		})
	}
}

// TestAChildThatIsStoppedIsToldOfItsRank: rank 2 waits for the end of a child that computes, and
// then does not any more.
func TestAChildThatIsStoppedIsToldOfItsRank(t *testing.T) {
	t.Parallel()
	records := watch(t, hasty)
	job := work(t, standin.Options{Library: standin.Gloo, Phase: 50 * time.Millisecond})
	settle(t, records, job)
	require.NoError(t, job.ComputeInChild(2, time.Hour))
	var child int
	require.Eventually(t, func() bool {
		child = job.Worker(2)
		return child != 0
	}, hosttest.Patience, 10*time.Millisecond)
	require.NoError(t, syscall.Kill(child, syscall.SIGSTOP))
	a := until(t, records, func(a map[string]any) bool {
		return a["gen_ai.training.rank"] == int64(2) && a["nccl.rank.child_state"] == "stopped" && a["nccl.rank.silence"] == "overdue"
	})
	require.EqualValues(t, child, a["nccl.rank.child_pid"])
	require.Equal(t, true, a["nccl.rank.child_awaited"])
	require.Equal(t, "idle", a["nccl.rank.activity"])
	if name, told := a["signal.name"]; told { // not by every rung
		require.Equal(t, "SIGSTOP", name)
		require.EqualValues(t, os.Getpid(), a["signal.sender.pid"])
	}
}

// TestWhoLeavesAndLivesOnIsTold: one rank closes its connections and lives on. The others die of that, and close theirs because of it.
func TestWhoLeavesAndLivesOnIsTold(t *testing.T) {
	for name, library := range map[string]standin.Library{"ring": standin.NCCL, "mesh": standin.Gloo} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			records := watch(t, hasty)
			job := work(t, standin.Options{Library: library, Phase: 50 * time.Millisecond})
			settle(t, records, job)
			began := time.Now()
			require.NoError(t, job.Leave(2))
			for {
				require.True(t, time.Since(began) < hosttest.Patience, "nobody left")
				r := records.Next(t)
				if r.EventName() != metadata.EventNcclSocketLeft {
					continue
				}
				a := r.Attributes().AsRaw()
				require.EqualValues(t, job.PID(2), a["process.pid"])
				require.EqualValues(t, 2, a["gen_ai.training.rank"])
				require.Equal(t, true, a["nccl.socket.left.first"])
				require.EqualValues(t, 2, a["nccl.socket.left.closed"]) // of a mesh, too: data moves around a ring
				require.WithinRange(t, r.Timestamp().AsTime(), began.Add(-time.Second), time.Now().Add(-time.Second))
				break
			}
		})
	}
}

func TestNetworkThatSwallowsPackets(t *testing.T) {
	for name, both := range map[string]bool{"one way": false, "both ways": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			records := watch(t, hasty)
			job := work(t, standin.Options{Namespaces: true, Phase: 50 * time.Millisecond})
			if job == nil {
				return
			}
			settle(t, records, job)
			require.NoError(t, job.Drop(1, 2))
			if both {
				require.NoError(t, job.Drop(2, 1))
			}
			a := until(t, records, says(1, "network", "send", 2))
			require.NotZero(t, a["nccl.socket.unacked_bytes"])
			require.NotZero(t, a["nccl.socket.retransmits"])
			require.Equal(t, "10.77.2.2", a["network.peer.address"])
			require.NoError(t, job.Heal())
			a = until(t, records, func(a map[string]any) bool {
				return says(1, "network", "send", 2)(a) && a["nccl.socket.stall.end_reason"] != nil
			})
			require.Equal(t, "progress", a["nccl.socket.stall.end_reason"])
			steps(t, job, 3)
		})
	}
}

// TestHealthyJobsHaveNoStall watches jobs that compute for random times, one
// that computes for long and one on a slow link, with the default thresholds.
func TestHealthyJobsHaveNoStall(t *testing.T) {
	t.Parallel()
	records := watch(t, func(c *Config) {
		if *soak < time.Minute {
			c.Phases.Learning = 3 // else nothing but their being new would protect them
		}
	})
	phases := 300 * time.Millisecond
	if *soak >= time.Minute {
		phases = 3 * time.Second
	}
	gpu := work(t, standin.Options{Phase: phases})
	gloo := work(t, standin.Options{Library: standin.Gloo, Phase: phases})
	slow := work(t, standin.Options{ChunkBytes: 4 << 10})
	busy := work(t, standin.Options{Size: 4, Busy: true, Phase: 100 * time.Millisecond})
	require.NoError(t, slow.Limit(1, 30<<10))
	// Beyond ten minutes, where PyTorch's own watchdog ends, it is accused.
	require.NoError(t, busy.Compute(1, min(*soak, 9*time.Minute)))
	end := time.Now().Add(*soak)
	for time.Now().Before(end) {
		steps(t, gpu, 1)
		steps(t, gloo, 1)
	}
	for len(records.Records) > 0 { // not closed: the end of the jobs may be told too
		r := <-records.Records
		t.Errorf("a stall: %s: %v", r.Body().AsString(), r.Attributes().AsRaw())
	}
	t.Logf("%v: steps %d, %d, %d, %d", *soak, gpu.Steps(0), gloo.Steps(0), slow.Steps(0), busy.Steps(0))
}

// TestStalledRingNamesTheRankInTime stalls rings with the default thresholds and
// says how long it took until the record came. With -trials above 1 also in the
// second way, which a job must be learned for.
func TestStalledRingNamesTheRankInTime(t *testing.T) {
	for trial := range *trials {
		t.Run(fmt.Sprintf("stopped %d", trial), func(t *testing.T) {
			t.Parallel()
			stallInTime(t, standin.Options{Phase: 50 * time.Millisecond}, 0, says(2, "not_reading", "receive", 1), func(j *standin.Job) error { return j.Signal(2, syscall.SIGSTOP) })
		})
		if *trials == 1 {
			continue
		}
		t.Run(fmt.Sprintf("main thread asleep %d", trial), func(t *testing.T) {
			t.Parallel()
			stallInTime(t, standin.Options{Library: standin.Gloo, Phase: 50 * time.Millisecond}, 14*time.Second, says(2, "waiting", "receive", 1), func(j *standin.Job) error { return j.Sleep(2) })
		})
	}
}

func stallInTime(t *testing.T, o standin.Options, learning time.Duration, wanted func(map[string]any) bool, fault func(*standin.Job) error) {
	records := watch(t, func(*Config) {})
	job := work(t, o)
	for end := time.Now().Add(learning); time.Now().Before(end); {
		steps(t, job, 1)
	}
	require.NoError(t, fault(job))
	began := time.Now()
	until(t, records, wanted)
	t.Logf("told after %v", time.Since(began))
}

// TestInterfacesOfRanks: what each rank of a job moves is told with the interface that it goes
// over, as the rank's own network namespace names it.
func TestInterfacesOfRanks(t *testing.T) {
	sink := &consumertest.MetricsSink{}
	host, config := ready(t, func(c *Config) { c.SnapshotInterval, c.MetricsInterval = 200*time.Millisecond, 200*time.Millisecond })
	r, err := NewFactory().CreateMetrics(t.Context(), receivertest.NewNopSettings(metadata.Type), config, sink)
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context(), host))
	t.Cleanup(func() { require.NoError(t, r.Shutdown(context.Background())) })
	job := work(t, standin.Options{Namespaces: true})
	if job == nil {
		return
	}
	names := map[any]bool{}
	require.Eventually(t, func() bool {
		sent := map[int64]bool{}
		for _, md := range sink.AllMetrics() {
			for _, metric := range md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
				if metric.Name() != metadata.MetricsInfo.ProcessNetworkIo.Name {
					continue
				}
				for _, point := range metric.Sum().DataPoints().All() {
					a := point.Attributes().AsRaw()
					if a["gen_ai.training.job_id"] != t.Name() { // of another test beside it
						continue
					}
					names[a["network.interface.name"]] = true
					if a["network.io.direction"] == "transmit" && point.IntValue() > 0 {
						sent[a["gen_ai.training.rank"].(int64)] = true
					}
				}
			}
		}
		return len(sent) == 4
	}, hosttest.Patience, 50*time.Millisecond)
	require.Equal(t, map[any]bool{"eth0": true}, names)
}
