package ingress

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/client"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pipeline"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.opentelemetry.io/collector/receiver/xreceiver"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/tracecoreai/tracecore/internal/peer"
)

var kind = component.MustNewType("theirs")

type theirConfig struct {
	Endpoint string `mapstructure:"endpoint"`
}

func (c *theirConfig) Validate() error {
	if c.Endpoint == "bad" {
		return context.Canceled
	}
	return nil
}

// theirs is a receiver of others; what the test gives it, it hands on.
type theirs struct {
	component.StartFunc
	component.ShutdownFunc
	logs    consumer.Logs
	metrics consumer.Metrics
	traces  consumer.Traces
}

func (r *theirs) factory() receiver.Factory {
	return xreceiver.NewFactory(kind, func() component.Config { return &theirConfig{Endpoint: "localhost"} },
		xreceiver.WithLogs(func(_ context.Context, _ receiver.Settings, _ component.Config, next consumer.Logs) (receiver.Logs, error) {
			r.logs = next
			return r, nil
		}, component.StabilityLevelBeta),
		xreceiver.WithMetrics(func(_ context.Context, _ receiver.Settings, _ component.Config, next consumer.Metrics) (receiver.Metrics, error) {
			r.metrics = next
			return r, nil
		}, component.StabilityLevelBeta),
		xreceiver.WithTraces(func(_ context.Context, _ receiver.Settings, _ component.Config, next consumer.Traces) (receiver.Traces, error) {
			r.traces = next
			return r, nil
		}, component.StabilityLevelBeta),
		xreceiver.WithDeprecatedTypeAlias(component.MustNewType("their")))
}

// wrap makes a receiver on node-a and returns it with what comes out and its counters.
func wrap(t *testing.T, source Source, settings map[string]any) (*theirs, *consumertest.LogsSink, *consumertest.MetricsSink, *componenttest.Telemetry) {
	t.Helper()
	t.Setenv("K8S_NODE_NAME", "node-a")
	r, ld, md := &theirs{}, &consumertest.LogsSink{}, &consumertest.MetricsSink{}
	f := Wrap(r.factory(), source)
	cfg := f.CreateDefaultConfig()
	require.NoError(t, confmap.NewFromStringMap(settings).Unmarshal(cfg))
	telemetry := componenttest.NewTelemetry()
	t.Cleanup(func() { require.NoError(t, telemetry.Shutdown(context.Background())) })
	set := receivertest.NewNopSettings(kind)
	set.TelemetrySettings = telemetry.NewTelemetrySettings()
	_, err := f.CreateLogs(t.Context(), set, cfg, ld)
	require.NoError(t, err)
	_, err = f.CreateMetrics(t.Context(), set, cfg, md)
	require.NoError(t, err)
	return r, ld, md, telemetry
}

// counted is the sum of a counter.
func counted(t *testing.T, telemetry *componenttest.Telemetry, name string) int {
	t.Helper()
	m, err := telemetry.GetMetric(name)
	if err != nil {
		return 0
	}
	return int(sum(m))
}

// sentBy is the context of a batch.
func sentBy(t *testing.T, address net.Addr, auth client.AuthData) context.Context {
	t.Helper()
	return client.NewContext(t.Context(), client.Info{Addr: address, Auth: auth})
}

var (
	loopback = &net.TCPAddr{IP: net.IPv6loopback, Port: 1}
	distant  = &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 1}
	socket   = &net.UnixAddr{Name: "@", Net: "unix"}
)

// impostor is an authenticator of others, which says what an Agent says.
type impostor struct{}

func (impostor) GetAttribute(string) any     { return "node-b" }
func (impostor) GetAttributeNames() []string { return []string{"host", "relay"} }

// forged is a record that says of itself all that it may not, on the resource, the scope
// and the record.
func forged(t *testing.T, event, node string) plog.Logs {
	t.Helper()
	ld := plog.NewLogs()
	rl := ld.ResourceLogs().AppendEmpty()
	sl := rl.ScopeLogs().AppendEmpty()
	lr := sl.LogRecords().AppendEmpty()
	for _, m := range []pcommon.Map{rl.Resource().Attributes(), sl.Scope().Attributes(), lr.Attributes()} {
		require.NoError(t, m.FromRaw(map[string]any{"tracecore.trust": "proven", "tracecore.origin": "x", "pattern.status": "open", "gpu.id": "0000:65:00.0",
			"gen_ai.training.job_domain": "slurm job 7", "gen_ai.training.rank_start_unix_nano": int64(1)}))
	}
	for key, value := range map[string]string{"host.name": node, "k8s.node.name": node, "host.id": "1", "host.boot.id": "2"} {
		rl.Resource().Attributes().PutStr(key, value)
	}
	lr.SetEventName(event)
	return ld
}

