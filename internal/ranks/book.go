// Package ranks keeps how the ranks of jobs fare, as records tell it: which began, which
// stand still and since when, which are blocked by a mount, which died. The same records
// give the same book, live and from a recording. It judges nothing.
package ranks

import (
	"cmp"
	"net/netip"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/engine/run"
	"github.com/tracecoreai/tracecore/patterns/engine/timeline"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// DefaultMost is for how many ranks a book has room.
const DefaultMost = 1 << 17

const (
	mostStalls = 8 // connections of one rank that are kept; more say nothing new
	mostBlocks = 4 // mounts that one rank waits for
	page       = 64

	// quiet is for how long a stall counts that nobody tells of again. Receivers repeat
	// one each 10 s (repeat_interval of ncclsock and fusefault).
	quiet = int64(2 * time.Minute)
	// farewell is how long a job is kept whose ranks have all ended.
	farewell = int64(time.Hour)
)

const (
	eventBlock    = "fuse.stall"
	eventBlockEnd = "fuse.stall.end"
)

// unknownDomain is that of a process that ended before the identity probe could ask.
const unknownDomain = "unknown"

// RunOf says which rank of which run a record is about.
type RunOf func(resource, attributes pcommon.Map, at int64) (of run.Sighting, id string)

// Book has the ranks of all jobs. Beyond its size jobs are forgotten: what is claimed
// before what is proven, then of the domain that has most. It may be used at once by
// those who write and those who read.
type Book struct {
	mu      sync.Mutex
	most    int
	count   int // ranks
	jobs    map[jobKey]*job
	order   fairlru.List[*job]
	version uint64
	frames  frames

	on   map[string]map[*job]bool // jobs by the machines of their ranks
	gpus map[gpuKey]gpu
	left []history.Sighting // steps of starts that are forgotten
}

type jobKey struct{ id, domain string }

// job is the newest start of a job that is known.
type job struct {
	jobKey
	trust   verdict.Trust
	drill   bool
	run     string
	began   int64 // of its first rank, 0 when not known
	updated int64
	world   int
	ranks   map[int]*rank
	hosts   map[string]int // ranks on each
	element *fairlru.Element[*job]
	told    picture
	paced   bool               // steps of it were told
	stepped bool               // some of them are not kept yet
	traffic map[string]traffic // by machine
}

// rank is one rank; times are unix nanoseconds, 0 for not.
type rank struct {
	host, process string
	pid           int64
	local         int // on its machine, -1 when not known
	began, ended  int64
	updated       int64
	how           string // it ended, where that is no success
	unseen        bool   // nobody saw how it ended
	stalls        []stall
	blocks        []block
	doing         doing
	stack         stack
	pace          *pace         // nil where no step was told
	gpu           string        // its address, where it is known
	cpu           map[int64]cpu // of its processes, by their pid; nil where none was told
	cpuTimes      times
	lineTimes     times
	lines         map[lineKey]line
	rail          string // over which most of its data went last, "" when not known
}

// doing is what the process does that has the connections, as of the newest stall. That
// process may be a child of the rank's outermost one.
type doing struct {
	at, pid                                           int64
	process, thread, activity, syscall, channel, file string
	sent, received                                    int64
}

// stall is a connection that stands still.
type stall struct {
	id          string
	since, last int64
	peerRank    int
	peer        netip.AddrPort
	what        string
}

// block is a mount that does not answer.
type block struct {
	key, mount, what string
	since, last      int64
}

type stack struct {
	at                                   int64
	where, waits, function, hash, unread string
}

// NewBook makes an empty book with room for so many ranks.
func NewBook(most int) *Book {
	return &Book{most: most, jobs: map[jobKey]*job{}, order: timeline.NewOrder[*job](), frames: newFrames(), on: map[string]map[*job]bool{}, gpus: map[gpuKey]gpu{}}
}

// Logs takes records.
func (b *Book) Logs(ld plog.Logs, runOf RunOf) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, resource := range ld.ResourceLogs().All() {
		for _, scope := range resource.ScopeLogs().All() {
			for _, record := range scope.LogRecords().All() {
				if wanted(record.EventName()) {
					b.take(resource.Resource().Attributes(), record, runOf)
				}
			}
		}
	}
}

func wanted(event string) bool {
	switch event {
	case rule.EventStart, rule.EventExit, rule.EventGone, eventStep, rule.EventStack, rule.EventStackMoving, eventBlock, eventBlockEnd, socketstall.Event, socketstall.EventEnd:
		return true
	}
	return false
}

func (b *Book) take(resource pcommon.Map, record plog.LogRecord, runOf RunOf) {
	at := int64(cmp.Or(record.Timestamp(), record.ObservedTimestamp())) //nolint:gosec // a time that does not fit is below zero
	event, a := record.EventName(), record.Attributes()
	if at <= 0 || at > timeline.MaxTime {
		return
	}
	switch event {
	case eventBlockEnd:
		b.unblock(blockKey(resource, a))
		return
	case eventStep:
		b.takeStep(resource, a, at)
		return
	case rule.EventExit:
		if rule.Text(a, "process.exit.helper") == "true" || rule.Text(a, "gen_ai.training.job_domain") == unknownDomain && rule.Text(a, "process.exit.inherited_identity") == "true" {
			return // what a launch script ran beside a rank; a child that ended before anybody could ask whose it was
		}
	}
	of, id := runOf(resource, a, at)
	if of.ID == "" || of.Rank < 0 || of.Rank > verdict.MaxRank {
		return
	}
	j := b.find(&of, id, event == rule.EventStack || event == rule.EventStackMoving)
	if j == nil {
		return
	}
	r := b.rank(j, &of, event, a)
	if r == nil {
		return
	}
	j.note(&of, at, a)
	b.place(j, r, of.Host)
	r.note(at, a)
	switch event {
	case rule.EventExit:
		r.exit(&of, at, a)
	case rule.EventGone:
		r.gone(at, a)
	case rule.EventStack:
		r.stands(at, a)
		b.frames.learn(j, a)
	case rule.EventStackMoving:
		r.stack = stack{}
	case eventBlock:
		b.block(j, &of, at, resource, a)
	case socketstall.Event, socketstall.EventEnd:
		r.stall(event, at, resource, a)
	}
	j.told.stale = true
}

