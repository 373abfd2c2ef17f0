package ncclsockreceiver

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclsock"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver/probereceivertest"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/ncclsockreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/ncclsockreceiver/internal/stall"
)

// bench is a receiver of both signals on fakes, whose time a test drives.
type bench struct {
	*probereceivertest.Bench
	source  *fakeSource // the last that was opened
	at      time.Time   // of the first snapshot of the next source
	over    int         // sockets for which the next source has no room
	config  *Config
	factory receiver.Factory
}

func newBench(t *testing.T) *bench {
	b := &bench{Bench: probereceivertest.NewBench(t, metadata.Type), config: createDefaultConfig().(*Config), at: start}
	b.Resolver.Know(rank(42, 3))
	b.config.Identity = &probereceivertest.IdentityID
	b.factory = b.newFactory()
	return b
}

func (b *bench) newFactory() receiver.Factory {
	return newFactory(surroundings{ticks: b.Ticks, open: func(*Config) (source, error) {
		b.source = &fakeSource{Probe: probereceivertest.NewProbe(), at: b.at, over: b.over, changes: make(chan ncclsock.Change), looked: make(chan struct{}, 1)}
		return b.source, b.Open()
	}})
}

// receivers are those of logs and of metrics.
func (b *bench) receivers(t *testing.T, next consumer.Logs) []component.Component {
	logs, err := b.factory.CreateLogs(t.Context(), b.Settings, b.config, next)
	require.NoError(t, err)
	metrics, err := b.factory.CreateMetrics(t.Context(), b.Settings, b.config, b.Sink)
	require.NoError(t, err)
	return []component.Component{logs, metrics}
}

func (b *bench) start(t *testing.T) []component.Component {
	receivers := b.receivers(t, b.Sink)
	b.StartAll(t, receivers...)
	return receivers
}

func stop(t *testing.T, receivers []component.Component) {
	for _, r := range receivers {
		require.NoError(t, r.Shutdown(context.Background()))
	}
}

// look lets n snapshots be taken; what the last comes to shows later.
func (b *bench) look(t testing.TB, n int) {
	t.Helper()
	for range n {
		b.Tick(t, b.config.SnapshotInterval, start)
		<-b.source.looked
	}
}

func TestLife(t *testing.T) {
	probereceivertest.Life(t, func(t *testing.T) *probereceivertest.Subject {
		b := newBench(t)
		b.config.Events.NcclSocketStallEnd.Enabled = false
		return &probereceivertest.Subject{
			Bench: b.Bench,
			New: func(t *testing.T, mode record.ErrorMode, next consumer.Logs) []component.Component {
				b.config.ErrorMode = mode
				return b.receivers(t, next)
			},
			Fire: func(t *testing.T) {
				b.source.set(nil, unread())
				b.look(t, 12) // told after 5 s, and again after 10 s more
				b.at = start.Add(time.Minute)
			},
			Break: func(t *testing.T, err error) {
				b.source.set(err)
				b.look(t, probereceiver.MaxFailures)
			},
			NeedsIdentity:   true,
			WithoutIdentity: func() { b.config.Identity = nil },
		}
	})
}

func TestConsumeContract(t *testing.T) {
	b := newBench(t)
	b.config.Events.NcclSocketStallEnd.Enabled = false // it has the number of its stall
	probereceivertest.Contract(t, b.Bench, &probereceivertest.Generator{Attribute: "network.peer.port", Make: func(number uint32) string {
		stalled := unread()
		port := uint16(40000 + number)
		stalled.Cookie, stalled.Remote = uint64(number), netip.AddrPortFrom(stalled.Remote.Addr(), port)
		b.source.set(nil, stalled)
		b.look(t, 7)
		return fmt.Sprint(port)
	}}, b.config, b.newFactory)
}