func only(t *testing.T, ld *consumertest.LogsSink) (resource, scope, record map[string]any, event string) {
	t.Helper()
	require.Len(t, ld.AllLogs(), 1)
	rl := ld.AllLogs()[0].ResourceLogs().At(0)
	sl := rl.ScopeLogs().At(0)
	lr := sl.LogRecords().At(0)
	return rl.Resource().Attributes().AsRaw(), sl.Scope().Attributes().AsRaw(), lr.Attributes().AsRaw(), lr.EventName()
}

// TestNothingEntersUnmarked sends every event of tracecore from every kind of sender that
// has proved nothing.
func TestNothingEntersUnmarked(t *testing.T) {
	renamed := map[string]any{"foreign.tracecore.trust": "proven", "foreign.tracecore.origin": "x", "foreign.pattern.status": "open", "gpu.id": "0000:65:00.0",
		"foreign.gen_ai.training.job_domain": "slurm job 7", "foreign.gen_ai.training.rank_start_unix_nano": int64(1)}
	here := map[string]any{"host.name": "node-a", "k8s.node.name": "node-a"}
	itsAddress := map[string]any{"host.name": "address 10.0.0.7"}
	for name, tt := range map[string]struct {
		source   Source
		settings map[string]any
		ctx      func(t *testing.T) context.Context
		trust    string
		host     map[string]any
	}{
		"loopback":              {Network, nil, func(t *testing.T) context.Context { return sentBy(t, loopback, nil) }, "foreign", here},
		"a user of loopback":    {Network, nil, func(t *testing.T) context.Context { return sentBy(t, peer.Addr{TCPAddr: loopback, User: 7}, nil) }, "foreign", here},
		"Unix socket":           {Network, nil, func(t *testing.T) context.Context { return sentBy(t, socket, nil) }, "foreign", here},
		"another machine":       {Network, nil, func(t *testing.T) context.Context { return sentBy(t, distant, nil) }, "foreign", itsAddress},
		"nothing is known":      {Network, nil, func(t *testing.T) context.Context { return t.Context() }, "foreign", nil},
		"pods of the node":      {Network, map[string]any{"senders": "node"}, func(t *testing.T) context.Context { return sentBy(t, distant, nil) }, "foreign", here},
		"another authenticator": {Network, nil, func(t *testing.T) context.Context { return sentBy(t, distant, impostor{}) }, "foreign", itsAddress},
		"an agent of nowhere":   {Network, nil, func(t *testing.T) context.Context { return sentBy(t, distant, Agent{}) }, "foreign", itsAddress},
		"read on the node":      {Node, nil, func(t *testing.T) context.Context { return t.Context() }, "claimed", here},
	} {
		t.Run(name, func(t *testing.T) {
			for event := range readEvents() {
				r, out, _, telemetry := wrap(t, tt.source, tt.settings)
				require.NoError(t, r.logs.ConsumeLogs(tt.ctx(t), forged(t, event, "node-b")))
				resource, scope, record, got := only(t, out)
				require.Equal(t, "foreign."+event, got)
				require.Equal(t, renamed, scope)
				require.Equal(t, renamed, record)
				for key, value := range renamed {
					require.Equal(t, value, resource[key])
					delete(resource, key)
				}
				require.Equal(t, tt.trust, resource["tracecore.trust"])
				delete(resource, "tracecore.trust")
				require.Equal(t, len(tt.host), len(resource), resource)
				for key, value := range tt.host {
					require.Equal(t, value, resource[key])
				}
				require.Equal(t, 16, counted(t, telemetry, "otelcol_ingress_renamed"), "15 attributes and the event")
			}
		})
	}
}

