package incidenttracesconnector

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/tracecoreai/tracecore/connectors/incidenttracesconnector/internal/metadatatest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

var began = time.Date(2026, 11, 20, 14, 2, 11, 0, time.UTC)

// handClock is moved by the test.
type handClock struct {
	mu    sync.Mutex
	time  time.Time
	ticks chan time.Time
}

func (c *handClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.time
}

// pass moves the time and ticks twice: when the second tick is taken, the work of the first
// is done.
func (c *handClock) pass(by time.Duration) {
	c.mu.Lock()
	c.time = c.time.Add(by)
	now := c.time
	c.mu.Unlock()
	c.ticks <- now
	c.ticks <- now
}

// backend takes traces, or refuses them.
type backend struct {
	mu     sync.Mutex
	refuse error
	traces []ptrace.Traces
}

func (*backend) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

func (b *backend) ConsumeTraces(_ context.Context, td ptrace.Traces) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse == nil {
		b.traces = append(b.traces, td)
	}
	return b.refuse
}

func (b *backend) set(refuse error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuse = refuse
}

func (b *backend) took() []ptrace.Traces {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]ptrace.Traces(nil), b.traces...)
}

type rig struct {
	*tracer
	clock     *handClock
	to        *backend
	telemetry *componenttest.Telemetry
}

func newRig(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	r := &rig{clock: &handClock{time: began, ticks: make(chan time.Time)}, to: &backend{}, telemetry: componenttest.NewTelemetry()}
	t.Cleanup(func() { require.NoError(t, r.telemetry.Shutdown(context.Background())) })
	config := createDefaultConfig().(*Config)
	if change != nil {
		change(config)
	}
	var err error
	r.tracer, err = newTracer(config, metadatatest.NewSettings(r.telemetry), r.to,
		clock{now: r.clock.now, ticks: func() (<-chan time.Time, func()) { return r.clock.ticks, func() {} }})
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context(), componenttest.NewNopHost()))
	t.Cleanup(func() { require.NoError(t, r.Shutdown(context.Background())) })
	return r
}

// tell sends verdicts as the pattern detector does.
func (r *rig) tell(t *testing.T, verdicts ...verdict.Verdict) {
	t.Helper()
	ld := plog.NewLogs()
	for _, v := range verdicts {
		rl := ld.ResourceLogs().AppendEmpty()
		rl.Resource().Attributes().PutStr("host.name", v.Culprit["host"])
		verdict.ToRecord(v, rl.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty())
	}
	ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty().SetEventName("gpu.xid")
	require.NoError(t, r.ConsumeLogs(t.Context(), ld))
}

func (r *rig) count(t *testing.T, name string) int64 {
	t.Helper()
	m, err := r.telemetry.GetMetric("otelcol_connector_incidenttraces_" + name)
	if err != nil {
		return 0
	}
	var sum int64
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			sum += p.Value
		}
	case metricdata.Gauge[int64]:
		for _, p := range data.DataPoints {
			sum += p.Value
		}
	}
	return sum
}

func at(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }

// lostGPU is the root cause of incident "one".
func lostGPU() verdict.Verdict {
	return verdict.Verdict{
		ID: "gpu_lost-1", IncidentID: "one", PatternID: 18, Pattern: "gpu_lost", Role: verdict.RootCause, Status: verdict.Open, Confidence: verdict.Full,
		Trust: verdict.Proven, Severity: verdict.Critical, Revision: 1, Onset: at(0), Updated: at(1), Headline: "GPU 0000:65:00.0 fell off the bus", Remediation: "Drain the node.",
		Culprit: map[string]string{"host": "node-17", "gpu": "0000:65:00.0"}, BlastRadius: []int{3},
		Span:      verdict.Span{TraceID: "4bf92f3577b34da6a3ce929d0e0e4736", SpanID: "00f067aa0ba902b7"},
		RankSpans: []verdict.RankSpan{{Rank: 5, TraceID: "4bf92f3577b34da6a3ce929d0e0e4736", SpanID: "00f067aa0ba902b8"}},
		Evidence: []verdict.Evidence{
			{Name: "xid_79", Time: at(0), Last: at(1), Count: 2, Source: "gpu.xid", Shows: "Xid 79", Trust: verdict.Proven, Spans: []verdict.Span{{TraceID: "4bf92f3577b34da6a3ce929d0e0e4736"}}},
			{Name: "xid_79", Time: at(2), Began: at(1), Count: 1, Source: "gpu.xid", Shows: "again", Trust: verdict.Claimed},
		},
	}
}

