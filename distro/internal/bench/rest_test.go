//go:build linux

package bench

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// rest is how long the agent is watched doing nothing.
const rest = time.Minute

// BenchmarkAtRest watches the embedded default for a minute: memory, and CPU in
// percent of one core.
func BenchmarkAtRest(b *testing.B) {
	hosttest.Require(b, "it loads probes and makes faults")
	for b.Loop() {
		r := commandtest.Start(b, tracecore(b, commandtest.Ports(b)...))
		time.Sleep(5 * time.Second) // what is done once, at start
		before := cpuTime(b, r.Cmd.Process.Pid)
		time.Sleep(rest)
		used := cpuTime(b, r.Cmd.Process.Pid) - before
		b.ReportMetric(100*used.Seconds()/rest.Seconds(), "cpu-%")
		b.ReportMetric(kib(b, r.Cmd.Process.Pid, "VmRSS")/1024, "rss-MiB")
		b.ReportMetric(kib(b, r.Cmd.Process.Pid, "RssAnon")/1024, "anon-MiB")
		b.ReportMetric(0, "ns/op")
		r.Kill()
	}
}

// tracecore is the command, or the binary of TRACECORE_BINARY.
func tracecore(b *testing.B, args ...string) *exec.Cmd {
	b.Helper()
	cmd := commandtest.New(b, args...)
	if binary := os.Getenv("TRACECORE_BINARY"); binary != "" {
		cmd.Path = binary
	}
	return cmd
}

// cpuTime is user and system time of a process: fields 14 and 15 of its stat
// file, in ticks of 10 ms (proc(5); USER_HZ is 100 on every architecture here).
func cpuTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(b, err)
	_, rest, found := strings.Cut(string(text), ") ")
	require.True(b, found)
	fields := strings.Fields(rest)
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		require.NoError(b, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// kib is one field of a process's status file.
func kib(b *testing.B, pid int, field string) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(b, err)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			n, err := strconv.ParseFloat(strings.Fields(value)[0], 64)
			require.NoError(b, err)
			return n
		}
	}
	require.FailNow(b, "no field "+field)
	return 0
}
