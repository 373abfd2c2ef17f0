//go:build linux && (amd64 || arm64)

package acceptance

import (
	"bytes"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/tracecoreai/tracecore/bpf/cudaoom/fakejob"
	calljob "github.com/tracecoreai/tracecore/bpf/ncclcall/fakejob"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// playCUDAJob makes the test binary a process that has a libcuda or a libnccl mapped.
func playCUDAJob() {
	if calljob.IsChild() {
		os.Exit(calljob.Child())
	}
	if fakejob.IsChild() {
		os.Exit(fakejob.Child())
	}
}

// TestMemoryThatTheDriverRefusesIsNamedWithoutALog has the driver refuse a rank
// what its GPU does not have: by the default configuration, which was told only
// what the gpu receiver reads of GPUs.
func TestMemoryThatTheDriverRefusesIsNamedWithoutALog(t *testing.T) {
	privtest.Require(t)
	const gib = 1 << 30
	otlp := hosttest.FreeAddress(t)
	a := startAgent(t, t.TempDir(), "--set=receivers.otlp.protocols.http.endpoint="+otlp, "--set=receivers.otlp.senders=agents")
	library, err := fakejob.Install(t.TempDir(), "cuMemAlloc_v2")
	require.NoError(t, err)
	job, err := fakejob.Start(library, "RANK=4", "LOCAL_RANK=4", "WORLD_SIZE=8", "JOB_ID=acceptance")
	require.NoError(t, err)
	pid := strconv.Itoa(int(job.PID()))
	require.Eventually(t, func() bool { return watchesOne.MatchString(fetch(a.metrics)) }, hosttest.Patience, 20*time.Millisecond, "nobody watches the job's library")

	send(t, otlp, memoryOf(t, "0000:65:00.0", job.PID(), gib, 78*gib))
	require.NoError(t, job.Do(fakejob.Malloc(2*gib, fakejob.OutOfMemory), fakejob.Malloc(2*gib, fakejob.OutOfMemory)))
	refused := cause(t, "cudaoom", "GPU memory")
	require.NoError(t, job.Close()) // what a rank does then
	v := a.await(t, "the refused memory", func(v verdict.Verdict) bool {
		return about("cuda_oom", "pid", pid)(v) && v.Confidence == verdict.Full
	})
	refused.named()
	require.Equal(t, verdict.RootCause, v.Role)
	require.Equal(t, "4", v.Culprit["rank"])
	require.Equal(t, "acceptance", v.Culprit["job"])
	require.Equal(t, "0000:65:00.0", v.Culprit["gpu"])
	require.Contains(t, v.Headline, "is used up by rank 4")
	require.Contains(t, v.Headline, "2 GiB asked, 1 GiB free, 78 GiB its own")
}

// watchesOne finds the metric that counts watched libraries.
var watchesOne = regexp.MustCompile(`otelcol_receiver_cudaoom_libraries(\{[^}]*\})? 1\n`)

// memoryOf is a reading of one GPU on which one process computes, a second ago: a
// reading after the refusal would say nothing.
func memoryOf(t *testing.T, gpu string, pid uint32, free, held int64) pmetric.Metrics {
	t.Helper()
	host, err := os.Hostname()
	require.NoError(t, err)
	md, at := pmetric.NewMetrics(), pcommon.NewTimestampFromTime(time.Now().Add(-time.Second))
	of := md.ResourceMetrics().AppendEmpty()
	of.Resource().Attributes().PutStr("host.name", host)
	of.Resource().Attributes().PutStr("tracecore.trust", "proven") // as the gpu receiver says
	all := of.ScopeMetrics().AppendEmpty().Metrics()
	for name, bytes := range map[string]int64{"hw.gpu.memory.free": free, "hw.gpu.process.memory.usage": held} {
		m := all.AppendEmpty()
		m.SetName(name)
		p := m.SetEmptySum().DataPoints().AppendEmpty()
		m.Sum().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		p.SetTimestamp(at)
		p.SetIntValue(bytes)
		p.Attributes().PutStr("gpu.id", gpu)
		if name == "hw.gpu.process.memory.usage" {
			p.Attributes().PutInt("process.pid", int64(pid))
		}
	}
	return md
}

// send hands metrics to an agent over OTLP.
func send(t *testing.T, address string, md pmetric.Metrics) {
	t.Helper()
	body, err := new(pmetric.JSONMarshaler).MarshalMetrics(md)
	require.NoError(t, err)
	resp, err := http.Post("http://"+address+"/v1/metrics", "application/json", bytes.NewReader(body))
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
}
