package heartbeat

import (
	"cmp"
	"container/list"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// States of an agent.
const (
	Watching = "watching"
	Silent   = "silent" // nothing came for longer than Patience, and nothing said why
	Gone     = "gone"   // it said that it stops

	elsewhere = "elsewhere" // it tells others: here it was heard for a job that is over
)

// Agent is an agent as it was last heard.
type Agent struct {
	Host  string `json:"host"`
	State string `json:"state"`
	// Since is when it began to watch, stopped, or was last heard of where it is silent.
	Since   time.Time `json:"since"`
	Node    string    `json:"node,omitempty"`
	Boot    string    `json:"boot,omitempty"`
	Version string    `json:"version,omitempty"`
	Started time.Time `json:"started"` // by its clock
	Last    time.Time `json:"last"`    // its newest record, by the clock of who keeps the book
	// Late is by how many seconds that record was older when it came; below zero its clock is
	// ahead.
	Late float64 `json:"late_seconds"`
	// Corrected is what was added to its times, in seconds, as its clock is behind; below zero
	// it is ahead. Late is what is left.
	Corrected float64     `json:"clock_corrected_seconds,omitempty"`
	Receivers []Component `json:"receivers"`
	Probes    []Probe     `json:"probes"`
	// Dropped is what it lost since it was first heard here; absent where it does not know.
	Dropped *int64 `json:"dropped,omitempty"`
	// Claims: another agent tells for the same machine at the same time. What either says of
	// it proves nothing.
	Claims *Claim `json:"also_claimed_by,omitempty"`
}

// Claim is another agent that tells for a machine.
type Claim struct {
	Boot    string    `json:"boot,omitempty"`
	Started time.Time `json:"started"`
	Last    time.Time `json:"last"`
}

// Failing are the receivers that do not work.
func (a Agent) Failing() []string {
	var names []string
	for _, one := range a.Receivers {
		if one.State == Fails {
			names = append(names, one.Name)
		}
	}
	return names
}

// Words are what has to be known of an agent first.
func (a Agent) Words() string {
	text := a.State
	if a.Claims != nil {
		text += ", claimed twice"
	}
	switch {
	case a.Corrected > 0:
		text += ", clock " + seconds(a.Corrected) + " behind, corrected"
	case a.Corrected < 0:
		text += ", clock " + seconds(-a.Corrected) + " ahead, corrected"
	}
	switch {
	case a.Late < -ahead.Seconds():
		text += ", clock ahead"
	case a.Late > behind.Seconds():
		text += ", clock behind or records late"
	}
	return text
}

func seconds(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) + " s" }

// Lost is how much it lost, in words.
func (a Agent) Lost() string {
	if a.Dropped == nil {
		return "not known"
	}
	return strconv.FormatInt(*a.Dropped, 10)
}

// Counts are the agents of a book, by state.
type Counts struct {
	Watching int `json:"watching"`
	Silent   int `json:"silent"`
	Gone     int `json:"gone"`
	// Evicted agents gave way since the start, because too many tell.
	Evicted int `json:"evicted"`
}

// All is how many there are.
func (c Counts) All() int { return c.Watching + c.Silent + c.Gone }

const (
	// ahead is from when on a clock is told to be ahead.
	ahead = 5 * time.Second
	// behind is from when on the records of an agent are told to be late, or its clock to be behind: the
	// lateness of the processor, beyond which what compares ranks goes without them.
	behind = 15 * time.Second
	// MostAgents bounds a book.
	MostAgents  = 1 << 14
	mostStreams = 64
	// mostBytes bounds what all of a book take; an agent takes 3 kB.
	mostBytes = 64 << 20
	// mostSpans are kept of a machine: its agent was started that often.
	mostSpans = 8
	// forgottenAfter is how long an agent is known that is silent or gone.
	forgottenAfter = 7 * 24 * time.Hour
)

// Book is the agents that were heard. Where there is no room, the one that came last gives
// way: who makes up machines takes room from what he made up, never from those that were
// there before.
type Book struct {
	began time.Time

	mu      sync.Mutex
	of      map[string]*list.Element // *entry, by host
	order   list.List                // those that came first, first
	bytes   int                      // of all entries, about
	evicted int
}

