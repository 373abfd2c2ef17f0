//go:build linux && (amd64 || arm64)

package fusefaultreceiver

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/tracecoreai/tracecore/bpf/fusefault"
	"github.com/tracecoreai/tracecore/bpf/fusefault/hangfs"
	"github.com/tracecoreai/tracecore/internal/privtest"
	"github.com/tracecoreai/tracecore/receivers/fusefaultreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver/probereceivertest"
)

// playDrillChild makes the test binary the processes that hangfs needs.
func playDrillChild() {
	if fusefault.IsDrillChild() {
		os.Exit(fusefault.DrillChild())
	}
}

// startOnKernel runs both signals of the receiver on the probe of this kernel.
func startOnKernel(t *testing.T) *probereceivertest.Sink {
	privtest.Require(t)
	everything := probereceivertest.NewSink()
	factory, config, settings := NewFactory(), createDefaultConfig().(*Config), receivertest.NewNopSettings(metadata.Type)
	config.ScanInterval, config.CollectionInterval = 200*time.Millisecond, 200*time.Millisecond
	logs, err := factory.CreateLogs(t.Context(), settings, config, everything)
	require.NoError(t, err)
	metrics, err := factory.CreateMetrics(t.Context(), settings, config, everything)
	require.NoError(t, err)
	require.NoError(t, logs.Start(t.Context(), componenttest.NewNopHost()))
	require.NoError(t, metrics.Start(t.Context(), componenttest.NewNopHost()))
	t.Cleanup(func() {
		require.NoError(t, logs.Shutdown(context.Background()))
		require.NoError(t, metrics.Shutdown(context.Background()))
	})
	return everything
}

// mounted is a FUSE file system with visitors who touch it.
type mounted struct {
	*hangfs.FS
	visitor *hangfs.Visitor
}

func mountAndVisit(t *testing.T, options hangfs.Options, accesses ...hangfs.Access) mounted {
	fs, err := hangfs.Start(options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, fs.Close()) })
	visitor, err := fs.Visit(hangfs.Visit{Accesses: accesses})
	require.NoError(t, err)
	return mounted{fs, visitor}
}

func (m *mounted) device() string {
	major, minor := m.Device()
	return deviceName(fusefault.Device{Major: major, Minor: minor})
}

// stall waits for the record that the visitor waits. On a slow machine there may be
// one of the mount's INIT before.
func (m *mounted) stall(t *testing.T, from *probereceivertest.Sink) (plog.LogRecord, map[string]any) {
	for {
		r := from.Next(t)
		a := r.Attributes().AsRaw()
		if r.EventName() == "fuse.stall" && a["fuse.device"] == m.device() && a["process.pid"] == int64(m.visitor.PID()) {
			return r, a
		}
	}
}

// end waits for the end of a stall.
func (m *mounted) end(t *testing.T, from *probereceivertest.Sink, stall map[string]any) map[string]any {
	for {
		r := from.Next(t)
		if a := r.Attributes().AsRaw(); r.EventName() == "fuse.stall.end" && a["fuse.stall.id"] == stall["fuse.stall.id"] {
			return a
		}
	}
}

