// Package fault turns marks into verdicts: which fault a mark belongs to, whether
// the evidence of a fault suffices, and what becomes of its verdict until it is
// resolved, withdrawn or forgotten. It knows no records: a mark is what the engine
// or a series saw. What explains a verdict is up to package incident.
package fault

import (
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/patterns/engine/incident"
	"github.com/tracecoreai/tracecore/patterns/engine/timeline"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// place is the memory that one of the places has which Options count. A fault, or a
// mark, that takes more counts as several.
const place = 8 << 10

func places(bytes int) int { return 1 + bytes/place }

// Options bound what a set holds.
type Options struct {
	Waiting      int // faults without a verdict yet
	OpenVerdicts int // faults with a verdict
	Marks        int // marks per evidence of one fault
	Recent       int // marks kept because their fault may come after them
	FanOut       int // faults one record can join
	Queue        int // verdicts that wait for Verdicts
}

// Stats count what a set did since it was made, and what it holds now.
type Stats struct {
	Verdicts     uint64 // revisions given out
	QueueDropped uint64 // revisions lost because Verdicts was not called

	EvictedWaiting  uint64
	EvictedVerdicts uint64
	EvictedMarks    uint64
	EvictedRecent   uint64
	FanOutLimited   uint64 // records that joined fewer faults than they could
	Expired         uint64 // faults that left the state because they were quiet
	NotRestored     uint64 // parts of a snapshot that no rule has any more

	Waiting      int // now
	OpenVerdicts int
	Recent       int
}

// Set holds the faults of all rules.
type Set struct {
	opts  Options
	stats Stats
	rules []*Rule
	// reboots is the evidence by which a later boot of a machine ends faults.
	reboots []*Evidence
	time    *timeline.Timeline
	// followed is when a job was started again after that run, as those know it who are
	// trusted as much; 0 when it was not.
	followed func(job, domain, run string, trust verdict.Trust) int64
	// together is when the later of two starts of a job began that are one job since; 0 where they are not.
	together func(job, domain, one, other string, trust verdict.Trust) int64

	seq     uint64               // of faults, in the order they began
	waiting fairlru.List[*Fault] // without a verdict
	open    fairlru.List[*Fault] // with one
	joins   joins
	recent  recents
	graph   *incident.Graph
	out     outbox
	losses  []*Loss                  // in the order of their ends
	clocks  map[string]time.Duration // by host: what was added to its times, as its clock is behind
}

// Starts says what is known of the starts of a job.
type Starts struct {
	Followed func(job, domain, run string, trust verdict.Trust) int64
	Together func(job, domain, one, other string, trust verdict.Trust) int64
}

// NewSet makes an empty set of the faults of rules.
func NewSet(opts Options, rules []*Rule, time *timeline.Timeline, starts Starts) *Set {
	s := &Set{opts: opts, rules: rules, time: time, followed: starts.Followed, together: starts.Together}
	for _, r := range rules {
		for _, w := range r.Watches {
			if w.Reboot {
				s.reboots = append(s.reboots, w)
			}
		}
	}
	s.Reset()
	return s
}

// Reset forgets all faults; counters stay.
func (s *Set) Reset() {
	if s.graph != nil {
		s.stats.FanOutLimited += s.graph.FanOutLimited
	}
	for _, r := range s.rules {
		r.faults, r.aside = map[string]*Fault{}, map[string]*Fault{}
	}
	s.seq = 0
	s.waiting, s.open = timeline.NewOrder[*Fault](), timeline.NewOrder[*Fault]()
	s.joins = joins{faults: map[joinKey][]*Fault{}, fanOut: s.opts.FanOut}
	s.recent = recents{by: map[recentKey][]*recentMark{}, order: timeline.NewOrder[*recentMark]()}
	s.graph = incident.NewGraph(s.opts.FanOut)
	s.out = outbox{}
	s.losses, s.clocks = nil, map[string]time.Duration{}
}

// Stats returns the counters.
func (s *Set) Stats() Stats {
	now := s.stats
	now.FanOutLimited += s.joins.limited + s.graph.FanOutLimited
	now.Waiting, now.OpenVerdicts, now.Recent = s.waiting.Len(), s.open.Len(), s.recent.len()
	return now
}

// Place gives m to the faults it belongs to: to the fault of its key, which it
// may begin, or to those it joins, now or when they begin.
func (s *Set) Place(w *Evidence, m Mark) {
	if w.join < 0 {
		key, _ := w.key(m.Values)
		if f := s.fault(w, key, &m); f != nil {
			f.add(w, m)
			s.fit(f)
		}
		return
	}
	t, _ := Tuple(m.Values, w.Match)
	key := w.joinKey(t)
	s.remember(key, w, m)
	for _, f := range slices.Clone(s.joins.faults[key]) {
		if !f.dead && w.among(f, m.Values) && !f.tooLate(w, &m) {
			f.add(w, m)
			s.fit(f)
		}
	}
}

// fit counts f by what it takes now, and makes room for it.
func (s *Set) fit(f *Fault) {
	if !f.dead {
		f.shelve()
	}
	for s.waiting.Size() > s.opts.Waiting {
		evict(&s.waiting, &s.stats.EvictedWaiting)
	}
	for s.open.Size() > s.opts.OpenVerdicts {
		evict(&s.open, &s.stats.EvictedVerdicts)
	}
}

// fault returns the fault of key that m belongs to, made when there is none.
// A fault that has cleared before m, or is of an earlier process of that pid, gives way to a new one.
func (s *Set) fault(w *Evidence, key string, m *Mark) *Fault {
	f := w.Rule.faults[key]
	if f != nil && !w.ofOneProcess(f, m.Values) {
		if m.Count <= 0 || m.Gone || f.outlasts(m) {
			return nil
		}
		f.gone(m.Time - 1)
		return s.begin(w.Rule, key, w.Rule.Owner(m.Values))
	}
	if f != nil && f.returns(m) {
		f.resolve(m.Time-1, seenAgain(m.Time-1))
	}
	if f != nil && f.over(m) {
		after, stands := f.verdict.resolved, f.stands()
		f.giveWay()
		f = s.begin(w.Rule, key, w.Rule.Owner(m.Values))
		for trust := verdict.Foreign; trust <= stands; trust++ {
			*f.after.of(trust) = after
		}
	}
	if f == nil && m.Count > 0 && !m.Gone {
		return s.begin(w.Rule, key, w.Rule.Owner(m.Values))
	}
	if f != nil {
		if cleared := f.clearedBetween(m); cleared != nil {
			f.bygone([]sighting{{w, *m}, *cleared}, 0)
			return nil
		}
	}
	return f
}

func (s *Set) begin(r *Rule, key string, owner []string) *Fault {
	s.seq++
	f := s.newFault(r, key, s.seq, owner)
	r.faults[key] = f
	f.shelve()
	return f
}

func (s *Set) newFault(r *Rule, key string, seq uint64, owner []string) *Fault {
	marks := trail{rule: r, began: verdict.Proven, marks: make([][]Mark, len(r.Watches)), folded: make([]float64, len(r.Watches))}
	return &Fault{trail: marks, set: s, key: key, seq: seq, owner: owner}
}

// evict takes room from the owner that holds most.
func evict(from *fairlru.List[*Fault], counter *uint64) {
	*counter++
	victim, _ := from.Victim()
	victim.Value.drop()
}
