package steps

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

func newBook(most int) *Book {
	return New(Options{
		Spans: []string{"training.step", "megatron.train_step"}, Begin: "training.step.begin",
		Rank: []string{"gen_ai.training.rank", "dl.rank"}, Job: []string{"gen_ai.training.job_id", "slurm.job.id"}, Ranks: most,
	})
}

// told is one step as training code tells it.
type told struct {
	name       string
	resource   map[string]any
	attributes map[string]any
	id         byte
	begin, end int64
}

func (s told) ends() ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	_ = rs.Resource().Attributes().FromRaw(s.resource)
	span := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	_ = span.Attributes().FromRaw(s.attributes)
	span.SetName(s.name)
	span.SetTraceID(pcommon.TraceID{15: s.id})
	span.SetSpanID(pcommon.SpanID{7: s.id})
	span.SetStartTimestamp(pcommon.Timestamp(s.begin))
	span.SetEndTimestamp(pcommon.Timestamp(s.end))
	return td
}

func (s told) begins() plog.Logs {
	ld := plog.NewLogs()
	rl := ld.ResourceLogs().AppendEmpty()
	_ = rl.Resource().Attributes().FromRaw(s.resource)
	lr := rl.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	_ = lr.Attributes().FromRaw(s.attributes)
	lr.SetEventName("training.step.begin")
	lr.SetTraceID(pcommon.TraceID{15: s.id})
	lr.SetSpanID(pcommon.SpanID{7: s.id})
	lr.SetTimestamp(pcommon.Timestamp(s.begin))
	return ld
}

// one is a step of rank 3 of job j on node-1.
func one(id byte, begin, end int64) told {
	return told{
		name: "training.step", id: id, begin: begin, end: end,
		resource:   map[string]any{"host.name": "node-1", "gen_ai.training.job_id": "j", "tracecore.trust": "foreign"},
		attributes: map[string]any{"gen_ai.training.rank": int64(3)},
	}
}

var rank3 = Rank{Host: "node-1", Job: "j", Number: 3}

// spanID is that of a step which a stranger told.
func spanID(id byte) verdict.Span {
	s := verdict.SpanOf(pcommon.TraceID{15: id}, pcommon.SpanID{7: id})
	s.Claimed = true
	return s
}

func requireAt(t *testing.T, b *Book, who Rank, at int64, want byte) {
	t.Helper()
	got, ok := b.At(who, at, pcommon.TraceID{})
	if want == 0 {
		require.False(t, ok, "at %d: %v", at, got)
		return
	}
	require.True(t, ok, "at %d", at)
	require.Equal(t, spanID(want), got, "at %d", at)
}

func TestAStepIsKnownFromItsBegin(t *testing.T) {
	b := newBook(10)
	b.Begins(one(1, 100, 0).begins())
	requireAt(t, b, rank3, 99, 0)
	requireAt(t, b, rank3, 100, 1)
	requireAt(t, b, rank3, 1<<60, 1)

	b.Spans(one(1, 100, 200).ends())
	requireAt(t, b, rank3, 200, 1)
	requireAt(t, b, rank3, 201, 0)
	require.Equal(t, Stats{Taken: 2, Ranks: 1}, b.Stats())
}

func TestStepsThatAreToldOutOfOrder(t *testing.T) {
	b := newBook(10)
	b.Spans(one(2, 200, 290).ends())
	b.Begins(one(3, 300, 0).begins())
	b.Spans(one(1, 100, 190).ends())
	b.Begins(one(2, 200, 0).begins()) // its sender tries again
	for at, want := range map[int64]byte{99: 0, 150: 1, 195: 0, 250: 2, 295: 0, 1000: 3} {
		requireAt(t, b, rank3, at, want)
	}
}

func TestAStepWhoseEndWasLostEndsWithTheNext(t *testing.T) {
	b := newBook(10)
	b.Begins(one(1, 100, 0).begins())
	b.Begins(one(2, 200, 0).begins())
	requireAt(t, b, rank3, 150, 1)
	requireAt(t, b, rank3, 250, 2)
}

func TestTheLastStepsOfARankAreKept(t *testing.T) {
	b := newBook(10)
	for i := range byte(50) {
		b.Spans(one(i+1, 100*int64(i+1), 100*int64(i+1)+90).ends())
	}
	requireAt(t, b, rank3, 100*(50-perRank)+50, 0)
	for i := byte(50 - perRank + 1); i <= 50; i++ {
		requireAt(t, b, rank3, 100*int64(i)+50, i)
	}
}

func TestWhatTheFieldWritesIsRead(t *testing.T) {
	for name, s := range map[string]told{
		"all on the span": {attributes: map[string]any{"gen_ai.training.rank": int64(3), "gen_ai.training.job_id": "j"}, resource: map[string]any{"host.name": "node-1"}},
		"Megatron":        {name: "megatron.train_step", resource: map[string]any{"host.name": "node-1", "dl.rank": int64(3), "slurm.job.id": "j"}},
		"a resource from the environment is text": {name: "megatron.train_step", resource: map[string]any{"host.name": "node-1", "dl.rank": "3", "slurm.job.id": "j"}},
	} {
		t.Run(name, func(t *testing.T) {
			if s.name == "" {
				s.name = "training.step"
			}
			s.id, s.begin, s.end = 1, 100, 200
			s.resource["tracecore.trust"] = "foreign"
			b := newBook(10)
			b.Spans(s.ends())
			requireAt(t, b, rank3, 150, 1)
		})
	}
}

