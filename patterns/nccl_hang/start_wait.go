package ncclhang

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/internal/waitclass"
	starts "github.com/tracecoreai/tracecore/patterns/engine/run"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// The kinds of a job that does not come together at its start.
const (
	// Gathers: all ranks that are seen wait where ranks meet at the start (init_process_group), for ranks of which nothing is
	// seen. It may be no fault.
	Gathers Kind = "gathers"
	// Absent: the same, for longer than ranks of one job start apart.
	Absent Kind = "absent"
)

const (
	doubtAbsent = "their processes may run where no agent sees them"
	doubtMeet   = "the address at which each of them waits is not known"
	doubtPlace  = "at which address they should meet is not known"
	doubtStore  = "what is wrong at that address is not seen"
)

// meets reports whether it waits where ranks meet at the start of their job. The rank that has the store polls it.
func (p *stackPlace) meets() bool {
	return p.waits() && waitclass.AtStart(p.Call) && (p.Reason == reasonAsleep || p.Reason == reasonSameCall)
}

// comesTogether reports whether the job is about to come together, as far as is seen.
func (r *callRun) comesTogether() bool {
	at, _ := r.meeting()
	return len(at) > 0
}

// meet reports whether every rank of the job waits where ranks meet at its start. Where that has lasted, the fault is not below
// the program, as in a collective: what they wait for is the store, or a rank that has not written there.
func (s *ranksByStack) meet() bool {
	return len(s.waits) == s.run.world && !slices.ContainsFunc(s.waits, func(rank int) bool { return !s.of[rank].stack.meets() })
}

// lookAgain is how far apart two looks at a stack are at most.
const lookAgain = int64(2 * time.Second)

// triesAgain is how long after a rank has left its place a record comes at the latest that it stands there again: the receiver of
// stacks waits for up to 30 s where a rank has often come back, and its record is on the way.
const triesAgain = int64(35 * time.Second)

// meetsAgain notes since when a rank waits at the start that tries to connect again and again: it stands between its tries.
func (p *stackPlace) meetsAgain(before *stackPlace) {
	switch {
	case before.meets() && !p.Standing:
		p.Left = before.came()
	case before.Left != 0 && p.meets() && p.Hash == before.Hash && p.Since <= before.At+lookAgain:
		p.Came = before.Left
	}
}

// mayMeetAgain reports whether what is told of the start of the job may go on: ranks that have left their place there may try
// again, and nobody else is seen.
func (r *callRun) mayMeetAgain(now int64) bool {
	if r.told == nil || !r.told.Start {
		return false
	}
	known, until := map[int]bool{}, int64(0)
	for _, c := range r.callers {
		p := &c.stack
		switch {
		case c.end != "":
			continue
		case p.meets():
		case p.Left != 0 && now < p.At+triesAgain:
			until = max(until, p.At+triesAgain)
		default:
			return false
		}
		known[c.rank] = true
	}
	for rank := range r.running {
		if !known[rank] {
			return false
		}
	}
	if until != 0 {
		r.later(until)
	}
	return until != 0
}

// ofStart takes a record of a process in the run of its own start, too, where that is one job with an earlier one by now: what
// is told of that start ends with it.
func (b *callBook) ofStart(c *callRecord, begun start, now int64) {
	r := b.runs[socketstall.RunName(c.run, begun.own)]
	if begun.own == begun.of || r == nil {
		return
	}
	who := r.callers[process{c.host.Host, c.host.PID}]
	switch {
	case who == nil:
	case c.end != "" && who.end == "":
		who.end, who.ended = r.one(c.end), c.at
		r.changed(now)
	case c.ofStack() && who.stacks(c):
		r.changed(now)
	}
}

// started has a run judged again of which something is told, as a process of it has begun: others may wait for that.
func (b *callBook) started(run string, begun start, now int64) {
	for _, id := range []string{begun.own, begun.of} {
		if r := b.runs[socketstall.RunName(run, id)]; r != nil && r.told != nil {
			r.changed(now)
		}
	}
}

