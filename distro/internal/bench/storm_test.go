//go:build linux

package bench

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/distro/defaultconfig"
	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// BenchmarkStorm writes 100,000 lines of one fault as fast as the kernel takes
// them while the embedded default runs beside it, and asks the agent's metrics
// what it read, what it dropped and counted, and what is missing.
func BenchmarkStorm(b *testing.B) {
	hosttest.Require(b, "it loads probes and makes faults")
	log, address := kmsg(b), startMeasured(b)
	const lines = 100_000
	var lost, dropped, records, seconds float64
	for i := 0; b.Loop(); i++ {
		before := scrape(b, address)
		line := fmt.Appendf(nil, "<15>NVRM: Xid (PCI:0000:%02x:00): 45, pid=12, name=python, Ch 00000008\n", 1+i)
		began := time.Now()
		for range lines {
			_, err := log.Write(line)
			require.NoError(b, err)
		}
		seconds += time.Since(began).Seconds()
		after := settled(b, address, before, lines)
		dropped += after.dropped - before.dropped
		lost += lines - (after.lines - before.lines)
		records += (after.lines - before.lines) - (after.folded - before.folded)
	}
	n := float64(b.N)
	b.ReportMetric(lost/n, "lost/storm")
	b.ReportMetric((lost-dropped)/n, "lost-uncounted/storm")
	b.ReportMetric(records/n, "records/storm")
	b.ReportMetric(lines*n/seconds, "lines/s")
	b.ReportMetric(0, "ns/op")
}

// startMeasured starts the default with its metrics on a free port.
func startMeasured(b *testing.B) (address string) {
	b.Helper()
	address = hosttest.FreeAddress(b)
	host, port, err := net.SplitHostPort(address)
	require.NoError(b, err)
	reader := fmt.Sprintf("yaml:service: {telemetry: {metrics: {readers: [{pull: {exporter: {prometheus: {host: %s, port: %s}}}}]}}}", host, port)
	args := append(commandtest.Ports(b)[:3], "--config="+defaultconfig.URI, "--config="+reader)
	commandtest.Start(b, commandtest.New(b, args...))
	return address
}

// counts are what kernelevents says of itself.
type counts struct{ lines, folded, dropped float64 }

var counter = regexp.MustCompile(`(?m)^otelcol_receiver_kernelevents_(lines|folded|probe_dropped)(?:\{[^}]*\})? ([0-9.e+]+)$`)

func scrape(b *testing.B, address string) counts {
	b.Helper()
	resp, err := http.Get("http://" + address + "/metrics")
	require.NoError(b, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(b, err)
	sums := map[string]float64{}
	for _, match := range counter.FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.ParseFloat(match[2], 64)
		require.NoError(b, err)
		sums[match[1]] += n
	}
	return counts{sums["lines"], sums["folded"], sums["probe_dropped"]}
}

// settled waits until all lines are read or counted as dropped, or nothing has
// changed for two seconds.
func settled(b *testing.B, address string, before counts, lines float64) counts {
	b.Helper()
	last, quiet := before, time.Now()
	for {
		now := scrape(b, address)
		if now != last {
			last, quiet = now, time.Now()
		}
		if now.lines+now.dropped-before.lines-before.dropped >= lines || time.Since(quiet) > 2*time.Second {
			return now
		}
		time.Sleep(20 * time.Millisecond)
	}
}
