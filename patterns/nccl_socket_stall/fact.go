package ncclsocketstall

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// factEvents are the records of the kernel that say what holds a process.
var factEvents = []string{"fuse.stall", "fuse.stall.end", "host.lockup", "oom.kill", rule.EventExit, rule.EventGone, rule.EventStart, rule.EventAsked, "gpu.xid", "gpu.lost"}

var factAttributes = slices.Concat(rule.StopAttributes, []string{
	"fuse.stall.pids", "fuse.stall.id", "fuse.stall.age_ns", "fuse.mount.point", "fuse.device", "fuse.opcode", "process.parent_pid",
	"kernelevents.fault", "kernelevents.injected", "kernelevents.class", "kernelevents.xid", "gpu.id", "process.exit.signal_name", "process.gone.unwatched_ns", "process.gone.again", "gen_ai.training.rank_pid",
})

// fact is one thing the kernel said of some processes of a host.
type fact struct {
	Kind string  `json:"k"`
	Host string  `json:"h"`
	PIDs []int64 `json:"p"`
	// Of is the process among them that the record is about, and JobID, Domain and Started are its.
	Of      int64  `json:"f,omitempty"`
	Started int64  `json:"s,omitempty"` // on the boot clock, 0 when not known
	JobID   string `json:"i,omitempty"`
	Domain  string `json:"m,omitempty"`
	Onset   int64  `json:"o"`
	Last    int64  `json:"l"`
	Ended   int64  `json:"e,omitempty"`
	Device  string `json:"d,omitempty"` // of a FUSE mount
	GPU     string `json:"g,omitempty"`
	Job     string `json:"j,omitempty"`
	Run     string `json:"n,omitempty"` // start of the job
	Beside  string `json:"b,omitempty"` // as Job, of the earlier start whose ranks live beside it
	Rank    int    `json:"r"`           // whose own process it is about; Unknown: of none
	Text    string `json:"t"`
	Late    bool   `json:"y,omitempty"` // it was read late
	Stop    bool   `json:"u,omitempty"` // of a rank that ended, or was asked to, because somebody ends its job
	Well    bool   `json:"w,omitempty"` // the process ended with status 0
}

// facts holds them by what they are, and by host and pid.
type facts struct {
	All map[string]*fact `json:"all"`

	by map[string][]*fact // host/pid → facts
}

func newFacts() facts { return facts{All: map[string]*fact{}, by: map[string][]*fact{}} }

// observe reports whether r said something of a process.
func (fs *facts) observe(r *rule.Record) bool {
	f, key := readFact(r)
	if f == nil {
		return false
	}
	known := fs.All[key]
	if known != nil && slices.Equal(known.PIDs, f.PIDs) {
		known.merge(f)
		return true
	}
	if known != nil {
		fs.remove(key)
		known.merge(f)
		f = known
	}
	fs.add(key, f)
	return true
}

func (fs *facts) add(key string, f *fact) {
	fs.All[key] = f
	for _, pid := range f.PIDs {
		at := socketstall.ProcessKey(f.Host, pid)
		fs.by[at] = append(fs.by[at], f)
	}
}

func (fs *facts) remove(key string) {
	f := fs.All[key]
	delete(fs.All, key)
	for _, pid := range f.PIDs {
		at := socketstall.ProcessKey(f.Host, pid)
		left := slices.DeleteFunc(fs.by[at], func(o *fact) bool { return o == f })
		if len(left) == 0 {
			delete(fs.by, at)
		} else {
			fs.by[at] = left
		}
	}
}

// merge adds what another record of the same thing says.
func (f *fact) merge(o *fact) {
	if o.Last > f.Last && o.Ended == 0 || f.Text == "" {
		f.Text, f.Device, f.GPU = o.Text, o.Device, o.GPU
	}
	if o.Onset < f.Onset {
		f.Late = o.Late
	} else if o.Onset == f.Onset {
		f.Late = f.Late && o.Late
	}
	f.Onset, f.Last, f.Ended = min(f.Onset, o.Onset), max(f.Last, o.Last), max(f.Ended, o.Ended)
	if slices.Equal(f.PIDs, o.PIDs) {
		return
	}
	f.PIDs = slices.Concat(f.PIDs, o.PIDs)
	slices.Sort(f.PIDs)
	f.PIDs = slices.Compact(f.PIDs)
	f.PIDs = f.PIDs[:min(len(f.PIDs), 256)]
}

