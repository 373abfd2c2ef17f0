package command

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"

	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/distro/internal/pipeline"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

const xidLine = "NVRM: Xid (PCI:0000:65:00): 79, pid=42, name=python, GPU has fallen off the bus."

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

const healthyDumps = "../../../receivers/ncclfrreceiver/internal/flightrecorder/testdata/healthy"

func TestReplayPrintsVerdictsAndSaysWhatItRead(t *testing.T) {
	good := write(t, "gpu-4.log", "[Sat Nov 21 08:41:23 2026] "+xidLine+"\n")
	for name, tt := range map[string]struct {
		args   []string
		code   int
		stdout string
		stderr string
	}{
		"text":               {[]string{good}, exitOK, "GPU 0000:65:00.0 on gpu-4 has fallen off the bus", "1 file, 1 record, 1 verdict"},
		"json":               {[]string{"-o", "json", good}, exitOK, `"pattern":"gpu_lost"`, ""},
		"healthy dumps":      {[]string{healthyDumps}, exitOK, "Flight Recorder dumps: all 4 ranks finished all_reduce #6 of default_pg; nothing is pending", "0 verdicts"},
		"the same as json":   {[]string{"-o", "json", healthyDumps}, exitOK, "", "nothing is pending"},
		"some is damaged":    {[]string{good, write(t, "x", "no recording")}, exitDegraded, "has fallen off the bus", "unknown format"},
		"all is damaged":     {[]string{write(t, "x", "no recording")}, exitUnusable, "", "1 of 1 file could not be read"},
		"no such file":       {[]string{"/nosuch", good}, exitDegraded, "has fallen off the bus", "/nosuch"},
		"nothing is given":   {nil, exitUsage, "", "see tracecore replay --help"},
		"no such format":     {[]string{"-o", "xml", good}, exitUsage, "", "use text or json"},
		"a wrong time":       {[]string{"--boot-time", "today", good}, exitUsage, "", "2026-11-21T07:00:00Z"},
		"a wrong zone":       {[]string{"--zone", "Nowhere", good}, exitUsage, "", "--zone Nowhere"},
		"a lateness of none": {[]string{"--lateness", "0s", good}, exitUsage, "", "above zero"},
		"a rule of nonsense": {[]string{"--rules", write(t, "mine.yaml", "id: x\n"), good}, exitInternal, "", "mine.yaml:1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := commandtest.Finish(t, commandtest.New(t, append([]string{"replay"}, tt.args...)...))
			require.Equal(t, tt.code, got.Code, "%s%s", got.Stdout, got.Stderr)
			require.Contains(t, got.Stdout, tt.stdout)
			require.Contains(t, got.Stderr, tt.stderr)
			if tt.stdout == "" {
				require.Empty(t, got.Stdout)
			}
			require.NotContains(t, got.Stderr, "\x1b", "nobody reads along at a terminal")
		})
	}
}

func TestReplayReadsStandardInputWithoutPrivileges(t *testing.T) {
	cmd := commandtest.New(t, "replay", "--host", "gpu-7", "--boot-time", "2026-11-21T07:00:00Z", "-")
	dropPrivileges(t, cmd)
	cmd.Stdin = strings.NewReader("[ 12.5] " + xidLine + "\n")
	got := commandtest.Finish(t, cmd)
	require.Equal(t, exitOK, got.Code, got.Stderr)
	require.Contains(t, got.Stdout, "on gpu-7 has fallen off the bus")
	require.Contains(t, got.Stdout, "2026-11-21 07:00:12.500")
}

// recording is a pipeline that records what it shows to the patterns.
const recording = `
receivers: {otlp: {senders: agents, protocols: {http: {endpoint: "ADDRESS"}}}}
processors: {patterndetector: {}}
exporters: {sink: {}, file: {path: "FILE", format: FORMAT}, debug: {}}
service:
  telemetry: {metrics: {level: none}, logs: {level: error}}
  pipelines:
    logs/in: {receivers: [otlp], exporters: [file]}
    logs: {receivers: [otlp], processors: [patterndetector], exporters: [sink]}
    metrics/in: {receivers: [otlp], exporters: [file]}
    metrics: {receivers: [otlp], processors: [patterndetector], exporters: [debug]}
`

// said collects the verdicts of a running collector, each in its last revision.
type said struct {
	mu       sync.Mutex
	verdicts map[string]verdict.Verdict
}

func (s *said) add(_ time.Time, logs plog.Logs) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range logs.ResourceLogs().All() {
		for _, scope := range resource.ScopeLogs().All() {
			for _, record := range scope.LogRecords().All() {
				if v, err := verdict.FromRecord(record); err == nil {
					s.verdicts[v.ID] = v
				}
			}
		}
	}
}

func (s *said) json(t *testing.T) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var text bytes.Buffer
	require.NoError(t, printVerdicts(&text, slices.Collect(maps.Values(s.verdicts))))
	return text.String()
}

