package straggler

import (
	"cmp"
	"container/heap"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// eventArrivals says when a rank called some of the collectives of a communicator, for all
// ranks the same (receiver ncclcall). A call returns before its data has moved, so what is
// seen is who is late with its program.
const eventArrivals = "nccl.call.arrivals"

const (
	eventLate   = rule.FindingPrefix + "straggler.late"
	eventInTime = rule.FindingPrefix + "straggler.late.end"
)

// Caps: ranks of communicators and their arrivals not judged yet, heard or not, and communicators.
const (
	maxArrivals = 1 << 20
	maxGroups   = 1 << 16
	maxSamples  = 64 // of one record
	maxPeers    = 16
	maxName     = 24
)

// lastingly are, of the last arrivals of a rank, so many parts: it is told above, and
// released below.
const (
	lateAbove = 0.75
	lateBelow = 0.25
	// fresh is how old the newest arrival of a communicator may be that says something
	// of a rank in another one.
	fresh = 5 * int64(time.Minute)
	// oldest is how long before its record an arrival may be: a window.
	oldest = 2 * int64(time.Hour)
)

// arrivals is what the calls of ranks tell.
type arrivals struct {
	limits
	lateness int64
	groups   map[string]*group
	of       map[process]map[*group]int64 // which rank a process is in each of its communicators
	queue    queue                        // of groups that have something to judge, the first due first
	order    *fairlru.List[*group]        // by the host that began them
	sizes    *fairlru.List[*group]        // the same, each as large as what it holds
	most     int
	evicted  uint64
}

// process is one of a rank.
type process struct {
	host string
	pid  int64
}

// group is a communicator of one start of a job.
type group struct {
	Job     string             `json:"job"`
	Domain  string             `json:"domain,omitempty"`
	Run     string             `json:"run,omitempty"`
	Comm    string             `json:"comm"`
	Host    string             `json:"host,omitempty"` // that began it
	Size    int64              `json:"size"`
	Members map[int64]*member  `json:"members"` // by rank in the communicator
	Samples map[int64]*arrival `json:"samples"` // by number of the collective
	Judged  int64              `json:"judged"`  // newest number judged
	Last    int64              `json:"last"`
	// Tell is when its ranks are told of: what they do in other communicators is known then. 0: nothing new.
	Tell int64 `json:"tell,omitempty"`

	slots          []*member         // its members, each at its place in every arrival
	hosts          map[string]*crowd // of its members
	shared         map[string]int    // communicators for sends and receives, with how many of the members share them
	due            int64             // when its oldest arrivals can be judged, or its ranks told of
	place          int               // in the queue, -1 for not in it
	held           int
	inOrder, sizes *fairlru.Element[*group]
}

// member is one rank of a communicator.
type member struct {
	Rank  int64    `json:"rank"` // in the job
	Where place    `json:"where"`
	Clock int64    `json:"clock"` // by how much the clock of its host may be wrong, -1 not known
	Pause int64    `json:"pause"`
	Peers []string `json:"peers,omitempty"`
	Bits  uint64   `json:"bits,omitempty"`  // of its last arrivals, which were late
	Seen  int      `json:"seen,omitempty"`  // arrivals judged, as many as count at most
	Late  []int64  `json:"late,omitempty"`  // by how much, of the late ones
	Since int64    `json:"since,omitempty"` // of the first of them
	Above int64    `json:"above,omitempty"` // since when most of its arrivals are late, 0 while they are not
	Told  bool     `json:"told,omitempty"`

	inComm int64 // its rank in the communicator
	slot   int
	host   *crowd // of the members on its host
}

// arrival is one collective whose ranks are being heard.
type arrival struct {
	First int64           `json:"first"` // time of the first record of it
	Last  int64           `json:"last"`
	At    map[int64]int64 `json:"at"` // by rank in the communicator; only as it is saved

	at    []int64 // by slot, 0 for not heard; as long as it has to be
	heard int
}

// hear takes when the member in a slot called it.
func (s *arrival) hear(slot int, at int64) {
	if slot >= len(s.at) {
		s.at = append(s.at, make([]int64, slot+1-len(s.at))...)
	}
	if s.at[slot] == 0 {
		s.heard++
	}
	s.at[slot] = cmp.Or(at, 1)
}

func newArrivals(l limits, lateness int64) *arrivals {
	a := &arrivals{limits: l, lateness: lateness, most: maxArrivals}
	a.reset()
	return a
}

func (a *arrivals) reset() {
	a.groups, a.of, a.queue = map[string]*group{}, map[process]map[*group]int64{}, nil
	a.order, a.sizes = &fairlru.List[*group]{}, &fairlru.List[*group]{}
}

// observe takes in what one rank tells of one communicator.
func (a *arrivals) observe(r *rule.Record) bool {
	name, domain := r.JobInDomain()
	rank, okRank := rule.Integer(r.Attributes, rule.AttributeRank)
	inComm, okComm := rule.Integer(r.Attributes, "nccl.call.comm_rank")
	size, okSize := rule.Integer(r.Attributes, "nccl.call.comm_size")
	comm := rule.Text(r.Attributes, "nccl.call.comm")
	numbers, ages := integers(r.Attributes, "nccl.call.arrival_numbers"), integers(r.Attributes, "nccl.call.arrival_ages_ns")
	where := placeOf(r)
	if name == "" || comm == "" || len(comm) > maxName || where.Host == "" || where.PID <= 0 || !okRank || rank < 0 || !okComm || !okSize || inComm < 0 || inComm >= size || len(numbers) != len(ages) {
		return false
	}
	g := a.groupOf(domain, name, comm, size, r)
	if g.Size != size {
		return false
	}
	if r.Run != "" {
		g.Run = r.Run
	}
	a.order.Touch(g.inOrder, fairlru.Some)
	m := a.member(g, inComm, rank, where)
	m.Clock, m.Pause = -1, 0
	if most, says := rule.Integer(r.Attributes, "nccl.call.clock_error_ns"); says && most >= 0 {
		m.Clock = most
	}
	if pause, says := rule.Integer(r.Attributes, "nccl.call.pause_ns"); says && pause > 0 {
		m.Pause = pause
	}
	g.share(m, texts(r.Attributes, "nccl.call.peer_comms"))
	for i, number := range numbers {
		a.hear(g, m, number, ages[i], r.Time)
	}
	a.wait(g)
	a.makeRoom()
	return true
}

func (a *arrivals) makeRoom() {
	for len(a.groups) > maxGroups {
		victim, _ := a.order.Victim()
		a.forget(victim.Value)
	}
	for a.held() > a.most {
		victim, _ := a.sizes.Victim()
		a.forget(victim.Value)
	}
}

func groupKey(domain, name, comm string) string { return domain + "\x00" + comm + "\x00" + name }

func (g *group) key() string { return groupKey(g.Domain, g.Job, g.Comm) }

func (a *arrivals) groupOf(domain, name, comm string, size int64, r *rule.Record) *group {
	if g := a.groups[groupKey(domain, name, comm)]; g != nil {
		return g
	}
	g := &group{
		Job: name, Domain: domain, Run: r.Run, Comm: comm, Size: size, Host: rule.Text(r.Resource, "host.name"),
		Members: map[int64]*member{}, Samples: map[int64]*arrival{}, Judged: -1,
	}
	a.enter(g)
	return g
}

func (a *arrivals) enter(g *group) {
	g.shared, g.hosts, g.place = map[string]int{}, map[string]*crowd{}, -1
	a.groups[g.key()] = g
	g.inOrder = a.order.Add(g, fairlru.Some, g.Host, g.Domain)
	g.sizes = a.sizes.Add(g, fairlru.Some, g.Host, g.Domain, g.Job)
}

// member finds or makes a rank of a communicator. Another process in its place begins anew.
func (a *arrivals) member(g *group, inComm, rank int64, where place) *member {
	m := g.Members[inComm]
	if m != nil && m.Where.Host == where.Host && m.Where.PID == where.PID && m.Rank == rank {
		m.Where = where
		return m
	}
	slot := len(g.slots)
	if m != nil {
		slot = m.slot
		g.share(m, nil)
		a.leave(g, m)
	} else {
		a.resize(g, 1)
	}
	m = &member{Rank: rank, Where: where}
	g.Members[inComm] = m
	a.join(g, m, inComm, slot)
	return m
}

// join enters a member of a communicator, in its slot.
func (a *arrivals) join(g *group, m *member, inComm int64, slot int) {
	if m.inComm, m.slot = inComm, slot; slot == len(g.slots) {
		g.slots = append(g.slots, nil)
	}
	g.slots[slot] = m
	if m.host = g.hosts[m.Where.Host]; m.host == nil {
		m.host = &crowd{}
		g.hosts[m.Where.Host] = m.host
	}
	m.host.members++
	p := process{m.Where.Host, m.Where.PID}
	if a.of[p] == nil {
		a.of[p] = map[*group]int64{}
	}
	a.of[p][g] = inComm
}

func (a *arrivals) leave(g *group, m *member) {
	if m.host.members--; m.host.members == 0 {
		delete(g.hosts, m.Where.Host)
	}
	p := process{m.Where.Host, m.Where.PID}
	if delete(a.of[p], g); len(a.of[p]) == 0 {
		delete(a.of, p)
	}
}

// share notes on which communicators a member sends to single ranks.
func (g *group) share(m *member, peers []string) {
	if slices.Equal(m.Peers, peers) {
		return
	}
	for _, comm := range m.Peers {
		if g.shared[comm]--; g.shared[comm] <= 0 {
			delete(g.shared, comm)
		}
	}
	m.Peers = peers
	for _, comm := range m.Peers {
		g.shared[comm]++
	}
}

// staged reports whether ranks of the communicator send to each other one by one: as stages
// of a pipeline they have different work, and one of them is last by nature.
func (g *group) staged() bool {
	for comm, members := range g.shared {
		if members > 1 || comm == g.Comm {
			return true
		}
	}
	return false
}

func (a *arrivals) hear(g *group, m *member, number, age, now int64) {
	if number <= g.Judged || age < 0 || age > oldest {
		return
	}
	s := g.Samples[number]
	if s == nil {
		s = &arrival{First: now, at: make([]int64, len(g.slots))}
		g.Samples[number] = s
		a.resize(g, len(s.at))
	}
	s.First, s.Last, g.Last = min(s.First, now), max(s.Last, now), max(g.Last, now)
	before := len(s.at)
	s.hear(m.slot, now-age)
	if more := len(s.at) - before; more > 0 {
		a.resize(g, more)
	}
}

func (a *arrivals) resize(g *group, more int) {
	g.held += more
	a.sizes.Resize(g.sizes, 1+g.held)
}

// held is the number of members and arrivals.
func (a *arrivals) held() int { return a.sizes.Size() - a.sizes.Len() }

func (a *arrivals) forget(g *group) {
	for _, m := range g.Members {
		a.leave(g, m)
	}
	if g.place >= 0 {
		heap.Remove(&a.queue, g.place)
	}
	a.order.Remove(g.inOrder)
	a.sizes.Remove(g.sizes)
	delete(a.groups, g.key())
	a.evicted++
}

// wait puts the group where it belongs in the queue.
func (a *arrivals) wait(g *group) {
	_, at, ok := g.ready(a.lateness)
	if g.Tell != 0 && (!ok || g.Tell < at) {
		at, ok = g.Tell, true
	}
	g.due = max(at, 1)
	switch {
	case ok && g.place >= 0:
		heap.Fix(&a.queue, g.place)
	case ok:
		heap.Push(&a.queue, g)
	case g.place >= 0:
		heap.Remove(&a.queue, g.place)
	}
}

// queue is a heap of groups by when they are due.
type queue []*group

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due < q[j].due }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