// trim leaves room for so many facts, shared between hosts, kinds and jobs: a host whose
// processes end all the time loses those facts, and no other.
func (fs *facts) trim(most int) uint64 {
	if len(fs.All) <= most {
		return 0
	}
	keys := slices.Sorted(maps.Keys(fs.All))
	slices.SortStableFunc(keys, func(a, b string) int { return cmp.Compare(fs.All[a].Last, fs.All[b].Last) })
	before := slices.Clone(keys)
	stay := map[string]bool{}
	for _, key := range fairlru.Trim(keys, most-most/8, func(key string) []string {
		f := fs.All[key]
		return []string{f.Host, f.Kind, f.Job}
	}) {
		stay[key] = true
	}
	for _, key := range before {
		if !stay[key] {
			fs.remove(key)
		}
	}
	return uint64(len(before) - len(stay)) //nolint:gosec // never below zero
}

// expire forgets what is older than that, and nobody needs.
func (fs *facts) expire(before int64, needs func(*fact) bool) {
	for key, f := range fs.All {
		if f.Last < before && !needs(f) {
			fs.remove(key)
		}
	}
}

// readFact reads a record of the kernel, nil when it names no process.
func readFact(r *rule.Record) (*fact, string) {
	a := r.Attributes
	if r.Name == "gpu.xid" && !serious(a) || r.Name == rule.EventStart && r.Beside == "" || rule.Text(a, "process.exit.helper") == "true" || rule.Text(a, "process.gone.again") == "true" {
		return nil, ""
	}
	f := &fact{Kind: r.Name, JobID: rule.Job(a), Domain: rule.Text(a, rule.AttributeJobDomain), Host: rule.Text(r.Resource, "host.name"), Onset: r.Time, Last: r.Time, Late: r.Late, Rank: socketstall.Unknown}
	job := socketstall.JobName(f.JobID, f.Domain)
	if f.Job, f.Run = socketstall.RunName(job, cmp.Or(r.With, r.Run)), r.Run; r.Beside != "" {
		f.Beside = socketstall.RunName(job, r.Beside)
	}
	f.Of, _ = rule.Integer(a, "process.pid")
	f.Started, _ = rule.Integer(a, "process.start_ns")
	if rank, ok := socketstall.Rank(a, "gen_ai.training.rank"); ok && own(r.Name, a) {
		f.Rank = rank
	}
	for _, key := range []string{"process.pid", "process.parent_pid"} {
		if pid, _ := rule.Integer(a, key); pid > 1 && (key == "process.pid" || r.Name == "oom.kill") {
			f.PIDs = append(f.PIDs, pid)
		}
	}
	id := ""
	switch r.Name {
	case "fuse.stall", "fuse.stall.end":
		id = f.readFuse(r)
	case "host.lockup":
		f.Text = "the kernel reports a " + rule.Text(a, "kernelevents.fault") + " of its process"
	case "oom.kill":
		f.Text = "the kernel killed " + rule.Text(a, "process.executable.name") + " (pid " + rule.Text(a, "process.pid") + ") for want of memory"
	case rule.EventAsked:
		if f.Stop = rule.JobAsked(a); !f.Stop {
			return nil, ""
		}
	case rule.EventExit:
		f.Stop = rule.JobStopped(a)
		code, _ := rule.Integer(a, "process.exit.code")
		f.Well = rule.Text(a, "process.exit.signal_name") == "" && code == 0
		f.Text = "its process ended: " + cmp.Or(rule.Text(a, "process.exit.signal_name"), "exit status "+rule.Text(a, "process.exit.code"))
	case socketstall.EventWatched:
		id = f.Job // by whichever of its ranks
	case rule.EventGone:
		f.Onset, f.Text = r.Time-unwatched(a), "its process ended while no agent watched"
	case "gpu.xid":
		f.GPU = rule.Text(a, "gpu.id")
		f.Text = fmt.Sprintf("its GPU %s reported Xid %s", f.GPU, rule.Text(a, "kernelevents.xid"))
	case "gpu.lost":
		f.GPU = rule.Text(a, "gpu.id")
		f.Text = fmt.Sprintf("its GPU %s has fallen off the bus", f.GPU)
	}
	if len(f.PIDs) == 0 || r.Time <= 0 {
		return nil, ""
	}
	slices.Sort(f.PIDs)
	if id == "" {
		id = fmt.Sprintf("%d/%d/%s/%s", f.PIDs[0], f.Started, socketstall.JobName(f.JobID, f.Domain), f.Text) // the next process of that pid is another
	}
	return f, f.Kind + "/" + f.Host + "/" + id
}