// TestOtherNamesStay: what recipes and training code send keeps its names.
// Strangers are told apart by where they send from, which is not their word. A sender with
// one IPv6 address may have all of its network.
func TestStrangersHaveTheirAddress(t *testing.T) {
	for name, tt := range map[string]struct {
		from net.Addr
		want any
	}{
		"IPv4":                    {distant, "address 10.0.0.7"},
		"IPv4 in IPv6":            {&net.TCPAddr{IP: net.ParseIP("::ffff:10.0.0.7")}, "address 10.0.0.7"},
		"IPv6":                    {&net.TCPAddr{IP: net.ParseIP("2001:db8:1:2:3:4:5:6")}, "address 2001:db8:1:2::/64"},
		"its neighbour":           {&net.IPAddr{IP: net.ParseIP("2001:db8:1:2::1")}, "address 2001:db8:1:2::/64"},
		"no address":              {&net.TCPAddr{}, nil},
		"something else":          {&net.UDPAddr{IP: net.IPv4(10, 0, 0, 7)}, nil},
		"an address of no length": {&net.TCPAddr{IP: net.IP{1, 2, 3}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r, out, _, _ := wrap(t, Network, nil)
			require.NoError(t, r.logs.ConsumeLogs(sentBy(t, tt.from, nil), forged(t, "custom", "node-b")))
			resource, _, _, _ := only(t, out)
			require.Equal(t, tt.want, resource["host.name"])
		})
	}
}

// An agent hands on what a stranger told it: to the gateway it is about the agent's machine.
func TestAnAgentHandsOnWhatAStrangerSaid(t *testing.T) {
	agent, told, _, _ := wrap(t, Network, nil)
	require.NoError(t, agent.logs.ConsumeLogs(sentBy(t, distant, nil), forged(t, "custom", "node-b")))
	gateway, out, _, telemetry := wrap(t, Network, nil)
	require.NoError(t, gateway.logs.ConsumeLogs(sentBy(t, distant, Agent{Host: "node-a", Node: true}), told.AllLogs()[0]))
	resource, _, _, _ := only(t, out)
	require.Equal(t, "node-a", resource["host.name"])
	require.Equal(t, "foreign", resource["tracecore.trust"])
	require.Zero(t, counted(t, telemetry, "otelcol_ingress_refused"))
}

func TestOtherNamesStay(t *testing.T) {
	r, out, _, telemetry := wrap(t, Network, nil)
	ld := plog.NewLogs()
	lr := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	lr.SetEventName("dataloader.error")
	lr.Attributes().PutInt("gen_ai.training.rank", 3)
	lr.Attributes().PutStr("tracecore", "a name that only begins so")
	require.NoError(t, r.logs.ConsumeLogs(sentBy(t, loopback, nil), ld))
	_, _, record, event := only(t, out)
	require.Equal(t, "dataloader.error", event)
	require.Equal(t, map[string]any{"gen_ai.training.rank": int64(3), "tracecore": "a name that only begins so"}, record)
	require.Zero(t, counted(t, telemetry, "otelcol_ingress_renamed"))
}

// twice has a name twice, as the wire allows.
func TestANameThatComesTwiceIsTakenAwayTwice(t *testing.T) {
	r, out, _, _ := wrap(t, Network, nil)
	ld := twice(t, "tracecore.trust", "host.name")
	require.NoError(t, r.logs.ConsumeLogs(sentBy(t, loopback, nil), ld))
	resource := out.AllLogs()[0].ResourceLogs().At(0).Resource().Attributes()
	seen := map[string][]string{}
	for key, value := range resource.All() {
		seen[key] = append(seen[key], value.AsString())
	}
	require.Equal(t, []string{"foreign"}, seen["tracecore.trust"])
	require.Equal(t, []string{"node-a"}, seen["host.name"])
}

// twice is a batch whose resource has each key twice.
func twice(t *testing.T, keys ...string) plog.Logs {
	t.Helper()
	text := `{"resourceLogs":[{"resource":{"attributes":[`
	for i, key := range append(keys, keys...) {
		if i > 0 {
			text += ","
		}
		text += `{"key":"` + key + `","value":{"stringValue":"proven"}}`
	}
	ld, err := (&plog.JSONUnmarshaler{}).UnmarshalLogs([]byte(text + `]},"scopeLogs":[{"logRecords":[{}]}]}]}`))
	require.NoError(t, err)
	return ld
}