func (q *queue) Push(g any) {
	g.(*group).place = len(*q)
	*q = append(*q, g.(*group))
}

func (q *queue) Pop() any {
	last := len(*q) - 1
	g := (*q)[last]
	(*q)[last] = nil
	*q, g.place = (*q)[:last], -1
	return g
}

// ready is when the oldest collective can be judged: once every rank was heard, or when no
// word of it can come any more.
func (g *group) ready(lateness int64) (number, at int64, ok bool) {
	for n, s := range g.Samples {
		if !ok || n < number {
			number, ok = n, true
			at = s.First + lateness + 1
			if int64(s.heard) >= g.Size {
				at = min(at, s.Last)
			}
		}
	}
	return number, at, ok
}

func (a *arrivals) due() int64 {
	if len(a.queue) == 0 {
		return 0
	}
	return a.queue[0].due
}

// decide judges the collectives that are ready, then the ranks: what is said of one depends
// on all of its communicators.
func (a *arrivals) decide(now int64) (findings []rule.Finding) {
	tell := map[string]*group{}
	for len(a.queue) > 0 && a.queue[0].due <= now {
		g := a.queue[0]
		if number, at, ok := g.ready(a.lateness); ok && at <= now {
			s := g.Samples[number]
			a.judge(g, s)
			delete(g.Samples, number)
			a.resize(g, -len(s.at))
			g.Judged = number
			if g.Tell == 0 {
				g.Tell = s.Last + a.lateness + 1
			}
		} else {
			tell[g.key()], g.Tell = g, 0
		}
		a.wait(g)
	}
	for _, key := range slices.Sorted(maps.Keys(tell)) {
		findings = append(findings, a.tell(tell[key])...)
	}
	return findings
}

