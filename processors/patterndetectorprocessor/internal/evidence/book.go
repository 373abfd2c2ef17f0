// Package evidence holds the newest records that patterns wanted, so that the records around a
// verdict can be kept once it is made. It also follows the incidents that are kept.
package evidence

import (
	"maps"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/internal/incidentview"
	"github.com/tracecoreai/tracecore/patterns/engine/timeline"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

const (
	// DefaultBytes is how much a book holds of batches, and a quarter of it of frames.
	DefaultBytes = 8 << 20
	// longest is how long a batch is held. A verdict comes seconds after its evidence, and
	// one about a watchdog after ten minutes or thirty.
	longest = 35 * time.Minute

	mostNames = 16 // machines and jobs by which one batch is found; with more it is always looked at
	page      = 4 << 10
)

// Book holds records in batches as they came. Where there is no room, the machine whose
// batches take most loses its oldest, what is claimed before what is proven.
type Book struct {
	mu      sync.Mutex
	most    int
	batches shelf[uint64]
	near    shelf[uint64]                // of records that no rule wanted
	frames  shelf[incidentview.StackKey] // a record of a stack with its frames
	next    uint64
	gone    uint64

	goneNear uint64
}

// shelf is a bounded part of a book.
type shelf[K comparable] struct {
	bytes int
	order fairlru.List[K]
	items map[K]*item
	place map[K]*fairlru.Element[K]
}

type item struct {
	at      time.Time
	payload []byte
	hosts   []string
	jobs    []string
	any     bool // of more machines or jobs than are listed
}

// nearShare is which part of its bytes a book has more for records that no rule wanted.
const nearShare = 8

// NewBook makes an empty book for so many bytes.
func NewBook(most int) *Book {
	return &Book{
		most: most, next: 1,
		batches: shelf[uint64]{order: timeline.NewOrder[uint64](), items: map[uint64]*item{}, place: map[uint64]*fairlru.Element[uint64]{}},
		near:    shelf[uint64]{order: timeline.NewOrder[uint64](), items: map[uint64]*item{}, place: map[uint64]*fairlru.Element[uint64]{}},
		frames:  shelf[incidentview.StackKey]{order: timeline.NewOrder[incidentview.StackKey](), items: map[incidentview.StackKey]*item{}, place: map[incidentview.StackKey]*fairlru.Element[incidentview.StackKey]{}},
	}
}

// Add takes records, which payload has as OTLP. Nobody may change payload.
func (b *Book) Add(ld plog.Logs, payload []byte, now time.Time) {
	if len(payload) == 0 {
		return
	}
	one, worst, of := &item{at: now, payload: payload}, verdict.Proven, ""
	for _, resource := range ld.ResourceLogs().All() {
		host := incidentview.HostOf(resource.Resource().Attributes())
		one.hosts = one.note(one.hosts, host)
		for _, scope := range resource.ScopeLogs().All() {
			for _, record := range scope.LogRecords().All() {
				one.jobs = one.note(one.jobs, incidentview.JobOf(record.Attributes()))
				trust := rule.TrustOf(resource.Resource().Attributes(), record.Attributes())
				if trust < worst || of == "" {
					worst, of = min(trust, worst), host
				}
				if record.EventName() == rule.EventStack {
					b.addFrames(resource, record, host, now, trust)
				}
			}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.batches.add(b.next, one, timeline.Path(worst, []string{of}))
	b.next++
	b.gone += b.batches.trim(b.most, now)
}

// note adds a name to a list of different ones.
func (i *item) note(names []string, name string) []string {
	switch {
	case name == "" || slices.Contains(names, name):
	case len(names) == mostNames:
		i.any = true
	default:
		return append(names, name)
	}
	return names
}

// addFrames holds the frames of a stack: they are told once for each hash of a job on its node,
// and an incident may come much later.
func (b *Book) addFrames(resource plog.ResourceLogs, record plog.LogRecord, host string, now time.Time, trust verdict.Trust) {
	key := incidentview.StackKeyOf(record.Attributes())
	_, frames := record.Attributes().Get("process.stack.frames")
	_, native := record.Attributes().Get("process.stack.native")
	if key.Hash == "" || !frames && !native {
		return
	}
	alone := plog.NewLogs()
	to := alone.ResourceLogs().AppendEmpty()
	resource.Resource().CopyTo(to.Resource())
	record.CopyTo(to.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty())
	payload, err := (&plog.ProtoMarshaler{}).MarshalLogs(alone)
	if err != nil {
		return // data in memory always encodes
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.frames.add(key, &item{at: now, payload: payload}, timeline.Path(trust, []string{host}))
	b.frames.trim(b.most/4, time.Time{})
}

func (s *shelf[K]) add(key K, one *item, owner []string) {
	s.remove(key)
	s.items[key], s.place[key] = one, s.order.Add(key, fairlru.Some, owner...)
	s.order.Resize(s.place[key], 1+len(one.payload)/page)
	s.bytes += len(one.payload)
}

func (s *shelf[K]) remove(key K) {
	if one := s.items[key]; one != nil {
		s.bytes -= len(one.payload)
		s.order.Remove(s.place[key])
		delete(s.items, key)
		delete(s.place, key)
	}
}

// trim removes what is too old, and then what there is no room for.
func (s *shelf[K]) trim(most int, now time.Time) (gone uint64) {
	for s.order.Len() > 0 && !now.IsZero() && now.Sub(s.items[s.order.Oldest()].at) > longest {
		s.remove(s.order.Oldest())
	}
	for ; s.bytes > most; gone++ {
		victim, _ := s.order.Victim()
		s.remove(victim.Value)
	}
	return gone
}

// AddNear takes one record that no rule wanted, which payload has as OTLP.
func (b *Book) AddNear(host string, trust verdict.Trust, payload []byte, now time.Time) {
	one := &item{at: now, payload: payload}
	one.hosts = one.note(nil, host)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.near.add(b.next, one, timeline.Path(trust, []string{host}))
	b.next++
	b.goneNear += b.near.trim(b.most/nearShare, now)
}

// Near returns the records of machines that no rule wanted, as far as they are held.
func (b *Book) Near(hosts []string) (list []plog.Logs) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, number := range slices.Sorted(maps.Keys(b.near.items)) {
		if one := b.near.items[number]; one.wanted(func(host, _ string) bool { return slices.Contains(hosts, host) }) {
			if ld, err := (&plog.ProtoUnmarshaler{}).UnmarshalLogs(one.payload); err == nil {
				list = append(list, ld)
			}
		}
	}
	return list
}

// NearSince returns all records that no rule wanted and that came since a time, as they came.
func (b *Book) NearSince(at time.Time) plog.Logs {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := plog.NewLogs()
	for _, number := range slices.Sorted(maps.Keys(b.near.items)) {
		if one := b.near.items[number]; !one.at.Before(at) {
			if ld, err := (&plog.ProtoUnmarshaler{}).UnmarshalLogs(one.payload); err == nil {
				ld.ResourceLogs().MoveAndAppendTo(all.ResourceLogs())
			}
		}
	}
	return all
}

// GoneNear is how many records that no rule wanted there was no room for.
func (b *Book) GoneNear() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.goneNear
}

// Since returns the batches that came after a number and may have records that are wanted,
// and the number of the newest.
func (b *Book) Since(after uint64, wants func(host, job string) bool) (batches []plog.Logs, newest uint64) {
	b.mu.Lock()
	found := map[uint64][]byte{}
	for number, one := range b.batches.items {
		if number > after && one.wanted(wants) {
			found[number] = one.payload
		}
	}
	newest = b.next - 1
	b.mu.Unlock()
	for _, number := range slices.Sorted(maps.Keys(found)) {
		if ld, err := (&plog.ProtoUnmarshaler{}).UnmarshalLogs(found[number]); err == nil {
			batches = append(batches, ld)
		}
	}
	return batches, newest
}

func (i *item) wanted(wants func(host, job string) bool) bool {
	return i.any || slices.ContainsFunc(i.hosts, func(host string) bool { return wants(host, "") }) ||
		slices.ContainsFunc(i.jobs, func(job string) bool { return wants("", job) })
}

// Frames returns records with the frames of stacks, as far as they are held.
func (b *Book) Frames(keys []incidentview.StackKey) []plog.Logs {
	b.mu.Lock()
	var payloads [][]byte
	for _, key := range keys {
		if one := b.frames.items[key]; one != nil {
			payloads = append(payloads, one.payload)
		}
	}
	b.mu.Unlock()
	var list []plog.Logs
	for _, payload := range payloads {
		if ld, err := (&plog.ProtoUnmarshaler{}).UnmarshalLogs(payload); err == nil {
			list = append(list, ld)
		}
	}
	return list
}

// Gone is how many batches there was no room for.
func (b *Book) Gone() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gone
}
