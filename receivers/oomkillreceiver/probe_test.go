//go:build linux && (amd64 || arm64)

package oomkillreceiver

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/tracecoreai/tracecore/bpf/oomkill"
	"github.com/tracecoreai/tracecore/internal/privtest"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver/probereceivertest"
	"github.com/tracecoreai/tracecore/receivers/oomkillreceiver/internal/metadata"
)

// playDrillChild makes the test binary the process that a drill kills.
func playDrillChild() {
	if oomkill.IsDrillChild() {
		os.Exit(oomkill.DrillChild())
	}
}

// startOnKernel runs the receiver on the probe of this kernel.
func startOnKernel(tb testing.TB) *probereceivertest.Sink {
	privtest.Require(tb)
	records := probereceivertest.NewSink()
	r, err := NewFactory().CreateLogs(tb.Context(), receivertest.NewNopSettings(metadata.Type), createDefaultConfig(), records)
	require.NoError(tb, err)
	require.NoError(tb, r.Start(tb.Context(), componenttest.NewNopHost()))
	tb.Cleanup(func() { require.NoError(tb, r.Shutdown(context.Background())) })
	return records
}

// kill drills and returns the record of it and the time from the kernel's kill
// until the next consumer had it.
func kill(tb testing.TB, records *probereceivertest.Sink) (plog.LogRecord, time.Duration) {
	drill, err := oomkill.Drill(tb.Context(), oomkill.DrillOptions{LimitBytes: 16 << 20})
	require.NoError(tb, err)
	for {
		r := records.Next(tb)
		if pid, ok := r.Attributes().Get("process.pid"); ok && pid.Int() == int64(drill.PID) {
			return r, r.ObservedTimestamp().AsTime().Sub(r.Timestamp().AsTime())
		}
	}
}

func TestOOMKillOnThisKernelBecomesARecord(t *testing.T) {
	r, _ := kill(t, startOnKernel(t))
	a := r.Attributes().AsRaw()
	require.Equal(t, "oom.kill", r.EventName())
	require.Equal(t, "cgroup", a["oomkill.constraint"])
	require.Equal(t, a["oomkill.cgroup"], a["oomkill.limit_cgroup"])
	require.EqualValues(t, 16<<20, a["oomkill.limit_bytes"])
	require.Equal(t, "tracecore-drill", a["process.executable.name"])
	require.EqualValues(t, os.Getpid(), a["process.parent_pid"])
	require.EqualValues(t, a["process.pid"], a["oomkill.trigger_pid"])
	require.NotContains(t, a, "gen_ai.training.rank")
}

// BenchmarkKillToRecord is the time from the kernel's kill until its record is
// made; the drill around it takes far longer.
func BenchmarkKillToRecord(b *testing.B) {
	records := startOnKernel(b)
	var delays []time.Duration
	for b.Loop() {
		_, delay := kill(b, records)
		delays = append(delays, delay)
	}
	slices.Sort(delays)
	b.ReportMetric(float64(delays[len(delays)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(delays[len(delays)*99/100].Microseconds()), "p99-µs")
}