// abortedRank is its symptom, on another node.
func abortedRank() verdict.Verdict {
	return verdict.Verdict{
		ID: "rank_exit-1", IncidentID: "one", PatternID: 20, Pattern: "rank_exit", Role: verdict.Symptom, RootCause: "gpu_lost-1", Status: verdict.Open, Confidence: verdict.Full,
		Severity: verdict.Warning, Revision: 1, Onset: at(3), Updated: at(3), Headline: "rank 3 died", Culprit: map[string]string{"host": "node-18", "rank": "3"},
		Evidence: []verdict.Evidence{{Name: "exit", Time: at(3), Count: 1, Source: "process.exit", Shows: "rank 3 ended"}},
	}
}

func resolved(v verdict.Verdict, when time.Time) verdict.Verdict {
	v.Revision++
	v.Status, v.Resolved, v.Updated = verdict.Resolved, &when, when
	return v
}

// spansOf returns the spans of a trace by the text that tells them apart.
func spansOf(t *testing.T, td ptrace.Traces) (spans map[string]ptrace.Span, host map[string]string) {
	t.Helper()
	spans, host = map[string]ptrace.Span{}, map[string]string{}
	for _, rs := range td.ResourceSpans().All() {
		name, _ := rs.Resource().Attributes().Get("host.name")
		for _, ss := range rs.ScopeSpans().All() {
			for _, span := range ss.Spans().All() {
				key := span.Name()
				if shows, ok := span.Attributes().Get("pattern.evidence.shows"); ok {
					key = shows.Str()
				}
				require.NotContains(t, spans, key)
				spans[key], host[key] = span, name.Str()
			}
		}
	}
	return spans, host
}

func TestAnIncidentThatIsOverIsATrace(t *testing.T) {
	r := newRig(t, nil)
	r.tell(t, lostGPU(), abortedRank())
	r.clock.pass(time.Minute)
	require.Empty(t, r.to.took(), "it is not over")
	r.tell(t, resolved(lostGPU(), at(60)))
	r.clock.pass(time.Second)
	require.Empty(t, r.to.took(), "its symptom is not")
	r.tell(t, resolved(abortedRank(), at(90)))
	r.clock.pass(time.Second)
	require.Len(t, r.to.took(), 1)

	spans, host := spansOf(t, r.to.took()[0])
	require.Len(t, spans, 5)
	root := spans["gpu_lost"]
	traceID, rootID := verdict.IncidentSpan("one").IDs()
	require.Equal(t, rootID, root.SpanID())
	require.True(t, root.ParentSpanID().IsEmpty())
	require.Equal(t, at(0), root.StartTimestamp().AsTime())
	require.Equal(t, at(90), root.EndTimestamp().AsTime(), "the end of the incident")
	require.Equal(t, ptrace.StatusCodeError, root.Status().Code())
	require.Equal(t, "GPU 0000:65:00.0 fell off the bus", root.Status().Message())
	attributes := root.Attributes().AsRaw()
	require.Equal(t, "one", attributes["pattern.incident_id"])
	require.Equal(t, "0000:65:00.0", attributes["pattern.culprit.gpu"])
	require.Equal(t, "resolved", attributes["pattern.status"])
	require.NotContains(t, attributes, verdict.AttrJSON)
	require.Equal(t, 2, root.Links().Len(), "the steps that it fell into")
	require.Equal(t, pcommon.SpanID{0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7}, root.Links().At(0).SpanID())
	require.Equal(t, map[string]any{"gen_ai.training.rank": int64(5)}, root.Links().At(1).Attributes().AsRaw())

	symptom := spans["rank_exit"]
	require.Equal(t, rootID, symptom.ParentSpanID())
	require.Equal(t, at(3), symptom.StartTimestamp().AsTime())
	require.Equal(t, at(90), symptom.EndTimestamp().AsTime())
	require.Equal(t, ptrace.StatusCodeUnset, symptom.Status().Code(), "a warning is no error")
	require.Equal(t, "node-18", host["rank_exit"])

	first, again := spans["Xid 79"], spans["again"]
	require.Equal(t, rootID, first.ParentSpanID())
	require.Equal(t, [2]time.Time{at(0), at(1)}, [2]time.Time{first.StartTimestamp().AsTime(), first.EndTimestamp().AsTime()})
	require.Equal(t, [2]time.Time{at(1), at(2)}, [2]time.Time{again.StartTimestamp().AsTime(), again.EndTimestamp().AsTime()}, "what it tells of began before")
	require.Equal(t, 1, first.Links().Len())
	require.Equal(t, "node-17", host["Xid 79"])
	require.NotEqual(t, first.SpanID(), again.SpanID(), "evidence of one name")
	require.Equal(t, symptom.SpanID(), spans["rank 3 ended"].ParentSpanID())
	for name, span := range spans {
		require.Equal(t, traceID, span.TraceID(), name)
		require.Equal(t, ptrace.SpanKindInternal, span.Kind(), name)
	}
	require.EqualValues(t, 1, r.count(t, "traces"))
	require.Zero(t, r.count(t, "held"))
}

