package ncclcallreceiver

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/otel/attribute"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclcall"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/receivers/internal/gpuask"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver/probereceivertest"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/ncclcallreceiver/internal/metadata"
)

var start = probereceivertest.Start

// fakeSource delivers the events and scans a test gives it and hears what is to be
// watched.
type fakeSource struct {
	*probereceivertest.EventSource[ncclcall.Event]
	watches chan []ncclcall.Process
	scans   chan *ncclcall.Scan
	failing chan error    // of scans
	slow    chan struct{} // what Unseen waits for; nil: nothing
}

func (f *fakeSource) Watch(processes []ncclcall.Process) (ncclcall.Watched, error) {
	select {
	case <-f.Closed:
		return ncclcall.Watched{}, probe.ErrClosed
	case f.watches <- processes:
		w := ncclcall.Watched{NCCL: 3, Unknown: 1, Layout: errors.New("its code shows nothing")}
		w.Libraries, w.Over, w.Failed, w.Unreadable, w.Err = 4, 5, 6, 7, errors.New("libnccl of process 7 is damaged")
		return w, nil
	}
}

func (f *fakeSource) Unseen(processes []ncclcall.Process) (all []ncclcall.Unseen) {
	if f.slow != nil {
		<-f.slow
	}
	for _, p := range processes {
		if p.PID == static {
			all = append(all, ncclcall.Unseen{PID: p.PID, Why: ncclcall.Static, File: "/app/train"})
		}
	}
	return all
}

// static is a process of which no call is seen.
const static = 77

func (f *fakeSource) Scan() (*ncclcall.Scan, error) {
	select {
	case <-f.Closed:
		return nil, probe.ErrClosed
	case err := <-f.failing:
		return nil, err
	case s := <-f.scans:
		return s, nil
	}
}

// bench is a receiver on fakes, whose clocks the test moves.
type bench struct {
	*probereceivertest.Bench
	source *fakeSource // the last that was opened
	config *Config
	slow   chan struct{} // of the source
}

func newBench(t *testing.T) *bench {
	b := &bench{Bench: probereceivertest.NewBench(t, metadata.Type), config: createDefaultConfig().(*Config)}
	b.Resolver.Know(identity.Process{PID: 42, Comm: "python", Rank: 3, LocalRank: 3, WorldSize: 8, JobID: "job-1", StartTime: start})
	b.config.Identity = &probereceivertest.IdentityID
	return b
}

func (b *bench) factory(ticks probereceiver.Ticks) receiver.Factory {
	return newFactory(surroundings{ticks: ticks, open: func(*Config) (source, error) {
		b.source = &fakeSource{
			probereceivertest.NewEventSource[ncclcall.Event](), make(chan []ncclcall.Process, 100), make(chan *ncclcall.Scan, 100), make(chan error), b.slow,
		}
		return b.source, b.Open()
	}})
}

func (b *bench) receiver(t *testing.T, next consumer.Logs) receiver.Logs {
	r, err := b.factory(b.Ticks).CreateLogs(t.Context(), b.Settings, b.config, next)
	require.NoError(t, err)
	return r
}

func (b *bench) start(t *testing.T) { b.StartAll(t, b.receiver(t, b.Sink)) }

// scan lets the receiver look at this.
func (b *bench) scan(t *testing.T, s *ncclcall.Scan) {
	t.Helper()
	b.source.scans <- s
	b.Tick(t, b.config.ScanInterval, s.Time)
}

// inits is an event of which a record is made.
func inits(pid uint32) ncclcall.Event {
	return ncclcall.Event{Time: start, Kind: ncclcall.InitRank, PID: pid, Thread: pid, Rank: 1, Size: 8, Hash: 7, Root: netip.MustParseAddrPort("10.0.0.1:9")}
}

func TestLife(t *testing.T) {
	probereceivertest.Life(t, func(t *testing.T) *probereceivertest.Subject {
		b := newBench(t)
		return &probereceivertest.Subject{
			Bench: b.Bench,
			New: func(t *testing.T, mode record.ErrorMode, next consumer.Logs) []component.Component {
				b.config.ErrorMode = mode
				return []component.Component{b.receiver(t, next)}
			},
			Fire:            func(*testing.T) { b.source.Events <- inits(42) },
			Break:           func(_ *testing.T, err error) { b.source.Broken <- err },
			NeedsIdentity:   true,
			WithoutIdentity: func() { b.config.Identity = nil },
		}
	})
}