// own reports whether a record that names a rank is about its own process, and not about a child: of the
// end of a process the record says so; below a wrapper the rank's is not the outermost.
func own(event string, a pcommon.Map) bool {
	if event == rule.EventExit {
		return rule.Text(a, "process.exit.inherited_identity") != "true"
	}
	pid, _ := rule.Integer(a, "process.pid")
	of, known := rule.Integer(a, rule.AttributeRankPID)
	return !known || of == pid
}

// unwatched is for how long nobody had watched a rank that was found to be gone: it may have ended at any time of it.
func unwatched(a pcommon.Map) int64 {
	n, _ := rule.Integer(a, "process.gone.unwatched_ns")
	return max(n, 0)
}

// serious reports whether an Xid can hang a process: not one that was injected,
// nor one that the application causes, which ends it.
func serious(a pcommon.Map) bool {
	if injected, ok := a.Get("kernelevents.injected"); ok && injected.Bool() {
		return false
	}
	class, ok := a.Get("kernelevents.class")
	return !ok || class.Str() != "restart_application" && class.Str() != "informational"
}

// readFuse reads a stall of a FUSE mount with all that wait for it.
func (f *fact) readFuse(r *rule.Record) string {
	a := r.Attributes
	if pids, ok := a.Get("fuse.stall.pids"); ok && pids.Type() == pcommon.ValueTypeSlice {
		for i := range min(pids.Slice().Len(), 256) {
			if v := pids.Slice().At(i); v.Type() == pcommon.ValueTypeInt && v.Int() > 1 {
				f.PIDs = append(f.PIDs, v.Int())
			}
		}
	}
	f.Of, f.Started = 0, 0
	if f.Kind = "fuse.stall"; r.Name == "fuse.stall.end" {
		f.Ended = r.Time
	}
	if age, _ := rule.Integer(a, "fuse.stall.age_ns"); age > 0 && age < r.Time {
		f.Onset = r.Time - age
	}
	f.Device = rule.Text(a, "fuse.device")
	what := "a FUSE request"
	if opcode := rule.Text(a, "fuse.opcode"); opcode != "" {
		what = "FUSE " + opcode
	}
	f.Text = what + " on " + cmp.Or(rule.Text(a, "fuse.mount.point"), "device "+f.Device) + " does not return"
	return cmp.Or(rule.Text(a, "fuse.stall.id"), f.Device)
}

// diedIn reports whether a rank of the job died between two times. A worker of a data loader ends with each epoch.
func (fs *facts) diedIn(job string, from, by int64) bool {
	for _, f := range fs.All {
		if (f.Kind == rule.EventExit && f.Rank >= 0 || f.Kind == "oom.kill") && f.Onset >= from && f.Onset <= by && f.of(job) && !fs.again(f) {
			return true
		}
	}
	return false
}

// of reports whether f is about a job by that name.
func (f *fact) of(job string) bool { return f.Job == job || f.Beside != "" && f.Beside == job }

// again reports whether the rank of a process that ended has begun again alone since: it is no more missing.
func (fs *facts) again(ended *fact) bool {
	for _, f := range fs.All {
		if f.Kind == rule.EventStart && f.JobID == ended.JobID && f.Domain == ended.Domain && f.Rank == ended.Rank && f.Rank >= 0 && f.Onset > ended.Onset {
			return true
		}
	}
	return false
}

// stopOf is when the last rank ended that somebody had asked to end with its job, or when the first was asked that
// lives, as far as that is remembered; 0 for none. Who asks again and again ends nothing.
func (fs *facts) stopOf(job string) (last int64) {
	asked := int64(0)
	for _, f := range fs.All {
		switch {
		case !f.Stop || f.Job != job:
		case f.Kind != rule.EventAsked:
			last = max(last, f.Last)
		case asked == 0 || f.Onset < asked:
			asked = f.Onset
		}
	}
	return max(last, asked)
}

