// Package ncclhang says which collective of a job is incomplete, and which ranks are why. It puts
// three things of the ranks of one start of a job beside each other:
//
//   - calls of NCCL: call_book.go keeps them, call_judge.go judges one communicator, call_round.go the
//     whole run;
//   - their stacks: stack.go, stack_judge.go;
//   - Flight Recorder dumps: join.go.
//
// What their sockets and GPUs say at that moment confirms a finding or makes it unsure.
package ncclhang

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/internal/socketstall"
	starts "github.com/tracecoreai/tracecore/patterns/engine/run"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// Options are the thresholds and bounds of the join.
type Options struct {
	Window  time.Duration // quiet this long, the dumps of a run are joined
	Longest time.Duration // a round that never gets quiet is joined after this
	Keep    time.Duration // a run without a new dump is forgotten
	MinWait time.Duration // a rank that has waited less may just be waiting

	InitWait    time.Duration // ranks may come to a communicator so far apart
	UnknownWait time.Duration // others wait so long for a rank of which nobody says what it does
	Stopped     time.Duration // so long after somebody ended ranks of a job, what is left of it may be killed
	StartWait   time.Duration // ranks may come so far apart to the start of their job
	StuckWait   time.Duration // all ranks wait so long for what all have called, until that is told
	Settle      time.Duration // quiet this long, the calls of a run are judged; ten times as long, in any case

	Runs int // jobs at once; beyond, one of the host and domain with most goes
	// Dumps is the room for records, of all runs, in places of 4 KiB: one that shares its history
	// with others takes one. Beyond, a run of the host with most goes.
	Dumps    int
	Stalls   int // socket stalls at once, of all jobs
	Findings int // findings of one round
	Calls    int // processes that stopped calling, and their places in communicators, of all jobs
}

// DefaultOptions suit a job of 131,072 ranks in four groups each, with two stalls each, or one of
// 16,384 ranks with twelve. pattern.yaml has the times for operators.
var DefaultOptions = Options{
	Window: 5 * time.Second, Longest: time.Minute, Keep: 10 * time.Minute, MinWait: 5 * time.Second,
	InitWait: time.Minute, UnknownWait: 30 * time.Second, Stopped: 2 * time.Minute, StartWait: 5 * time.Minute, StuckWait: time.Minute, Settle: 500 * time.Millisecond,
	Runs: 256, Dumps: 524_288, Stalls: socketstall.DefaultLimits.Stalls, Findings: 64,
	Calls: 1_048_576,
}

// Stats counts what was joined, and what was not.
type Stats struct {
	Dumps           int64 // taken
	Invalid         int64 // records without what the join needs
	EvictedDumps    int64 // dumps of runs evicted, or beyond Dumps
	DroppedFindings int64 // beyond Findings in one round
	Held            int64 // dumps now
	SkippedGroups   int64 // groups beyond the members that one round looks at

	Stalls        int64 // stall records taken
	InvalidStalls int64 // stall records that do not say whose they are, or when
	EvictedStalls int64 // beyond Stalls, or of jobs beyond Runs
	HeldStalls    int64 // stalls now

	Calls             int64 // records of calls taken
	InvalidCalls      int64 // those that do not say whose they are, or where it stands
	UnidentifiedCalls int64 // those of communicators whose rank and size nobody knows
	EvictedCalls      int64 // beyond Calls
	HeldCalls         int64 // processes and places now
}

// Join is the algorithm: the dumps of all runs, and the socket stalls of all jobs.
type Join struct {
	options Options
	book    *socketstall.Book
	starts  *starts.Book // of all jobs
	expired int64        // when old stalls were last looked for
	runs    map[string]*run
	order   *fairlru.List[*run]   // by the host and domain that began them
	shares  *fairlru.List[*share] // each as large as its dumps
	calls   *callBook
	places  int // that the dumps take
	stats   Stats

	// Quiet is told of each round whose dumps show nothing that stands still: what its
	// ranks finished. nil: nobody wants to know.
	Quiet func(run string, lines []string)
}

// share is the dumps of one run on one host: what they take room from.
type share struct {
	run     *run
	element *fairlru.Element[*share]
	dumps   int // places that they take
}

