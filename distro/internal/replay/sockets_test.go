package replay

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"

	"github.com/tracecoreai/tracecore/distro/internal/pipeline"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// standing are the stalls of a ring of four in which the process of rank 2 is
// stopped, as four agents told them three seconds before.
func standing(before time.Time) plog.Logs {
	logs := plog.NewLogs()
	for rank := range 4 {
		resource := logs.ResourceLogs().AppendEmpty()
		resource.Resource().Attributes().PutStr("host.name", fmt.Sprintf("node-%d", rank))
		records := resource.ScopeLogs().AppendEmpty().LogRecords()
		for _, end := range []struct {
			direction string
			peer      int
		}{{"receive", (rank + 3) % 4}, {"send", (rank + 1) % 4}} {
			r := records.AppendEmpty()
			r.SetEventName("nccl.socket.stall")
			r.SetTimestamp(pcommon.NewTimestampFromTime(before.Add(-3 * time.Second)))
			r.SetObservedTimestamp(r.Timestamp())
			stall(r.Attributes(), rank, end.peer, end.direction)
		}
	}
	return logs
}

func stall(a pcommon.Map, rank, peer int, direction string) {
	ports := map[string]int64{"receive": 50000, "send": 40000}
	for key, text := range map[string]string{
		"gen_ai.training.job_id": "job", "process.executable.name": "python", "nccl.socket.kind": "gloo", "nccl.socket.cause": "waiting",
		"nccl.socket.direction": direction, "nccl.socket.stall.id": fmt.Sprintf("%d-%s", rank, direction), "nccl.rank.state": "sleeping",
		"tracecore.trust": "proven", "network.local.address": fmt.Sprintf("10.0.0.%d", rank), "network.peer.address": fmt.Sprintf("10.0.0.%d", peer),
	} {
		a.PutStr(key, text)
	}
	for key, n := range map[string]int64{
		"gen_ai.training.rank": int64(rank), "gen_ai.training.world_size": 4, "process.pid": int64(100 + rank),
		"nccl.socket.stall.age_ns": int64(20 * time.Second), "nccl.rank.last_sent_age_ns": int64(20 * time.Second),
		"network.local.port": ports[direction], "network.peer.port": 90000 - ports[direction],
	} {
		a.PutInt(key, n)
	}
	if rank == 2 {
		a.PutStr("nccl.rank.state", "stopped")
		if direction == "receive" {
			a.PutStr("nccl.socket.cause", "not_reading")
			a.PutInt("nccl.socket.receive_queue_bytes", 48)
		}
	}
}

// takesBoth is the way of dumps and stalls through a collector.
const takesBoth = `{receivers: {ncclfr: {include: [%q], job_id: job, shared: true}, otlp: {senders: agents, protocols: {http: {endpoint: %q, transport: unix}}}},
	processors: {rankjoin: {}, patterndetector: {}}, exporters: {sink: {}},
	service: {telemetry: {metrics: {level: none}, logs: {level: error}},
		pipelines: {logs: {receivers: [otlp, ncclfr], processors: [rankjoin, patterndetector], exporters: [sink]}}}}`

// TestACollectorComesToTheSameVerdictsWithSockets: a recording that has both what
// the sockets of the ranks said and their dumps.
func TestACollectorComesToTheSameVerdictsWithSockets(t *testing.T) {
	for name, tc := range map[string]struct {
		missing    string // dump
		confidence verdict.Confidence
		evidence   []string
	}{
		"rank 2 sent no dump": {"rank_2", verdict.Partial, []string{"no_dump", "sockets"}},
		"all sent dumps":      {"", verdict.Full, []string{"not_entered", "certain", "sockets"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			replayed := replayedWithSockets(t, tc.missing)
			hang := requireHangAmong(t, replayed, tc.confidence, tc.evidence)
			require.Equal(t, "2", hang.Culprit["rank"])
			require.Equal(t, "node-2", hang.Culprit["host"], "the dumps name no host")
			require.Equal(t, verdict.Symptom, hang.Role, "of the stopped process")
			requireCollected(t, timeless(replayed), tc.missing)
		})
	}
}

// waited is how long ranks wait until they write dumps: no longer than records may be late.
const waited = 8 * time.Second

// replayedWithSockets replays a recording of the stalls beside the folder of dumps.
func replayedWithSockets(t *testing.T, missing string) []verdict.Verdict {
	t.Helper()
	dir := t.TempDir()
	at := time.Now().Add(-waited)
	writeFreshDumps(t, "missing", dir, missing, at)
	recording := filepath.Join(t.TempDir(), "stalls.json")
	require.NoError(t, os.WriteFile(recording, lines(jsonOf(t, standing(at))), 0o600))
	return playedPaths(t, Options{Job: "job"}, dir, recording).verdicts
}

func requireHangAmong(t *testing.T, verdicts []verdict.Verdict, confidence verdict.Confidence, evidence []string) verdict.Verdict {
	t.Helper()
	require.Len(t, verdicts, 2)
	require.Equal(t, "nccl_socket_stall", verdicts[0].Pattern)
	hang := verdicts[1]
	require.Equal(t, "nccl_hang", hang.Pattern)
	require.Equal(t, confidence, hang.Confidence)
	var names []string
	for _, e := range hang.Evidence {
		names = append(names, e.Name)
	}
	require.ElementsMatch(t, evidence, names)
	return hang
}

// requireCollected runs a collector that is sent the stalls and reads the dumps
// until it comes to the verdicts wanted: the window closes after five seconds, and
// a second later the root cause is given out with all ranks that it hit. The
// recording happens when the collector runs: one made before the test was held up
// would be late.
func requireCollected(t *testing.T, want []verdict.Verdict, missing string) {
	t.Helper()
	dumps := t.TempDir()
	short, err := os.MkdirTemp("", "") // the path of a socket has 107 characters
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(short)) })
	socket := filepath.Join(short, "otlp")
	var end sunk
	p, err := pipeline.Start(t.Context(), fmt.Sprintf(takesBoth, dumps, socket), end.add)
	require.NoError(t, err)
	at := time.Now().Add(-waited)
	post(t, socket, standing(at))
	writeFreshDumps(t, "missing", dumps, missing, at)
	assert.Eventually(t, func() bool { return assert.ObjectsAreEqual(want, timeless(end.inOrder())) }, hosttest.Patience, 10*time.Millisecond)
	require.NoError(t, p.Stop())
	require.Equal(t, want, timeless(end.inOrder()))
}

// inOrder returns the verdicts by incident, the root cause first.
func (s *sunk) inOrder() []verdict.Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []verdict.Verdict
	for _, incident := range verdict.Incidents(s.verdicts) {
		all = append(all, incident...)
	}
	return all
}

func post(t *testing.T, socket string, logs plog.Logs) {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	body, err := plogotlp.NewExportRequestFromLogs(logs).MarshalProto()
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://collector/v1/logs", bytes.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/x-protobuf")
	answer, err := (&http.Client{Transport: transport}).Do(request)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)
}
