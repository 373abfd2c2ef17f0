package kerneleventsreceiver

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/otel/attribute"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/receivers/internal/outbox"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver/probereceivertest"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/ports"
)

const xid79 = "NVRM: Xid (PCI:0000:65:00): 79, pid=42, name=python, GPU has fallen off the bus."

var start = probereceivertest.Start

// bench is a receiver on fakes.
type bench struct {
	*probereceivertest.Bench
	source  *fakeSource // the last that was opened
	back    kmsg.Back   // what the kernel's buffer has
	backErr error
	since   []kmsg.Moment
	config  *Config
	uptime  func() (time.Duration, error)
	ports   func() ([]ports.Port, error)
}

// fakeSource is a probe whose kernel has a buffer.
type fakeSource struct {
	*probereceivertest.EventSource[kmsg.Event]
	bench *bench
}

func (s *fakeSource) ReadBack(since kmsg.Moment) (kmsg.Back, error) {
	s.bench.since = append(s.bench.since, since)
	return s.bench.back, s.bench.backErr
}

func newBench(t *testing.T) *bench {
	b := &bench{Bench: probereceivertest.NewBench(t, metadata.Type), config: createDefaultConfig().(*Config)}
	b.config.Identity = &probereceivertest.IdentityID
	return b
}

func (b *bench) factory() receiver.Factory {
	return newFactory(surroundings{uptime: b.uptime, ports: b.ports, portsEvery: time.Millisecond, ticks: b.Ticks, open: func() (source, error) {
		b.source = &fakeSource{EventSource: probereceivertest.NewEventSource[kmsg.Event](), bench: b}
		return b.source, b.Open()
	}})
}

func (b *bench) receiver(t *testing.T, next consumer.Logs) receiver.Logs {
	r, err := b.factory().CreateLogs(t.Context(), b.Settings, b.config, next)
	require.NoError(t, err)
	return r
}

func (b *bench) start(t *testing.T) receiver.Logs {
	r := b.receiver(t, b.Sink)
	b.StartAll(t, r)
	return r
}

// write gives one line of the kernel and returns when the receiver took it.
func (b *bench) write(text string) {
	b.source.Events <- kmsg.Event{Time: start, CPU: 1, Writer: kmsg.WriterKernel, Origin: kmsg.Function{Name: "nv_printf", Module: "nvidia"}, Text: text}
}

func TestLife(t *testing.T) {
	probereceivertest.Life(t, func(t *testing.T) *probereceivertest.Subject {
		b, bus := newBench(t), 0
		return &probereceivertest.Subject{
			Bench: b.Bench,
			New: func(t *testing.T, mode record.ErrorMode, next consumer.Logs) []component.Component {
				b.config.ErrorMode = mode
				return []component.Component{b.receiver(t, next)}
			},
			Fire: func(*testing.T) {
				bus++ // another GPU: nothing folds
				b.write(fmt.Sprintf("NVRM: Xid (PCI:0000:%02x:00): 79, GPU has fallen off the bus.", bus))
			},
			Break:           func(_ *testing.T, err error) { b.source.Broken <- err },
			WithoutIdentity: func() { b.config.Identity = nil },
		}
	})
}

func TestConsumeContract(t *testing.T) {
	b := newBench(t)
	probereceivertest.Contract(t, b.Bench, &probereceivertest.Generator{Attribute: "kernelevents.xid", Make: func(number uint32) string {
		code := fmt.Sprint(1000 + number)
		b.write("NVRM: Xid (PCI:0000:65:00): " + code + ", pid=42, name=python, unheard of")
		return code
	}}, b.config, b.factory)
}

func TestXidOfARankBecomesARecordAtOnce(t *testing.T) {
	b := newBench(t)
	b.Resolver.Know(identity.Process{PID: 42, Comm: "python", Rank: 3, LocalRank: 3, WorldSize: 8, JobID: "job-1"})
	b.start(t)
	b.write(xid79)
	r := b.Next(t)
	require.Equal(t, "gpu.xid", r.EventName())
	require.Equal(t, start.UnixNano(), int64(r.Timestamp()))
	require.Equal(t, plog.SeverityNumberFatal, r.SeverityNumber())
	require.Equal(t, xid79, r.Body().Str())
	a := r.Attributes().AsRaw()
	require.EqualValues(t, 79, a["kernelevents.xid"])
	require.Equal(t, "0000:65:00.0", a["gpu.id"])
	require.EqualValues(t, 3, a["gen_ai.training.rank"])
	require.Equal(t, "job-1", a["gen_ai.training.job_id"])
	require.Equal(t, "proven", a["tracecore.trust"])
	require.Equal(t, "nv_printf [nvidia]", a["kernelevents.origin"])
	require.EqualValues(t, 1, b.Own(t, "lines", attribute.String("outcome", "reported")))
	require.EqualValues(t, 1, b.Own(t, "probe_up", attribute.String("rung", "fake")))
	require.EqualValues(t, 2, b.Own(t, "probe_dropped"))
	require.EqualValues(t, 3, b.Own(t, "probe_invalid"))
	b.Accepted(t, 1)
}

