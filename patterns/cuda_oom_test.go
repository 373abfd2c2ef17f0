package patterns_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// A process may bring a libcuda of its own and have it refuse what it likes. What it says
// speaks for its own job, beside figures that are proven or none.
func TestAClaimIsJoinedWithWhatWasMeasuredAlone(t *testing.T) {
	rules, err := patterns.Library()
	require.NoError(t, err)
	const own, other = 4242, 999
	for name, tc := range map[string]struct {
		refusal, figures verdict.Trust
		holder           int64
		confidence       verdict.Confidence
		evidence         string // "": no verdict
	}{
		"it used up its GPU itself":                   {verdict.Claimed, verdict.Proven, own, verdict.Full, "used_up"},
		"another process holds the GPU":               {verdict.Claimed, verdict.Proven, other, verdict.Partial, "accused"},
		"its own exporter says that it used up a GPU": {verdict.Claimed, verdict.Claimed, own, verdict.Partial, "unexplained"},
		"its own exporter accuses another":            {verdict.Claimed, verdict.Claimed, other, verdict.Partial, "unexplained"},
		"a stranger's figures accuse another":         {verdict.Claimed, verdict.Foreign, other, verdict.Partial, "unexplained"},
		"a stranger's refusal":                        {verdict.Foreign, verdict.Proven, other, "", ""},
		"a refusal that something proves":             {verdict.Proven, verdict.Proven, other, verdict.Full, "other_holds"},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := engine.New(rules, engine.Options{})
			require.NoError(t, err)
			begin := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
			e.Metrics(gpuRead(begin, tc.figures, own, tc.holder))
			e.Logs(refusedBy(begin.Add(3*time.Second), tc.refusal, own))
			e.Advance(begin.Add(time.Minute))
			verdicts := e.Verdicts()
			if tc.evidence == "" {
				require.Empty(t, verdicts)
				return
			}
			require.Len(t, verdicts, 1)
			v := verdicts[0]
			require.Equal(t, tc.confidence, v.Confidence)
			require.Equal(t, tc.refusal.String(), v.Trust.String(), "as much as the word that it was refused")
			require.Equal(t, tc.evidence, v.Evidence[0].Name)
			require.Equal(t, fmt.Sprint(own), v.Culprit["pid"])
		})
	}
}

// refusedBy is a refusal of two GiB.
func refusedBy(at time.Time, trust verdict.Trust, pid int64) plog.Logs {
	logs := plog.NewLogs()
	of := logs.ResourceLogs().AppendEmpty()
	of.Resource().Attributes().PutStr("host.name", "node-a")
	r := of.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	r.SetEventName("cuda.refusal")
	r.SetTimestamp(pcommon.NewTimestampFromTime(at))
	r.Attributes().PutInt("process.pid", pid)
	r.Attributes().PutInt("cuda_oom.tried_alloc_bytes", 2<<30)
	r.Attributes().PutStr(rule.AttributeTrust, trust.String())
	return logs
}

// gpuRead is a GPU of which little is free: a process holds some of it, and one most.
func gpuRead(at time.Time, trust verdict.Trust, pid, holder int64) pmetric.Metrics {
	md := pmetric.NewMetrics()
	of := md.ResourceMetrics().AppendEmpty()
	of.Resource().Attributes().PutStr("host.name", "node-a")
	of.Resource().Attributes().PutStr(rule.AttributeTrust, trust.String())
	all := of.ScopeMetrics().AppendEmpty().Metrics()
	read := func(name string, bytes int64) pcommon.Map {
		m := all.AppendEmpty()
		m.SetName(name)
		p := m.SetEmptyGauge().DataPoints().AppendEmpty()
		p.SetTimestamp(pcommon.NewTimestampFromTime(at))
		p.SetIntValue(bytes)
		p.Attributes().PutStr("gpu.id", "0000:65:00.0")
		return p.Attributes()
	}
	read("hw.gpu.memory.free", 1<<20)
	read("hw.gpu.process.memory.usage", 1<<30).PutInt("process.pid", pid)
	read("hw.gpu.process.memory.usage", 70<<30).PutInt("process.pid", holder)
	return md
}

// TestAnySubsetOfTheNumbersOfAnAllocatorsMessageIsAVerdict, one, and by one piece of
// evidence: versions of PyTorch, and containers, leave out each of them.
func TestAnySubsetOfTheNumbersOfAnAllocatorsMessageIsAVerdict(t *testing.T) {
	rules, err := patterns.Library()
	require.NoError(t, err)
	values := []int64{-1, 1 << 20, 1 << 30} // -1: left out
	begin := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	causes := map[string]bool{}
	for _, tried := range values {
		for _, free := range values {
			for _, cached := range values {
				for _, held := range values {
					for _, pod := range []bool{false, true} {
						name := fmt.Sprintf("tried %d, free %d, cached %d, held %d, pod %t", tried, free, cached, held, pod)
						e, err := engine.New(rules, engine.Options{})
						require.NoError(t, err)
						logs := plog.NewLogs()
						resource := logs.ResourceLogs().AppendEmpty()
						resource.Resource().Attributes().PutStr("host.name", "node-a")
						record := resource.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
						record.SetEventName("cuda.oom")
						record.SetTimestamp(pcommon.NewTimestampFromTime(begin))
						a := record.Attributes()
						for key, value := range map[string]int64{
							"cuda_oom.tried_alloc_bytes": tried, "cuda_oom.free_bytes": free,
							"cuda_oom.reserved_unallocated_bytes": cached, "cuda_oom.holder_bytes": held,
						} {
							if value >= 0 {
								a.PutInt(key, value)
							}
						}
						if held >= 0 {
							a.PutInt("cuda_oom.holder_pid", 99)
						}
						if pod {
							a.PutStr("k8s.pod.uid", podUID)
						} else {
							a.PutInt("process.pid", 7)
						}
						e.Logs(logs)
						e.Advance(begin.Add(time.Minute))
						verdicts := e.Verdicts()
						require.Len(t, verdicts, 1, name)
						require.Len(t, verdicts[0].Evidence, 1, name)
						require.Zero(t, e.Stats().EvalErrors, name)
						causes[verdicts[0].Evidence[0].Name] = true
						requireNoHoles(t, verdicts[0].Headline)
						fragmented := verdicts[0].Evidence[0].Name == "fragmented"
						require.False(t, fragmented && free >= tried, name)
					}
				}
			}
		}
	}
	require.Len(t, causes, 5, "%v", causes)
}

const podUID = "0f8e4c1a-6c39-4f5e-9d0e-000000000001"