// find returns the job of a record, nil where it may not speak of it: what is trusted less
// than the job changes nothing but where a stack was, and an older start is over.
func (b *Book) find(of *run.Sighting, id string, detail bool) *job {
	key := jobKey{of.ID, of.Domain}
	j := b.jobs[key]
	switch {
	case j != nil && of.Trust < j.trust:
		if detail && of.Trust == verdict.Claimed {
			return j
		}
		return nil
	case detail:
		return j
	case j != nil && (of.Trust > j.trust || id > j.run && j.run != "" && id != ""): // ids begin with the time
		b.forget(j)
		j = nil
	case j != nil && id != "" && id < j.run:
		return nil
	}
	if j == nil {
		j = &job{jobKey: key, trust: of.Trust, ranks: map[int]*rank{}, hosts: map[string]int{}}
		j.element = b.order.Add(j, fairlru.Some, timeline.Path(of.Trust, []string{of.Domain, of.ID})...)
		b.jobs[key] = j
	}
	if id != "" {
		j.run = id
	}
	b.order.Touch(j.element, fairlru.Some)
	return j
}

// rank returns the rank of a record; one that is not known begins, but not by a stack or
// by the end of a stall.
func (b *Book) rank(j *job, of *run.Sighting, event string, a pcommon.Map) *rank {
	pid := of.PID
	if pid <= 0 {
		pid, _ = rule.Integer(a, "process.pid")
	}
	r := j.ranks[of.Rank]
	if r != nil && (of.PID <= 0 || r.pid == of.PID || of.Start > 0 && of.Start < r.began) {
		return r
	}
	if event == rule.EventStack || event == rule.EventStackMoving || event == socketstall.EventEnd {
		return r
	}
	if r == nil && !b.room(j) {
		return nil
	}
	if r != nil {
		b.leave(j, r.host)
	} else {
		b.count++
	}
	r = &rank{pid: pid, local: -1, began: max(of.Start, 0)}
	j.ranks[of.Rank] = r
	b.order.Resize(j.element, 1+len(j.ranks)/page)
	return r
}

// room makes room for one more rank of j.
func (b *Book) room(j *job) bool {
	for b.count >= b.most {
		victim, _ := b.order.Victim()
		if victim.Value == j {
			return false // it takes all there is
		}
		b.forget(victim.Value)
	}
	return true
}

func (b *Book) forget(j *job) {
	if one, ok := j.toKeep(); ok && len(b.left) < mostLeft {
		b.left = append(b.left, one)
	}
	for host := range j.hosts {
		b.off(j, host)
	}
	b.count -= len(j.ranks)
	b.order.Remove(j.element)
	delete(b.jobs, j.jobKey)
	b.version++
}

// leave notes that a rank is not on that machine any more.
func (b *Book) leave(j *job, host string) {
	if j.hosts[host]--; j.hosts[host] > 0 {
		return
	}
	delete(j.hosts, host)
	delete(j.traffic, host)
	b.off(j, host)
}

func (b *Book) off(j *job, host string) {
	if delete(b.on[host], j); len(b.on[host]) == 0 {
		delete(b.on, host)
	}
}

// note learns what any record says of its job.
func (j *job) note(of *run.Sighting, at int64, a pcommon.Map) {
	j.updated = max(j.updated, at)
	if of.Start > 0 && (j.began == 0 || of.Start < j.began) {
		j.began = of.Start
	}
	j.world = max(j.world, socketstall.World(a))
	if drill, ok := a.Get("tracecore.drill"); ok && drill.Type() == pcommon.ValueTypeBool {
		j.drill = drill.Bool()
	}
}

// place notes on which machine a rank is.
func (b *Book) place(j *job, r *rank, host string) {
	if r.host == host || host == "" {
		return
	}
	if r.host != "" {
		b.leave(j, r.host)
	}
	r.host = strings.Clone(host)
	if j.hosts[r.host]++; j.hosts[r.host] == 1 {
		if b.on[r.host] == nil {
			b.on[r.host] = map[*job]bool{}
		}
		b.on[r.host][j] = true
	}
}

// note learns what any record says of its rank.
func (r *rank) note(at int64, a pcommon.Map) {
	r.updated = max(r.updated, at)
	if local, ok := socketstall.Rank(a, "gen_ai.training.local_rank"); ok {
		r.local = local
	}
	if pid, _ := rule.Integer(a, "process.pid"); pid == r.pid { // a child has another name
		if name := rule.Text(a, "process.executable.name"); name != "" && name != r.process {
			r.process = name
		}
	}
}

// Recorded finds the runs of a recording, where no engine does.
func Recorded() RunOf {
	runs := run.NewBook(DefaultMost)
	return func(resource, attributes pcommon.Map, at int64) (run.Sighting, string) {
		s := engine.SightingOf(resource, attributes)
		s.Time = at
		id, _, _ := runs.Of(&s)
		return s, id
	}
}
