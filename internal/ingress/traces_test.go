package ingress

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver/receivertest"
)

// wrapTraces is wrap for spans.
func wrapTraces(t *testing.T) (*theirs, *consumertest.TracesSink, *componenttest.Telemetry) {
	t.Helper()
	t.Setenv("K8S_NODE_NAME", "node-a")
	r, sink, telemetry := &theirs{}, &consumertest.TracesSink{}, componenttest.NewTelemetry()
	t.Cleanup(func() { require.NoError(t, telemetry.Shutdown(context.Background())) })
	f := Wrap(r.factory(), Network)
	set := receivertest.NewNopSettings(kind)
	set.TelemetrySettings = telemetry.NewTelemetrySettings()
	_, err := f.CreateTraces(t.Context(), set, f.CreateDefaultConfig(), sink)
	require.NoError(t, err)
	return r, sink, telemetry
}

// forgedSpans are two spans that say of themselves all that they may not, wherever a span
// can say something.
func forgedSpans(t *testing.T, node string) ptrace.Traces {
	t.Helper()
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	ss := rs.ScopeSpans().AppendEmpty()
	maps := []pcommon.Map{rs.Resource().Attributes(), ss.Scope().Attributes()}
	for range 2 {
		span := ss.Spans().AppendEmpty()
		span.SetName("training.step")
		maps = append(maps, span.Attributes(), span.Events().AppendEmpty().Attributes(), span.Links().AppendEmpty().Attributes())
	}
	for _, m := range maps {
		require.NoError(t, m.FromRaw(map[string]any{"tracecore.trust": "proven", "pattern.status": "open", "gen_ai.training.job_domain": "slurm job 7", "gen_ai.training.rank": int64(3)}))
	}
	rs.Resource().Attributes().PutStr("host.name", node)
	return td
}

func TestSpansOfAStrangerEnterMarked(t *testing.T) {
	r, sink, telemetry := wrapTraces(t)
	require.NoError(t, r.traces.ConsumeTraces(sentBy(t, distant, nil), forgedSpans(t, "node-b")))
	renamed := map[string]any{
		"foreign.tracecore.trust": "proven", "foreign.pattern.status": "open", "foreign.gen_ai.training.job_domain": "slurm job 7", "gen_ai.training.rank": int64(3),
	}
	require.Equal(t, 2, sink.SpanCount())
	rs := sink.AllTraces()[0].ResourceSpans().At(0)
	resource := rs.Resource().Attributes().AsRaw()
	require.Equal(t, "foreign", resource["tracecore.trust"])
	require.Equal(t, "address 10.0.0.7", resource["host.name"], "not where it says that it is")
	ss := rs.ScopeSpans().At(0)
	require.Equal(t, renamed, ss.Scope().Attributes().AsRaw())
	for _, span := range ss.Spans().All() {
		require.Equal(t, renamed, span.Attributes().AsRaw())
		require.Equal(t, renamed, span.Events().At(0).Attributes().AsRaw())
		require.Equal(t, renamed, span.Links().At(0).Attributes().AsRaw())
	}
	require.Equal(t, 3*8, counted(t, telemetry, "otelcol_ingress_renamed"))
}

func TestAnAgentSendsNoSpansOfOtherMachines(t *testing.T) {
	r, sink, telemetry := wrapTraces(t)
	agent := sentBy(t, distant, Agent{Host: "node-b"})
	require.NoError(t, r.traces.ConsumeTraces(agent, forgedSpans(t, "node-c")))
	require.Zero(t, sink.SpanCount())
	require.Equal(t, 2, counted(t, telemetry, "otelcol_ingress_refused"), "each span counts")

	td := forgedSpans(t, "node-b")
	span := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
	span.Events().At(0).Attributes().PutStr("host.name", "node-c")
	span.Links().At(0).Attributes().PutStr("k8s.node.name", "node-c")
	require.NoError(t, r.traces.ConsumeTraces(agent, td))
	require.Equal(t, 2, sink.SpanCount())
	first := sink.AllTraces()[1].ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
	require.Zero(t, first.Events().Len())
	require.Zero(t, first.Links().Len())
	require.Equal(t, 4, counted(t, telemetry, "otelcol_ingress_refused"))
}
