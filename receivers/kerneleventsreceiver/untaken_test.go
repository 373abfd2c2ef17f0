package kerneleventsreceiver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver/probereceivertest"
)

// diary is a storage that tells what is kept under a key.
type diary struct {
	storage.Client
	of   string
	kept chan []byte
}

func (d *diary) Set(ctx context.Context, key string, value []byte) error {
	err := d.Client.Set(ctx, key, value)
	if key == d.of {
		d.kept <- bytes.Clone(value)
	}
	return err
}

func (d *diary) GetClient(context.Context, component.Kind, component.ID, string) (storage.Client, error) {
	return d, nil
}

// slow is a consumer that holds records of that event until it may take them.
type slow struct {
	consumertest.Consumer
	sink  *probereceivertest.Sink
	event string
	holds chan plog.LogRecord
	may   chan error
}

func (s *slow) ConsumeLogs(ctx context.Context, logs plog.Logs) error {
	if r := logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0); r.EventName() == s.event {
		held := plog.NewLogRecord()
		r.CopyTo(held)
		s.holds <- held
		if err := <-s.may; err != nil {
			return err
		}
	}
	return s.sink.ConsumeLogs(ctx, logs)
}

// killed is what the next process finds of one that was killed while the next consumer held the record of an event, which do brings
// about; and the record.
func (a *agents) killed(t *testing.T, from *probereceivertest.Storage, event string, do func()) (*probereceivertest.Storage, plog.LogRecord) {
	d := &diary{Client: from.Client, of: endsKey, kept: make(chan []byte, 100)}
	a.Host.Extensions[storageID] = &struct {
		component.StartFunc
		component.ShutdownFunc
		*diary
	}{nil, nil, d}
	a.config.Storage = &storageID
	consumer := &slow{consumertest.NewNop(), a.Sink, event, make(chan plog.LogRecord, 10), make(chan error, 10)}
	factory := a.factory()
	r, err := factory.CreateLogs(t.Context(), a.Settings, a.config, consumer)
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context(), a.Host))
	do()
	held := <-consumer.holds
	require.Contains(t, string(<-d.kept), "record")
	found := from.Killed()
	consumer.may <- nil
	require.NoError(t, r.Shutdown(t.Context()))
	return found, held
}

// next is what a process of the receiver tells first, so many records, that finds this storage.
func (a *agents) next(t *testing.T, found *probereceivertest.Storage, records int) (events []string) {
	a.Host.Extensions[storageID] = found
	a.config.Storage = &storageID
	for len(a.Sink.Records) > 0 { // of the one before, which was not killed in truth
		<-a.Sink.Records
	}
	r := a.receiver(t, a.Sink)
	require.NoError(t, r.Start(t.Context(), a.Host))
	for range records {
		events = append(events, told(a.Next(t)))
	}
	require.NoError(t, r.Shutdown(t.Context()))
	return events
}

func told(r plog.LogRecord) string {
	return fmt.Sprint(r.EventName(), " ", r.Attributes().AsRaw()["gen_ai.training.rank"], " ", r.Timestamp().AsTime().UnixNano(), " ", r.ObservedTimestamp().AsTime().UnixNano(), " ", r.Attributes().AsRaw()["signal.sender.name"])
}

func TestAnEndThatNobodyTookIsToldAgainAfterASIGKILL(t *testing.T) {
	a := newAgents(t)
	a.Resolver.Know(workers4(0, 1, 2, 3)...)
	ends := func(rank int) func() {
		return func() {
			for range 4 {
				require.Equal(t, "process.start", a.Next(t).EventName())
			}
			a.Resolver.Know(workers4(0, 1, 3)...)
			a.Resolver.Exit(t, identity.Exit{
				Process: worker4(rank), Time: start.Add(time.Second), Signal: 9,
				Signalled: identity.Signal{Number: 9, Sender: identity.Sender{PID: 7, Comm: "kill", Relation: identity.RelationOther}},
			})
		}
	}
	found, held := a.killed(t, probereceivertest.NewStorage(), "process.exit", ends(2))
	want := told(held)
	require.Contains(t, want, "process.exit 2 ")
	require.Contains(t, want, " kill")
	again, without := found.Killed(), found.Killed()
	require.Equal(t, want, a.next(t, found, 4)[0], "the same record, and no process.gone beside it")
	require.NotContains(t, fmt.Sprint(a.next(t, found, 3)), "process.exit", "the consumer has taken it")
	require.NotContains(t, fmt.Sprint(a.next(t, found, 3)), "process.gone")
	require.Equal(t, want, a.next(t, again, 4)[0], "what was killed before it told again leaves it to the next")
	a.config.Events.ProcessExit.Enabled = false
	require.Equal(t, "process.gone 2", a.next(t, without, 1)[0][:len("process.gone 2")], "the event is switched off by now")
}