// entry is one machine.
type entry struct {
	host          string
	now           life   // its newest agent
	past          []life // others that told for it, those that came first, first; bounded
	rival         life   // one of past that tells while now does
	probes        []Probe
	node, version string
	dropped       int64
	corrected     float64
	measured      bool
	bytes         int
	streams       []string // jobs for which its records come here, "" among them
}

// life is one start of one agent, as far as it was heard. started and at are by its clock.
type life struct {
	instance, boot string
	started, at    time.Time
	number         int64
	ending         bool
	first, heard   time.Time // by the clock of the book
	receivers      []Component
}

// NewBook begins a book. Silence counts from now on.
func NewBook(now time.Time) *Book { return &Book{began: now, of: map[string]*list.Element{}} }

// Hear notes what an agent tells. That it may speak for its machine is known.
func (b *Book) Hear(beat Beat, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, known := b.of[beat.Host]
	if !known {
		if b.order.Len() == MostAgents {
			b.expire(now)
		}
		at = b.order.PushBack(&entry{host: beat.Host})
		b.of[beat.Host] = at
	}
	e := at.Value.(*entry)
	e.hear(&beat, now)
	b.bytes -= e.bytes
	e.bytes = e.size()
	b.bytes += e.bytes
	for b.order.Len() > MostAgents || b.bytes > mostBytes && b.order.Len() > 1 {
		last := b.order.Back()
		if last == at {
			last = at.Prev()
		}
		b.forget(last)
		b.evicted++
	}
}

// expire forgets those that nobody has heard for long.
func (b *Book) expire(now time.Time) {
	for at := b.order.Front(); at != nil; {
		next := at.Next()
		if now.Sub(at.Value.(*entry).now.heard) > forgottenAfter {
			b.forget(at)
		}
		at = next
	}
}

func (b *Book) forget(at *list.Element) {
	e := at.Value.(*entry)
	delete(b.of, e.host)
	b.bytes -= e.bytes
	b.order.Remove(at)
}

// size is about how many bytes an entry takes.
func (e *entry) size() int {
	const fixed, each = 512, 96
	n := fixed + len(e.host) + each*len(e.probes)
	for _, p := range e.probes {
		n += len(p.Component) + len(p.Hook)
	}
	for _, l := range append(slices.Clone(e.past), e.now) {
		n += each + len(l.instance) + len(l.boot)
		for _, one := range l.receivers {
			n += each + len(one.Name) + len(one.Error)
		}
	}
	return n
}

func newLife(beat *Beat, now time.Time) life {
	return life{
		instance: beat.Instance, boot: beat.Boot, started: beat.Started, at: beat.At, number: beat.Number, ending: beat.Ending,
		first: now, heard: now, receivers: beat.Receivers,
	}
}

// hear takes a record of a machine.
func (e *entry) hear(beat *Beat, now time.Time) {
	e.stream(beat)
	old := slices.IndexFunc(e.past, func(l life) bool { return l.instance == beat.Instance })
	switch {
	case e.now.instance == "":
		e.now = newLife(beat, now)
	case beat.Instance == e.now.instance:
		if beat.Number <= e.now.number {
			return // out of order, or again
		}
		e.now.goOn(beat, now)
	case old >= 0:
		if beat.Number <= e.past[old].number {
			return
		}
		if !e.over(now) {
			e.beside(&e.past[old], beat, now)
			e.past[old].goOn(beat, now)
			return
		}
		l := e.past[old]
		l.goOn(beat, now)
		e.past = slices.Delete(e.past, old, old+1)
		e.follow(l)
	case beat.Started.Before(e.now.started) && !e.over(now): // it waited somewhere, or another tells
		e.put(newLife(beat, now))
		return
	default:
		e.follow(newLife(beat, now))
	}
	e.probes, e.node, e.version, e.corrected = beat.Probes, beat.Node, beat.Version, beat.Corrected
	if beat.Measured {
		e.dropped, e.measured = e.dropped+beat.Dropped, true
	}
}