// TestAnAgentSpeaksOfItsNodeAlone: node-b has shown a valid credential.
func TestAnAgentSpeaksOfItsNodeAlone(t *testing.T) {
	agent := Agent{Host: "node-b", Node: true}
	for name, tt := range map[string]struct {
		change  func(plog.ResourceLogs)
		refused bool
	}{
		"its node":            {func(plog.ResourceLogs) {}, false},
		"no node":             {func(rl plog.ResourceLogs) { rl.Resource().Attributes().Clear() }, false},
		"another host":        {func(rl plog.ResourceLogs) { rl.Resource().Attributes().PutStr("host.name", "node-c") }, true},
		"another node":        {func(rl plog.ResourceLogs) { rl.Resource().Attributes().PutStr("k8s.node.name", "node-c") }, true},
		"an empty node":       {func(rl plog.ResourceLogs) { rl.Resource().Attributes().PutStr("k8s.node.name", "") }, true},
		"a number for a node": {func(rl plog.ResourceLogs) { rl.Resource().Attributes().PutInt("host.name", 7) }, true},
		"a record about another node": {func(rl plog.ResourceLogs) {
			rl.ScopeLogs().At(0).LogRecords().At(0).Attributes().PutStr("k8s.node.name", "node-c")
		}, true},
		"a record about its node": {func(rl plog.ResourceLogs) {
			rl.ScopeLogs().At(0).LogRecords().At(0).Attributes().PutStr("k8s.node.name", "node-b")
		}, false},
		"another node after its own, twice": {func(rl plog.ResourceLogs) { twiceOn(t, rl, "node-b", "node-c") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			r, out, _, telemetry := wrap(t, Network, nil)
			ld := forged(t, "gpu.xid", "node-b")
			tt.change(ld.ResourceLogs().At(0))
			require.NoError(t, r.logs.ConsumeLogs(sentBy(t, distant, agent), ld))
			if tt.refused {
				require.Zero(t, out.LogRecordCount())
				require.Equal(t, 1, counted(t, telemetry, "otelcol_ingress_refused"))
				return
			}
			resource, _, record, event := only(t, out)
			require.Equal(t, "gpu.xid", event)
			require.Equal(t, "proven", record["tracecore.trust"], "an agent's own receivers say how they know")
			require.Equal(t, "node-b", resource["host.name"])
			require.Equal(t, "node-b", resource["k8s.node.name"])
		})
	}
}

func twiceOn(t *testing.T, rl plog.ResourceLogs, first, second string) {
	t.Helper()
	ld, err := (&plog.JSONUnmarshaler{}).UnmarshalLogs([]byte(`{"resourceLogs":[{"resource":{"attributes":[` +
		`{"key":"host.name","value":{"stringValue":"` + first + `"}},{"key":"host.name","value":{"stringValue":"` + second + `"}}]}}]}`))
	require.NoError(t, err)
	ld.ResourceLogs().At(0).Resource().CopyTo(rl.Resource())
}

// TestAnAgentMakesNoStatementForOthers: the one who receives makes verdicts, findings
// and joins of its own.
func TestAnAgentMakesNoStatementForOthers(t *testing.T) {
	for _, event := range []string{"pattern.verdict", "nccl.collective.incomplete", "finding.straggler"} {
		r, out, _, _ := wrap(t, Network, nil)
		require.NoError(t, r.logs.ConsumeLogs(sentBy(t, distant, Agent{Host: "node-b"}), forged(t, event, "node-b")))
		resource, _, _, got := only(t, out)
		require.Equal(t, "foreign."+event, got)
		require.Equal(t, "node-b", resource["host.name"])
	}
}

// TestARelayAndATrustedTopicAreBelieved: what one agent marked foreign stays so.
func TestARelayAndATrustedTopicAreBelieved(t *testing.T) {
	for name, tt := range map[string]struct {
		settings map[string]any
		auth     client.AuthData
	}{"relay": {nil, Agent{Relay: true}}, "topic": {map[string]any{"senders": "agents"}, nil}} {
		t.Run(name, func(t *testing.T) {
			r, out, _, _ := wrap(t, Network, tt.settings)
			ld := forged(t, "k8s.event", "node-c")
			ld.ResourceLogs().At(0).Resource().Attributes().PutStr("tracecore.trust", "foreign")
			require.NoError(t, r.logs.ConsumeLogs(sentBy(t, distant, tt.auth), ld))
			resource, _, record, event := only(t, out)
			require.Equal(t, "k8s.event", event)
			require.Equal(t, "foreign", resource["tracecore.trust"])
			require.Equal(t, "proven", record["tracecore.trust"])
			require.Equal(t, "node-c", resource["host.name"])
		})
	}
}

