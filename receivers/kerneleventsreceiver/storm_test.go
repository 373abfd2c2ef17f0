package kerneleventsreceiver

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

// storm is 100,000 lines of eight GPUs.
const stormLines = 100_000

func stormOf(code int) []kmsg.Event {
	events := make([]kmsg.Event, stormLines)
	for i := range events {
		text := fmt.Sprintf("NVRM: Xid (PCI:0000:%02x:00): %d, pid=%d, name=python, Ch %08x", 0x10+i%8, code, 42+i%8, i)
		events[i] = kmsg.Event{Time: start.Add(time.Duration(i) * time.Microsecond), Writer: kmsg.WriterKernel, Text: text}
	}
	return events
}

func newTestWorker(tb testing.TB, sink *consumertest.LogsSink) *worker {
	settings := receivertest.NewNopSettings(metadata.Type)
	telemetry, err := metadata.NewTelemetryBuilder(settings.TelemetrySettings)
	require.NoError(tb, err)
	put := func(logs plog.Logs, _ func()) { require.NoError(tb, sink.ConsumeLogs(context.Background(), logs)) }
	w, err := newWorker(settings, createDefaultConfig().(*Config), telemetry, put, func() bool { return true })
	require.NoError(tb, err)
	return w
}

// TestStormOfHundredThousandLinesIsCountedExactly plays a storm of eight GPUs
// within a second: for each one record at once and one with the total.
func TestStormOfHundredThousandLinesIsCountedExactly(t *testing.T) {
	sink := new(consumertest.LogsSink)
	w := newTestWorker(t, sink)
	for _, event := range stormOf(119) {
		w.event(&event, event.Time)
	}
	w.expire(start.Add(time.Minute))
	require.Equal(t, 16, sink.LogRecordCount())
	total, firsts := int64(0), 0
	for _, logs := range sink.AllLogs() {
		for _, r := range logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().All() {
			a := r.Attributes().AsRaw()
			if a["kernelevents.repeat"] == true {
				total += a["kernelevents.count"].(int64)
				require.Less(t, a["kernelevents.first_time_unix_nano"].(int64), start.Add(8*time.Microsecond).UnixNano())
				require.GreaterOrEqual(t, a["kernelevents.last_time_unix_nano"].(int64), start.Add((stormLines-8)*time.Microsecond).UnixNano())
			} else {
				firsts++
			}
		}
	}
	require.Equal(t, 8, firsts)
	require.EqualValues(t, stormLines, total)
}

// BenchmarkStorm is the cost of one storm of 100,000 lines, from record to fold.
func BenchmarkStorm(b *testing.B) {
	events := stormOf(119)
	b.ReportAllocs()
	for b.Loop() {
		w := newTestWorker(b, new(consumertest.LogsSink))
		for i := range events {
			w.event(&events[i], events[i].Time)
		}
		w.finish()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/stormLines, "ns/line")
}

// BenchmarkDistinct is the cost of a fault that folds with nothing.
func BenchmarkDistinct(b *testing.B) {
	w := newTestWorker(b, new(consumertest.LogsSink))
	w.put = func(plog.Logs) {}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		event := kmsg.Event{Time: start, Writer: kmsg.WriterKernel, Text: fmt.Sprintf("NVRM: Xid (PCI:0000:65:00): 79, pid=%d, name=python, GPU has fallen off the bus.", i)}
		w.event(&event, start)
	}
}

// BenchmarkUnrecognized is the cost of a line that is nothing.
func BenchmarkUnrecognized(b *testing.B) {
	w := newTestWorker(b, new(consumertest.LogsSink))
	event := kmsg.Event{Time: start, Text: "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.158.01"}
	b.ReportAllocs()
	for b.Loop() {
		w.event(&event, start)
	}
}