// meeting are the ranks that wait where ranks meet at the start, each by one process, and how many ranks the job has by their
// word. Nil where a rank is elsewhere that is seen: it may come, or ends in a way that is told. And where NCCL is in use: the
// job has come together.
func (r *callRun) meeting() (at map[int]*caller, world int) {
	at = map[int]*caller{}
	for _, c := range r.callers {
		if c.end != "" || c.rank < 0 || !c.stack.meets() {
			continue
		}
		if world == 0 {
			world = c.world
		}
		if c.world != world || c.rank >= world {
			return nil, 0
		}
		if other := at[c.rank]; other == nil || c.standsBefore(other) {
			at[c.rank] = c
		}
	}
	for _, c := range r.callers {
		if at[c.rank] == nil || len(c.places) > 0 {
			return nil, 0
		}
	}
	for rank := range r.running {
		if at[rank] == nil {
			return nil, 0
		}
	}
	if r.stalls != nil {
		for _, p := range r.stalls.Processes {
			if at[p.Rank] == nil {
				return nil, 0
			}
		}
	}
	return at, world
}

// atStart finds that the job does not come together: all ranks that are seen wait where ranks meet at the start for ranks of
// which nothing is seen, or all ranks of the job are there and do not meet. Nobody is to blame for certain. Which ranks run is
// known where processes tell their start.
func (r *callRun) atStart(now int64) *Finding {
	at, world := r.meeting()
	if r.begun == "" && len(at) < world || len(at) == 0 || world < 2 || world-len(at) > verdict.MaxRanks {
		return nil
	}
	s := &ranksByStack{run: r, of: make([]*caller, world), waits: slices.Sorted(maps.Keys(at))}
	var missing []int
	for rank := range world {
		if s.of[rank] = at[rank]; at[rank] == nil {
			missing = append(missing, rank)
		}
	}
	last, kind := s.stoodLast(s.waits), Gathers
	if due := last + int64(r.options.InitWait); now < due {
		r.later(due)
		return nil
	}
	if due := last + int64(max(r.options.StartWait, r.options.InitWait)); now >= due {
		kind = Absent
	} else {
		r.later(due)
	}
	f := s.begin(kind, s.waits, nil, now)
	f.World, f.Members, f.Operation = world, world, at[s.waits[0]].stack.calls()
	since := s.cameFirst()
	f.Since, f.Waited = time.Unix(0, since).UTC(), time.Duration(max(0, now-since))
	f.Culprits, f.Affected = missing, slices.Sorted(slices.Values(slices.Concat(s.waits, missing)))
	places := s.meetings()
	if f.Detail = s.whereAtStart(since, places); len(missing) > 0 {
		f.doubt(Likely, doubtAbsent)
		return f
	}
	f.CalledBy = verdict.All(world, "ranks")
	switch unknown := slices.ContainsFunc(places, func(m meetingPlace) bool { return m.store == "" }); {
	case unknown || len(places) == 0:
		f.doubt(Likely, doubtMeet)
	case len(places) > 1:
		f.doubt(Likely, doubtPlace)
	default:
		f.doubt(Likely, doubtStore)
	}
	return f
}

// cameFirst is since when the first of the ranks waits.
func (s *ranksByStack) cameFirst() int64 {
	first := int64(0)
	for _, rank := range s.waits {
		if came := s.of[rank].stack.came(); first == 0 || came < first {
			first = came
		}
	}
	return first
}

// whereAtStart says since when the first rank waits, on which hosts they do, and at which address where that is known.
func (s *ranksByStack) whereAtStart(since int64, places []meetingPlace) string {
	hosts := map[string]bool{}
	for _, rank := range s.waits {
		hosts[s.of[rank].host.Host] = true
	}
	names := slices.Sorted(maps.Keys(hosts))
	text := "the first since " + time.Unix(0, since).UTC().Format("15:04:05 UTC") + ", on " + strings.Join(names[:min(len(names), mostPlaces)], ", ")
	if more := len(names) - mostPlaces; more > 0 {
		text += " and " + verdict.Number(more) + " more"
	}
	if at := meetingsText(places, len(hosts)); at != "" {
		text += at
	}
	return socketstall.Clip(text)
}

// meetingAddress is the address where ranks meet that have no job id: their job is named by it, and by how many they are.
func meetingAddress(job string) string {
	address, world, found := strings.Cut(job, "/")
	colon := strings.LastIndexByte(address, ':')
	if !found || colon <= 0 {
		return ""
	}
	for _, number := range []string{world, address[colon+1:]} {
		if n, err := strconv.Atoi(number); err != nil || n <= 0 {
			return ""
		}
	}
	return address
}

// runningRanks are the ranks of which a process of that start was seen.
func (j *Join) runningRanks(r *callRun) map[int]starts.Process {
	return j.starts.Ranks(jobOf(r.job, r.domain), r.begun)
}