// A link that goes down ends ranks on other hosts, too: its record says which job runs here.
func TestALinkThatChangesTellsTheJobHere(t *testing.T) {
	b := newBench(t)
	rank := func(pid uint32, number int) identity.Process {
		return identity.Process{PID: pid, Comm: "python", Rank: number, WorldSize: 8, Rendezvous: "node-0:29500/8", Domain: "slurm 7"}
	}
	b.Resolver.Know(rank(42, 4), rank(43, 5))
	b.start(t)
	b.write("mlx5_core 0000:5e:00.0 ibs3: Port: 1 Link DOWN")
	a := b.Next(t).Attributes().AsRaw()
	require.Equal(t, "down", a["network.link.state"])
	require.Equal(t, "node-0:29500/8", a["gen_ai.training.rendezvous"])
	require.Equal(t, "slurm 7", a["gen_ai.training.job_domain"])
	require.Equal(t, []any{int64(4), int64(5)}, a["network.rdma.port.ranks"])
	require.NotContains(t, a, "gen_ai.training.job_id")

	b.Resolver.Know(rank(42, 4), identity.Process{PID: 50, Comm: "python", Rank: 0, WorldSize: 2, JobID: "another", Domain: "slurm 8"})
	b.write("mlx5_core 0000:5e:00.0 ibs3: Port: 1 Link UP")
	a = b.Next(t).Attributes().AsRaw()
	require.Equal(t, "up", a["network.link.state"])
	require.NotContains(t, a, "gen_ai.training.job_domain", "of two jobs, neither")
}

func TestForgedLineIsANormalRecordThatSaysSo(t *testing.T) {
	b := newBench(t)
	b.start(t)
	b.source.Events <- kmsg.Event{Time: start, PID: 7, Comm: "bash", Writer: kmsg.WriterUserspace, Origin: kmsg.Function{Name: "devkmsg_emit"}, Text: xid79}
	a := b.Next(t).Attributes().AsRaw()
	require.Equal(t, "claimed", a["tracecore.trust"])
	require.Equal(t, "devkmsg_emit", a["kernelevents.origin"])
	require.EqualValues(t, 7, a["kernelevents.writer_pid"])
	require.Equal(t, "bash", a["kernelevents.writer_comm"])
	require.EqualValues(t, 42, a["process.pid"])

	b.source.Events <- kmsg.Event{Time: start, PID: 7, Comm: "bash", Writer: kmsg.WriterUnknown, Text: xid79}
	a = b.Next(t).Attributes().AsRaw()
	require.Equal(t, "claimed", a["tracecore.trust"])
	require.NotContains(t, a, "kernelevents.origin")
	require.NotContains(t, a, "kernelevents.writer_pid")
}

func TestStormLooksItsOwnerUpOnce(t *testing.T) {
	b := newBench(t)
	b.config.Fold.Quiet, b.config.Fold.Longest = hosttest.Patience, hosttest.Patience // one fold, however long it takes
	r := b.start(t)
	for range 10_000 {
		b.write("NVRM: Xid (PCI:0000:65:00): 45, pid=42, name=python, Ch 00000001")
	}
	require.NoError(t, r.Shutdown(t.Context()))
	require.Len(t, b.Records, 1)
	require.EqualValues(t, 10_000, b.Next(t).Attributes().AsRaw()["kernelevents.count"])
	require.Equal(t, 1, b.Resolver.Lookups())
	require.EqualValues(t, 9_999, b.Own(t, "folded"))
}

func TestFoldClosesByItself(t *testing.T) {
	b := newBench(t)
	b.config.Fold.Quiet = 20 * time.Millisecond
	b.start(t)
	b.write("NVRM: Xid (PCI:0000:65:00): 13, Graphics SM Warp Exception")
	require.EqualValues(t, 13, b.Next(t).Attributes().AsRaw()["kernelevents.xid"])
	b.write("nvidia 0000:65:00.0: NVRM: {7}[Hardware Error]: section_type: memory error")
	require.Equal(t, "gpu.fault", b.Next(t).EventName(), "a severity that never comes holds nothing back")
}