// judge compares when the ranks of a communicator called one collective.
func (a *arrivals) judge(g *group, s *arrival) {
	if int64(s.heard)*4 < g.Size*3 {
		return // the one that is last may be among those that were not heard
	}
	late := a.late(g, s)
	for slot, at := range s.at { // each for itself: their order does not matter
		if at == 0 {
			continue
		}
		m := g.slots[slot]
		m.Bits = m.Bits << 1 & (1<<a.samples - 1)
		m.Seen = min(m.Seen+1, a.samples)
		if by, is := late[slot]; is {
			if m.Bits == 0 {
				m.Since = at
			}
			m.Bits |= 1
			m.Late = append(m.Late, by)
			m.Late = m.Late[max(0, len(m.Late)-a.samples):]
		} else if m.Bits == 0 {
			m.Late = nil
		}
		switch above := m.Seen >= a.samples && m.share(a.samples) >= lateAbove; {
		case !above:
			m.Above = 0
		case m.Above == 0:
			m.Above = s.Last
		}
	}
}

// late are the ranks that called it late, and by how much: compared with those of the same
// host, whose clock is one, or with all, less what their clocks may be wrong. None, where
// so many are late that the job is uneven by nature.
func (a *arrivals) late(g *group, s *arrival) map[int]int64 {
	if s.heard < a.least || g.staged() {
		return nil
	}
	calls := make([]call, 0, s.heard)
	pauses := make([]float64, 0, s.heard)
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	for slot, at := range s.at {
		if at != 0 {
			m := g.slots[slot]
			calls, pauses = append(calls, call{at, m}), append(pauses, float64(m.Pause))
			first, last = min(first, at), max(last, at)
		}
	}
	least := max(a.lateBy, a.excess/(1+a.excess)*median(pauses))
	if float64(last-first) <= least {
		return nil // whatever the clocks
	}
	late := a.behind(g, calls, least)
	if float64(len(late)) > a.mostBehind*float64(s.heard) {
		return nil
	}
	return late
}

