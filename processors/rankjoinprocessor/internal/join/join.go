package join

import (
	"cmp"
	"container/list"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
)

// Options bound the join.
type Options struct {
	Window   time.Duration // quiet this long, the dumps of a run are joined
	Longest  time.Duration // a round that never gets quiet is joined after this
	Keep     time.Duration // a run without a new dump is forgotten
	MinWait  time.Duration // a rank that has waited less may just be waiting
	Runs     int           // jobs at once; beyond, the one quiet longest goes
	Dumps    int           // records at once, of all runs
	Stalls   int           // socket stalls at once, of all jobs
	Findings int           // findings of one round
}

// DefaultOptions suit a job of 16,384 ranks in ten groups each, with twelve stalls
// each.
var DefaultOptions = Options{
	Window: 5 * time.Second, Longest: time.Minute, Keep: 10 * time.Minute, MinWait: 5 * time.Second,
	Runs: 256, Dumps: 262_144, Stalls: 262_144, Findings: 64,
}

// Stats counts what was not joined.
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
}

// Join holds the dumps of all runs, and the socket stalls of all jobs.
type Join struct {
	options Options
	watch   *watch
	runs    map[string]*run
	order   *list.List // of *run, the one quiet longest first
	stats   Stats
}

// run is one job, or what is taken for one.
type run struct {
	name   string
	job    string
	groups map[key]map[int]*dump
	ranks  map[int]Host      // of all ranks that sent a dump
	words  map[uint32]string // of the hashes in the histories
	texts  map[string]string // each text once
	sets   map[string][]int  // members by their text
	// setMembers counts the members in sets.
	setMembers int
	all        []int // 0, 1, 2, …: as many as were asked for
	dumps      int
	highest    int          // of the ranks that sent a dump
	world      int          // ranks of the job as a dump has it, 0 where none does
	size       int          // the same, also from sockets and the members of the default group
	pending    time.Time    // of the first record not yet joined; zero: none
	heard      time.Time    // of the newest record that is to be joined
	last       time.Time    // of the newest dump
	told       map[key]bool // groups with a finding in the last round
	place      *list.Element

	// What the sockets of the job said in the last round.
	view       *view
	judged     int64 // the moment that view shows
	socketsJob string
	worldSeen  int // ranks of the job as stall records have it, 0 where none does
	skipped    int64
}

// New makes an empty join.
func New(options Options) *Join {
	return &Join{options: options, watch: newWatch(options), runs: map[string]*run{}, order: list.New()}
}

// Stats returns the counters.
func (j *Join) Stats() Stats {
	all, stalls := j.stats, j.watch.stats
	all.Stalls, all.EvictedStalls, all.HeldStalls = stalls.Stalls, stalls.EvictedStalls, stalls.HeldStalls
	return all
}

// Add takes the Flight Recorder and socket-stall records of a batch, as of now.
func (j *Join) Add(logs plog.Logs, now time.Time) {
	for _, resourceLogs := range logs.ResourceLogs().All() {
		for _, scopeLogs := range resourceLogs.ScopeLogs().All() {
			for _, r := range scopeLogs.LogRecords().All() {
				switch r.EventName() {
				case EventDump:
					j.addDump(resourceLogs.Resource(), r, now)
				case EventStall, EventStallEnd:
					j.addStall(resourceLogs.Resource(), r, now)
				}
			}
		}
	}
}

func (j *Join) addDump(resource pcommon.Resource, r plog.LogRecord, now time.Time) {
	p, ok := parse(resource, r)
	if !ok {
		j.stats.Invalid++
		return
	}
	j.add(p, now)
}

// addStall takes a stall. One that comes after its job was judged, and changes
// what is known of that moment, has it judged again.
func (j *Join) addStall(resource pcommon.Resource, r plog.LogRecord, now time.Time) {
	p, ok := parseStall(resource, r)
	if !ok {
		j.stats.InvalidStalls++
		return
	}
	told := j.runs[p.job]
	if told == nil || !p.named || len(told.told) == 0 {
		j.watch.add(&p, now, 0)
	} else if j.watch.add(&p, now, told.judged) {
		told.wait(now)
	}
}

// wait has the run joined when it was quiet for the window.
func (r *run) wait(now time.Time) {
	r.heard = now
	if r.pending.IsZero() {
		r.pending = now
	}
}

func (j *Join) add(p parsed, now time.Time) {
	r := j.runOf(p.run)
	j.stats.Dumps++
	r.last, r.heard = now, now
	j.order.MoveToBack(r.place)
	if r.job == "" {
		r.job = p.job
	}
	if !j.place(r, p) {
		return
	}
	r.wait(now)
	for _, words := range p.words {
		r.learn(words)
	}
}