// run is one start of a job, or what is taken for one.
type run struct {
	name    string
	job     string
	begun   string         // which start of the job, "" where no dump says it
	anew    map[int]string // by rank: a later start, of which only some ranks began again alone
	domain  string         // of the job, "" where no dump says it
	element *fairlru.Element[*run]
	shares  map[string]*share // by host

	groups map[key]map[int]*dump
	ranks  map[int]socketstall.Identity // of all ranks that sent a dump
	words  map[uint32]string            // of the hashes in the histories
	texts  map[string]string            // each text once
	sets   map[string][]int             // members by their text
	// histories are the different ones, by a hash of them.
	histories map[uint64][]uint32
	lost      bool // dumps of it found no room: who sent none, and what a rank did, is not known
	// setMembers counts the members in sets.
	setMembers int
	all        []int // 0, 1, 2, …: as many as were asked for
	dumps      int
	highest    int            // of the ranks that sent a dump
	world      int            // ranks of the job as a dump has it, 0 where none does
	size       int            // the same, also from sockets and the members of the default group
	pending    int64          // when the first record arrived that is not yet joined; 0: none
	heard      int64          // when the newest record arrived that is to be joined
	last       int64          // when the newest dump arrived
	told       map[key]string // groups with a finding in the last round → its stop

	// What the sockets of the job said in the last round.
	view          *view
	judged        int64 // the moment that view shows
	socketsJob    string
	socketsDomain string
	worldSeen     int // ranks of the job as stall records have it, 0 where none does
	skipped       int64
}

// Detector describes the join; Algorithms are made by New.
func Detector(o Options) rule.Detector {
	return rule.Detector{
		Name: "nccl_hang",
		Logs: append([]string{eventDump, rule.EventStart, socketstall.Event, socketstall.EventEnd, socketstall.EventWatched}, slices.Concat(callEvents, gpuEvents)...),
		Ends: []string{socketstall.EventEnd, eventCallMoving, eventCallReady, eventCallEnd, rule.EventStackMoving},
		Findings: map[string][]string{
			eventIncomplete: {eventDump, eventCallStopped, eventCallInit, rule.EventStack},
			eventComplete:   {eventDump, eventCallStopped, eventCallInit, rule.EventStack},
		},
		Attributes: slices.Concat(dumpAttributes, startAttributes, socketstall.Attributes, callAttributes, stackAttributes, gpuAttributes),
		New:        func(rule.Limits) rule.Algorithm { return New(o) },
	}
}

// New makes an empty join.
func New(options Options) *Join {
	return &Join{
		options: options, book: newBook(&options), starts: starts.NewBook(maxRanks), runs: map[string]*run{},
		order: &fairlru.List[*run]{}, shares: &fairlru.List[*share]{}, calls: newCallBook(&options),
	}
}

func newBook(o *Options) *socketstall.Book {
	return socketstall.NewBook(socketstall.Limits{Jobs: o.Runs, Stalls: o.Stalls})
}

// Stats returns the counters.
func (j *Join) Stats() Stats {
	all := j.stats
	all.EvictedStalls, all.HeldStalls = int64(j.book.Evicted()), int64(j.book.Len()) //nolint:gosec // far below
	all.Calls, all.InvalidCalls, all.UnidentifiedCalls = j.calls.records, j.calls.invalid, j.calls.unidentified
	all.EvictedCalls, all.HeldCalls = j.calls.evicted, j.calls.held()
	return all
}

// Evicted counts what was forgotten because of a bound.
func (j *Join) Evicted() uint64 {
	return j.book.Evicted() + j.starts.Evicted + uint64(j.stats.EvictedDumps+j.stats.DroppedFindings+j.calls.evicted) //nolint:gosec // never below zero
}

// Observe takes in a dump or a stall. A dump comes once, so it matters; a stall
// that lasts is repeated, so one alone matters that changes what was concluded.
//
// Both are of one start of their job: a job that was started again has the same id and
// ranks, and its dumps and sockets are others.
func (j *Join) Observe(r *rule.Record) bool {
	begun, news := j.startOf(r)
	switch r.Name {
	case rule.EventStart:
		if news {
			job := cmp.Or(rule.Job(r.Attributes), "host "+rule.Text(r.Resource, "host.name"))
			j.calls.started(socketstall.JobName(job, rule.Text(r.Attributes, rule.AttributeJobDomain)), begun, r.Now)
		}
		return news
	case eventDump:
		return j.observeDump(r, begun) || news
	case eventCallStopped, eventCallMoving, eventCallEnd, eventCallDoing, eventCallInit, eventCallReady, eventCallLimited, rule.EventStack, eventDoes, rule.EventStackMoving, rule.EventExit, rule.EventGone, rule.EventAsked, socketstall.EventWatched:
		c, ok := parseCall(r.Name, r.Time, r.Resource, r.Attributes)
		if !ok {
			j.calls.invalid++
			return news
		}
		return j.calls.take(&c, begun, r.Now) || news
	case eventGPU, eventXid, eventGPULost, eventGPURecovered:
		return j.calls.learnGPU(r) || news
	default:
		return j.observeStall(r, begun) || news
	}
}