func TestStoppedDaemonIsNamedWithItsMountAndWhoWaits(t *testing.T) {
	all := startOnKernel(t)
	m := mountAndVisit(t, hangfs.Options{Source: "JuiceFS:vol", Subtype: "juicefs"},
		hangfs.Access{How: hangfs.Fault, File: hangfs.Cached, Threads: 20}, hangfs.Access{How: hangfs.Read, File: hangfs.Direct, Threads: 20})
	require.NoError(t, m.Stop())
	require.NoError(t, m.visitor.Go())
	r, a := m.stall(t, all)
	require.Equal(t, m.Dir(), a["fuse.mount.point"])
	require.Equal(t, "JuiceFS:vol", a["fuse.mount.source"])
	require.Equal(t, "fuse.juicefs", a["fuse.mount.type"])
	require.EqualValues(t, m.PID(), a["fuse.daemon.pid"])
	require.Equal(t, "stopped", a["fuse.daemon.state"])
	require.EqualValues(t, m.visitor.PID(), a["process.pid"])
	require.Equal(t, []any{int64(m.visitor.PID())}, a["fuse.stall.pids"])
	require.Zero(t, a["fuse.stall.answered"])
	require.GreaterOrEqual(t, a["fuse.stall.age_ns"], int64(time.Second))
	t.Logf("named %s after it was stuck", time.Duration(a["fuse.stall.age_ns"].(int64)))
	require.Equal(t, plog.SeverityNumberWarn, r.SeverityNumber(), "no rank waits")

	require.NoError(t, m.Continue())
	require.NoError(t, m.visitor.Wait(t.Context()))
	end := m.end(t, all, a)
	require.Equal(t, "completed", end["fuse.stall.end_reason"])
	require.LessOrEqual(t, end["fuse.stall.waiters"], int64(40))
	require.Positive(t, end["fuse.stall.waiters"])
}

func TestMountInAnotherNamespaceIsNamedAsItsVictimSeesIt(t *testing.T) {
	all := startOnKernel(t)
	m := mountAndVisit(t, hangfs.Options{Private: true}, hangfs.Access{How: hangfs.Stat, File: hangfs.Direct})
	require.NoError(t, m.Freeze())
	require.NoError(t, m.visitor.Go())
	_, a := m.stall(t, all)
	require.Equal(t, m.Dir(), a["fuse.mount.point"])
	require.Equal(t, "fuse.hangfs", a["fuse.mount.type"])
	require.Equal(t, "alive", a["fuse.daemon.state"])
	require.Contains(t, []any{"GETATTR", "LOOKUP"}, a["fuse.opcode"], "statx by path may look the name up first")
	require.Equal(t, "request", a["fuse.stall.kind"])
	require.NoError(t, m.Thaw())
	require.NoError(t, m.visitor.Wait(t.Context()))
	m.end(t, all, a)
}

func TestEndOfAKilledDaemonAndOfAForcedUnmount(t *testing.T) {
	all := startOnKernel(t)
	for want, happens := range map[string]func(*mounted) error{
		"aborted":   func(m *mounted) error { return m.Kill() },
		"unmounted": func(m *mounted) error { return m.Abort() },
	} {
		t.Run(want, func(t *testing.T) {
			m := mountAndVisit(t, hangfs.Options{}, hangfs.Access{How: hangfs.Read, File: hangfs.Direct})
			require.NoError(t, m.Stop())
			require.NoError(t, m.visitor.Go())
			_, a := m.stall(t, all)
			require.NoError(t, happens(&m))
			require.Equal(t, want, m.end(t, all, a)["fuse.stall.end_reason"])
		})
	}
}

func TestLatencyOfAMountIsMeasured(t *testing.T) {
	all := startOnKernel(t)
	m := mountAndVisit(t, hangfs.Options{Source: "JuiceFS:vol", Subtype: "juicefs"}, hangfs.Access{How: hangfs.Read, File: hangfs.Direct, Threads: 10})
	require.NoError(t, m.Delay(70*time.Millisecond)) // from 65 ms on each is in the histogram
	require.NoError(t, m.visitor.Go())
	require.NoError(t, m.visitor.Wait(t.Context()))
	for range 60 {
		for _, metric := range all.NextMetrics(t).ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
			if metric.Name() != "fuse.request.duration" {
				continue
			}
			for _, point := range metric.Histogram().DataPoints().All() {
				a := point.Attributes().AsRaw()
				if a["fuse.device"] == m.device() && point.Count() >= 10 {
					require.Equal(t, m.Dir(), a["fuse.mount.point"])
					require.Equal(t, "JuiceFS:vol", a["fuse.mount.source"])
					require.Positive(t, point.Sum())
					return
				}
			}
		}
	}
	require.Fail(t, "ten requests never showed up")
}
