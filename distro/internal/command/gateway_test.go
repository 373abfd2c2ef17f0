package command

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// hearingExample is laid over examples/gateway.yaml: who an agent is, a certificate says
// instead of the API server, and nothing else is watched.
const hearingExample = `
extensions: {agent_auth: {token_review: null, client_certificate: {}}, history: {http: {endpoint: "%[2]s"}}}
receivers: {otlp: {protocols: {grpc: {endpoint: "%[3]s", tls: {cert_file: %[1]s/gateway.crt, key_file: %[1]s/gateway.key, client_ca_file: %[1]s/ca.crt}}}}}
processors: {patterndetector: {rules: ["%[4]s"]}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {logs: {receivers: [otlp]}}
`

const sendingAgent = `
extensions: {health_check: {}, identity: {error_mode: ignore}}
receivers:
  heartbeat: {identity: identity}
  otlp: {senders: agents, protocols: {http: {endpoint: "%[3]s"}}}
exporters: {otlp_grpc: {endpoint: "%[2]s", tls: {cert_file: %[1]s/node-1.crt, key_file: %[1]s/node-1.key, ca_file: %[1]s/ca.crt}}}
service:
  extensions: [health_check, identity]
  telemetry: {metrics: {level: none}}
  pipelines: {logs: {receivers: [heartbeat, otlp], exporters: [otlp_grpc]}}
`

// The gateway of the examples keeps what it concludes from what agents send, and commands ask
// it: for incidents, for the agents that watch, for the first screen of top and for a report.
func TestTheExampleOfAGatewayIsAsked(t *testing.T) {
	a := newAuthority(t)
	a.make(t, "gateway")
	a.make(t, "node-1")
	asked, agents, told := hosttest.FreeAddress(t), hosttest.FreeAddress(t), hosttest.FreeAddress(t)
	rule := filepath.Join(a.dir, "rule.yaml")
	require.NoError(t, os.WriteFile(rule, []byte(strings.Replace(siteRule, "VERSION", "first", 1)), 0o600))
	start := func(name, text string, before ...string) *commandtest.Running {
		config := filepath.Join(a.dir, name+".yaml")
		require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
		cmd := commandtest.New(t, append(before, "--config="+config, "--set=extensions.health_check.endpoint="+hosttest.FreeAddress(t))...)
		cmd.Env = append(cmd.Env, "K8S_NODE_NAME="+name)
		return commandtest.Start(t, cmd)
	}
	gateway := start("gateway", fmt.Sprintf(hearingExample, a.dir, asked, agents, rule), "--config=../../examples/gateway.yaml")
	start("node-1", fmt.Sprintf(sendingAgent, a.dir, agents, told))
	sendFrom(t, told, "node-1", "site.alarm")

	ask := func(args ...string) commandtest.Outcome {
		return commandtest.Finish(t, commandtest.New(t, append(args, "--address", asked)...))
	}
	var listed string
	require.Eventually(t, func() bool {
		listed = ask("incidents", "--node", "node-1").Stdout
		return strings.Contains(listed, "alarm on node-1")
	}, hosttest.Patience, 20*time.Millisecond, "%s", gateway.Stderr)
	id := strings.Fields(strings.Split(listed, "\n")[1])[0]
	require.Eventually(t, func() bool {
		var report statusReport
		got := ask("status", "--metrics", "127.0.0.1:1", "-o", "json")
		return json.Unmarshal([]byte(got.Stdout), &report) == nil && report.Agents.Watching == 1
	}, hosttest.Patience, 20*time.Millisecond, "%s", gateway.Stderr)
	require.Contains(t, ask("top").Stdout, "alarm on node-1")
	page := filepath.Join(a.dir, "incident.md")
	reported := ask("report", id, "-o", page)
	require.Equal(t, exitOK, reported.Code, reported.Stderr)
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Contains(t, string(text), "alarm on node")
}