// What the next consumer refused for good is dropped and counted as ever, and told once more at the next start.
func TestAnEndThatTheConsumerRefusedIsToldAtTheNextStart(t *testing.T) {
	a, first := newAgents(t), probereceivertest.NewStorage()
	a.Resolver.Know(workers4(0, 1)...)
	a.Host.Extensions[storageID], a.config.Storage = first, &storageID
	consumer := &slow{consumertest.NewNop(), a.Sink, "process.exit", make(chan plog.LogRecord, 10), make(chan error, 10)}
	r, err := a.factory().CreateLogs(t.Context(), a.Settings, a.config, consumer)
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context(), a.Host))
	for range 2 {
		a.Next(t)
	}
	a.Resolver.Know(workers4(0)...)
	a.Resolver.Exit(t, identity.Exit{Process: worker4(1), Code: 1, Time: start})
	consumer.may <- consumererror.NewPermanent(errors.New("no"))
	held := <-consumer.holds
	require.NoError(t, r.Shutdown(t.Context()))
	require.EqualValues(t, 1, a.Own(t, "records_dropped"))
	require.Equal(t, told(held), a.next(t, first, 1)[0])
	require.Equal(t, []string{"process.start"}, []string{strings.Fields(a.next(t, first, 1)[0])[0]})
}

// Who ended while no agent ran is told until the next consumer has taken that.
func TestThatARankIsGoneIsToldAgainAfterASIGKILL(t *testing.T) {
	a, first := newAgents(t), probereceivertest.NewStorage()
	a.Resolver.Know(workers4(0, 1)...)
	a.next(t, first, 2)
	a.Resolver.Know(workers4(0)...)
	found, held := a.killed(t, first.Killed(), "process.gone", func() {})
	require.Equal(t, told(held), a.next(t, found, 1)[0])
}

func TestANoteOfEndsThatMakesNoSenseIsNone(t *testing.T) {
	for _, text := range []string{`{"a":1}`, `[{"process":{"PID":"x"}}]`, `[{"record":"AAAA"}]`, `"` + string(bytes.Repeat([]byte("x"), mostUntakenText)) + `"`} {
		a, found := newAgents(t), probereceivertest.NewStorage()
		w := newWatched(a.Settings, &storageID, "")
		w.client, w.boot = found.Client, ""
		require.NoError(t, w.keep(endsKey, []byte(text)))
		a.Resolver.Know(workers4(0)...)
		require.Contains(t, a.next(t, found, 1)[0], "process.start 0", text[:min(len(text), 30)])
	}
}

// A consumer that takes nothing makes the note no longer than its bound. Ends of ranks stay.
func TestEndsThatWaitAreBounded(t *testing.T) {
	u, c := newUntaken(), newTestConverter()
	rank := &end{ranks: []*onRoll{{}}}
	u.add(rank, c.exit(identity.Exit{Process: worker4(0)}, 0, start))
	for i := range uint32(2 * mostUntaken) {
		p := worker4(1)
		p.PID = i
		u.add(&end{Process: p.Born()}, c.exit(identity.Exit{Process: p, Code: 1}, 0, start))
	}
	require.Len(t, u.all, mostUntaken)
	require.Same(t, rank, u.all[0])
	u.took(rank)
	<-u.news
	require.True(t, u.settle())
	require.False(t, u.settle())
	require.Len(t, u.all, mostUntaken-1)
}

// The kernel log is noted as seen only once the next consumer has taken what it told.
func TestTheKernelLogIsSeenOnceItWasTaken(t *testing.T) {
	sink := new(consumertest.LogsSink)
	w := newTestWorker(t, sink)
	taken := false
	w.delivered = func() bool { return taken }
	require.False(t, w.idle())
	taken = true
	require.True(t, w.idle())
}