func TestUnreadBytesBecomeARecordAndItsEnd(t *testing.T) {
	b := newBench(t)
	receivers := b.start(t)
	b.source.set(nil, unread())
	b.look(t, 7)
	r := b.Next(t)
	require.Equal(t, "nccl.socket.stall", r.EventName())
	require.Equal(t, start.Add(6*time.Second).UnixNano(), int64(r.Timestamp()))
	require.Equal(t, plog.SeverityNumberWarn, r.SeverityNumber())
	a := r.Attributes().AsRaw()
	require.EqualValues(t, 42, a["process.pid"])
	require.EqualValues(t, 3, a["gen_ai.training.rank"])
	require.Equal(t, "not_reading", a["nccl.socket.cause"])
	require.Equal(t, "ras", a["nccl.socket.kind"])
	require.EqualValues(t, 5*time.Second, a["nccl.socket.stall.age_ns"])
	require.Equal(t, []uint32{42}, b.source.asked())

	gone := unread()
	gone.ReceiveQueueBytes, gone.BytesRead = 0, 48
	b.source.set(nil, gone)
	b.look(t, 2)
	end := b.Next(t)
	require.Equal(t, "nccl.socket.stall.end", end.EventName())
	e := end.Attributes().AsRaw()
	require.Equal(t, a["nccl.socket.stall.id"], e["nccl.socket.stall.id"])
	require.Equal(t, "progress", e["nccl.socket.stall.end_reason"])
	stop(t, receivers)
	require.Empty(t, b.Records)
	b.Accepted(t, 2)
}

func TestBothSignalsShareOneProbe(t *testing.T) {
	b := newBench(t)
	receivers := b.start(t)
	b.source.set(nil, unread())
	require.Equal(t, 1, b.Opened())
	b.look(t, 1)
	m := b.NextMetrics(t).ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics()
	require.Equal(t, 2, m.Len(), "traffic and retransmits; nothing has stalled")
	point := m.At(0).Sum().DataPoints().At(0).Attributes().AsRaw()
	require.Equal(t, "job-1", point["gen_ai.training.job_id"])
	require.Equal(t, "10.0.0.2", point["network.peer.address"])
	require.NoError(t, receivers[0].Shutdown(t.Context()))
	b.look(t, 8)
	require.Empty(t, b.Records, "after its Shutdown a signal hands over nothing")
	require.NoError(t, receivers[1].Shutdown(t.Context()))
	<-b.source.Closed

	b.start(t)
	require.Equal(t, 2, b.Opened(), "a component that stopped is not taken up again")
}

func TestRefusedConnectionBecomesARecord(t *testing.T) {
	b := newBench(t)
	receivers := b.start(t)
	refused := ncclsock.Change{Local: unread().Local, Remote: unread().Local, Old: ncclsock.SynSent, New: ncclsock.Close, Error: 111}
	for range 5 {
		b.source.changes <- refused // with the namespace of a process that /proc does not show
		b.look(t, 1)
	}
	stop(t, receivers)
	require.Empty(t, b.Records, "it is nobody's")
	require.Zero(t, b.Own(t, "changes_dropped"))
}

// Changes that wait are taken before a snapshot, which forgets sockets that it lacks, and before the end of a process.
func TestChangesThatWaitAreTakenFirst(t *testing.T) {
	w := &watcher{tracker: stall.New(stall.Defaults())}
	changes := make(chan *ncclsock.Change, 3)
	for range cap(changes) {
		changes <- &ncclsock.Change{Old: ncclsock.SynSent, New: ncclsock.Close, Error: 111}
	}
	w.note(changes)
	require.Empty(t, changes)
	w.note(changes) // and does not wait for more
}

// The ring is shared between those whose sockets they are, a queue behind it is not: who makes changes without end would lose others'.
func TestChangesThatFindNoRoomWaitInTheRing(t *testing.T) {
	const all = 100
	ring := &fakeSource{Probe: probereceivertest.NewProbe(), changes: make(chan ncclsock.Change, all)}
	changes, done, ended := make(chan *ncclsock.Change, 3), make(chan struct{}), make(chan struct{})
	fill := func() {
		for i := range uint64(all) {
			ring.changes <- ncclsock.Change{Cookie: i}
		}
	}
	fill()
	w := &watcher{}
	go func() {
		defer close(ended)
		w.readChanges(ring, changes, done)
	}()
	for i := range uint64(all) {
		require.Equal(t, i, (<-changes).Cookie)
	}
	require.Zero(t, w.lost.Load())
	fill()
	close(done) // and nobody takes them
	require.NoError(t, ring.Close())
	<-ended
}

