package gpu

import (
	"context"
	"fmt"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/tracecoreai/tracecore/receivers/internal/gpu/wire"
)

// reading takes a snapshot: what changed as records, the rest as metrics.
func (t *talk) reading(snapshot *wire.Snapshot) {
	at := t.now()
	lost, found := t.cards.Update(snapshot, at)
	for _, c := range lost {
		t.tell(Fault{PCI: c.PCI, Event: EventLost}, at)
	}
	for _, c := range found {
		t.tell(Fault{PCI: c.PCI, Event: EventRecovered}, at)
	}
	for _, f := range t.cards.incidents() {
		t.tell(f, at)
	}
	t.out.putLogs(t.convert.Faults(t.faults.Expire(at), t.cards, at))
	t.out.putMetrics(t.convert.Readings(t.cards, t.ready.Driver, at))
	t.count(snapshot)
	t.known.Store(int64(len(t.cards.all)))
	if names := t.cards.lost(); len(names) > 0 {
		t.become(GPULost, strings.Join(names, ", "))
		return
	}
	t.become(Ready, fmt.Sprintf("%d GPUs, driver %s", len(snapshot.GPUs), t.ready.Driver))
}

// count counts calls that failed.
func (t *talk) count(snapshot *wire.Snapshot) {
	for _, gpu := range snapshot.GPUs {
		for _, failure := range gpu.Failures {
			t.telemetry.CallFailures.Add(context.Background(), 1,
				metric.WithAttributes(attribute.String("call", failure.Call), attribute.String("code", failure.Code)))
		}
		if gpu.Skipped > 0 {
			t.telemetry.ProcessesSkipped.Add(context.Background(), int64(gpu.Skipped))
		}
	}
}

// event takes an event of the library. What cannot be told, or would blame
// nobody, the kernel log tells better.
func (t *talk) event(e *wire.Event) {
	f, sound := t.convert.Fault(e, t.cards)
	if !sound {
		t.telemetry.EventsLost.Add(context.Background(), 1)
		return
	}
	t.tell(f, t.now())
}
