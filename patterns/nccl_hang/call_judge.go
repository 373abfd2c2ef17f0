package ncclhang

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Thresholds of what calls tell. How long a rank may be silent is the receiver's
// judgement (nccl.rank.silence); how long others wait are parameters of pattern.yaml.
const (
	// tooFar is how many collectives, and for how long, ranks cannot be ahead of one that
	// still belongs to them: GPUs queue about a thousand operations. Then its record is old.
	tooFar     = 4096
	tooFarTime = 10 * time.Minute
	// socketsSpeak is how long the sockets of a job are waited for that stall: a snapshot of
	// every agent, and what the pattern of sockets waits for itself (its settle).
	socketsSpeak = int64(2 * time.Second)
	// socketsSettle is the same where they have told of every rank that it stands.
	socketsSettle = int64(time.Second)
	// mountSpeaks is how long the probe of FUSE is waited for where a rank that is named waits for
	// such a mount: its threshold and scan_interval, 1 s each, and the way here.
	mountSpeaks = int64(2500 * time.Millisecond)
	// exitSpeaks is how long it is waited for how a process has ended: the end of a rank that was
	// asked to is told a second later (bpf/identity/spared.go), and comes here in another record.
	exitSpeaks = int64(2 * time.Second)
	// movingSpeaks is how long the record is waited for that a rank goes on, where all seem to wait for each other. Who looks
	// at stacks does so once a second, and says after 3 s that nothing of a rank goes on. From several hosts it may take much longer.
	movingSpeaks     = int64(3500 * time.Millisecond)
	movingSpeaksAfar = int64(10 * time.Second)
	// outsideWait is how long a rank may wait for a process that is none. Pattern nccl_socket_stall has the same by its
	// parameter of that name, and tells it.
	outsideWait = int64(10 * time.Minute)
	// answerWait is how long a rank may wait for the answer of a process that is none, and be information: a service may compute.
	// It is unwatched of pattern nccl_socket_stall.
	answerWait = time.Minute
	// resumedSpeak is how long after a restart the receivers are waited for: that of stacks says after 3 s which
	// ranks go on (receivers/stacksreceiver/README.md), and its record comes in the next round.
	resumedSpeak = int64(5 * time.Second)
	// callJitter is by how much times of calls of one host may differ: a scan converts each to the wall
	// clock (receivers/ncclcallreceiver, goesOn).
	callJitter = int64(time.Millisecond)
	// mostListed bounds the ranks that wait, one by one, in a finding.
	mostListed = 16_384
)

// Doubts of calls.
const (
	doubtGraphs    = "ranks launched CUDA graphs, whose collectives make no call"
	doubtUneven    = "the others ran ahead unevenly"
	doubtMany      = "many ranks lack it: perhaps the others call one too many"
	doubtFar       = "it is so far behind that its record may be old"
	doubtLost      = "records of the job were lost"
	doubtDispute   = "two processes say that they are the same rank of the communicator"
	doubtDoing     = "what it does is not known"
	doubtExact     = "the calls of some ranks were not counted from the beginning, so their numbers cannot be compared"
	doubtAligned   = "the calls of some ranks were counted from some call on, and NCCL's own counters say what was before"
	doubtLimited   = "a rank calls too often, and its calls are not counted"
	doubtUnread    = "a rank has communicators whose rank and size cannot be read"
	doubtBelow     = "what the links between them do is not seen"
	doubtWaiters   = "%s %s the call, too, and %s in a collective or for the GPU, by the stack"
	doubtElsewhere = "%s %s the call, too, and %s on another communicator, where it is not certain for whom"
	doubtOther     = "other ranks lack another call of another communicator"
	doubtOthers    = "%s %s the call, too, and may make it"
	doubtBackward  = "%s %s in backward, whose threads do not show what they wait for: their GPU, or other ranks"
	doubtStraggler = "%s %s a call, and may make it"
	doubtPairs     = "sends and receives of two ranks are not compared: each may wait for the other's"
	doubtCalled    = "all have called the same, and a job that has nothing to do looks like that by its calls"
	doubtInit      = "a rank whose agent started later may have called it unseen"
)