func TestConsumeContract(t *testing.T) {
	b := newBench(t)
	probereceivertest.Contract(t, b.Bench, &probereceivertest.Generator{Attribute: "process.pid", Make: func(pid uint32) string {
		b.source.Events <- inits(pid)
		return fmt.Sprint(pid)
	}}, b.config, func() receiver.Factory { return b.factory(probereceiver.RealTime) })
}

func TestStandstillBecomesARecordOfItsRank(t *testing.T) {
	told, stop := gpuask.Ranks()
	defer stop()
	b := newBench(t)
	b.start(t)
	b.scan(t, scanAt(0, calling(5, 0)))
	b.scan(t, scanAt(10, calling(5, 0)))
	r := b.Next(t)
	require.Equal(t, "nccl.call.stopped", r.EventName())
	a := r.Attributes().AsRaw()
	require.EqualValues(t, 3, a["gen_ai.training.rank"])
	require.EqualValues(t, 5, a["nccl.call.comm_rank"])
	require.EqualValues(t, 5, a["nccl.call.collectives"])
	require.Equal(t, "0x7", a["nccl.call.comm"])
	require.Equal(t, "claimed", a["tracecore.trust"])
	b.scan(t, scanAt(11, calling(6, 10.5)))
	require.Equal(t, "nccl.call.moving", b.Next(t).EventName())
	require.Equal(t, gpuask.Rank{PID: 42, Stands: true}, <-told, "its GPU is looked at meanwhile")
	require.Equal(t, gpuask.Rank{PID: 42}, <-told)
	b.Accepted(t, 2)
	require.EqualValues(t, 6, b.Own(t, "calls", attribute.String("operation", "AllReduce")))
	require.EqualValues(t, 1, b.Own(t, "communicators"))
}

func TestLimitIsToldOnce(t *testing.T) {
	b := newBench(t)
	b.config.Patience = time.Minute
	b.start(t)
	for at := range 3 {
		s := scanAt(float64(at), calling(5, 0))
		s.Limited, s.Refused = map[uint32]ncclcall.Limit{42: ncclcall.NoPointToPoint, 7: ncclcall.NoPointToPoint}, 9
		b.scan(t, s)
	}
	for _, pid := range []int64{7, 42} {
		r := b.Next(t)
		require.Equal(t, "nccl.call.limited", r.EventName())
		require.Equal(t, pid, r.Attributes().AsRaw()["process.pid"])
	}
	b.Eventually(t, "calls_refused", 9)
	require.EqualValues(t, 1, b.Own(t, "limit"))
	require.EqualValues(t, 2, b.Own(t, "processes_limited"))
	require.Empty(t, b.Records)
}

func TestWhatIsNotSeenIsToldOnce(t *testing.T) {
	b := newBench(t)
	of := func(pid uint32, rank int) identity.Process {
		return identity.Process{PID: pid, Comm: "python", Rank: rank, LocalRank: rank, WorldSize: 8, JobID: "job-1", StartTime: start}
	}
	b.Resolver.Know(of(42, 3), of(static, 4))
	b.start(t)
	a := b.Next(t).Attributes().AsRaw()
	require.Equal(t, []any{"static", "/app/train", int64(static), int64(4)}, []any{a["nccl.call.limit"], a["nccl.call.library"], a["process.pid"], a["gen_ai.training.rank"]})
	for range 2 {
		b.source.Events <- ncclcall.Event{Kind: ncclcall.Device, PID: 42, Time: start}
	}
	a = b.Next(t).Attributes().AsRaw()
	require.Equal(t, []any{"gpu_initiated", int64(42)}, []any{a["nccl.call.limit"], a["process.pid"]})
	b.Tick(t, b.config.LookInterval, time.Time{})
	b.Eventually(t, "processes_unseen", 2)
	b.Resolver.Know(of(42, 3))
	b.Tick(t, b.config.LookInterval, time.Time{})
	b.Eventually(t, "processes_unseen", 1)
	require.Empty(t, b.Records)
}