// TestATraceThatIsMadeAgainIsTheSame: another process that is told the same makes the same
// ids, so a backend keeps one.
func TestATraceThatIsMadeAgainIsTheSame(t *testing.T) {
	var made [2][]byte
	for i := range made {
		r := newRig(t, nil)
		r.tell(t, resolved(lostGPU(), at(60)), resolved(abortedRank(), at(90)))
		r.clock.pass(time.Second)
		require.Len(t, r.to.took(), 1)
		var err error
		made[i], err = (&ptrace.ProtoMarshaler{}).MarshalTraces(r.to.took()[0])
		require.NoError(t, err)
	}
	require.Equal(t, made[0], made[1])
}

func TestWhenATraceLeavesThoughSomethingIsOpen(t *testing.T) {
	for name, tt := range map[string]struct {
		told []verdict.Verdict
		wait time.Duration
	}{
		"symptoms of a cause that is resolved": {[]verdict.Verdict{resolved(lostGPU(), at(60)), abortedRank()}, 10 * time.Minute},
		"a symptom whose cause left before":    {[]verdict.Verdict{abortedRank()}, 10 * time.Minute},
		"a cause of which nothing is told":     {[]verdict.Verdict{lostGPU()}, 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.tell(t, tt.told...)
			r.clock.pass(tt.wait - time.Second)
			require.Empty(t, r.to.took())
			r.tell(t, tt.told...) // repeated: it is still open
			r.clock.pass(tt.wait - time.Second)
			require.Empty(t, r.to.took())
			r.clock.pass(time.Second)
			require.Len(t, r.to.took(), 1)
		})
	}
}

func TestAVerdictThatGetsACauseMovesToItsIncident(t *testing.T) {
	r := newRig(t, nil)
	alone := abortedRank()
	alone.IncidentID, alone.Role, alone.RootCause = "two", verdict.RootCause, ""
	r.tell(t, alone)
	moved := abortedRank()
	moved.Revision = 2
	r.tell(t, lostGPU(), moved)
	r.tell(t, alone) // an old revision, told again
	moved.Revision = 3
	moved.Status, moved.Resolved = verdict.Resolved, &moved.Updated
	r.tell(t, moved, resolved(lostGPU(), at(60)))
	r.clock.pass(time.Second)
	require.Len(t, r.to.took(), 1)
	spans, _ := spansOf(t, r.to.took()[0])
	require.Len(t, spans, 5)
	require.Zero(t, r.count(t, "held"), "nothing is left of the other")
}

func TestARefusedTraceIsTriedAgain(t *testing.T) {
	r := newRig(t, nil)
	r.to.set(errors.New("busy"))
	r.tell(t, resolved(lostGPU(), at(60)))
	r.clock.pass(time.Second)
	r.to.set(nil)
	r.clock.pass(time.Minute)
	require.Len(t, r.to.took(), 1)
	require.Positive(t, r.count(t, "failures"))

	r.to.set(consumererror.NewPermanent(errors.New("no")))
	r.tell(t, resolved(abortedRank(), at(90)))
	r.clock.pass(time.Minute)
	require.EqualValues(t, 1, r.count(t, "lost"))
}