// doubtUnseen are those of ranks of which not all calls are seen.
var doubtUnseen = map[string]string{
	unseenStatic: "the calls of %s are not seen: NCCL is linked into the program and exports no function",
	unseenGPU:    "the GPUs of %s communicate by themselves, too (NVSHMEM, the device API of NCCL), which makes no call",
}

// standings are the ranks of a communicator in order.
type standings struct {
	comm    *communicator
	run     *callRun
	parent  *communicator // that it is made of, where it is being made of another
	made    string        // in which way
	ranks   []int         // in the communicator
	places  []*place      // of these
	named   bool          // every process says its rank in the job, and each another
	isWorld bool          // the ranks of the communicator are those of the job
	excused map[int]bool  // ranks of the job that wait elsewhere, and are not to blame: whether that is certain
	unseen  map[int]bool  // ranks whose calls are not counted: they are left out
}

func (r *callRun) standings(c *communicator) *standings {
	s := &standings{comm: c, run: r, ranks: slices.Sorted(maps.Keys(c.places)), named: true, isWorld: c.size == r.world}
	if of, made, is := strings.Cut(c.name, "/"); is {
		s.parent, s.made = r.comms[of], made
	}
	seen := make(map[int]struct{}, len(s.ranks))
	s.places = make([]*place, len(s.ranks))
	for i, rank := range s.ranks {
		s.places[i] = c.places[rank]
		of := s.places[i].caller.rank
		if _, twice := seen[of]; twice || of < 0 {
			s.named = false
		}
		seen[of] = struct{}{}
		s.isWorld = s.isWorld && of == rank
	}
	return s
}

// leaveOut leaves out the ranks whose calls are not counted: where they stand, nobody knows. One
// that has ended, or has ended the communicator, calls no more.
func (s *standings) leaveOut(limited map[process]int64) {
	if len(limited) == 0 {
		return
	}
	s.unseen = map[int]bool{}
	ranks, places := s.ranks[:0:0], s.places[:0:0]
	for i, p := range s.places {
		if _, is := limited[process{p.caller.host.Host, p.caller.host.PID}]; is && !p.ended && !p.left {
			s.unseen[s.ranks[i]] = true
			continue
		}
		ranks, places = append(ranks, s.ranks[i]), append(places, p)
	}
	s.ranks, s.places = ranks, places
}

// at is where a rank stands in the communicator, or in its parent while it is being made; nil where
// nobody knows.
func (s *standings) at(rank int) *place {
	if s.parent != nil && s.parent.size == s.comm.size && !has(s.ranks, rank) {
		return s.parent.places[rank]
	}
	return s.comm.places[rank]
}

// inJob translates ranks of the communicator to those of the job; false where that cannot
// be done for all.
func (s *standings) inJob(ranks []int) ([]int, bool) {
	of := make([]int, len(ranks))
	for i, rank := range ranks {
		switch p := s.at(rank); {
		case p != nil && s.named && p.caller.rank >= 0:
			of[i] = p.caller.rank
		case s.isWorld && s.named:
			of[i] = rank
		default:
			return ranks, false
		}
	}
	slices.Sort(of)
	return of, true
}