// call is one of a collective.
type call struct {
	at int64
	m  *member
}

func (a *arrivals) behind(g *group, calls []call, least float64) map[int]int64 {
	for _, host := range g.hosts {
		host.begin()
	}
	all := crowd{at: make([]int64, 0, len(calls))}
	for i := range calls {
		c := &calls[i]
		all.add(c.at, c.m)
		c.m.host.add(c.at, c.m)
	}
	all.settle()
	beyond, late := max(least, a.spread*robust*all.away), map[int]int64{}
	several := len(calls[0].m.host.at) < len(calls) // hosts
	for i := range calls {
		c := &calls[i]
		if several && all.clock >= 0 {
			if by := float64(c.at-all.began) - all.middle - float64(c.m.Clock+all.clock); by > beyond {
				late[c.m.slot] = int64(by)
			}
		}
		if host := c.m.host; len(host.at) >= a.least {
			host.settle()
			if by := float64(c.at-host.began) - host.middle; by > max(least, a.spread*robust*host.away) {
				late[c.m.slot] = max(late[c.m.slot], int64(by))
			}
		}
	}
	return late
}

// crowd is when ranks with clocks of one kind called.
type crowd struct {
	members      int // on that host, called or not
	at           []int64
	began        int64
	middle, away float64 // median since began, and median distance from it
	clock        int64   // the most that a clock of them may be wrong, -1 where one is not known
	settled      bool
}

// begin forgets the calls of another collective.
func (c *crowd) begin() { *c = crowd{members: c.members, at: c.at[:0]} }

func (c *crowd) add(at int64, m *member) {
	if len(c.at) == 0 || at < c.began {
		c.began = at
	}
	switch {
	case m.Clock < 0:
		c.clock = -1
	case c.clock >= 0:
		c.clock = max(c.clock, m.Clock)
	}
	c.at = append(c.at, at)
}

func (c *crowd) settle() {
	if c.settled {
		return
	}
	c.settled = true
	values := make([]float64, len(c.at))
	for i, at := range c.at {
		values[i] = float64(at - c.began)
	}
	c.middle = median(values)
	for i, v := range values {
		values[i] = max(v-c.middle, c.middle-v)
	}
	c.away = median(values)
}

// share of its last arrivals that were late.
func (m *member) share(samples int) float64 {
	return float64(bits.OnesCount64(m.Bits)) / float64(samples)
}