func (j *Join) observeDump(r *rule.Record, begun start) bool {
	p, ok := parse(r.Time, r.Resource, r.Attributes)
	if !ok {
		j.stats.Invalid++
		return false
	}
	p.ofStart(begun)
	return j.add(p, r.Now)
}

// observeStall takes a stall. When it comes after its job was judged, and changes
// what is known of that moment, the job is judged again.
func (j *Join) observeStall(r *rule.Record, begun start) bool {
	stall, ok := socketstall.Parse(r.Name, r.Time, r.Resource, r.Attributes)
	if !ok {
		j.stats.InvalidStalls++
		return false
	}
	stall.OfRun(begun.own, begun.of)
	j.stats.Stalls++
	told := j.known(stall.Job, stall.JobID, stall.Domain, begun.of)
	if told == nil || stall.JobID == "" || len(told.told) == 0 {
		j.book.Take(&stall, r.Now)
		return j.calls.stalled(&stall, r.Now)
	}
	before := j.book.At(&stall, told.judged)
	j.book.Take(&stall, r.Now)
	stalled := j.calls.stalled(&stall, r.Now)
	if j.book.At(&stall, told.judged) == before {
		return stalled
	}
	told.wait(r.Now)
	return true
}

// wait queues the run for a round.
func (r *run) wait(now int64) {
	r.heard = now
	if r.pending == 0 {
		r.pending = now
	}
}

// due is when the run is to be joined, 0 when nothing waits.
func (r *run) due(o *Options) int64 {
	if r.pending == 0 {
		return 0
	}
	return min(r.heard+int64(o.Window), r.pending+int64(o.Longest))
}

func (j *Join) add(p parsed, now int64) bool {
	r := j.runOf(&p)
	j.stats.Dumps++
	r.last, r.heard = now, now
	j.order.Touch(r.element, fairlru.Some)
	r.job, r.domain, r.begun = cmp.Or(r.job, p.job), cmp.Or(r.domain, p.domain), cmp.Or(r.begun, p.begun)
	if !j.place(r, p) {
		return false
	}
	r.wait(now)
	for _, words := range p.words {
		r.learn(words)
	}
	return true
}

// place puts a dump where it belongs, unless what is there says more or there
// is no room.
func (j *Join) place(r *run, p parsed) bool {
	old, repeated := r.groups[p.key][p.dump.rank]
	if repeated && !p.dump.saysMore(old) {
		return false
	}
	if !repeated && !j.room(r) {
		j.stats.EvictedDumps++
		lost := r.lost
		r.lost = true
		return !lost
	}
	if p.own != p.begun {
		r.anew = put(r.anew, p.dump.rank, p.own)
	}
	r.share(p.dump)
	j.count(r, old, p.dump)
	r.put(p.key, p.dump)
	if known, found := r.ranks[p.dump.rank]; !found || p.dump.host.Host != "" || known.Host == "" {
		r.ranks[p.dump.rank] = p.dump.host
	}
	return true
}

// put enters a dump.
func (r *run) put(k key, d *dump) {
	group := r.groups[k]
	if group == nil {
		group = map[int]*dump{}
		r.groups[k] = group
	}
	if group[d.rank] == nil {
		r.dumps++
	}
	r.world, r.highest = max(r.world, d.world), max(r.highest, d.rank)
	d.unfinished()
	group[d.rank] = d
}

// runOf finds or makes the run of a dump.
func (j *Join) runOf(p *parsed) *run {
	if r := j.known(p.run, p.job, p.domain, p.begun); r != nil {
		return r
	}
	if len(j.runs) >= j.options.Runs {
		victim, _ := j.order.Victim()
		j.evict(victim.Value)
	}
	r := newRun(p.run)
	r.domain = p.domain
	j.enter(r, p.dump.host.Host)
	return r
}

// known is the run of that name, or else the only one of the job whose domain and start may
// be the same: a record that says no domain is taken at its word.
func (j *Join) known(name, job, domain, begun string) *run {
	if r := j.runs[name]; r != nil || job == "" {
		return r
	}
	var found *run
	for _, r := range j.runs {
		if r.job == job && may(r.domain, domain) && may(r.begun, begun) {
			if found != nil {
				return nil
			}
			found = r
		}
	}
	return found
}

// may reports whether two records that say this can be of one thing: "" says nothing.
func may(a, b string) bool { return a == "" || b == "" || a == b }

func newRun(name string) *run {
	return &run{
		name: name, groups: map[key]map[int]*dump{}, ranks: map[int]socketstall.Identity{}, shares: map[string]*share{},
		words: map[uint32]string{}, histories: map[uint64][]uint32{}, texts: map[string]string{}, sets: map[string][]int{}, told: map[key]string{},
	}
}