// absent are the ranks of which no record came, most at the most.
func (s *standings) absent(most int) (ranks []int) {
	for rank := 0; rank < s.comm.size && len(ranks) < most; rank++ {
		if !has(s.ranks, rank) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// where returns the ranks for which it holds.
func (s *standings) where(holds func(*place) bool) (ranks []int) {
	for i, rank := range s.ranks {
		if holds(s.places[i]) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

func (s *standings) any(holds func(*place) bool) bool {
	return slices.ContainsFunc(s.places, holds)
}

// judge says what is incomplete in a communicator, nil for nothing, and when to ask again
// where time alone changes that.
func (r *callRun) judge(c *communicator, limited map[process]int64, now int64, excused map[int]bool) (f *Finding, again int64) {
	c.even = uneven
	s := r.standings(c)
	s.excused = excused
	s.leaveOut(limited)
	s.leaveOld()
	waits := s.where(func(p *place) bool { return p.standing })
	if len(waits) == 0 || s.any(func(p *place) bool { return !p.standing && !p.ended && !p.left }) {
		return nil, 0 // nobody waits, or a rank goes on: the others do in a moment
	}
	if !s.any(func(p *place) bool { return !p.making }) {
		f, again = s.judgeInit(now)
	} else {
		f, again = s.judgeCalls(now)
	}
	if f != nil {
		s.doubts(f)
	}
	return f, again
}

// begin fills in what every finding of the communicator says.
func (s *standings) begin(kind Kind, since, now int64) *Finding {
	r := s.run
	f := &Finding{
		Kind: kind, Sure: Certain, Run: r.name, Job: r.job, Domain: r.domain, World: r.world, Group: s.comm.name, Comm: s.comm.name, Members: s.comm.size,
		Since: time.Unix(0, since).UTC(), Waited: time.Duration(max(0, now-since)), rank: -1,
	}
	f.Desc = "communicator " + s.comm.name
	if of, made, is := strings.Cut(s.comm.name, "/"); is {
		f.Desc = "a " + made + " of communicator " + of
	}
	return f
}

// leaveOld leaves out those who have made another one of the same communicator before: all must call
// the function again.
func (s *standings) leaveOld() {
	if s.made == "" {
		return
	}
	last := s.lastMaking()
	ranks, places := s.ranks[:0:0], s.places[:0:0]
	for i, p := range s.places {
		if p.making || p.at > last {
			ranks, places = append(ranks, s.ranks[i]), append(places, p)
		}
	}
	s.ranks, s.places = ranks, places
}

// lastMaking is when the last rank called the function in which it waits.
func (s *standings) lastMaking() (last int64) {
	for _, p := range s.places {
		if p.making {
			last = max(last, p.since)
		}
	}
	return last
}

// lack are the ranks that have not called the function which makes a communicator of another. A rank
// may have called it that made a call after the last of those who wait, or whose agent came late. A call
// that one of those made, too, before it waited came before, whatever the clocks of their hosts say.
func (s *standings) lack(absent []int) []int {
	last, byRank := s.lastMaking(), map[int]*caller{}
	if s.isWorld {
		byRank = s.run.byRank()
	}
	return slices.DeleteFunc(slices.Clone(absent), func(rank int) bool {
		who := (*caller)(nil)
		if p := s.at(rank); p != nil {
			if !p.exact || p.at > last && !p.standing && !p.ended {
				return true
			}
			who = p.caller
		} else {
			who = byRank[rank]
		}
		return who != nil && slices.ContainsFunc(who.places, func(at placeOf) bool { return at.comm.places[at.rank].last > last && !s.cameBefore(at) })
	})
}

// cameBefore reports whether a rank that waits has called as many collectives of that communicator as
// the rank there, before it called the function in which it waits.
func (s *standings) cameBefore(at placeOf) bool {
	p := at.comm.places[at.rank]
	if p.peer >= 0 || !p.exact && !p.aligned { // its last call is to one rank, or its calls cannot be compared
		return false
	}
	return s.any(func(w *place) bool {
		return w.making && slices.ContainsFunc(w.caller.places, func(other placeOf) bool {
			q := other.comm.places[other.rank]
			return other.comm == at.comm && (q.exact || q.aligned) && q.number >= p.number && q.last <= w.since+callJitter
		})
	})
}

// judgeInit judges a communicator that is being made: its functions return when all ranks
// have called them.
func (s *standings) judgeInit(now int64) (f *Finding, again int64) {
	since, function := int64(0), ""
	for _, rank := range s.ranks {
		p := s.comm.places[rank]
		if since == 0 || p.since < since {
			since = p.since
		}
		function = cmp.Or(function, p.operation)
	}
	if len(s.ranks) == s.comm.size {
		return nil, 0
	}
	absent := s.absent(mostListed)
	missing := absent
	if s.made != "" {
		if missing = s.lack(absent); len(missing) == 0 {
			return nil, 0
		}
	}
	all := len(missing)
	missing, others := s.halted(missing)
	f = s.begin(NotInitialized, since, now)
	f.Operation = cmp.Or(function, "ncclCommInitRank")
	s.blame(f, missing, s.ranks)
	f.doubt(Likely, doubtInit)
	s.doubtOthers(f, others)
	does, unknown := s.does(missing)
	unheard := len(unknown) + s.comm.size - len(s.ranks) - len(absent) // with those beyond the list
	switch {
	case does == acting:
		f.Pending = true // the receiver says when that has lasted for long
	case does == working && unheard == 0:
		f.Kind = Works
		f.doubt(Likely, doubtPhase)
	case (does != stuck || unheard > 0) && now-since < int64(s.run.options.InitWait):
		f.Pending, again = true, since+int64(s.run.options.InitWait)
	}
	if all < len(absent) {
		f.doubt(Likely, "other ranks may have called it unseen")
	}
	if s.made == functionShrink {
		f.doubt(Unsure, "which ranks are left out is not known")
	}
	if 4*unheard > s.comm.size && unheard > 1 {
		f.doubt(Unsure, "of most ranks no record came")
	}
	return f, again
}

// judgeCalls compares how many collectives each rank has called.
func (s *standings) judgeCalls(now int64) (f *Finding, again int64) {
	c, top := s.comm, int64(0)
	for _, p := range s.places {
		if p.standing {
			top = max(top, p.number)
		}
	}
	ahead := s.where(func(p *place) bool { return p.standing && p.number == top })
	behind := s.where(func(p *place) bool { return p.number < top })
	if s.any(func(p *place) bool { return !p.exact && !p.aligned }) {
		return s.judgeHalted(now)
	}
	if len(behind) == 0 {
		if s.any(func(p *place) bool { return p.grouped }) {
			return nil, 0 // NCCL has launched nothing for which they could wait
		}
		if len(s.ranks) < c.size {
			return s.judgeAbsent(ahead, top, now)
		}
		c.even = alike
		if top == 0 {
			c.even = pairwise
		}
		return cmp.Or(s.mismatch(top, now), s.stopped(now)), 0
	}
	low := top
	for _, rank := range behind {
		if p := c.places[rank]; !p.waitsItself() {
			low = min(low, p.number)
		}
	}
	if low == top {
		c.even = waiting
		return s.lacking(ahead, behind, now), 0
	}
	return s.judgeBehind(ahead, behind, low, top, now)
}

// judgeBehind blames the ranks that have made the fewest calls and do not wait themselves: low,
// where those ahead have made top.
func (s *standings) judgeBehind(ahead, behind []int, low, top, now int64) (f *Finding, again int64) {
	c := s.comm
	culprits := s.where(func(p *place) bool { return p.number == low && !p.waitsItself() && !s.isExcused(p) })
	if len(culprits) == 0 {
		culprits = s.where(func(p *place) bool { return p.number == low && !p.waitsItself() })
	}
	if c.many(culprits) && s.any(func(p *place) bool { return !p.exact }) {
		return nil, 0 // the counters of those ahead may count what went to single ranks before
	}
	culprits, others := s.halted(culprits)
	does, _ := s.does(culprits)
	since := s.earliest(ahead)
	f = s.begin(NotCalled, since, now)
	switch {
	case does == acting:
		f.Pending = true // the receiver says when that has lasted for long
	case does == untold && now-since < int64(s.run.options.UnknownWait):
		f.Pending, again = true, since+int64(s.run.options.UnknownWait)
	case does == working:
		f.Kind = Works
		f.doubt(Likely, doubtPhase)
	}
	f.Seq, f.Behind = low+1, top-low
	f.Operation, f.Elements = inWords(s.what(low, ahead))
	f.elsewhere = slices.ContainsFunc(culprits, func(rank int) bool { return c.places[rank].left || c.places[rank].caller.elsewhere() })
	s.blame(f, culprits, s.where(func(p *place) bool { return p.standing && p.number > low }))
	if !slices.ContainsFunc(culprits, func(rank int) bool { return !c.places[rank].grouped }) {
		f.Grouped, f.Detail = true, fmt.Sprintf("%s called it in a group that has not ended (ncclGroupEnd)", plural(culprits, "it has", "they have"))
	}
	waiters := s.doubtBehind(f, culprits, low)
	s.doubtOthers(f, others)
	behind = slices.DeleteFunc(behind, func(rank int) bool {
		return has(waiters, rank) || s.isExcused(c.places[rank]) || has(others, rank)
	})
	s.doubtNumbers(f, culprits, ahead, behind)
	if does == untold {
		f.doubt(Likely, doubtDoing)
	}
	return f, again
}

// doubtBehind says who else may be to blame: ranks that are no further and wait, or are in another
// collective, and culprits in their backward pass. It returns those that wait.
func (s *standings) doubtBehind(f *Finding, culprits []int, low int64) (waiters []int) {
	waiters = s.where(func(p *place) bool { return p.number <= low && p.waitsItself() })
	if len(waiters) > 0 {
		of, local := s.ranksOf(waiters)
		if !local && !f.Local {
			f.Affected = of
		}
		f.doubt(Likely, fmt.Sprintf(doubtWaiters, subject(of), plural(of, "lacks", "lack"), plural(of, "waits", "wait")))
	}
	unsure := s.where(func(p *place) bool { return p.number == low && s.isExcused(p) && !s.excused[p.caller.rank] })
	if len(unsure) > 0 {
		of, _ := s.ranksOf(unsure)
		f.doubt(Likely, fmt.Sprintf(doubtElsewhere, subject(of), plural(of, "lacks", "lack"), plural(of, "waits", "wait")))
	}
	if back := s.inBackward(culprits); len(back) > 0 {
		f.doubt(Likely, fmt.Sprintf(doubtBackward, subject(back), plural(back, "stands", "stand")))
	}
	return waiters
}

// inBackward are those of the ranks that wait for their threads of backward since their last call.
func (s *standings) inBackward(ranks []int) []int {
	of, _ := s.ranksOf(slices.DeleteFunc(slices.Clone(ranks), func(rank int) bool {
		p := s.comm.places[rank]
		return p.halted() || !p.caller.stack.backward() || p.caller.stack.At < p.caller.last()
	}))
	return of
}

// lacking says who lacks a call, and waits itself.
func (s *standings) lacking(ahead, behind []int, now int64) *Finding {
	low := s.comm.places[behind[0]].number
	for _, rank := range behind {
		low = min(low, s.comm.places[rank].number)
	}
	f := s.begin(NotCalled, s.earliest(ahead), now)
	f.Seq, f.wait = low+1, true
	f.Operation, f.Elements = inWords(s.what(low, ahead))
	s.blame(f, s.where(func(p *place) bool { return p.number == low }), s.where(func(p *place) bool { return p.standing && p.number > low }))
	f.Does = ""
	return f
}

func (s *standings) isExcused(p *place) bool {
	_, is := s.excused[p.caller.rank]
	return is && !p.left // it cannot call it any more
}

// doubtNumbers says what speaks against the numbers.
func (s *standings) doubtNumbers(f *Finding, culprits, ahead, behind []int) {
	c := s.comm
	if len(behind) > len(culprits) {
		f.doubt(Likely, doubtUneven)
	}
	if c.many(culprits) {
		f.doubt(Likely, doubtMany)
	}
	if absent := s.absent(mostListed); len(absent) > 0 {
		f.doubt(Likely, "of "+subject(absent)+" of the communicator no record came")
	}
	last := int64(0)
	for _, rank := range culprits {
		last = max(last, c.places[rank].last, c.places[rank].since)
	}
	switch {
	case f.Behind > tooFar || s.earliest(ahead)-last > int64(tooFarTime):
		f.doubt(Unsure, doubtFar)
	case f.Behind > maxCallWindow:
		f.doubt(Likely, doubtFar)
	}
}

// judgeAbsent judges ranks that stand in one place while nothing is known of others. It
// accuses nobody: a rank without a record may go on, and its node may have no agent.
func (s *standings) judgeAbsent(ahead []int, top, now int64) (f *Finding, again int64) {
	since := s.earliest(ahead)
	f = s.begin(NoCall, since, now)
	if now-since < int64(s.run.options.InitWait) {
		f.Pending, again = true, since+int64(s.run.options.InitWait)
	}
	f.Seq = top
	f.Operation, f.Elements = inWords(s.what(top-1, ahead))
	f.Waiting, f.Local = s.ranksOf(ahead)
	f.CalledBy = f.calledBy()
	f.NoDump, _ = s.ranksOf(s.absent(mostListed))
	f.doubt(Unsure, "of "+subject(s.absent(mostListed))+" of the communicator no record came")
	return f, again
}

// many reports whether so many ranks, more than a quarter, are rather waited with than waited for.
func (c *communicator) many(ranks []int) bool { return len(ranks) > 1 && 4*len(ranks) > c.size }

// judgeHalted judges ranks whose numbers cannot be compared: then only one that cannot go
// on by itself is told from those that wait.
func (s *standings) judgeHalted(now int64) (*Finding, int64) {
	halted := s.where(func(p *place) bool { return p.ended || p.caller.halted() })
	others := s.where(func(p *place) bool { return p.standing && !p.caller.halted() })
	if len(halted) == 0 {
		s.comm.even = uncounted
	}
	if len(halted) == 0 || len(others) == 0 || s.comm.many(halted) {
		return nil, 0
	}
	f := s.waitFor(halted, others, now)
	f.doubt(Likely, doubtExact)
	return f, 0
}

// stopped judges ranks that have all called the same. What a rank has called needs its threads until
// it is done: one that is stopped where it called last, while all others wait for longer than they
// ever do, is whom they wait for, unless a stack shows one of them elsewhere. Once it is told that all
// wait, who is stopped is looked at by somebody: a debugger comes after the hang.
func (s *standings) stopped(now int64) *Finding {
	if told := s.run.told; told != nil && told.Below {
		return nil
	}
	var halted, others []int
	for i, p := range s.places {
		switch state, _ := p.caller.does(); {
		case state == socketstall.Stopped || state == socketstall.Frozen:
			if p.caller.newest() != s.comm {
				return nil
			}
			halted = append(halted, s.ranks[i])
		case !p.standing || p.caller.doing.Silence != socketstall.Overdue || p.caller.elsewhere():
			return nil
		default:
			others = append(others, s.ranks[i])
		}
	}
	if len(halted) == 0 || len(others) == 0 || s.comm.many(halted) {
		return nil
	}
	f := s.waitFor(halted, others, now)
	f.doubt(Likely, doubtCalled)
	return f
}

// waitFor begins a finding about ranks that cannot go on, for which others wait.
func (s *standings) waitFor(halted, others []int, now int64) *Finding {
	f := s.begin(Halted, s.earliest(others), now)
	s.blame(f, halted, others)
	f.elsewhere, f.CalledBy = true, f.named(f.Waiting)
	if len(others) > 1 {
		f.CalledBy = verdict.Number(len(others)) + " ranks"
	}
	return f
}

// mismatch finds ranks whose last collectives are others than those of most, under the
// same numbers.
func (s *standings) mismatch(top, now int64) *Finding {
	if len(s.comm.windows) < 2 || s.any(func(p *place) bool { return p.caller.doing.Silence == socketstall.Usual }) {
		return nil
	}
	for number := max(0, top-maxCallWindow); number < top; number++ {
		did := map[string][]int{}
		for _, rank := range s.ranks {
			if what := s.comm.places[rank].at32(number); what != "" {
				did[what] = append(did[what], rank)
			}
		}
		if len(did) > 1 {
			return s.disagree(did, number, now)
		}
	}
	return nil
}

func (s *standings) disagree(did map[string][]int, number, now int64) *Finding {
	kinds := slices.SortedFunc(maps.Keys(did), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(did[b]), len(did[a])), cmp.Compare(did[a][0], did[b][0]))
	})
	f := s.begin(Mismatch, s.earliest(s.ranks), now)
	f.Seq, f.What = number+1, "operation"
	f.Operation, f.Elements = inWords(kinds[0])
	var parts, culprits = []string{}, []int{}
	for i, kind := range kinds[:min(len(kinds), 4)] {
		operation, elements := inWords(kind)
		of, _ := s.ranksOf(did[kind])
		parts = append(parts, fmt.Sprintf("%s: %s (%s)", subject(of), operation, elements))
		if i > 0 {
			culprits = append(culprits, did[kind]...)
			if other, _ := inWords(kind); other == f.Operation {
				f.What = "sizes"
			}
		}
	}
	if 2*len(did[kinds[0]]) <= len(s.ranks) {
		culprits = nil // nobody is in the majority
		f.doubt(Likely, "no operation has a majority")
	}
	slices.Sort(culprits)
	s.blame(f, culprits, s.ranks)
	f.Detail = socketstall.Clip(strings.Join(parts, "; "))
	if number < s.comm.places[s.ranks[0]].number-1 {
		f.doubt(Likely, "the ranks went on after it")
	}
	return f
}

// at32 is what the rank called under that number, "" where it is not known any more.
func (p *place) at32(number int64) string {
	for i := range p.window {
		if p.window[i].number == number {
			return p.window[i].what
		}
	}
	return ""
}

// what is the collective of that number, as one of these ranks called it.
func (s *standings) what(number int64, ranks []int) string {
	for _, rank := range ranks {
		if what := s.comm.places[rank].at32(number); what != "" {
			return what
		}
	}
	return ""
}

// earliest is when the first of these ranks made its last call.
func (s *standings) earliest(ranks []int) int64 {
	first := int64(0)
	for _, rank := range ranks {
		if at := s.comm.places[rank].last; first == 0 || at < first {
			first = at
		}
	}
	return first
}

// doings are what the ranks to blame do, the one first that speaks against it most.
type doings int

const (
	acting  doings = iota // it does something, and may come in a moment
	working               // it does, and the others wait for long
	untold                // nobody knows
	stuck                 // nothing of it goes on, or not for as long as is allowed
)

// does is what ranks do, and of which of them nothing is known.
func (s *standings) does(ranks []int) (worst doings, unknown []int) {
	worst = stuck
	for _, rank := range ranks {
		if p := s.at(rank); p != nil {
			worst = min(worst, p.does())
		} else {
			unknown = append(unknown, rank)
		}
	}
	return worst, unknown
}

// halted are those of the ranks that cannot go on by themselves, where others of them may. All of
// the ranks otherwise.
func (s *standings) halted(ranks []int) (blamed, others []int) {
	if does, unknown := s.does(ranks); does == stuck && len(unknown) == 0 {
		return ranks, nil
	}
	for _, rank := range ranks {
		if p := s.at(rank); p != nil && p.halted() {
			blamed = append(blamed, rank)
		} else {
			others = append(others, rank)
		}
	}
	if len(blamed) == 0 {
		return ranks, nil
	}
	return blamed, others
}

// doubtOthers says who lacks the call beside those to blame.
func (s *standings) doubtOthers(f *Finding, others []int) {
	if len(others) == 0 {
		return
	}
	of, local := s.ranksOf(others)
	if !local && !f.Local {
		f.Affected = append(f.Affected, of...)
	}
	f.doubt(Likely, fmt.Sprintf(doubtOthers, subject(of), plural(of, "lacks", "lack")))
}

// halted reports whether the rank cannot go on by itself.
func (p *place) halted() bool { return p.ended || p.left || p.caller.halted() }

func (p *place) does() doings {
	switch _, does := p.caller.does(); {
	case p.halted() || does.Silence == socketstall.Overdue:
		return stuck
	case does.Silence == socketstall.Long:
		return working
	case does.Silence == socketstall.Usual:
		return acting
	}
	return untold
}

// does is what the process does: as who sees its calls says it, or, where that says nothing or is
// older than its being stopped, as who sees its stack does.
func (who *caller) does() (socketstall.State, *socketstall.Doing) {
	stack := &who.stack
	untold := who.state == "" && who.doing.Silence == ""
	if stack.Standing && (untold && stack.At >= who.last() || stack.State.Halted() && stack.told() > who.at) {
		return stack.State, &stack.Doing
	}
	return who.state, &who.doing
}

// halted reports whether the process is stopped, frozen, or has no main thread any more.
func (who *caller) halted() bool {
	state, _ := who.does()
	return state.Halted()
}

// waitsItself reports whether the rank waits in another collective, or for its GPU, since its last
// call, by its stack: it is not whom the others wait for. Where it polls its GPU, it may as well
// compute on it.
func (p *place) waitsItself() bool {
	who := p.caller
	polls := who.doing.Silence == socketstall.Long && who.stack.Class == classGPU && who.stack.Reason != reasonAsleep
	return !p.ended && !p.left && !polls && who.stuckInCall() && !who.stack.inDriver()
}

// ranksOf are ranks of the job, or else of the communicator.
func (s *standings) ranksOf(ranks []int) (of []int, local bool) {
	of, named := s.inJob(ranks)
	return of, !named
}

// blame enters who is to blame, who waits, and what the first to blame does: the first that cannot
// go on by itself, or else the first by its rank in the communicator.
func (s *standings) blame(f *Finding, culprits, waits []int) {
	of, named := s.inJob(culprits)
	who, alsoNamed := s.inJob(waits)
	if !named || !alsoNamed {
		of, who = culprits, waits
	}
	f.Culprits, f.Waiting, f.Local, f.Called = of, who, !named || !alsoNamed, len(waits)
	f.CalledBy = f.calledBy()
	if len(culprits) == 0 {
		return
	}
	first := culprits[0]
	if at := slices.IndexFunc(culprits, func(rank int) bool { p := s.at(rank); return p != nil && p.halted() }); at >= 0 {
		first, f.halted = culprits[at], true
	}
	if p := s.at(first); p != nil {
		f.Host, f.Does, f.rank = p.caller.host, p.words(), p.caller.rank
	} else if !f.Local {
		f.rank = of[0]
	}
}

// words says what a process does that does not call.
func (p *place) words() string {
	if p.ended && p.caller.end != "" {
		return "its process has ended: " + p.caller.end
	}
	if p.ended {
		return "its process has ended"
	}
	if p.left {
		return "it has ended the communicator"
	}
	if stack := &p.caller.stack; stack.inDriver() && stack.At >= p.caller.last() {
		return stack.words()
	}
	return doesInWords(p.caller.does())
}

// doesInWords says what a process does that does not go on.
func doesInWords(state socketstall.State, d *socketstall.Doing) string {
	switch {
	case state == socketstall.Frozen:
		return "its cgroup is frozen"
	case state == socketstall.Zombie:
		return "its main thread has ended"
	case state.Halted() && d.Stopper != "":
		return "its process is stopped (" + d.Stopper + ")"
	case state.Halted():
		return "its process is stopped (SIGSTOP or a debugger)"
	case d.Activity == socketstall.Computing:
		return "its main thread computes"
	case d.Activity == socketstall.ThreadComputing:
		return "a thread beside its main thread computes"
	case d.Activity == socketstall.ChildComputing:
		return "its child process computes"
	case d.Activity == socketstall.IO:
		return "it reads or writes, and is answered"
	case d.Activity == socketstall.Starved:
		return "something of it is ready to run and gets no CPU"
	case d.Activity == socketstall.Idle && d.Waits() != "":
		return d.Waits()
	case d.Activity == socketstall.Idle && strings.HasPrefix(d.File, "/"):
		return "its main thread is blocked on " + d.File
	case d.Activity == socketstall.Idle && socketstall.OfFUSE(d.Channel):
		return "its main thread is blocked in a FUSE file system that does not answer" + in(d)
	case d.Activity == socketstall.Idle && state == socketstall.DiskSleep:
		return "its main thread is blocked in the kernel" + in(d)
	case d.Activity == socketstall.Idle && d.Thread.TID != 0:
		return "its main thread is asleep" + in(d) + ", at 0 % CPU; " + d.Thread.Words()
	case d.Activity == socketstall.Idle:
		return "its main thread is asleep" + in(d) + ", at 0 % CPU"
	}
	return ""
}

func in(d *socketstall.Doing) string {
	where := cmp.Or(d.Syscall, d.Channel)
	if where == "" {
		return ""
	}
	return " in " + where
}

// doubts are those that any finding of the communicator may have.
func (s *standings) doubts(f *Finding) {
	if f.Kind != NotInitialized && s.any(func(p *place) bool { return !p.exact && p.aligned }) {
		f.doubt(Likely, doubtAligned)
	}
	switch {
	case s.comm.disputed:
		f.doubt(Unsure, doubtDispute)
	case s.any(func(p *place) bool { return p.graphs }):
		f.doubt(Unsure, doubtGraphs)
	case len(s.unseen) > 0:
		f.doubt(Unsure, doubtLimited)
	}
	if s.run.lost {
		f.doubt(Likely, doubtLost)
	}
	if len(s.ranks) < s.comm.size && s.run.unread() {
		f.doubt(Likely, doubtUnread)
	}
	f.identify()
}

func (r *callRun) unread() bool {
	for _, c := range r.callers {
		if c.unread {
			return true
		}
	}
	return false
}