func TestWhatIsNoStepOfARankIsCountedOrPassedOver(t *testing.T) {
	for name, change := range map[string]func(*told){
		"no rank":             func(s *told) { s.attributes = nil },
		"a rank below 0":      func(s *told) { s.attributes["gen_ai.training.rank"] = int64(-1) },
		"a rank beyond ranks": func(s *told) { s.attributes["gen_ai.training.rank"] = int64(1 << 40) },
		"a rank of letters":   func(s *told) { s.attributes["gen_ai.training.rank"] = "three" },
		"a rank of a list":    func(s *told) { s.attributes["gen_ai.training.rank"] = []any{int64(3)} },
		"no machine":          func(s *told) { s.resource = nil },
		"no ids":              func(s *told) { s.id = 0 },
		"no begin":            func(s *told) { s.begin = 0 },
		"an end before":       func(s *told) { s.end = 99 },
		"no end":              func(s *told) { s.end = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			s := one(1, 100, 200)
			change(&s)
			b := newBook(10)
			b.Spans(s.ends())
			require.Equal(t, Stats{Unplaced: 1}, b.Stats())
		})
	}
	b := newBook(10)
	other := one(1, 100, 200)
	other.name = "backward"
	b.Spans(other.ends())
	require.Equal(t, Stats{}, b.Stats(), "another span is nobody's business")
}

// environ is a record of a rank with the trace that the node read in its environment.
func environ(domain string, trace byte) plog.Logs {
	s := one(trace, 50, 0)
	s.resource["tracecore.trust"] = "claimed"
	s.attributes["gen_ai.training.job_domain"] = domain
	ld := s.begins()
	ld.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).SetEventName("process.exit")
	return ld
}

// A stranger's steps are no match for what the rank itself says, whichever came first and
// however many there are.
func TestAStrangersStepsAreClaims(t *testing.T) {
	b := newBook(10)
	flood := func() {
		for id := range byte(2 * perRank) {
			s := one(100+id, 90, 1000)
			b.Spans(s.ends())
		}
	}
	mine := one(1, 100, 200)
	b.Spans(mine.ends())
	flood()
	b.Begins(environ("user 1", 1))
	b.Begins(environ("user 2", 100)) // a stranger's rank of the same name and number
	got, ok := b.At(rank3, 150, b.Own(rank3, "user 1"))
	require.True(t, ok)
	require.Equal(t, verdict.SpanOf(pcommon.TraceID{15: 1}, pcommon.SpanID{7: 1}), got)
	requireAt(t, b, rank3, 150, 0) // they do not agree
	flood()
	_, ok = b.At(rank3, 150, b.Own(rank3, "user 1"))
	require.True(t, ok, "it is not pushed out")

	mine = one(2, 300, 400)
	mine.resource["tracecore.trust"] = "claimed" // from an agent that proved to be one
	b.Spans(mine.ends())
	flood()
	got, ok = b.At(rank3, 350, pcommon.TraceID{})
	require.True(t, ok)
	require.Equal(t, verdict.SpanOf(pcommon.TraceID{15: 2}, pcommon.SpanID{7: 2}), got)

	foreign := environ("user 1", 9)
	foreign.ResourceLogs().At(0).Resource().Attributes().PutStr("tracecore.trust", "foreign")
	b.Begins(foreign)
	require.Equal(t, pcommon.TraceID{15: 1}, b.Own(rank3, "user 1"), "a stranger says no environment")
}

// TestAFloodOfStepsTakesRoomFromItself: a job that calls itself by ever new names forgets
// none but its own.
func TestAFloodOfStepsTakesRoomFromItself(t *testing.T) {
	b := newBook(100)
	b.Begins(one(1, 100, 0).begins())
	for i := range 10_000 {
		s := one(2, 100, 200)
		s.resource = map[string]any{"host.name": "node-2", "gen_ai.training.job_id": fmt.Sprint("flood", i), "tracecore.trust": "foreign"}
		b.Spans(s.ends())
	}
	requireAt(t, b, rank3, 150, 1)
	require.LessOrEqual(t, b.Stats().Ranks, 100)
	require.EqualValues(t, 10_001-100, b.Stats().Evicted)
}

// The same from the machine of the other, by another user: the kernel has told whose they are.
func TestAFloodOfOneUsersStepsTakesRoomFromHim(t *testing.T) {
	b := newBook(100)
	tell := func(job, domain string, rank int) {
		s := one(2, 100, 200)
		s.resource = map[string]any{"host.name": "node-1", "gen_ai.training.job_id": job, "gen_ai.training.job_domain": domain, "tracecore.trust": "foreign"}
		s.attributes = map[string]any{"gen_ai.training.rank": int64(rank)}
		b.Spans(s.ends())
	}
	for rank := range 8 {
		tell("j", "user 1000", rank)
	}
	for i := range 1000 {
		tell(fmt.Sprint("flood", i), "user 1001", 0)
	}
	for rank := range 8 {
		requireAt(t, b, Rank{Host: "node-1", Job: "j", Number: rank}, 150, 2)
	}
}

func BenchmarkSpans(b *testing.B) {
	book := newBook(1 << 15)
	td := one(1, 100, 200).ends()
	for b.Loop() {
		book.Spans(td)
	}
}

// BenchmarkRecordsThatBeginNoStep is what each log record costs while steps are followed.
func BenchmarkRecordsThatBeginNoStep(b *testing.B) {
	book := newBook(1 << 15)
	ld := plog.NewLogs()
	records := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords()
	for range 1000 {
		records.AppendEmpty().SetEventName("container.log")
	}
	for b.Loop() {
		book.Begins(ld)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*1000), "ns/record")
}