func TestAStopSendsWhatIsOpen(t *testing.T) {
	r := newRig(t, nil)
	r.tell(t, lostGPU())
	require.NoError(t, r.Shutdown(t.Context()))
	require.NoError(t, r.Shutdown(t.Context()), "twice")
	require.Len(t, r.to.took(), 1)
	spans, _ := spansOf(t, r.to.took()[0])
	require.Equal(t, "open", spans["gpu_lost"].Attributes().AsRaw()["pattern.status"])
	require.Equal(t, at(1), spans["gpu_lost"].EndTimestamp().AsTime(), "as far as it was seen")

	r = newRig(t, nil)
	r.to.set(errors.New("gone"))
	r.tell(t, lostGPU())
	require.NoError(t, r.Shutdown(t.Context()))
	require.EqualValues(t, 1, r.count(t, "lost"))
}

// TestAFloodOfIncidentsTakesRoomFromItself: another node's incident stays until it is over.
func TestAFloodOfIncidentsTakesRoomFromItself(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Incidents = 20 })
	r.tell(t, lostGPU())
	r.to.set(errors.New("busy"))
	for i := range 200 {
		v := abortedRank()
		v.ID, v.IncidentID = fmt.Sprint("v", i), fmt.Sprint("i", i)
		r.tell(t, v)
	}
	require.EqualValues(t, 181, r.count(t, "evicted"))
	require.LessOrEqual(t, r.count(t, "held"), int64(40))
	r.to.set(nil)
	r.tell(t, resolved(lostGPU(), at(60)))
	r.clock.pass(time.Minute)
	r.clock.pass(time.Minute) // those that waited made room for it
	last := r.to.took()[len(r.to.took())-1]
	spans, _ := spansOf(t, last)
	require.Contains(t, spans, "gpu_lost")
}

// Incidents of jobs with ever new names, of one domain, push out none of another on the machine.
func TestIncidentsOfOneDomainPushOutNoneOfAnother(t *testing.T) {
	b := newBook(20)
	put := func(id, domain, job string) {
		v := abortedRank()
		v.ID, v.IncidentID, v.Culprit = id, id, map[string]string{"job_domain": domain, "job": job}
		b.put(told{Verdict: v, host: "node-1"}, at(0))
	}
	for n := range 8 {
		put(fmt.Sprint("mine-", n), "user 1000", "llm")
	}
	for n := range 100 {
		put(fmt.Sprint("flood-", n), "user 1001", fmt.Sprint("job-", n))
	}
	for n := range 8 {
		require.NotNil(t, b.incidents[fmt.Sprint("mine-", n)], n)
	}
}

// While the next consumer takes nothing, incidents with hundreds of symptoms wait within
// bounds, too: a backend that is away costs traces and not the agent.
func TestWhatWaitsIsBoundedInBytes(t *testing.T) {
	r := newRig(t, nil)
	r.to.set(errors.New("away"))
	long := strings.Repeat("x", 1000)
	for i := range 140 {
		id := fmt.Sprint("i", i)
		root := lostGPU()
		root.ID, root.IncidentID = "root-"+id, id
		all := []verdict.Verdict{resolved(root, at(60))}
		for j := range mostVerdicts / 2 {
			v := abortedRank()
			v.ID, v.IncidentID, v.RootCause, v.Headline, v.Remediation, v.Evidence[0].Shows = fmt.Sprint(id, "-", j), id, root.ID, long, long, long
			all = append(all, resolved(v, at(60)))
		}
		r.tell(t, all...)
		r.clock.pass(time.Minute)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	bytes := 0
	for _, one := range r.waiting {
		bytes += one.bytes
	}
	require.Greater(t, bytes, mostBytes/2)
	require.Less(t, bytes, mostBytes+2<<20)
}

func TestARecordThatIsNoVerdictIsCounted(t *testing.T) {
	r := newRig(t, nil)
	ld := plog.NewLogs()
	lr := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	lr.SetEventName(verdict.EventName)
	lr.Attributes().PutStr(verdict.AttrJSON, "{}")
	require.NoError(t, r.ConsumeLogs(t.Context(), ld))
	require.EqualValues(t, 1, r.count(t, "invalid"))
	require.Zero(t, r.count(t, "held"))
}

func TestConfigSaysWhatIsWrong(t *testing.T) {
	config := createDefaultConfig()
	require.NoError(t, confmap.Validate(config))
	require.NoError(t, confmap.NewFromStringMap(map[string]any{"idle": "-1s", "settle": 0, "incidents": -1}).Unmarshal(config))
	err := confmap.Validate(config)
	for _, option := range []string{"idle", "settle", "incidents"} {
		require.ErrorContains(t, err, option+" must be greater than zero")
	}
}
