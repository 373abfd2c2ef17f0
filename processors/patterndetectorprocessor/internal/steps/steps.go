// Package steps knows in which step of its training each rank is, and was last. Training
// code tells it: by the spans of its steps, which come when a step is over, and by the log
// records that say that one begins. It is the job's own word. Nothing is concluded from
// it: a verdict gets the ids of the step that it falls into.
package steps

import (
	"cmp"
	"slices"
	"strconv"
	"sync"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/patterns/engine/timeline"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Options say what is a step, and how much is kept. Names are tried in their order, on the
// span or the record first, then on its resource.
type Options struct {
	Spans []string // names of spans that are steps
	Begin string   // event name of the log record with which a step begins
	Rank  []string // attributes that say the rank
	Job   []string // attributes that say the job
	Ranks int      // whose steps are kept, at most
	// Told is called for each step that was not known; nil for nobody. It asks the book nothing.
	Told func(who Rank, begin int64)
}

// perRank is how many steps of one rank are kept. A verdict comes seconds after its cause,
// one of a hang minutes after it, in the step that does not end.
const perRank = 8

// Stats count what came and what is held.
type Stats struct {
	Taken    uint64 // begins and ends of steps
	Unplaced uint64 // without a rank, a machine, ids or times
	Evicted  uint64 // ranks forgotten for want of room
	Ranks    int    // now
}

// Book has the steps of ranks. Its methods may be called at the same time.
type Book struct {
	opts  Options
	names map[string]bool

	mu    sync.Mutex
	stats Stats
	ranks map[Rank]*rank
	order fairlru.List[*rank]
	// own are the traces that nodes read in the environment of ranks.
	own      map[owner]*fairlru.Element[own]
	ownOrder fairlru.List[own]
}

// owner is a rank of a job inside its domain, which nobody can choose: a stranger may run a
// rank with the same number and job beside it.
type owner struct {
	Rank
	domain string
}

type own struct {
	owner
	trace pcommon.TraceID
}

// Rank is a rank where it runs. Job is "" where the training code does not say it.
type Rank struct {
	Host, Job string
	Number    int
}

type rank struct {
	Rank
	steps   []step // in the order they began
	element *fairlru.Element[*rank]
}

type step struct {
	trace      pcommon.TraceID
	span       pcommon.SpanID
	begin, end int64 // unix nanoseconds; end is 0 until it is known
	claimed    bool  // it came from a stranger
}

// New makes an empty book.
func New(opts Options) *Book {
	b := &Book{opts: opts, names: map[string]bool{}, ranks: map[Rank]*rank{}, order: timeline.NewOrder[*rank](), own: map[owner]*fairlru.Element[own]{}, ownOrder: timeline.NewOrder[own]()}
	for _, name := range opts.Spans {
		b.names[name] = true
	}
	return b
}

// Stats returns the counters.
func (b *Book) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stats
	s.Ranks = len(b.ranks)
	return s
}

// Spans notes the steps among spans.
func (b *Book) Spans(td ptrace.Traces) {
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, span := range ss.Spans().All() {
				if b.names[span.Name()] {
					b.note(rs.Resource().Attributes(), span.Attributes(), step{
						trace: span.TraceID(), span: span.SpanID(), begin: int64(span.StartTimestamp()), end: int64(span.EndTimestamp()),
					}, true)
				}
			}
		}
	}
}

// Begins notes the steps that begin, among log records.
func (b *Book) Begins(ld plog.Logs) {
	for _, rl := range ld.ResourceLogs().All() {
		for _, sl := range rl.ScopeLogs().All() {
			for _, lr := range sl.LogRecords().All() {
				if lr.EventName() != b.opts.Begin {
					b.noteTrace(rl.Resource().Attributes(), lr)
				} else {
					b.note(rl.Resource().Attributes(), lr.Attributes(), step{
						trace: lr.TraceID(), span: lr.SpanID(), begin: int64(cmp.Or(lr.Timestamp(), lr.ObservedTimestamp())),
					}, false)
				}
			}
		}
	}
}

func (b *Book) note(resource, attributes pcommon.Map, s step, over bool) {
	who, ok := b.who(resource, attributes)
	ok = ok && !s.trace.IsEmpty() && !s.span.IsEmpty() && s.begin > 0 && (!over || s.end >= s.begin)
	trust := rule.TrustOf(resource, attributes)
	b.mu.Lock()
	defer b.mu.Unlock()
	if !ok {
		b.stats.Unplaced++
		return
	}
	b.stats.Taken++
	s.claimed = trust < verdict.Claimed
	domain := cmp.Or(rule.Text(attributes, rule.AttributeJobDomain), rule.Text(resource, rule.AttributeJobDomain))
	if b.rank(who, domain, trust).put(s) && b.opts.Told != nil {
		b.opts.Told(who, s.begin)
	}
}