// tell says of the ranks of a communicator which are behind now, and which no more.
func (a *arrivals) tell(g *group) (findings []rule.Finding) {
	var news []*member
	for _, m := range g.slots { // what is said of one does not depend on the others
		switch {
		case m.Told && m.share(a.samples) <= lateBelow && !a.lateElsewhere(g, m),
			!m.Told && a.lasts(g, m) && !a.waitsElsewhere(g, m) && !a.toldElsewhere(g, m):
			news = append(news, m)
		}
	}
	slices.SortFunc(news, func(x, y *member) int { return cmp.Compare(x.inComm, y.inComm) })
	for _, m := range news {
		m.Told = !m.Told
		findings = append(findings, a.finding(map[bool]string{true: eventLate, false: eventInTime}[m.Told], g, m))
	}
	return findings
}

// elsewhere visits the process of a member in its other communicators.
func (a *arrivals) elsewhere(g *group, m *member, holds func(*group, *member) bool) bool {
	for other, inComm := range a.of[process{m.Where.Host, m.Where.PID}] {
		if it := other.Members[inComm]; other != g && it != nil && other.Last >= g.Last-fresh && holds(other, it) {
			return true
		}
	}
	return false
}

// waitsElsewhere reports whether the rank is on time in another communicator, in which one
// of its peers is late: it is late here because it waits there.
func (a *arrivals) waitsElsewhere(g *group, m *member) bool {
	return a.elsewhere(g, m, func(other *group, mine *member) bool {
		if mine.share(a.samples) > lateBelow {
			return false
		}
		for _, peer := range other.Members {
			if peer != mine && peer.share(a.samples) >= lateAbove {
				return true
			}
		}
		return false
	})
}

// toldElsewhere reports whether the rank is told of in another communicator, or shall be:
// in the smallest.
func (a *arrivals) toldElsewhere(g *group, m *member) bool {
	return a.elsewhere(g, m, func(other *group, mine *member) bool {
		return mine.Told || a.lasts(other, mine) && cmp.Or(cmp.Compare(other.Size, g.Size), cmp.Compare(other.Comm, g.Comm)) < 0
	})
}

// lasts reports whether most of its arrivals have been late for long.
func (a *arrivals) lasts(g *group, m *member) bool {
	return m.Above != 0 && g.Last-m.Above >= a.lasting
}

func (a *arrivals) lateElsewhere(g *group, m *member) bool {
	return a.elsewhere(g, m, func(_ *group, mine *member) bool { return mine.share(a.samples) >= lateAbove })
}

func (a *arrivals) finding(event string, g *group, m *member) rule.Finding {
	by := make([]float64, len(m.Late))
	for i, late := range m.Late {
		by[i] = float64(late)
	}
	lateness := time.Duration(0)
	if len(by) > 0 {
		lateness = time.Duration(median(by)).Round(time.Millisecond)
	}
	f := rule.Finding{
		Event: event, ID: fmt.Sprintf("straggler late %q %s %s %d %d", g.Domain, g.Job, g.Comm, m.Rank, m.Since), Time: m.Since, Last: g.Last,
		Attributes: map[string]any{
			"gen_ai.training.job_id": g.Job, "gen_ai.training.rank": m.Rank, "nccl.call.comm": g.Comm,
			"straggler.lateness": lateness.String(), "straggler.late": int64(bits.OnesCount64(m.Bits)), "straggler.arrivals": int64(a.samples),
			"straggler.peers": int64(len(g.Members) - 1),
		},
	}
	if event == eventInTime {
		f.Time = g.Last
	}
	m.Where.stamp(&f, g.Domain, g.Run)
	return f
}

// integers is a list of whole numbers, nil for any other.
func integers(m pcommon.Map, name string) []int64 {
	v, found := m.Get(name)
	if !found || v.Type() != pcommon.ValueTypeSlice || v.Slice().Len() > maxSamples {
		return nil
	}
	list := make([]int64, 0, v.Slice().Len())
	for _, one := range v.Slice().All() {
		if one.Type() != pcommon.ValueTypeInt {
			return nil
		}
		list = append(list, one.Int())
	}
	return list
}

// texts is a list of short texts, nil for any other.
func texts(m pcommon.Map, name string) []string {
	v, found := m.Get(name)
	if !found || v.Type() != pcommon.ValueTypeSlice || v.Slice().Len() > maxPeers {
		return nil
	}
	var list []string
	for _, one := range v.Slice().All() {
		if one.Type() != pcommon.ValueTypeStr || len(one.Str()) > maxName {
			return nil
		}
		list = append(list, one.Str())
	}
	slices.Sort(list)
	return slices.Compact(list)
}
