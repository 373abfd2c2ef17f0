//go:build linux

// Package bench measures the budgets of the distribution on this machine: the
// way from a fault to its verdict, a storm, and the agent at rest. As root:
//
//	go test -run '^$' -bench . -benchtime 200x ./distro/internal/bench
package bench

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/bpf/oomkill"
	"github.com/tracecoreai/tracecore/distro/internal/command"
	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/distro/internal/drill"
	"github.com/tracecoreai/tracecore/distro/internal/pipeline"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

func TestMain(m *testing.M) {
	if drill.IsChild() {
		os.Exit(drill.Child())
	}
	if commandtest.IsCommand() {
		os.Exit(command.Run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// config is the default's way from the kernel to a verdict, with its storage.
const config = `
extensions:
  identity: {}
  file_storage: {directory: %q}
receivers:
  kernelevents: {identity: identity}
  oomkill: {identity: identity}
processors:
  memory_limiter: {check_interval: 1s, limit_mib: 400, spike_limit_mib: 100}
  patterndetector: {storage: file_storage}
exporters: {sink: {}}
service:
  extensions: [identity, file_storage]
  telemetry: {metrics: {level: none}, logs: {level: error}}
  pipelines:
    logs: {receivers: [kernelevents, oomkill], processors: [memory_limiter, patterndetector], exporters: [sink]}
`

// arrival is a verdict that reached the end of the pipeline.
type arrival struct {
	at      time.Time
	verdict verdict.Verdict
}

// start runs the pipeline; what arrives comes on the channel.
func start(b *testing.B) <-chan arrival {
	b.Helper()
	hosttest.Require(b, "it loads probes and makes faults")
	arrivals := make(chan arrival, 1<<16)
	p, err := pipeline.Start(b.Context(), fmt.Sprintf(config, b.TempDir()), func(at time.Time, batch plog.Logs) {
		for _, resource := range batch.ResourceLogs().All() {
			for _, scope := range resource.ScopeLogs().All() {
				for _, record := range scope.LogRecords().All() {
					if v, err := verdict.FromRecord(record); err == nil {
						arrivals <- arrival{at, v}
					}
				}
			}
		}
	})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, p.Stop()) })
	return arrivals
}

// await returns the first arrival that matches.
func await(b *testing.B, arrivals <-chan arrival, what string, match func(arrival) bool) arrival {
	b.Helper()
	timer := time.NewTimer(30 * time.Second)
	defer timer.Stop()
	for {
		select {
		case a := <-arrivals:
			if match(a) {
				return a
			}
		case <-timer.C:
			require.FailNow(b, "it never came", what)
		}
	}
}

// kmsg is an open kernel log without a limit on writes.
func kmsg(b *testing.B) *os.File {
	b.Helper()
	hosttest.UnlimitKmsg(b)
	f, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, f.Close()) })
	return f
}

// BenchmarkXidToVerdict measures from before the write of an Xid 79 to the
// arrival of its verdict at the exporter. Each is another GPU's.
func BenchmarkXidToVerdict(b *testing.B) {
	arrivals, log := start(b), kmsg(b)
	var delays []time.Duration
	for i := 0; b.Loop(); i++ {
		gpu := fmt.Sprintf("%04x:%02x:%02x", 1+i>>13, i>>5&0xff, i&0x1f)
		at := time.Now()
		_, err := fmt.Fprintf(log, "<15>NVRM: Xid (PCI:%s): 79, pid=12, name=python, GPU has fallen off the bus.\n", gpu)
		require.NoError(b, err)
		a := await(b, arrivals, "the verdict on "+gpu, func(a arrival) bool { return a.verdict.Culprit["gpu"] == gpu+".0" })
		delays = append(delays, a.at.Sub(at))
		time.Sleep(10 * time.Millisecond) // faults of different GPUs are not one burst
	}
	commandtest.ReportDelays(b, delays)
}

// BenchmarkOOMKillToVerdict measures from the kernel's kill, as it reports it, to
// the arrival of the verdict.
func BenchmarkOOMKillToVerdict(b *testing.B) {
	arrivals := start(b)
	var delays []time.Duration
	for i := 0; b.Loop(); i++ {
		victim, err := oomkill.Drill(b.Context(), oomkill.DrillOptions{Env: []string{"RANK=1", "WORLD_SIZE=8", fmt.Sprintf("JOB_ID=bench-%d", i)}})
		require.NoError(b, err)
		a := await(b, arrivals, "the verdict on the kill", func(a arrival) bool {
			return a.verdict.Pattern == "host_oom_kill" && a.verdict.Culprit["pid"] == fmt.Sprint(victim.PID)
		})
		delays = append(delays, a.at.Sub(a.verdict.Onset))
	}
	commandtest.ReportDelays(b, delays)
}

// BenchmarkStart measures from the start of the process to the answer of its
// health endpoint.
func BenchmarkStart(b *testing.B) {
	hosttest.Require(b, "it loads probes and makes faults")
	var delays []time.Duration
	for b.Loop() {
		cmd := commandtest.New(b, commandtest.Ports(b)...)
		at := time.Now()
		r := commandtest.Start(b, cmd)
		delays = append(delays, time.Since(at))
		r.Kill()
	}
	commandtest.ReportDelays(b, delays)
}
