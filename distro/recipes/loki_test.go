//go:build loki

package recipes

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// lokiConfig is one process with its data in a folder.
const lokiConfig = `
auth_enabled: false
server: {http_listen_address: 127.0.0.1, http_listen_port: %s, grpc_listen_address: 127.0.0.1, grpc_listen_port: %s, log_level: warn}
common: {instance_addr: 127.0.0.1, path_prefix: %[3]s, replication_factor: 1, ring: {kvstore: {store: inmemory}}, storage: {filesystem: {chunks_directory: %[3]s/chunks, rules_directory: %[3]s/rules}}}
schema_config: {configs: [{from: 2024-01-01, store: tsdb, object_store: filesystem, schema: v13, index: {prefix: index_, period: 24h}}]}
analytics: {reporting_enabled: false}
`

// loki is a real one, which make loki builds, on this machine alone.
type loki struct{ address string }

func startLoki(t *testing.T, address string) loki {
	t.Helper()
	binary, err := filepath.Abs("../../.cache/bin/loki")
	require.NoError(t, err)
	require.FileExists(t, binary, "make loki builds it")
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	_, other, err := net.SplitHostPort(hosttest.FreeAddress(t))
	require.NoError(t, err)
	dir := t.TempDir()
	config := filepath.Join(dir, "loki.yaml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, lokiConfig, port, other, dir), 0o600))
	cmd := exec.Command(binary, "-config.file="+config)
	said, err := os.Create(filepath.Join(dir, "said"))
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = said, said
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = said.Close()
	})
	require.Eventually(t, func() bool {
		response, err := http.Get("http://" + address + "/ready")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, patience, 100*time.Millisecond, "Loki is not ready: see %s", said.Name())
	return loki{address}
}

// lines are those that a query finds, by what they say, each with its labels and structured metadata.
func (l loki) lines(t require.TestingT, query string) map[string]map[string]string {
	response, err := http.Get("http://" + l.address + "/loki/api/v1/query_range?since=24h&limit=1000&query=" + url.QueryEscape(query))
	require.NoError(t, err)
	defer response.Body.Close()
	var answer struct {
		Data struct {
			Result []struct {
				Stream map[string]string `json:"stream"`
				Values [][2]string       `json:"values"`
			} `json:"result"`
		} `json:"data"`
	}
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.NoError(t, json.NewDecoder(response.Body).Decode(&answer))
	lines := map[string]map[string]string{}
	for _, one := range answer.Data.Result {
		for _, value := range one.Values {
			lines[value[1]] = one.Stream
		}
	}
	return lines
}

// A verdict and the record that it rests on reach Loki, which was away when they were made,
// and each query of the recipe's comment finds what it says.
func TestRecordsReachLoki(t *testing.T) {
	address := hosttest.FreeAddress(t)
	t.Setenv("LOKI", "http://"+address)
	rule, otlp := filepath.Join(t.TempDir(), "rule.yaml"), hosttest.FreeAddress(t)
	require.NoError(t, os.WriteFile(rule, []byte(alarmRule), 0o600))
	a := start(t, "loki.yaml", "--set=processors.patterndetector.rules=["+rule+"]", "--set=receivers.otlp.senders=agents", "--set=receivers.otlp.protocols.http.endpoint="+otlp)
	send(t, otlp, "site.alarm")
	v := a.await(t, "the alarm", about("site_alarm", "host", host))
	l := startLoki(t, address)
	query := `{service_name="tracecore"} | event_name="pattern.verdict"`
	require.EventuallyWithT(t, func(c *assert.CollectT) { require.Len(c, l.lines(c, query), 1) }, patience, 100*time.Millisecond, "%s", a.Stderr)
	for line, with := range l.lines(t, query) {
		require.Contains(t, line, v.Headline)
		require.Equal(t, v.ID, with["pattern_verdict_id"])
		require.NotContains(t, with, "pattern_verdict_json")
	}
	for _, query := range []string{
		`{service_name="tracecore"} | pattern_name="site_alarm" | pattern_status="open"`,
		`{service_name="tracecore"} | event_name="site.alarm" | host_name="` + host + `"`,
	} {
		require.EventuallyWithT(t, func(c *assert.CollectT) { require.Len(c, l.lines(c, query), 1) }, patience, 100*time.Millisecond, "%s: %v\n%s", query, l.lines(t, `{service_name=~".+"}`), a.Stderr)
	}
	require.Empty(t, l.lines(t, `{service_name="unknown_service"}`))
}

// What --to-all sends as it is: Loki takes it, and keeps no event name.
func TestToAllReachesLoki(t *testing.T) {
	l := startLoki(t, hosttest.FreeAddress(t))
	rule, otlp := filepath.Join(t.TempDir(), "rule.yaml"), hosttest.FreeAddress(t)
	require.NoError(t, os.WriteFile(rule, []byte(alarmRule), 0o600))
	a := start(t, "tracecore:default", "--to-all=http://"+l.address+"/otlp", "--set=processors.patterndetector.rules=["+rule+"]", "--set=receivers.otlp.senders=agents", "--set=receivers.otlp.protocols.http.endpoint="+otlp)
	send(t, otlp, "site.alarm")
	v := a.await(t, "the alarm", about("site_alarm", "host", host))
	query := `{service_name=~".+"} | pattern_verdict_id="` + v.ID + `"`
	require.EventuallyWithT(t, func(c *assert.CollectT) { require.Len(c, l.lines(c, query), 1) }, patience, 100*time.Millisecond, "%s", a.Stderr)
	for _, with := range l.lines(t, query) {
		require.NotContains(t, with, "event_name")
		require.Contains(t, with, "pattern_verdict_json")
		require.Equal(t, "unknown_service", with["service_name"])
	}
}