// noteTrace notes the trace of a rank that the node itself read in its environment.
func (b *Book) noteTrace(resource pcommon.Map, lr plog.LogRecord) {
	trace := lr.TraceID()
	if trace.IsEmpty() {
		return
	}
	trust := rule.TrustOf(resource, lr.Attributes())
	who, ok := b.who(resource, lr.Attributes())
	if !ok || trust < verdict.Claimed {
		return
	}
	of := owner{who, rule.Text(lr.Attributes(), rule.AttributeJobDomain)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.own[of]; known != nil {
		known.Value.trace = trace
		b.ownOrder.Touch(known, fairlru.Some)
		return
	}
	b.own[of] = b.ownOrder.Add(own{of, trace}, fairlru.Some, timeline.Path(trust, []string{who.Host, of.domain, who.Job})...)
	for b.ownOrder.Len() > b.opts.Ranks {
		victim, _ := b.ownOrder.Victim()
		b.ownOrder.Remove(victim)
		delete(b.own, victim.Value.owner)
	}
}

// Own is the trace that the environment of a rank says, empty where none is known.
func (b *Book) Own(who Rank, domain string) pcommon.TraceID {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.own[owner{who, domain}]; known != nil {
		return known.Value.trace
	}
	return pcommon.TraceID{}
}

// rank finds or makes what is kept of one, as its domain first told of it; mu is held.
func (b *Book) rank(who Rank, domain string, trust verdict.Trust) *rank {
	if r := b.ranks[who]; r != nil {
		b.order.Touch(r.element, fairlru.Some)
		return r
	}
	r := &rank{Rank: who}
	b.ranks[who] = r
	r.element = b.order.Add(r, fairlru.Some, timeline.Path(trust, []string{who.Host, domain, who.Job})...)
	b.fit()
	return r
}

// fit forgets ranks until there is room.
func (b *Book) fit() {
	for b.order.Len() > b.opts.Ranks {
		victim, _ := b.order.Victim()
		b.order.Remove(victim)
		delete(b.ranks, victim.Value.Rank)
		b.stats.Evicted++
	}
}

// who reads whose step it is. Without a machine it is nobody's: a rank is believed where it
// runs and nowhere else.
func (b *Book) who(resource, attributes pcommon.Map) (Rank, bool) {
	number, ok := verdict.MaxRank, false
	for _, key := range b.opts.Rank {
		if number, ok = rankIn(attributes, key); !ok {
			number, ok = rankIn(resource, key)
		}
		if ok {
			break
		}
	}
	who := Rank{Host: rule.Text(resource, "host.name"), Number: number}
	for _, key := range b.opts.Job {
		if who.Job = cmp.Or(rule.Text(attributes, key), rule.Text(resource, key)); who.Job != "" {
			break
		}
	}
	return who, ok && who.Host != ""
}

// rankIn reads a rank that is a number or, as resources from the environment have it, the
// digits of one.
func rankIn(attributes pcommon.Map, key string) (int, bool) {
	v, ok := attributes.Get(key)
	if !ok {
		return 0, false
	}
	n := int64(-1)
	switch v.Type() {
	case pcommon.ValueTypeInt:
		n = v.Int()
	case pcommon.ValueTypeStr:
		if digits, err := strconv.ParseInt(v.Str(), 10, 32); err == nil {
			n = digits
		}
	}
	return int(n), n >= 0 && n <= verdict.MaxRank
}

// put enters a step, or what is new of a step that is known. It reports whether it was not
// known.
func (r *rank) put(s step) (unknown bool) {
	at := slices.IndexFunc(r.steps, func(o step) bool { return o.span == s.span && o.trace == s.trace })
	if at >= 0 {
		known := r.steps[at]
		s.begin, s.end, s.claimed = min(s.begin, known.begin), max(s.end, known.end), s.claimed && known.claimed
		r.steps = slices.Delete(r.steps, at, at+1)
	}
	unknown = at < 0
	at, _ = slices.BinarySearchFunc(r.steps, s, func(a, b step) int { return cmp.Compare(a.begin, b.begin) })
	r.steps = slices.Insert(r.steps, at, s)
	if len(r.steps) > perRank {
		at := r.least()
		r.steps = slices.Delete(r.steps, at, at+1)
	}
	return unknown
}

// least is the step that gives way: the oldest of the trace that has most, and claims first.
// So a stranger does not push out what the rank says.
func (r *rank) least() int {
	traces, claims := map[pcommon.TraceID]int{}, slices.ContainsFunc(r.steps, func(s step) bool { return s.claimed })
	for _, s := range r.steps {
		if s.claimed == claims {
			traces[s.trace]++
		}
	}
	least := -1
	for i, s := range r.steps {
		if s.claimed == claims && (least < 0 || traces[s.trace] > traces[r.steps[least].trace]) {
			least = i
		}
	}
	return least
}

// At returns the span of the step that a rank was in at a time, false where none is known.
// Own is the trace that its environment says. What strangers say otherwise counts only where
// the rank itself says nothing, and then it is claimed. Where they do not agree on the trace,
// it is nothing.
func (b *Book) At(who Rank, at int64, own pcommon.TraceID) (verdict.Span, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.ranks[who]
	if r == nil {
		return verdict.Span{}, false
	}
	shown := func(s step) bool { return !s.claimed || !own.IsEmpty() && s.trace == own }
	if !own.IsEmpty() || slices.ContainsFunc(r.steps, shown) {
		s, ok := stepAt(r.steps, at, shown)
		return verdict.SpanOf(s.trace, s.span), ok
	}
	s, ok := stepAt(r.steps, at, func(step) bool { return true })
	if !ok || slices.ContainsFunc(r.steps, func(o step) bool { return o.trace != s.trace && o.begin <= at && o.end >= at }) {
		return verdict.Span{}, false
	}
	span := verdict.SpanOf(s.trace, s.span)
	span.Claimed = true
	return span, true
}

// Within is At, also where the training code does not say its job.
func (b *Book) Within(who Rank, at int64, own pcommon.TraceID) (verdict.Span, bool) {
	span, ok := b.At(who, at, own)
	if !ok && who.Job != "" {
		who.Job = ""
		span, ok = b.At(who, at, own)
	}
	return span, ok
}

// stepAt is the step of some that was going on at a time.
func stepAt(steps []step, at int64, of func(step) bool) (step, bool) {
	next := int64(0) // when the step after it began
	for _, s := range slices.Backward(steps) {
		if !of(s) {
			continue
		}
		end := cmp.Or(s.end, next) // of one whose end was lost: when the next began
		if s.begin <= at && (end == 0 || at <= end) {
			return s, true
		}
		next = s.begin
	}
	return step{}, false
}