// endOf is when a process ended, 0 where that is not known.
func (fs *facts) endOf(p *socketstall.Process, j *socketstall.Job) (at int64) {
	who := subjectOf(p, j)
	for _, f := range fs.by[socketstall.ProcessKey(p.Host, p.PID)] {
		if (f.Kind == rule.EventExit || f.Kind == rule.EventGone) && f.tells(who) && f.Last >= p.Doing.At {
			at = max(at, f.Last)
		}
	}
	return at
}

// order of facts: what ends a process says more than what holds it.
var order = []string{"oom.kill", rule.EventExit, rule.EventGone, "gpu.lost", "gpu.xid", "fuse.stall", "host.lockup"}

// of returns the fact that says most of why p does not go on, nil for none: one of its
// own, or one that holds a process which it has started.
func (fs *facts) of(who subject, onset, first int64) *fact {
	best := fs.about(who, onset, first, order)
	for _, who.pid = range who.tree {
		who.started = 0
		child := who.pid
		f := fs.about(who, onset, first, holding)
		if f != nil && best == nil {
			said := *f
			said.Text = fmt.Sprintf("of its child process %d: %s", child, f.Text)
			best = &said
		}
	}
	return best
}

// holding are the kinds of facts that hold up a rank when they hold a child of it. Children
// that end do so all the time.
var holding = []string{"fuse.stall", "host.lockup", "gpu.lost", "gpu.xid"}

// subject is a process that a fact may tell of.
type subject struct {
	host         string
	pid, started int64 // started is 0 when not known
	job          *socketstall.Job
	heard        int64   // when its agent last spoke of its rank
	sent         int64   // when its rank last sent data, 0 never
	tree         []int64 // processes that it has started
}

func subjectOf(p *socketstall.Process, j *socketstall.Job) subject {
	return subject{host: p.Host, pid: p.PID, started: p.Started, job: j, heard: p.Last, sent: p.Sent, tree: p.Doing.Tree}
}

// over reports whether f was, before a stall began, or is: what a mount holds is told again while it does,
// and an agent that speaks of the rank and not of the mount sees no end that came while it was away.
func (f *fact) over(p subject, onset int64) bool {
	if f.Ended != 0 || f.Kind != "fuse.stall" {
		return f.Ended != 0 && f.Ended <= onset
	}
	return f.Last+int64(socketstall.Fading) < max(p.heard, onset)
}

// outlived reports whether a rank has gone on after a child of it was killed. It may use up what that had
// prepared, or have no need of it: so that may be why it is silent later, and holds up nobody by itself.
func (f *fact) outlived(p subject) bool {
	return f.Kind == "oom.kill" && f.Of != p.pid && f.Last < p.sent-sameFault
}

// tells reports whether f can be about that process: its pid may have been another's before.
func (f *fact) tells(p subject) bool {
	switch {
	case f.Of == p.pid && f.Started != 0 && p.started != 0:
		return f.Started == p.started
	case f.Kind == "fuse.stall": // processes of several jobs wait for one mount
		return true
	}
	return f.JobID == "" || p.job.ID == "" || f.JobID == p.job.ID && (f.Domain == "" || p.job.Domain == "" || f.Domain == p.job.Domain)
}

// about returns the fact of these kinds that says most of a process. What came after the
// stall was first seen is its consequence, unless it holds the process.
func (fs *facts) about(p subject, onset, first int64, kinds []string) *fact {
	var best *fact
	for _, f := range fs.by[socketstall.ProcessKey(p.host, p.pid)] {
		if !f.tells(p) {
			continue
		}
		late := f.Onset > first && f.Kind != "fuse.stall" && f.Kind != "host.lockup"
		if late || f.over(p, onset) || f.outlived(p) && f.Last < onset-deathsBefore || !slices.Contains(kinds, f.Kind) || best != nil && f.compare(best) >= 0 {
			continue
		}
		best = f
	}
	return best
}

func (f *fact) compare(o *fact) int {
	return cmp.Or(
		cmp.Compare(slices.Index(order, f.Kind), slices.Index(order, o.Kind)),
		cmp.Compare(f.Onset, o.Onset), cmp.Compare(f.Text, o.Text),
	)
}