func TestEveryKindOfPointIsMarked(t *testing.T) {
	r, _, out, telemetry := wrap(t, Network, nil)
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	metrics := rm.ScopeMetrics().AppendEmpty().Metrics()
	points := []pcommon.Map{
		metrics.AppendEmpty().SetEmptyGauge().DataPoints().AppendEmpty().Attributes(),
		metrics.AppendEmpty().SetEmptySum().DataPoints().AppendEmpty().Attributes(),
		metrics.AppendEmpty().SetEmptyHistogram().DataPoints().AppendEmpty().Attributes(),
		metrics.AppendEmpty().SetEmptyExponentialHistogram().DataPoints().AppendEmpty().Attributes(),
		metrics.AppendEmpty().SetEmptySummary().DataPoints().AppendEmpty().Attributes(),
	}
	for _, p := range points {
		require.NoError(t, p.FromRaw(map[string]any{"tracecore.trust": "proven", "host.name": "node-b", "gpu.id": "g"}))
	}
	require.NoError(t, r.metrics.ConsumeMetrics(sentBy(t, loopback, nil), md))
	require.Equal(t, map[string]any{"tracecore.trust": "foreign", "host.name": "node-a", "k8s.node.name": "node-a"},
		out.AllMetrics()[0].ResourceMetrics().At(0).Resource().Attributes().AsRaw())
	for _, p := range points {
		require.Equal(t, map[string]any{"foreign.tracecore.trust": "proven", "gpu.id": "g"}, p.AsRaw())
	}
	require.Equal(t, len(points), counted(t, telemetry, "otelcol_ingress_renamed"))

	for _, p := range points {
		p.PutStr("k8s.node.name", "node-c")
	}
	require.NoError(t, r.metrics.ConsumeMetrics(sentBy(t, distant, Agent{Host: "node-b"}), md))
	require.Equal(t, 5, counted(t, telemetry, "otelcol_ingress_refused"), "its resource is node-a's")
	require.Zero(t, out.AllMetrics()[1].DataPointCount())
}

func TestSpansAreMarked(t *testing.T) {
	r := &theirs{}
	sink := &consumertest.TracesSink{}
	f := Wrap(r.factory(), Network)
	_, err := f.CreateTraces(t.Context(), receivertest.NewNopSettings(kind), f.CreateDefaultConfig(), sink)
	require.NoError(t, err)
	td := ptrace.NewTraces()
	span := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	span.Attributes().PutStr("tracecore.trust", "proven")
	require.NoError(t, r.traces.ConsumeTraces(t.Context(), td))
	require.Equal(t, map[string]any{"foreign.tracecore.trust": "proven"}, span.Attributes().AsRaw())
	require.Equal(t, map[string]any{"tracecore.trust": "foreign"}, sink.AllTraces()[0].ResourceSpans().At(0).Resource().Attributes().AsRaw())
}

func TestConfigurationIsTheReceiversOwn(t *testing.T) {
	f := Wrap((&theirs{}).factory(), Network)
	require.Equal(t, kind, f.Type())
	require.Equal(t, "their", f.(interface{ DeprecatedAlias() component.Type }).DeprecatedAlias().String())
	cfg := f.CreateDefaultConfig()
	require.NoError(t, confmap.NewFromStringMap(map[string]any{"endpoint": "x", "senders": "node"}).Unmarshal(cfg))
	require.Equal(t, &config{inner: &theirConfig{Endpoint: "x"}, senders: OwnNode}, cfg)
	written := confmap.New()
	require.NoError(t, written.Marshal(map[string]any{"theirs": cfg}))
	require.Equal(t, map[string]any{"theirs": map[string]any{"endpoint": "x", "senders": "node"}}, written.ToStringMap())
	require.ErrorContains(t, confmap.NewFromStringMap(map[string]any{"senders": "everybody"}).Unmarshal(f.CreateDefaultConfig()), "write node or agents")
	require.ErrorContains(t, confmap.NewFromStringMap(map[string]any{"endpont": "x"}).Unmarshal(f.CreateDefaultConfig()), "endpont")
	require.NoError(t, confmap.NewFromStringMap(map[string]any{"endpoint": "bad"}).Unmarshal(cfg))
	require.ErrorIs(t, confmap.Validate(cfg), context.Canceled)

	fixed := Wrap((&theirs{}).factory(), Node).CreateDefaultConfig()
	require.ErrorContains(t, confmap.NewFromStringMap(map[string]any{"senders": "agents"}).Unmarshal(fixed), "senders", "a file has no senders")
}

func TestASignalThatTheReceiverLacksIsRefused(t *testing.T) {
	f := Wrap(receiver.NewFactory(kind, func() component.Config { return &theirConfig{} }), Network)
	_, err := f.CreateLogs(t.Context(), receivertest.NewNopSettings(kind), f.CreateDefaultConfig(), &consumertest.LogsSink{})
	require.ErrorIs(t, err, pipeline.ErrSignalNotSupported)
}

func sum(m metricdata.Metrics) (total int64) {
	for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
		total += p.Value
	}
	return total
}