// TestWhatIsNotSeenIsToldAgain: those who hear it forget it.
func TestWhatIsNotSeenIsToldAgain(t *testing.T) {
	u := newUnseen()
	one, gone := identity.Process{PID: static, Rank: 4, StartNS: 70}, identity.Process{PID: 9, Rank: 5, StartNS: 71}
	living := map[identity.Born]identity.Process{one.Born(): one}
	found := []sight{{one, ncclcall.Unseen{PID: static, Why: ncclcall.Static}}, {one, ncclcall.Unseen{PID: static, Why: ncclcall.Static}}}
	require.Len(t, u.look(found, start, living), 1)
	require.True(t, u.device(&gone, start))
	require.False(t, u.device(&gone, start))
	require.Empty(t, u.look(found, start.Add(tellAgain-1), living))
	require.Empty(t, u.devices, "it has ended")
	require.Len(t, u.look(found, start.Add(tellAgain), living), 1)
	require.Empty(t, u.look(nil, start.Add(tellAgain), living))
	require.Empty(t, u.told)
}

// A process that asked NCCL for communication by GPUs and ended: a rank of another has its number.
func TestWhatAProcessAskedForIsNotToldOfTheNextWithItsNumber(t *testing.T) {
	u := newUnseen()
	before, rank := identity.Process{PID: 42, Rank: identity.Unknown, StartNS: 70}, identity.Process{PID: 42, Rank: 3, StartNS: 80}
	require.False(t, u.device(&before, start), "it is no rank yet")
	require.Empty(t, u.look(nil, start.Add(time.Second), map[identity.Born]identity.Process{rank.Born(): rank}))
	require.Empty(t, u.told)
	require.Empty(t, u.devices)

	require.False(t, u.device(&before, start))
	require.Empty(t, u.look(nil, start, map[identity.Born]identity.Process{before.Born(): before}))
	before.Rank = 3
	due := u.look(nil, start, map[identity.Born]identity.Process{before.Born(): before})
	require.Len(t, due, 1, "its calls have shown by now which rank it is")
	require.Equal(t, ncclcall.GPUInitiated, due[0].Why)
	before.Ended = true
	static := sight{before, ncclcall.Unseen{PID: 42, Why: ncclcall.Static}}
	lives := map[identity.Born]identity.Process{rank.Born(): rank}
	require.Empty(t, u.look([]sight{static}, start, lives), "it ended while its files were searched")
	static.of = rank
	require.Len(t, u.look([]sight{static}, start, lives), 1, "of the next it is told")
}

// Only of ranks, and of what may be ranks, it counts what they ask NCCL for.
func TestOnlyWhatMayBeARankAsksForCommunicationByGPUs(t *testing.T) {
	r, s := seated(t, stranger(7))
	r.unseen, r.config.Events.NcclCallLimited.Enabled = newUnseen(), false
	rank, ended, reborn := identity.Process{PID: 42, Rank: 3, StartNS: 70}, identity.Process{PID: 43, Rank: 3, Ended: true}, stranger(7)
	reborn.StartNS++
	take := func(p identity.Process) {
		s.Know(p)
		r.standstill = newStandstill(time.Second, time.Minute)
		r.take(t.Context(), &ncclcall.Event{Kind: ncclcall.Device, PID: p.PID, Time: start})
	}
	for _, p := range []identity.Process{rank, ended, reborn, stranger(8), stranger(7)} {
		take(p)
	}
	require.Equal(t, map[identity.Born]bool{rank.Born(): true, {PID: 7}: true}, r.unseen.devices)
}

