//go:build linux && (amd64 || arm64)

package kerneleventsreceiver

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver/probereceivertest"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

// writeKmsg writes one line to the kernel log. A descriptor of its own each time:
// printk.devkmsg=ratelimit lets ten lines in five seconds through per descriptor.
func writeKmsg(tb testing.TB, text string) {
	kmsg, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0)
	require.NoError(tb, err)
	_, err = kmsg.WriteString(text + "\n")
	require.NoError(tb, err)
	require.NoError(tb, kmsg.Close())
}

// startOnKernel runs the receiver on the probe of this kernel.
func startOnKernel(tb testing.TB) *probereceivertest.Sink {
	privtest.Require(tb)
	records := probereceivertest.NewSink()
	r, err := NewFactory().CreateLogs(tb.Context(), receivertest.NewNopSettings(metadata.Type), createDefaultConfig(), records)
	require.NoError(tb, err)
	require.NoError(tb, r.Start(tb.Context(), componenttest.NewNopHost()))
	tb.Cleanup(func() { stopOnKernel(tb, r) })
	return records
}

func stopOnKernel(tb testing.TB, r receiver.Logs) {
	require.NoError(tb, r.Shutdown(context.Background()))
}

// await returns the record of a line, whatever else the kernel says.
func await(tb testing.TB, records *probereceivertest.Sink, text string) plog.LogRecord {
	deadline := time.After(hosttest.Patience)
	for {
		select {
		case r := <-records.Records:
			if r.Body().Str() == text {
				return r
			}
		case <-deadline:
			require.FailNow(tb, "no record came")
		}
	}
}

func TestXidWrittenToTheKernelLogBecomesARecord(t *testing.T) {
	records := startOnKernel(t)
	text := fmt.Sprintf("NVRM: Xid (PCI:0000:65:00): 79, pid=%d, name=python, GPU has fallen off the bus.", os.Getpid())
	before := time.Now()
	writeKmsg(t, text)
	r := await(t, records, text)
	t.Logf("write to record: %s", time.Since(before))
	require.Equal(t, "gpu.xid", r.EventName())
	require.WithinDuration(t, before, r.Timestamp().AsTime(), time.Minute)
	a := r.Attributes().AsRaw()
	require.EqualValues(t, 79, a["kernelevents.xid"])
	require.Equal(t, "0000:65:00.0", a["gpu.id"])
	require.EqualValues(t, os.Getpid(), a["process.pid"])
	require.Equal(t, "python", a["process.executable.name"])
	require.Equal(t, "claimed", a["tracecore.trust"])
	require.Contains(t, []any{"devkmsg_emit", "devkmsg_write"}, a["kernelevents.origin"])
	require.EqualValues(t, os.Getpid(), a["kernelevents.writer_pid"])
}

// BenchmarkWriteToRecord is the time from a write to /dev/kmsg until the next
// consumer has the record.
func BenchmarkWriteToRecord(b *testing.B) {
	records := startOnKernel(b)
	for i := 0; b.Loop(); i++ {
		text := fmt.Sprintf("NVRM: Xid (PCI:%04x:65:00): 79, GPU has fallen off the bus.", i%0x10000)
		writeKmsg(b, text)
		await(b, records, text)
	}
}