// Who makes changes without end does not keep the watch from its next look.
func TestChangesWithoutEndAreTakenUpToALimit(t *testing.T) {
	w := &watcher{tracker: stall.New(stall.Defaults())}
	changes, done := make(chan *ncclsock.Change), make(chan struct{})
	var senders sync.WaitGroup
	for range 4 {
		senders.Go(func() {
			for {
				select {
				case changes <- &ncclsock.Change{Old: ncclsock.SynSent, New: ncclsock.Close, Error: 111}:
				case <-done:
					return
				}
			}
		})
	}
	w.note(changes)
	close(done)
	senders.Wait()
}

// A rank fails and the kernel closes its connections: that it had lost none is told without another snapshot, in whichever order
// both are heard. Where it had lost one, or a snapshot had no room for all sockets, it is not told.
func TestWhoFailsAndHadLostNothingIsToldAtOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		endsFirst bool
		over      int
		before    []ncclsock.Change
		told      bool
	}{
		"its end is heard first": {endsFirst: true, told: true},
		"its end is heard last":  {told: true},
		"it had lost one":        {before: []ncclsock.Change{{Old: ncclsock.Established, New: ncclsock.Close, Error: 104}}},
		"sockets without room":   {over: 2},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.over = tc.over
			failing := rank(42, 3)
			failing.StartTime = start.Add(3 * time.Second) // after the first snapshot
			b.Resolver.Know(failing)
			receivers := b.start(t)
			b.look(t, 2)
			one, two := unread(), unread()
			one.Local, one.Remote = netip.MustParseAddrPort("10.0.0.3:41000"), netip.MustParseAddrPort("10.0.0.2:42000")
			two.Cookie, two.Local, two.Remote = 8, netip.MustParseAddrPort("10.0.0.3:41001"), netip.MustParseAddrPort("10.0.0.2:42001")
			for n := range 6 {
				for _, s := range []*ncclsock.Socket{&one, &two} {
					s.ReceiveQueueBytes, s.BytesReceived, s.BytesRead, s.BytesSent, s.BytesAcked, s.LastSentAge = 0, uint64(n)<<20, uint64(n)<<20, uint64(n)<<20, uint64(n)<<20, 0
				}
				b.source.set(nil, one, two)
				b.look(t, 1)
			}
			at := start.Add(9 * time.Second)
			end := func() { b.Resolver.Exit(t, identity.Exit{Process: failing, Time: at, Code: 4}) }
			if tc.endsFirst {
				end()
			}
			for _, lost := range tc.before {
				lost.Cookie, lost.Time = one.Cookie, at
				b.source.changes <- lost
			}
			for _, s := range []*ncclsock.Socket{&one, &two} {
				b.source.changes <- ncclsock.Change{Cookie: s.Cookie, PID: 42, Old: ncclsock.Established, New: ncclsock.FinWait1, Time: at.Add(time.Millisecond)}
			}
			if !tc.endsFirst {
				end()
			}
			watched := b.Next(t)
			require.Equal(t, metadata.EventNcclSocketWatched, watched.EventName())
			for tc.told {
				r := b.Next(t)
				if r.EventName() == metadata.EventNcclSocketWatched {
					continue // with since when
				}
				require.Equal(t, metadata.EventNcclSocketKept, r.EventName())
				require.EqualValues(t, at.UnixNano(), r.Timestamp())
				require.EqualValues(t, 42, r.Attributes().AsRaw()["process.pid"])
				require.Equal(t, "proven", r.Attributes().AsRaw()["tracecore.trust"])
				break
			}
			b.Resolver.Know()
			b.source.set(nil)
			b.look(t, 5)
			stop(t, receivers)
			for len(b.Records) > 0 {
				require.NotEqual(t, metadata.EventNcclSocketKept, b.Next(t).EventName())
			}
		})
	}
}