// TestReplaySaysWhatTheRunningCollectorSaid sends records to a collector that
// records them, and replays the recording: the verdicts are equal byte by byte.
func TestReplaySaysWhatTheRunningCollectorSaid(t *testing.T) {
	for _, format := range []string{"json", "proto"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			address, file := hosttest.FreeAddress(t), filepath.Join(t.TempDir(), "recording")
			config := strings.NewReplacer("ADDRESS", address, "FILE", file, "FORMAT", format).Replace(recording)
			live := said{verdicts: map[string]verdict.Verdict{}}
			p, err := pipeline.Start(t.Context(), config, live.add)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, p.Stop()) })
			sendFailure(t, address)
			// The exporter writes in its own time, half a record perhaps, and the collector's clock
			// decides some things a second later.
			var got commandtest.Outcome
			deadline := time.Now().Add(hosttest.Patience)
			for got.Code != exitOK || !strings.Contains(got.Stderr, ", 6 records, ") || live.json(t) != got.Stdout {
				require.True(t, time.Now().Before(deadline), "running:\n%s\nreplayed:\n%s%s", live.json(t), got.Stdout, got.Stderr)
				got = commandtest.Finish(t, commandtest.New(t, "replay", "-o", "json", file))
			}
			for _, pattern := range []string{"gpu_lost", "rank_exit", "hbm_ecc"} {
				require.Contains(t, got.Stdout, `"pattern":"`+pattern+`"`)
			}
		})
	}
}

// sendFailure sends a failure that several patterns see, part of it late.
func sendFailure(t *testing.T, address string) {
	t.Helper()
	now := time.Now()
	sendLogs(t, address, "gpu.xid", now, map[string]any{"kernelevents.xid": 79, "gpu.id": "0000:65:00.0", "process.pid": 42, "process.executable.name": "python", "gen_ai.training.rank": 3, "gen_ai.training.job_id": "job"})
	sendLogs(t, address, "process.exit", now.Add(2*time.Millisecond), map[string]any{"process.pid": 42, "process.executable.name": "python", "gen_ai.training.rank": 3, "gen_ai.training.job_id": "job", "process.exit.signal": 6, "process.exit.code": 0, "process.exit.signal_name": "SIGABRT"})
	sendLogs(t, address, "process.exit", now.Add(time.Millisecond), map[string]any{"process.pid": 43, "process.executable.name": "python", "gen_ai.training.rank": 4, "gen_ai.training.job_id": "job", "process.exit.signal": 6, "process.exit.code": 0, "process.exit.signal_name": "SIGABRT"})
	sendErrors(t, address, 0, now.Add(-5*time.Second))
	sendErrors(t, address, 2, now)
	sendLogs(t, address, "gpu.xid", now.Add(-time.Second), map[string]any{"kernelevents.xid": 48, "gpu.id": "0000:66:00.0"})
}

func sendLogs(t *testing.T, address, event string, at time.Time, attributes map[string]any) {
	t.Helper()
	logs := plog.NewLogs()
	resource := logs.ResourceLogs().AppendEmpty()
	resource.Resource().Attributes().PutStr("host.name", "node-1")
	record := resource.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	record.SetEventName(event)
	record.SetTimestamp(pcommon.NewTimestampFromTime(at))
	record.SetObservedTimestamp(pcommon.NewTimestampFromTime(time.Now()))
	require.NoError(t, record.Attributes().FromRaw(attributes))
	body, err := plogotlp.NewExportRequestFromLogs(logs).MarshalProto()
	require.NoError(t, err)
	post(t, "http://"+address+"/v1/logs", body)
}

func sendErrors(t *testing.T, address string, count int64, at time.Time) {
	t.Helper()
	metrics := pmetric.NewMetrics()
	resource := metrics.ResourceMetrics().AppendEmpty()
	resource.Resource().Attributes().PutStr("host.name", "node-1")
	metric := resource.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	metric.SetName("hw.errors")
	sum := metric.SetEmptySum()
	sum.SetIsMonotonic(true)
	sum.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	point := sum.DataPoints().AppendEmpty()
	point.SetIntValue(count)
	point.SetTimestamp(pcommon.NewTimestampFromTime(at))
	require.NoError(t, point.Attributes().FromRaw(map[string]any{"hw.type": "gpu", "error.type": "uncorrected", "gpu.id": "0000:66:00.0"}))
	body, err := pmetricotlp.NewExportRequestFromMetrics(metrics).MarshalProto()
	require.NoError(t, err)
	post(t, "http://"+address+"/v1/metrics", body)
}

func post(t *testing.T, url string, body []byte) {
	t.Helper()
	resp, err := http.Post(url, "application/x-protobuf", bytes.NewReader(body))
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, "%s", text)
}
