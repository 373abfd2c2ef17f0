package gpureceiver

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/protocol"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/storm"
)

// reading takes a snapshot that was asked for at a time, zero for one that nobody asked for:
// what changed as records, the rest as metrics. Metrics have the time at which it was asked:
// what was read while memory was refused is none of the time after.
func (t *talk) reading(snapshot *protocol.Snapshot, asked time.Time) {
	at := t.now()
	if asked.IsZero() {
		asked = at
	}
	t.gpus.ReadThrough(string(t.source))
	lost, found := t.gpus.Update(snapshot, at)
	for _, gpu := range lost {
		t.tell(storm.Fault{PCI: gpu.PCI, Event: storm.Lost}, at)
	}
	for _, gpu := range found {
		t.tell(storm.Fault{PCI: gpu.PCI, Event: storm.Recovered}, at)
	}
	for _, f := range t.gpus.Findings() {
		t.tell(storm.Fault{PCI: f.PCI, Event: storm.Health, Kind: f.System, Failed: f.Failed, Text: f.Text}, at)
	}
	t.logs.Put(t.convert.faults(t.storms.Expire(at), t.gpus, at))
	if told := t.standing.look(t.gpus, asked); len(told) > 0 && t.logs.Open() {
		t.logs.Put(t.convert.activities(told, at))
	}
	if t.metrics.Open() {
		t.metrics.Put(t.convert.readings(t.gpus, t.ready.Driver, asked))
	}
	t.count(snapshot)
	t.known.Store(int64(len(t.gpus.All())))
	if names := t.gpus.Lost(); len(names) > 0 {
		t.become(newCondition(t.choice, gpuLost, strings.Join(names, ", ")))
		return
	}
	t.become(newCondition(t.choice, protocol.Ready, fmt.Sprintf("%d GPUs, driver %s", len(snapshot.GPUs), t.ready.Driver)))
}

// count counts calls that failed.
func (t *talk) count(snapshot *protocol.Snapshot) {
	for _, gpu := range snapshot.GPUs {
		for _, failure := range gpu.Failures {
			t.telemetry.ReceiverGpuCallFailures.Add(context.Background(), 1,
				metric.WithAttributes(attribute.String("call", failure.Call), attribute.String("code", failure.Code)))
		}
		if gpu.Skipped > 0 {
			t.telemetry.ReceiverGpuProcessesSkipped.Add(context.Background(), int64(gpu.Skipped))
		}
	}
}

// event takes an event of the library. The kernel log tells better what names no GPU,
// or would blame a process that did nothing.
func (t *talk) event(e *protocol.Event) {
	f, sound := t.convert.fault(e, t.gpus)
	if !sound {
		t.telemetry.ReceiverGpuEventsLost.Add(context.Background(), 1)
		return
	}
	t.tell(f, t.now())
}

// tell takes a fault and lets it leave unless it repeats one.
func (m *monitor) tell(f storm.Fault, at time.Time) {
	early := m.storms.ClosedEarly()
	if leave := m.storms.Add(f, at); len(leave) > 0 {
		m.logs.Put(m.convert.faults(leave, m.gpus, at))
	}
	if n := m.storms.ClosedEarly() - early; n > 0 {
		m.telemetry.ReceiverGpuFoldsClosedEarly.Add(context.Background(), int64(n))
	}
}