func TestProbesCountersAreMetrics(t *testing.T) {
	b := newBench(t)
	b.over = 2
	b.start(t)
	b.source.set(nil, unread())
	b.look(t, 3)
	require.EqualValues(t, 1, b.Own(t, "probe_up"))
	require.EqualValues(t, 2, b.Own(t, "probe_dropped"))
	require.EqualValues(t, 3, b.Own(t, "probe_invalid"))
	require.EqualValues(t, 1, b.Own(t, "ranks"))
	require.EqualValues(t, 1, b.Own(t, "sockets"))
	require.GreaterOrEqual(t, b.Own(t, "snapshots"), int64(2))
	require.GreaterOrEqual(t, b.Own(t, "processes_skipped"), int64(2))
	require.GreaterOrEqual(t, b.Own(t, "sockets_skipped"), int64(4))
}

func TestTooManyProcessesKeepsThoseThatWereLaunched(t *testing.T) {
	b := newBench(t)
	b.config.MaxProcesses = 2
	worker := rank(1, 3)
	worker.Inherited = true
	b.Resolver.Know(worker, rank(42, 3), rank(43, 4))
	receivers := b.start(t)
	b.look(t, 2)
	require.Equal(t, []uint32{42, 43}, b.source.asked())
	stop(t, receivers)
	require.GreaterOrEqual(t, b.Own(t, "processes_skipped"), int64(2))
}

// Thousands of ranks of one user, all launched and all older, hide no rank of another.
func TestRanksOfOneUserHideNoneOfAnother(t *testing.T) {
	b := newBench(t)
	b.config.MaxProcesses = 100
	var known []identity.Process
	for pid := range uint32(2000) {
		flood := rank(pid+1, int(pid))
		flood.Domain = "user 1"
		known = append(known, flood)
	}
	for pid := uint32(9000); pid < 9008; pid++ {
		victim := rank(pid, int(pid-9000))
		victim.Domain = "user 2"
		known = append(known, victim)
	}
	b.Resolver.Know(known...)
	receivers := b.start(t)
	b.look(t, 2)
	asked := b.source.asked()
	require.Len(t, asked, 100)
	for pid := uint32(9000); pid < 9008; pid++ {
		require.Contains(t, asked, pid)
	}
	stop(t, receivers)
}

func TestEventSwitchedOffIsNotEmitted(t *testing.T) {
	b := newBench(t)
	b.config.Events.NcclSocketStall.Enabled = false
	receivers := b.start(t)
	b.source.set(nil, unread())
	b.look(t, 8)
	stop(t, receivers)
	require.Empty(t, b.Records)
}

// members is a resolver that is told who takes part in a job.
type members struct {
	*probereceivertest.Resolver
	joined chan identity.Process
}

var _ identity.Members = (*members)(nil)

func (m *members) Joined(p identity.Process) { m.joined <- p }

func (*members) Led(identity.Process) {}

func (*members) Trains(identity.Process) {}

func TestTheIdentityExtensionIsToldWhoTakesPartInAJob(t *testing.T) {
	b := newBench(t)
	m := &members{b.Resolver, make(chan identity.Process, 2)}
	b.Host.Extensions[probereceivertest.IdentityID] = m
	b.Resolver.Know(rank(42, 3), rank(43, 4))
	receivers := b.start(t)
	connection := func(pid uint32, cookie uint64, local, remote string) ncclsock.Socket {
		s := unread()
		s.PID, s.Cookie, s.Local, s.Remote, s.ReceiveQueueBytes = pid, cookie, netip.MustParseAddrPort(local), netip.MustParseAddrPort(remote), 0
		return s
	}
	to, from := connection(42, 7, "10.0.0.3:41000", "10.0.0.3:42000"), connection(43, 8, "10.0.0.3:42000", "10.0.0.3:41000")
	store := connection(43, 9, "10.0.0.3:41001", "10.0.0.1:29500")
	b.source.set(nil, store)
	b.look(t, 2)
	to.BytesSent, from.BytesReceived, from.BytesRead = 100, 148, 148
	b.source.set(nil, store, to, from)
	b.look(t, 3)
	require.Equal(t, []uint32{42, 43}, slices.Sorted(slices.Values([]uint32{(<-m.joined).PID, (<-m.joined).PID})))
	stop(t, receivers)
	require.Empty(t, m.joined, "once")
}