// stream notes for which job a record came. A gateway that judges one job alone hears of its
// machines as long as the job lasts.
func (e *entry) stream(beat *Beat) {
	at := slices.Index(e.streams, beat.Job)
	switch {
	case beat.JobOver && at >= 0:
		e.streams = slices.Delete(e.streams, at, at+1)
	case !beat.JobOver && at < 0 && len(e.streams) < mostStreams:
		e.streams = append(e.streams, beat.Job)
	}
}

// over reports whether the newest agent tells no more.
func (e *entry) over(now time.Time) bool { return e.now.ending || now.Sub(e.now.heard) > Patience }

// follow makes another agent that of the machine.
func (e *entry) follow(l life) {
	e.put(e.now)
	e.now = l
}

// put keeps a life that is not that of the newest agent. Of what is over, errors tell nothing.
func (e *entry) put(l life) {
	l.receivers = slices.Clone(l.receivers)
	for i := range l.receivers {
		l.receivers[i].Error = ""
	}
	e.past = append(e.past, l)
	if len(e.past) > mostSpans {
		e.past = slices.Clone(e.past[len(e.past)-mostSpans:])
	}
}

// beside notes an agent that goes on to tell while a newer one does: the clock of their
// machine says so, or else that it tells in step with time. What waited in a queue comes at once.
func (e *entry) beside(old *life, beat *Beat, now time.Time) {
	byClock := old.boot == e.now.boot && beat.At.After(e.now.started.Add(Interval/2))
	inStep := old.heard.After(e.now.first) && now.Sub(old.heard) > Interval/2
	if !beat.Ending && (byClock || inStep) {
		e.rival = *old
		e.rival.at, e.rival.heard = beat.At, now
	}
}

// goOn takes a later record of the same start.
func (l *life) goOn(beat *Beat, now time.Time) {
	l.number, l.at, l.heard, l.ending = beat.Number, beat.At, now, beat.Ending
	if !beat.Ending || len(l.receivers) == 0 { // at the end others have stopped before it
		l.receivers = beat.Receivers
	}
}

// Agents lists those of a book, first those that need a look: claimed twice, silent, not all
// at work, gone, then the others, by host.
func (b *Book) Agents(now time.Time) ([]Agent, Counts) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire(now)
	agents := make([]Agent, 0, b.order.Len())
	for at := b.order.Front(); at != nil; at = at.Next() {
		if e := at.Value.(*entry); b.state(e, now) != elsewhere {
			agents = append(agents, b.agent(e, now))
		}
	}
	slices.SortFunc(agents, func(a, b Agent) int { return cmp.Or(cmp.Compare(a.need(), b.need()), cmp.Compare(a.Host, b.Host)) })
	return agents, b.count(now)
}

