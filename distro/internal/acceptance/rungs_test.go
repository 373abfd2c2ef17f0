//go:build linux

package acceptance

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/check"
	"github.com/tracecoreai/tracecore/distro/defaultconfig"
	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// TestBPFCheckSaysWhatTheAgentThenDoes compares the hooks that bpf-check reports
// with those that the running receivers say they have, in their own metrics.
func TestBPFCheckSaysWhatTheAgentThenDoes(t *testing.T) {
	privtest.Require(t)
	checked := commandtest.Finish(t, commandtest.New(t, "bpf-check", "-o", "json"))
	require.Equal(t, 0, checked.Code, "on every kernel of the matrix everything works:\n%s%s", checked.Stdout, checked.Stderr)
	var report struct {
		Probes   []check.Probe
		Patterns []struct{ Name, State string }
	}
	require.NoError(t, json.Unmarshal([]byte(checked.Stdout), &report))
	said := map[string]string{}
	for _, p := range report.Probes {
		said[p.Probe] = p.Rung
	}
	for _, p := range report.Patterns {
		require.Equal(t, "full", p.State, p.Name)
	}
	require.Equal(t, said, rungsInUse(t))
}

// probeUp finds a probe's own metric: whether it delivers, and with which hook.
var probeUp = regexp.MustCompile(`otelcol_(?:receiver|extension)_([a-z]+)_probe_up(?:_ratio)?\{[^}]*rung="([^"]*)"[^}]*\} 1\n`)

// probeOf names the probe behind a component.
var probeOf = map[string]string{
	"kernelevents": "kmsg", "oomkill": "oomkill", "identity": "identity", "fusefault": "fusefault", "ncclsock": "ncclsock",
	"cudaoom": "cudaoom", "ncclcall": "ncclcall", "pyexception": "pyexception", "stacks": "taskstack",
}

// rungsInUse starts the default and reads from its metrics which hooks its
// components have.
func rungsInUse(t *testing.T) map[string]string {
	t.Helper()
	metrics := hosttest.FreeAddress(t)
	host, port, err := net.SplitHostPort(metrics)
	require.NoError(t, err)
	reader := fmt.Sprintf("yaml:service: {telemetry: {metrics: {readers: [{pull: {exporter: {prometheus: {host: %s, port: %s}}}}]}}}", host, port)
	args := append(commandtest.Ports(t)[:3], "--config="+defaultconfig.URI, "--config="+reader)
	commandtest.Start(t, commandtest.New(t, args...))
	rungs := map[string]string{}
	require.Eventually(t, func() bool {
		for _, match := range probeUp.FindAllStringSubmatch(fetch(metrics), -1) {
			rungs[probeOf[match[1]]] = match[2]
		}
		return len(rungs) == len(probeOf)
	}, hosttest.Patience, 20*time.Millisecond, "not every component says which hook it has: %v", rungs)
	return rungs
}

// fetch reads an agent's own metrics, "" where it does not answer.
func fetch(address string) string {
	for {
		resp, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			return ""
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable { // it was asked too often
			return string(text)
		}
	}
}
