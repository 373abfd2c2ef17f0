package kerneleventsreceiver

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/bpf/kmsg"
)

func translate(t *testing.T, events []kmsg.Event) []map[string]any {
	t.Helper()
	tr, err := NewTranslator("node-7")
	require.NoError(t, err)
	var all []map[string]any
	take := func(logs plog.Logs) {
		for _, resource := range logs.ResourceLogs().All() {
			host, _ := resource.Resource().Attributes().Get("host.name")
			require.Equal(t, "node-7", host.Str())
			for _, r := range resource.ScopeLogs().At(0).LogRecords().All() {
				attributes := r.Attributes().AsRaw()
				attributes["event"], attributes["observed"] = r.EventName(), r.ObservedTimestamp().AsTime().Sub(start)
				all = append(all, attributes)
			}
		}
	}
	for i := range events {
		take(tr.Advance(events[i].Time))
		take(tr.Translate(&events[i]))
	}
	take(tr.Finish())
	require.False(t, tr.Pending())
	return all
}

// TestSavedRecordsFoldInTheirOwnTime: a storm of an application's fault closes a
// second after its last line, by the time of the records.
func TestSavedRecordsFoldInTheirOwnTime(t *testing.T) {
	var events []kmsg.Event
	for i := range 100 {
		events = append(events, kmsg.Event{Time: start.Add(time.Duration(i) * time.Millisecond), Writer: kmsg.WriterKernel, Text: fmt.Sprintf("NVRM: Xid (PCI:0000:10:00): 45, pid=42, name=python, Ch %08x", i)})
	}
	events = append(events, kmsg.Event{Time: start.Add(time.Hour), Writer: kmsg.WriterKernel, Text: "NVRM: Xid (PCI:0000:11:00): 79, GPU has fallen off the bus."})
	got := translate(t, events)
	require.Len(t, got, 2)
	require.Equal(t, int64(100), got[0]["kernelevents.count"])
	require.Equal(t, 1099*time.Millisecond, got[0]["observed"], "a second after the last line, not an hour")
	require.Equal(t, int64(79), got[1]["kernelevents.xid"])
}

func TestSavedRecordsWhoseTimeGoesBackAreTakenAllTheSame(t *testing.T) {
	got := translate(t, []kmsg.Event{
		{Time: start.Add(time.Hour), Text: "NVRM: Xid (PCI:0000:11:00): 79, GPU has fallen off the bus."},
		{Time: start, Text: "NVRM: Xid (PCI:0000:12:00): 79, GPU has fallen off the bus."},
		{Time: start.Add(time.Second), Text: "no fault at all"},
	})
	require.Len(t, got, 2)
	require.Equal(t, "claimed", got[0]["tracecore.trust"], "who wrote it is not known")
}