// Working are the receivers that some agent has at work, by type, sorted.
func (b *Book) Working(now time.Time) []string {
	var names []string
	agents, _ := b.Agents(now)
	for i := range agents {
		for _, one := range agents[i].Receivers {
			if agents[i].State == Watching && one.State == Works {
				names = append(names, one.kind())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Counts says how many there are.
func (b *Book) Counts(now time.Time) Counts {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire(now)
	return b.count(now)
}

func (b *Book) count(now time.Time) Counts {
	counts := Counts{Evicted: b.evicted}
	for at := b.order.Front(); at != nil; at = at.Next() {
		switch b.state(at.Value.(*entry), now) {
		case Watching:
			counts.Watching++
		case Silent:
			counts.Silent++
		case Gone:
			counts.Gone++
		}
	}
	return counts
}

// need orders agents by how much they need a look.
func (a Agent) need() int {
	switch {
	case a.Claims != nil:
		return 0
	case a.State == Silent:
		return 1
	case a.State == Watching && len(a.Failing()) > 0:
		return 2
	case a.State == Gone:
		return 3
	}
	return 4
}

// state is that of a machine. While nobody kept this book, nobody was silent.
func (b *Book) state(e *entry, now time.Time) string {
	quiet := now.Sub(e.now.heard)
	if since := now.Sub(b.began); since < quiet {
		quiet = since
	}
	switch {
	case e.now.ending:
		return Gone
	case quiet > Patience && len(e.streams) == 0:
		return elsewhere
	case quiet > Patience:
		return Silent
	}
	return Watching
}

func (b *Book) agent(e *entry, now time.Time) Agent {
	a := Agent{
		Host: e.host, State: b.state(e, now), Since: e.now.started, Node: e.node, Boot: e.now.boot, Version: e.version,
		Started: e.now.started, Last: e.now.heard, Late: e.now.heard.Sub(e.now.at).Round(time.Millisecond).Seconds(), Corrected: e.corrected,
		Receivers: append([]Component{}, e.now.receivers...), Probes: append([]Probe{}, e.probes...),
	}
	switch a.State {
	case Silent:
		a.Since = e.now.heard
	case Gone:
		a.Since = e.now.at
	}
	if e.measured {
		dropped := e.dropped
		a.Dropped = &dropped
	}
	if e.claimed(now) {
		a.Claims = &Claim{Boot: e.rival.boot, Started: e.rival.started, Last: e.rival.heard}
	}
	return a
}

// claimed reports whether two tell for the machine.
func (e *entry) claimed(now time.Time) bool {
	return e.rival.instance != "" && e.rival.instance != e.now.instance && now.Sub(e.rival.heard) <= Patience
}

// Watch is whether somebody looked on a machine all the time between two moments.
type Watch int

// What is known of a machine and a time.
const (
	Unknown   Watch = iota // nobody told of the machine, or two told at once
	Looked                 // all the time
	LookedNot              // not all the time, or not at all
)

// Looked says whether one of these receivers was at work on a machine from one moment to
// another, by the clock of its agent, and why it is not known, or what was not looked at.
func (b *Book) Looked(host string, receivers []string, from, to, now time.Time) (Watch, string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, known := b.of[host]
	if !known {
		return Unknown, "no agent tells of it"
	}
	e := at.Value.(*entry)
	if e.claimed(now) {
		return Unknown, "two agents tell for it"
	}
	state := b.state(e, now)
	if state == elsewhere && to.After(e.now.at) {
		return Unknown, "its agent tells another gateway"
	}
	var spans []span
	alive := false
	for i, l := range append([]life{e.now}, e.past...) {
		until := l.at
		if i == 0 && state == Watching { // its next record is yet to come
			until = later(to, until)
		}
		alive = alive || until.After(from) && l.started.Before(to)
		for _, one := range l.receivers {
			if one.State == Works && slices.Contains(receivers, one.kind()) && until.After(one.Since) {
				spans = append(spans, span{one.Since, until})
			}
		}
	}
	left := without(span{from, to}, spans)
	switch {
	case len(left) == 0:
		return Looked, ""
	case alive:
		return LookedNot, e.lacks(receivers, left)
	}
	return LookedNot, "not watched " + left[0].words()
}

// lacks says why these receivers did not look there all the time.
func (e *entry) lacks(receivers []string, left []span) string {
	runs := false
	for _, one := range e.now.receivers {
		if !slices.Contains(receivers, one.kind()) {
			continue
		}
		runs = true
		if one.State == Fails {
			return strings.TrimSuffix(one.Name+" does not work there: "+one.Error, ": ")
		}
	}
	if !runs {
		return "its agent does not run " + strings.Join(receivers, " or ")
	}
	return "not watched " + left[0].words()
}

// kind is the type of a component, without a name of its own.
func (c *Component) kind() string {
	kind, _, _ := strings.Cut(c.Name, "/")
	return kind
}

// span is a time.
type span struct{ from, to time.Time }

func (s span) words() string {
	return "from " + s.from.UTC().Format(time.DateTime) + " to " + s.to.UTC().Format(time.DateTime) + " UTC"
}

// without returns the parts of a time that the others leave.
func without(whole span, spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	var left []span
	for _, s := range spans {
		if s.from.After(whole.from) {
			if s.from.After(whole.to) {
				break
			}
			left = append(left, span{whole.from, s.from})
		}
		whole.from = later(whole.from, s.to)
		if !whole.from.Before(whole.to) {
			return left
		}
	}
	return append(left, whole)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