// A new boot ends what a reboot cures: the first record tells which one is watched.
func TestTheFirstRecordTellsOfTheBoot(t *testing.T) {
	b := newBench(t)
	b.uptime = func() (time.Duration, error) { return 90 * time.Second, nil }
	receiver := b.start(t)
	r := b.Next(t)
	require.Equal(t, "host.boot", r.EventName())
	require.Equal(t, "the host has been up for 1m30s", r.Body().Str())
	require.Equal(t, map[string]any{"host.uptime_ns": int64(90 * time.Second), "tracecore.trust": "proven"}, r.Attributes().AsRaw())
	require.NoError(t, receiver.Shutdown(t.Context()))

	b.config.Events.HostBoot.Enabled = false
	b.start(t)
	b.write(xid79)
	require.Equal(t, "gpu.xid", b.Next(t).EventName(), "switched off")
}

func TestABootThatCannotBeReadIsNotTold(t *testing.T) {
	b := newBench(t)
	b.uptime = func() (time.Duration, error) { return 0, errors.ErrUnsupported }
	b.start(t)
	b.write(xid79)
	require.Equal(t, "gpu.xid", b.Next(t).EventName())
}

func TestExitsOfRanksBecomeRecords(t *testing.T) {
	b := newBench(t)
	receiver := b.start(t)
	process := identity.Process{PID: 9, Comm: "python", Rank: 0, LocalRank: identity.Unknown, WorldSize: identity.Unknown}
	b.Resolver.Exit(t, identity.Exit{Process: process, Time: start, Signal: 6, CoreDump: true})
	r := b.Next(t)
	require.Equal(t, "process.exit", r.EventName())
	require.Equal(t, "python (pid 9, rank 0) was ended by SIGABRT", r.Body().Str())
	require.Equal(t, map[string]any{
		"process.pid": int64(9), "process.executable.name": "python", "gen_ai.training.rank": int64(0),
		"process.exit.code": int64(0), "process.exit.signal": int64(6), "process.exit.signal_name": "SIGABRT",
		"process.exit.core_dump": true, "process.exit.oom_victim": false, "process.exit.inherited_identity": false, "tracecore.trust": "proven",
	}, r.Attributes().AsRaw())

	b.Resolver.Exit(t, identity.Exit{Process: process, Time: start, Late: true})
	clean := b.Next(t)
	require.Equal(t, plog.SeverityNumberInfo, clean.SeverityNumber())
	require.Equal(t, "python (pid 9, rank 0) exited with status 0", clean.Body().Str())
	require.Equal(t, true, clean.Attributes().AsRaw()["tracecore.late"])

	require.NoError(t, receiver.Shutdown(t.Context()))
	require.False(t, b.Resolver.Watched())
}

func TestExitsAreNotWatchedWhenSwitchedOff(t *testing.T) {
	for name, off := range map[string]func(*Config){
		"process_exits: false":         func(c *Config) { c.ProcessExits = false },
		"event process.exit disabled":  func(c *Config) { c.Events.ProcessExit.Enabled = false },
		"no identity extension is set": func(c *Config) { c.Identity = nil },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			off(b.config)
			r := b.start(t)
			b.write(xid79)
			b.Next(t) // the worker has begun
			require.False(t, b.Resolver.Watched())
			require.NoError(t, r.Shutdown(t.Context()))
		})
	}
}

func TestEventSwitchedOffIsNotEmitted(t *testing.T) {
	b := newBench(t)
	b.config.Events.GpuXid.Enabled = false
	b.start(t)
	b.write(xid79)
	b.write("NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.")
	require.Equal(t, "gpu.lost", b.Next(t).EventName())
}

func TestExitsBeyondTheQueuesAreCounted(t *testing.T) {
	release := make(chan struct{})
	next, err := consumer.NewLogs(func(context.Context, plog.Logs) error {
		<-release
		return nil
	})
	require.NoError(t, err)
	b := newBench(t)
	r := b.receiver(t, next)
	b.StartAll(t, r)
	const exits = pendingExits + outbox.Capacity + 100
	for i := range exits {
		b.Resolver.Exit(t, identity.Exit{Process: identity.Process{PID: uint32(i)}, Time: start})
	}
	close(release)
	require.NoError(t, r.Shutdown(t.Context()))
	lost := b.Own(t, "exits_dropped") + b.Own(t, "records_dropped")
	require.GreaterOrEqual(t, lost, int64(99), "one more is with the consumer")
	require.EqualValues(t, exits, lost+b.Metric(t, "accepted_log_records"))
}