// place puts a dump where it belongs, unless what is there says more or there
// is no room.
func (j *Join) place(r *run, p parsed) bool {
	group := r.groups[p.key]
	if group == nil {
		group = map[int]*dump{}
		r.groups[p.key] = group
	}
	old, repeated := group[p.dump.rank]
	if repeated && !p.dump.saysMore(old) {
		return false
	}
	if !repeated {
		if j.stats.Held >= int64(j.options.Dumps) && !j.evictOther(r) {
			j.stats.EvictedDumps++
			return false
		}
		j.stats.Held++
		r.dumps++
	}
	r.share(p.dump)
	r.world = max(r.world, p.dump.world)
	r.highest = max(r.highest, p.dump.rank)
	group[p.dump.rank] = p.dump
	if known, found := r.ranks[p.dump.rank]; !found || p.dump.host.Name != "" || known.Name == "" {
		r.ranks[p.dump.rank] = p.dump.host
	}
	return true
}

func (j *Join) runOf(name string) *run {
	if r := j.runs[name]; r != nil {
		return r
	}
	if len(j.runs) >= j.options.Runs {
		j.forget(j.order.Front().Value.(*run), true)
	}
	r := &run{
		name: name, groups: map[key]map[int]*dump{}, ranks: map[int]Host{},
		words: map[uint32]string{}, texts: map[string]string{}, sets: map[string][]int{}, told: map[key]bool{},
	}
	r.place = j.order.PushBack(r)
	j.runs[name] = r
	return r
}

// evictOther makes room by the run that has been quiet longest, if it is another.
func (j *Join) evictOther(mine *run) bool {
	oldest := j.order.Front().Value.(*run)
	if oldest == mine {
		return false
	}
	j.forget(oldest, true)
	return true
}

func (j *Join) forget(r *run, evicted bool) {
	if evicted {
		j.stats.EvictedDumps += int64(r.dumps)
	}
	j.stats.Held -= int64(r.dumps)
	j.order.Remove(r.place)
	delete(j.runs, r.name)
}

// Round is what one run's dumps led to.
type Round struct {
	Findings []Finding
	// Cleared are groups with a finding in the round before and none in this.
	Cleared []Cleared
}

// Cleared names a group in which nothing is incomplete any more.
type Cleared struct{ Run, Job, Group, Desc string }

// Advance joins every run that has been quiet for the window, and forgets those
// quiet for long.
func (j *Join) Advance(now time.Time) []Round {
	var rounds []Round
	j.watch.expire(now)
	for _, name := range slices.Sorted(maps.Keys(j.runs)) {
		r := j.runs[name]
		quiet := now.Sub(r.heard) >= j.options.Window
		if !r.pending.IsZero() && (quiet || now.Sub(r.pending) >= j.options.Longest) {
			rounds = append(rounds, j.round(r))
		}
		if now.Sub(r.last) >= j.options.Keep {
			j.forget(r, false)
		}
	}
	return rounds
}

// Flush joins whatever waits, for the end of a replay.
func (j *Join) Flush() []Round {
	var rounds []Round
	for _, name := range slices.Sorted(maps.Keys(j.runs)) {
		if r := j.runs[name]; !r.pending.IsZero() {
			rounds = append(rounds, j.round(r))
		}
	}
	return rounds
}

// Size returns the number of ranks of the job that a record belongs to, 0 where
// it is not known.
func (j *Join) Size(job, run string) int {
	size := 0
	if job != "" {
		run = job
		if s := j.watch.jobs[job]; s != nil {
			size = s.world
		}
	}
	if r := j.runs[run]; r != nil {
		return cmp.Or(max(r.size, r.world), size)
	}
	return size
}

// Due reports whether any run waits to be joined.
func (j *Join) Due() bool {
	for _, r := range j.runs {
		if !r.pending.IsZero() {
			return true
		}
	}
	return false
}

func (j *Join) round(r *run) Round {
	r.pending = time.Time{}
	findings := r.analyse(j.options, j.watch)
	j.stats.SkippedGroups += r.skipped
	if extra := len(findings) - j.options.Findings; extra > 0 {
		j.stats.DroppedFindings += int64(extra)
		findings = findings[:j.options.Findings]
	}
	round := Round{Findings: findings}
	told := map[key]bool{}
	for i := range findings {
		told[key{findings[i].Group, findings[i].Desc}] = true
	}
	for k := range r.told {
		if !told[k] {
			round.Cleared = append(round.Cleared, Cleared{Run: r.name, Job: r.job, Group: k.group, Desc: k.desc})
		}
	}
	slices.SortFunc(round.Cleared, func(a, b Cleared) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Desc, b.Desc))
	})
	r.told = told
	return round
}