// A process that waited in a function that makes a communicator has ended, and a rank of another has
// its number.
func TestTheNextProcessWithTheNumberWaitsForNobody(t *testing.T) {
	b := newBench(t)
	waits, rank := identity.Process{PID: 42, Comm: "other", Rank: 7, StartNS: 70}, identity.Process{PID: 42, Comm: "python", Rank: 3, StartNS: 80}
	b.Resolver.Know(waits)
	b.start(t)
	b.source.Events <- inits(42)
	require.Equal(t, "nccl.call.init", b.Next(t).EventName())
	b.scan(t, scanAt(11))
	require.Equal(t, "nccl.call.init.waiting", b.Next(t).EventName())
	b.Resolver.Know(rank)
	b.scan(t, scanAt(12))
	r := b.Next(t)
	require.Equal(t, "nccl.call.init.done", r.EventName())
	a := r.Attributes().AsRaw()
	require.Equal(t, []any{"exited", int64(7)}, []any{a["nccl.call.end_reason"], a["gen_ai.training.rank"]})
	require.Empty(t, b.Records)
}

func TestEndOfACommunicatorIsCountedAndNotTold(t *testing.T) {
	b := newBench(t)
	b.start(t)
	end := ncclcall.Event{Kind: ncclcall.Destroy, PID: 42, Address: 9}
	end.Calls[ncclcall.AllGather] = 12
	b.source.Events <- end
	b.source.Events <- inits(42)
	require.Equal(t, "nccl.call.init", b.Next(t).EventName())
	require.EqualValues(t, 12, b.Own(t, "calls", attribute.String("operation", "AllGather")))
}

func TestLibrariesOfTheRanksAreLookedForAgainAndAgain(t *testing.T) {
	b := newBench(t)
	b.config.MaxProcesses = 2
	b.Resolver.Know(identity.Process{PID: 99, StartTime: start}, identity.Process{PID: 44, StartTime: start}, identity.Process{PID: 42, StartTime: start})
	b.start(t)
	want := []ncclcall.Process{{PID: 42, Start: start}, {PID: 44, Start: start}}
	require.Equal(t, want, <-b.source.watches, "at once, and no more than are allowed")
	b.Tick(t, b.config.LookInterval, time.Time{})
	require.Equal(t, want, <-b.source.watches)
	b.Eventually(t, "processes_skipped", 2*(1+7))
	for name, value := range map[string]int64{
		"probe_up": 1, "probe_dropped": 2, "probe_invalid": 3, "libraries": 4, "libraries_skipped": 5, "libraries_failed": 6, "libraries_unknown": 1,
	} {
		require.Equal(t, value, b.Own(t, name), name)
	}
}

// A file that is slow to be read keeps no rank's calls from being seen.
func TestTheSearchOfFilesDelaysNoAttaching(t *testing.T) {
	b := newBench(t)
	b.slow = make(chan struct{})
	b.start(t)
	<-b.source.watches
	for range 3 {
		b.Tick(t, b.config.LookInterval, time.Time{})
		<-b.source.watches
	}
	close(b.slow)
}

// What the kernel refuses once it may give a second later; what it keeps refusing breaks
// the probe.
func TestScansThatKeepFailingBreakTheProbe(t *testing.T) {
	b := newBench(t)
	b.config.ErrorMode = record.Ignore
	b.start(t)
	refused := errors.New("no memory")
	for range probereceiver.MaxFailures {
		b.Tick(t, b.config.ScanInterval, start)
		b.source.failing <- refused
	}
	require.ErrorIs(t, b.Host.Status(t).Err(), refused)
}

func TestEventsSwitchedOffAreReadAndNotEmitted(t *testing.T) {
	b := newBench(t)
	b.config.Events.NcclCallInit.Enabled = false
	b.config.Events.NcclCallStopped.Enabled = false
	b.config.Events.NcclCallMoving.Enabled = false
	b.config.Events.NcclCallLimited.Enabled = false
	b.config.Events.NcclCallDoing.Enabled, b.config.Events.NcclCallEnd.Enabled = false, false
	b.config.Events.NcclCallInitWaiting.Enabled, b.config.Events.NcclCallInitDone.Enabled = false, false
	b.start(t)
	b.source.Events <- inits(42)
	b.scan(t, scanAt(0, calling(5, 0)))
	b.scan(t, scanAt(10, calling(5, 0)))
	limited := scanAt(11, calling(6, 11))
	limited.Limited = map[uint32]ncclcall.Limit{42: ncclcall.NoCalls}
	b.scan(t, limited)
	b.Eventually(t, "limit", 2)
	require.Empty(t, b.Records)
}