// enter adds a run that a dump of that host began.
func (j *Join) enter(r *run, host string) {
	j.runs[r.name] = r
	r.element = j.order.Add(r, fairlru.Some, host, r.domain)
}

// count counts a dump of r that takes the place of old, nil for none, as room that its
// host takes.
func (j *Join) count(r *run, old, d *dump) {
	if old != nil {
		j.resize(r, old.host.Host, -old.places)
	} else {
		j.stats.Held++
	}
	j.resize(r, d.host.Host, d.places)
}

func (j *Join) resize(r *run, host string, more int) {
	s := r.shares[host]
	if s == nil {
		s = &share{run: r}
		s.element = j.shares.Add(s, fairlru.Some, host, r.domain, r.name)
		r.shares[host] = s
	}
	j.places += more
	if s.dumps += more; s.dumps > 0 {
		j.shares.Resize(s.element, s.dumps)
		return
	}
	j.shares.Remove(s.element)
	delete(r.shares, host)
}

// room makes room for a dump of mine, false where mine itself is what takes too much.
func (j *Join) room(mine *run) bool {
	if j.places < j.options.Dumps {
		return true
	}
	if victim, _ := j.shares.Victim(); victim.Value.run != mine {
		j.evict(victim.Value.run)
		return true
	}
	return false
}

// evict forgets a run as a whole: a part of its dumps would make ranks look silent.
func (j *Join) evict(r *run) {
	j.stats.EvictedDumps += int64(r.dumps)
	j.forget(r)
}

func (j *Join) forget(r *run) {
	j.stats.Held -= int64(r.dumps)
	for _, s := range r.shares {
		j.places -= s.dumps
		j.shares.Remove(s.element)
	}
	j.order.Remove(r.element)
	delete(j.runs, r.name)
}

// Due is when the first run is to be joined. Nothing waits for the moment at which
// something old is forgotten: Decide does that on its way.
func (j *Join) Due() int64 {
	due := int64(0)
	for _, r := range j.runs {
		if at := r.due(&j.options); at != 0 && (due == 0 || at < due) {
			due = at
		}
	}
	for _, r := range j.calls.runs {
		if at := r.due(); at != 0 && (due == 0 || at < due) {
			due = at
		}
	}
	return due
}

// Decide joins every run that is due.
func (j *Join) Decide(now int64) []rule.Finding {
	var findings []rule.Finding
	rounds := j.rounds(now)
	for i := range rounds {
		findings = append(findings, rounds[i].records(now)...)
	}
	return findings
}

// rounds joins every run that is due, and forgets what was quiet for long.
func (j *Join) rounds(now int64) []Round {
	var rounds []Round
	keep := int64(j.options.Keep)
	if now-j.expired >= keep/10 {
		j.expired = now
		j.book.Expire(now - keep + 1)
	}
	for _, name := range slices.Sorted(maps.Keys(j.runs)) {
		r := j.runs[name]
		if at := r.due(&j.options); at != 0 && at <= now {
			rounds = append(rounds, j.round(r))
		}
		if now-r.last >= keep {
			j.forget(r)
		}
	}
	return append(j.calledRounds(now), rounds...)
}

// Round is what one run's dumps led to.
type Round struct {
	Findings []Finding
	// Cleared are groups with a finding in the round before and none in this.
	Cleared []Cleared
}

// Cleared names a group in which nothing is incomplete any more.
type Cleared struct{ Run, Job, Domain, Group, Desc, Stop string }

func (j *Join) round(r *run) Round {
	r.pending = 0
	findings := r.analyse(&j.options, j.book)
	if j.Quiet != nil {
		j.Quiet(r.name, r.quiet(findings, j.options.MinWait))
	}
	j.stats.SkippedGroups += r.skipped
	if extra := len(findings) - j.options.Findings; extra > 0 {
		j.stats.DroppedFindings += int64(extra)
		findings = findings[:j.options.Findings]
	}
	for i := range findings {
		j.process(r, &findings[i])
		j.calls.confirm(r, &findings[i])
	}
	round := Round{Findings: findings}
	told := map[key]string{}
	for i := range findings {
		told[key{findings[i].Group, findings[i].Desc}] = findings[i].Stop
	}
	for k, stop := range r.told {
		if _, still := told[k]; !still {
			round.Cleared = append(round.Cleared, Cleared{Run: r.name, Job: r.job, Domain: r.domain, Group: k.Group, Desc: k.Desc, Stop: stop})
		}
	}
	slices.SortFunc(round.Cleared, func(a, b Cleared) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Desc, b.Desc))
	})
	r.told = told
	return round
}
