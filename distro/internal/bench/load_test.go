//go:build linux

package bench

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"

	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// BenchmarkAgentUnderLoad is BenchmarkAtRest while applications send a thousand
// log records a second over OTLP, a hundred a message, that no pattern wants.
func BenchmarkAgentUnderLoad(b *testing.B) {
	hosttest.Require(b, "it loads probes and makes faults")
	ld := plog.NewLogs()
	records := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords()
	for i := range 100 {
		lr := records.AppendEmpty()
		lr.SetEventName("app.step")
		lr.SetTimestamp(pcommon.NewTimestampFromTime(time.Now()))
		lr.Body().SetStr(strings.Repeat("a line of a training log ", 8))
		lr.Attributes().PutInt("step", int64(i))
	}
	message := marshal(b, ld)
	for b.Loop() {
		address := hosttest.FreeAddress(b)
		r := commandtest.Start(b, tracecore(b, append(commandtest.Ports(b), "--set=receivers.otlp.protocols.http.endpoint="+address)...))
		watch(b, r, func(until time.Time) int {
			sent := 0
			for tick := time.NewTicker(100 * time.Millisecond); time.Now().Before(until); <-tick.C {
				post(b, address, message)
				sent += 100
			}
			return sent
		})
		r.Kill()
	}
}

// gateway is the chart's, with storage and without TLS.
const gateway = `
extensions:
  health_check: {endpoint: "127.0.0.1:13133"}
  file_storage: {directory: %q}
receivers: {otlp: {senders: agents, protocols: {http: {endpoint: %q}}}}
processors:
  memory_limiter: {check_interval: 1s, limit_mib: 1638, spike_limit_mib: 409}
  rankjoin: {storage: file_storage}
  patterndetector: {storage: file_storage}
exporters: {terminal: {color: never}}
service:
  extensions: [health_check, file_storage]
  telemetry: {metrics: {level: none}}
  pipelines: {logs: {receivers: [otlp], processors: [memory_limiter, rankjoin, patterndetector], exporters: [terminal]}}
`

// A job of 800 ranks on 100 nodes, in one ring; one rank is stopped.
const nodes, ranksOfNode, stopped = 100, 8, 404

// repeat is how often an agent tells of a stall that goes on: ncclsock's own
// repeat_interval.
const repeat = 10 * time.Second

// BenchmarkGatewayUnderLoad: all agents of a job that hangs repeat what its sockets
// do, two records a rank. The stopped rank must be named.
func BenchmarkGatewayUnderLoad(b *testing.B) {
	hosttest.Require(b, "it loads probes and makes faults")
	for b.Loop() {
		address, file := hosttest.FreeAddress(b), filepath.Join(b.TempDir(), "gateway.yaml")
		require.NoError(b, os.WriteFile(file, fmt.Appendf(nil, gateway, b.TempDir(), address), 0o600))
		r := commandtest.Start(b, tracecore(b, "--config="+file, "--set=extensions.health_check.endpoint="+hosttest.FreeAddress(b)))
		began := time.Now()
		watch(b, r, func(until time.Time) int {
			sent, node := 0, 0
			for tick := time.NewTicker(repeat / nodes); time.Now().Before(until); <-tick.C {
				post(b, address, marshal(b, stalls(node, time.Since(began))))
				sent, node = sent+2*ranksOfNode, (node+1)%nodes
			}
			return sent
		})
		require.Contains(b, r.Stdout.String(), fmt.Sprintf("rank %d ", stopped))
		r.Kill()
	}
}

// stalls are what one node's agent says of its ranks.
func stalls(node int, age time.Duration) plog.Logs {
	ld := plog.NewLogs()
	resource := ld.ResourceLogs().AppendEmpty()
	resource.Resource().Attributes().PutStr("host.name", fmt.Sprintf("node-%d", node))
	records := resource.ScopeLogs().AppendEmpty().LogRecords()
	for i := range ranksOfNode {
		rank := node*ranksOfNode + i
		stall(records.AppendEmpty(), rank, rank+1, "send", 50_000+rank+1, 40_000+rank, age)
		stall(records.AppendEmpty(), rank, rank-1, "receive", 40_000+rank-1, 50_000+rank, age)
	}
	return ld
}

func stall(lr plog.LogRecord, rank, peer int, direction string, peerPort, port int, age time.Duration) {
	ranks := nodes * ranksOfNode
	peer = (peer + ranks) % ranks
	lr.SetEventName("nccl.socket.stall")
	lr.SetTimestamp(pcommon.NewTimestampFromTime(time.Now()))
	cause, state := "waiting", "sleeping"
	if rank == stopped {
		cause, state = "not_reading", "stopped"
	}
	address := func(rank int) string { return fmt.Sprintf("10.0.%d.%d", rank/250, rank%250+1) }
	since := (age + 2*time.Second).Nanoseconds()
	a := lr.Attributes()
	for key, text := range map[string]string{
		"gen_ai.training.job_id": "bench", "process.executable.name": "python", "nccl.socket.cause": cause, "nccl.rank.state": state,
		"nccl.socket.direction": direction, "nccl.socket.kind": "data", "nccl.socket.stall.id": fmt.Sprintf("%d-%s-%d", rank, direction, peer),
		"network.local.address": address(rank), "network.peer.address": address(peer),
	} {
		a.PutStr(key, text)
	}
	for key, n := range map[string]int64{
		"gen_ai.training.rank": int64(rank), "gen_ai.training.world_size": int64(ranks), "process.pid": int64(1000 + rank),
		"nccl.socket.stall.age_ns": since, "nccl.rank.last_sent_age_ns": since, "nccl.rank.last_received_age_ns": since,
		"network.local.port": int64(port), "network.peer.port": int64(peerPort),
	} {
		a.PutInt(key, n)
	}
	a.PutDouble("nccl.rank.main_thread_cpu_share", 0)
}

// watch has load work for half a minute and reports what the process needed.
func watch(b *testing.B, r *commandtest.Running, load func(until time.Time) (sent int)) {
	b.Helper()
	time.Sleep(5 * time.Second) // what is done once, at start
	pid, began := r.Cmd.Process.Pid, time.Now()
	before := cpuTime(b, pid)
	sent := load(began.Add(rest / 2))
	took := time.Since(began)
	b.ReportMetric(100*(cpuTime(b, pid)-before).Seconds()/took.Seconds(), "cpu-%")
	b.ReportMetric(kib(b, pid, "VmRSS")/1024, "rss-MiB")
	b.ReportMetric(kib(b, pid, "RssAnon")/1024, "anon-MiB")
	b.ReportMetric(float64(sent)/took.Seconds(), "records/s")
	b.ReportMetric(0, "ns/op")
}

func marshal(b *testing.B, ld plog.Logs) []byte {
	b.Helper()
	body, err := plogotlp.NewExportRequestFromLogs(ld).MarshalProto()
	require.NoError(b, err)
	return body
}

func post(b *testing.B, address string, message []byte) {
	b.Helper()
	response, err := http.Post("http://"+address+"/v1/logs", "application/x-protobuf", bytes.NewReader(message))
	require.NoError(b, err)
	require.NoError(b, response.Body.Close())
	require.Equal(b, http.StatusOK, response.StatusCode)
}
