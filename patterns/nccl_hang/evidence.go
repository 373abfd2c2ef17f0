package ncclhang

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Agreement is what the sockets of the job say to a finding.
type Agreement string

// The answers; "" where no stall of the job was open.
const (
	Agree  Agreement = "agree"  // they single out a culprit
	Differ Agreement = "differ" // they single out others
	Idle   Agreement = "idle"   // they single out nobody: every queue is empty, ranks wait
)

// Doubts that the sockets take away or raise.
const (
	doubtNoDump  = "a rank without a dump may be blocked, dead, or on a node that sends none"
	doubtStuck   = "the dumps do not tell a network or GPU that stands still from a collective that takes long"
	doubtSockets = "that it is to blame is told by sockets alone"
)

// hear takes from the sockets of the job what they said when the dumps were
// written. Later they say something else: ranks that abort stop reading, and end.
func (r *run) hear(options *Options, book *socketstall.Book) {
	r.judged = r.written(options)
	r.view, r.socketsJob, r.socketsDomain, r.worldSeen = nil, "", "", 0
	if stalls := r.beside(book); stalls != nil {
		r.socketsJob, r.socketsDomain, r.worldSeen = stalls.ID, stalls.Domain, stalls.World
		if !stalls.Cut() { // what is left of them may single out another
			r.view = viewAt(stalls, r.judged)
		}
	}
}

// beside returns the stalls of the job whose dumps r holds, nil for none: that of its
// name, or else the only one that may be the same.
func (r *run) beside(book *socketstall.Book) *socketstall.Job {
	if stalls := book.Job(r.name); stalls != nil {
		return stalls
	}
	var found *socketstall.Job
	for stalls := range book.Jobs() {
		if r.maybe(stalls) {
			if found != nil {
				return nil
			}
			found = stalls
		}
	}
	return found
}

// maybe reports whether the stalls can be those of r, no domain and no start speaking against it: of
// its job or, where the dumps name none, with a rank on the hosts of the dumps at that
// time.
func (r *run) maybe(stalls *socketstall.Job) bool {
	if !may(r.domain, stalls.Domain) || !may(r.begun, stalls.Run) {
		return false
	}
	if r.job != "" {
		return stalls.ID == r.job
	}
	return r.standsWith(stalls)
}

// standsWith reports whether a rank of r had a stall when r was judged, on the host
// and in the process of its dump.
func (r *run) standsWith(stalls *socketstall.Job) bool {
	for _, p := range stalls.Processes {
		host, spoke := r.ranks[p.Rank]
		same := spoke && host.Host != "" && host.Host == p.Host && (host.PID == 0 || host.PID == p.PID)
		if same && p.OpenAt(r.judged) {
			return true
		}
	}
	return false
}

// written is when the first rank that waits wrote its newest dump: of the ranks
// that wrote theirs within the longest window before the last.
func (r *run) written(options *Options) int64 {
	var waiting []int64
	last := int64(0)
	for _, group := range r.groups {
		for _, d := range group {
			last = max(last, d.at)
			if d.waits() {
				waiting = append(waiting, d.at)
			}
		}
	}
	first := int64(0)
	for _, at := range waiting {
		if last-at <= int64(options.Longest) && (first == 0 || at < first) {
			first = at
		}
	}
	return first
}

// ranksOfJob is the number of ranks of the job, 0 where neither dumps nor stall
// records have it.
func (r *run) ranksOfJob() int {
	if r.world > 0 {
		return r.world
	}
	return r.worldSeen
}

// listen holds a finding against what the sockets say. They know no collectives:
// they can name who holds others up, so they decide where dumps name nobody, and
// raise a doubt where dumps name somebody else. Of a mismatch they know nothing.
func (g *group) listen(f *Finding, options *Options) {
	v := g.run.view
	if v == nil || f.Kind == Mismatch {
		return
	}
	for _, rank := range f.NoDump {
		switch s := v.known(rank); {
		case s.own:
			f.Alive = append(f.Alive, rank)
		case s.ended:
			f.Ended = append(f.Ended, rank)
		}
	}
	f.Held = v.singled
	suspects := g.suspects(f)
	agreed := slices.IndexFunc(v.singled, func(rank int) bool { return has(suspects, rank) })
	switch {
	case len(v.singled) == 0:
		f.Sockets = Idle
	case agreed < 0:
		f.Sockets = Differ
		if !slices.ContainsFunc(v.singled, func(rank int) bool { return has(f.NoDump, rank) }) {
			f.doubt(Likely, "the sockets single out "+subject(v.singled)+" instead")
		}
	default:
		f.Sockets = Agree
		f.confirm(v.singled[agreed], options)
	}
}

// suspects are the ranks of whom one is to blame, by what the dumps say.
func (g *group) suspects(f *Finding) []int {
	switch {
	case len(f.Culprits) > 0:
		return f.Culprits
	case f.Kind == NoDump:
		return f.NoDump
	}
	return g.members
}

func has(sorted []int, rank int) bool {
	_, found := slices.BinarySearch(sorted, rank)
	return found
}

// confirm names the rank where dumps alone named nobody.
func (f *Finding) confirm(rank int, options *Options) {
	if len(f.Culprits) > 0 {
		return
	}
	f.rank = rank
	at := slices.IndexFunc(f.Because, func(doubt string) bool { return doubt == doubtNoDump || doubt == doubtStuck })
	if at < 0 || f.Waited < options.MinWait {
		return
	}
	f.Because[at] = doubtSockets
	f.Sure = Likely
}

// words says what the sockets say to a finding.
func (v *view) words(f *Finding) string {
	if f.Sockets == "" {
		return ""
	}
	var parts []string
	for i, rank := range f.Held {
		if i == 4 {
			parts = append(parts, fmt.Sprintf("%d more are singled out", len(f.Held)-4))
			break
		}
		parts = append(parts, v.known(rank).words(rank))
	}
	if f.Sockets == Idle {
		parts = append(parts, "nobody is singled out, "+subject(v.open)+" "+plural(v.open, "stands", "stand"))
		if n := v.known(f.rank).waiters; f.rank >= 0 && n > 0 {
			parts = append(parts, fmt.Sprintf("%s for data from rank %d", count(n, "rank waits", "ranks wait"), f.rank))
		}
	}
	if len(f.Alive) > 0 {
		parts = append(parts, subject(f.Alive)+" sent no dump, but "+plural(f.Alive, "lives: its", "live: their")+" sockets are seen")
	}
	if len(f.Ended) > 0 {
		parts = append(parts, "of "+subject(f.Ended)+", which sent no dump, the process had ended")
	}
	return socketstall.Clip(strings.Join(parts, "; "))
}

func (s standing) words(rank int) string {
	var what []string
	if s.halted {
		what = append(what, "its process is stopped")
	}
	if s.deaf && !s.held {
		what = append(what, "it does not read")
	}
	if s.accusers > 0 && !s.held {
		what = append(what, count(s.accusers, "peer says", "peers say")+" that it does not read")
	}
	if s.unanswered > 0 {
		what = append(what, "packets of "+count(s.unanswered, "rank", "ranks")+" to it get no answer")
	}
	return fmt.Sprintf("rank %d: %s", rank, strings.Join(what, ", "))
}

func plural(ranks []int, one, more string) string {
	if len(ranks) == 1 {
		return one
	}
	return more
}

func count(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return verdict.Number(n) + " " + more
}
