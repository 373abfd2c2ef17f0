package command

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/internal/heartbeat"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/incidentview"
)

// authority makes certificates.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.cert, a.key = a.make(t, "ca")
	return a
}

// make makes a certificate; the first one signs itself and all others.
func (a *authority) make(t *testing.T, name string) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: a.cert == nil, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	parent, signer := template, key
	if a.cert != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(a.dir, name+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(a.dir, name+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	made, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return made, key
}

const hearingConfig = `
extensions:
  health_check: {}
  agent_auth: {client_certificate: {}}
  history: {directory: %[1]s/history, http: {endpoint: "%[2]s"}}
receivers:
  otlp: {protocols: {grpc: {endpoint: "%[3]s", auth: {authenticator: agent_auth}, tls: {cert_file: %[1]s/gateway.crt, key_file: %[1]s/gateway.key, client_ca_file: %[1]s/ca.crt}}}}
  otlp/open: {protocols: {http: {endpoint: "%[4]s"}}}
processors: {patterndetector: {history: history}}
exporters: {terminal: {format: json}}
service:
  extensions: [health_check, agent_auth, history]
  telemetry: {metrics: {level: none}}
  pipelines: {logs: {receivers: [otlp, otlp/open], processors: [patterndetector], exporters: [terminal]}}
`

const tellingConfig = `
extensions: {health_check: {}, identity: {error_mode: ignore}}
receivers: {heartbeat: {identity: identity}, filelog: {include: [%[1]s/none]}}
exporters: {otlp_grpc: {endpoint: "%[2]s", tls: {cert_file: %[1]s/%[3]s.crt, key_file: %[1]s/%[3]s.key, ca_file: %[1]s/ca.crt}}}
service:
  extensions: [health_check, identity]
  telemetry: {metrics: {readers: [{pull: {exporter: {prometheus: {host: 127.0.0.1, port: %[4]s}}}}]}}
  pipelines: {logs: {receivers: [heartbeat, filelog], exporters: [otlp_grpc]}}
`

// At a gateway status lists the agents that proved who they are: which watch, and which were
// stopped by order. What others say of a machine counts for nothing.
func TestAGatewayKnowsWhichAgentsWatch(t *testing.T) {
	a := newAuthority(t)
	for _, name := range []string{"gateway", "node-1", "node-2"} {
		a.make(t, name)
	}
	asked, agents, open := hosttest.FreeAddress(t), hosttest.FreeAddress(t), hosttest.FreeAddress(t)
	start := func(name, text string, variables ...string) *commandtest.Running {
		config := filepath.Join(t.TempDir(), "config.yaml")
		require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
		cmd := commandtest.New(t, "--config="+config, "--set=extensions.health_check.endpoint="+hosttest.FreeAddress(t))
		cmd.Env = append(cmd.Env, "K8S_NODE_NAME="+name)
		return commandtest.Start(t, cmd)
	}
	gateway := start("gateway", fmt.Sprintf(hearingConfig, a.dir, asked, agents, open))
	agent := func(certificate, name string) *commandtest.Running {
		_, port, _ := strings.Cut(hosttest.FreeAddress(t), ":")
		return start(name, fmt.Sprintf(tellingConfig, a.dir, agents, certificate, port))
	}
	status := func() (code int, report statusReport, err error) {
		got := commandtest.Finish(t, commandtest.New(t, "status", "--address", asked, "--metrics", "127.0.0.1:1", "-o", "json"))
		return got.Code, report, json.Unmarshal([]byte(got.Stdout), &report)
	}
	become := func(want heartbeat.Counts) (report statusReport) {
		t.Helper()
		require.Eventually(t, func() bool {
			var err error
			_, report, err = status()
			return err == nil && report.Agents == want
		}, hosttest.Patience, 20*time.Millisecond, "%+v\n%s", &report.Agents, gateway.Stderr)
		return report
	}
	become(heartbeat.Counts{})
	one := agent("node-1", "node-1")
	agent("node-2", "node-2")
	report := become(heartbeat.Counts{Watching: 2})
	code, _, err := status()
	require.NoError(t, err)
	require.Equal(t, statusWell, code, "what nobody tells of did not happen")
	require.Eventually(t, func() bool { // the first heartbeat may come before others start; the second follows in 10 s
		var err error
		_, report, err = status()
		return err == nil && len(report.WorstAgents) == 2 && !slices.ContainsFunc(report.WorstAgents, func(a heartbeat.Agent) bool {
			return a.Dropped == nil || !slices.ContainsFunc(a.Receivers, func(c heartbeat.Component) bool { return c.Name == "filelog" && c.State == heartbeat.Works })
		})
	}, hosttest.Patience, 20*time.Millisecond, "its own metrics, and filelog: %+v", &report.WorstAgents)
	require.Equal(t, []string{"node-1", "node-2"}, []string{report.WorstAgents[0].Host, report.WorstAgents[1].Host})
	require.Equal(t, version, report.WorstAgents[0].Version)

	// Others: an agent that speaks of another machine, and a stranger.
	agent("node-2", "node-3")
	forged := strings.ReplaceAll(`{"resourceLogs":[{"resource":{"attributes":[{"key":"host.name","value":{"stringValue":"node-4"}}]},"scopeLogs":[{"scope":{"name":"SCOPE"},"logRecords":[
		{"eventName":"tracecore.agent.heartbeat","timeUnixNano":"1764064800000000000","attributes":[{"key":"tracecore.trust","value":{"stringValue":"proven"}},{"key":"service.instance.id","value":{"stringValue":"x"}},
		{"key":"tracecore.agent.sequence","value":{"intValue":"1"}},{"key":"tracecore.agent.start_unix_nano","value":{"intValue":"1764064700000000000"}}]}]}]}]}`, "SCOPE", heartbeat.Scope)
	response, err := http.Post("http://"+open+"/v1/logs", "application/json", strings.NewReader(forged))
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Eventually(t, func() bool {
		said := gateway.Stderr.String()
		return strings.Contains(said, "an agent sent records about a machine that is not its own") && strings.Contains(said, "a sender that has not proved to be an agent used a name of tracecore's own")
	}, hosttest.Patience, 20*time.Millisecond, "%s", gateway.Stderr)
	become(heartbeat.Counts{Watching: 2})

	require.NoError(t, one.Cmd.Process.Signal(syscall.SIGTERM))
	become(heartbeat.Counts{Watching: 1, Gone: 1})
	got := commandtest.Finish(t, commandtest.New(t, "status", "--agents", "--address", asked, "--metrics", "127.0.0.1:1"))
	require.Contains(t, got.Stdout, "Agents: 1 watching, 1 stopped by order\n")
	require.Regexp(t, `(?m)^node-1 +gone +\d{4}-`, got.Stdout)
	require.Regexp(t, `(?m)^node-2 +watching +\d{4}-`, got.Stdout)
}

// watchedRecording is a recording of a gateway: a GPU of node-a has an error of its memory
// between two heartbeats of its agent, of which gpu does not work. node-b fell silent. A claim about node-c counts for nothing.
func watchedRecording(t *testing.T) string {
	t.Helper()
	began := time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)
	logs := plog.NewLogs()
	tell := func(host, scope, event, trust string, at time.Duration) pcommon.Map {
		resource := logs.ResourceLogs().AppendEmpty()
		resource.Resource().Attributes().PutStr("host.name", host)
		within := resource.ScopeLogs().AppendEmpty()
		within.Scope().SetName(scope)
		record := within.LogRecords().AppendEmpty()
		record.SetEventName(event)
		record.SetTimestamp(pcommon.NewTimestampFromTime(began.Add(at)))
		record.Attributes().PutStr("tracecore.trust", trust)
		return record.Attributes()
	}
	beat := func(host, trust string, at time.Duration) {
		a := tell(host, heartbeat.Scope, heartbeat.Event, trust, at)
		a.PutStr("service.instance.id", host)
		a.PutInt("tracecore.agent.sequence", int64(at/time.Minute)+1)
		a.PutInt("tracecore.agent.start_unix_nano", began.UnixNano())
		receivers := a.PutEmptySlice("tracecore.agent.receivers")
		for _, name := range []string{"kernelevents", "gpu"} {
			one := receivers.AppendEmpty().SetEmptyMap()
			one.PutStr("name", name)
			one.PutStr("state", map[string]string{"kernelevents": heartbeat.Works, "gpu": heartbeat.Fails}[name])
			one.PutInt("since_unix_nano", began.UnixNano())
		}
	}
	for minute := range 10 {
		at := time.Duration(minute) * time.Minute
		beat("node-a", "proven", at)
		beat("node-c", "claimed", at)
		if minute == 0 {
			beat("node-b", "proven", at)
		}
		if minute == 5 {
			xid := tell("node-a", "x", "gpu.xid", "proven", at+time.Second)
			xid.PutInt("kernelevents.xid", 48)
			xid.PutStr("gpu.id", "0000:65:00.0")
			xid.PutStr("kernelevents.class", "reset_gpu")
			xid.PutStr("kernelevents.severity", "critical")
			xid.PutBool("kernelevents.injected", false)
		}
	}
	text, err := (&plog.JSONMarshaler{}).MarshalLogs(logs)
	require.NoError(t, err)
	return write(t, "recording.json", string(text)+"\n")
}

// A recording with heartbeats says who watched: at its end, and what was looked for.
func TestARecordingKnowsWhichAgentsWatched(t *testing.T) {
	path := watchedRecording(t)
	replayed := commandtest.Finish(t, commandtest.New(t, "replay", path))
	require.Equal(t, exitOK, replayed.Code, replayed.Stderr)
	require.Contains(t, replayed.Stderr, "; agents at its end: 1 watching, 1 silent\n")
	got, text := reported(t, "incident.json", path)
	require.Equal(t, exitOK, got.Code, got.Stderr)
	v, err := incidentview.FromJSON([]byte(text))
	require.NoError(t, err)
	require.NotContains(t, strings.Join(v.Made.Flaws, "\n"), "agents", "who watched is no flaw")
	var why []string
	for _, one := range v.NotSeen {
		why = append(why, one.Kind+": "+one.Why)
	}
	require.Contains(t, why, "cannot_see: node-a: gpu does not work there")
}
