package identity

import (
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/internal/fairlru"
)

// A launch script that exports a rank gives it to all that it runs: grep, ls, a health
// check, the training. Nothing in an environment says which of them is the rank. How they
// ran does: the rank is the one that lives long, or else the last one, or the longest. Of several
// that live long the training is the rank: its libraries are mapped.
const (
	longLived = 5 * time.Second  // then a process is a rank, whatever ran before it
	undecided = time.Second      // how long the end of a short one waits for a next one
	longest   = 15 * time.Second // how long the longest of those waits for the end of its script

	maxLaunches = 4096 // scripts and launchers that are followed
	maxWaiting  = 32   // ends that wait, of one script
	maxSiblings = 64   // living ones that are followed, of one script
)

// launches tells what is a rank from what its launch script runs beside it. It has no
// lock and no clock.
type launches struct {
	tell    func(Exit)
	asked   func(*record, uint64) bool // whether others have asked a process to end, not long before a time
	of      map[parentKey][]*siblings  // by the process that started them
	order   fairlru.List[*siblings]    // oldest first, shared between domains and containers
	evicted uint64
}

// parentKey is a process that starts ranks. The tick of its start is 0 when nobody has
// seen it: a subshell, which forks without executing anything.
type parentKey struct {
	pid  uint32
	tick uint64
}

// siblingKey is one rank of one start of one job, as its processes say.
type siblingKey struct {
	rank, world, attempt int
	job, addr            string
	port                 int
	container            string
}

func keyOfRank(r *record) siblingKey {
	return siblingKey{r.Rank, r.WorldSize, r.Attempt, r.JobID, r.MasterAddr, r.MasterPort, r.ContainerID}
}

// siblings are the processes that one parent, which is no rank, started for one rank.
type siblings struct {
	parent  parentKey
	key     siblingKey
	domain  string // of the first of them
	element *fairlru.Element[*siblings]
	living  []*record
	waiting []waitingEnd
	main    main
	retired bool // their rank was started again while they live
	tries   tries
}

// main is what is known of the one that lived long.
type main uint8

const (
	noMain main = iota
	mainLives
	mainEndedWell
	mainFailed
)

// waitingEnd is the end of a short-lived process that may not have been the rank.
type waitingEnd struct {
	Exit
	lived    uint64
	ended    uint64
	followed bool // its parent went on to another one
	long     bool // it lived long, and had no library of a training
}

// work is what a process does, by what it has mapped once it has lived long, and by its connections.
type work uint8

const (
	unknownWork work = iota // nobody has asked yet, or it starts other programs, which may train
	otherWork
	training
	member // it takes part in the collectives of its job, as a receiver has seen
)

// trains are libraries that a training has mapped, and what prepares it or waits for it has not.
var trains = []string{
	"libcuda.so", "libamdhip64.so", "libnccl.so", "librccl.so", "libtorch*", "libjax*", "xla_extension*", "libtensorflow*", "libtpu.so", "libmpi.so", "libpaddle*",
}

// TrainingLibraries are the names of these, as procfs.FS.Libraries takes them.
func TrainingLibraries() []string { return trains }

// unasked are the processes that have lived long and do not train, as far as is known. Each is due
// again when it has lived twice as long.
func (l *launches) unasked(now uint64) (pids []uint32) {
	l.order.Each(func(g *siblings) {
		for _, r := range g.living {
			if r.work < training && !r.starts && r.startNS+uint64(longLived) <= now && r.askAgain <= now {
				r.askAgain = now + (now - r.startNS) // its libraries may be slow to load
				pids = append(pids, r.PID)
			}
		}
	})
	return pids
}

// askWork asks processes that have lived long what they do. A read of /proc can take its time, so
// nothing waits for it.
func (t *Tracker) askWork(now uint64) {
	t.mu.Lock()
	pids := t.launches.unasked(now)
	t.mu.Unlock()
	began := time.Now()
	for _, pid := range pids {
		if time.Since(began) > longestRound { // the others are due when they have lived twice as long
			return
		}
		found, err := t.proc.Libraries(pid, trains...)
		if err != nil {
			continue
		}
		does := otherWork
		if len(found) > 0 {
			does = training
		}
		t.mu.Lock()
		if r := t.table.at(pid, now); r != nil && r.alive() && r.work != member && r.startNS+uint64(longLived) <= now {
			r.work = does
		}
		t.mu.Unlock()
	}
}

func newLaunches(tell func(Exit), asked func(*record, uint64) bool) *launches {
	return &launches{tell: tell, asked: asked, of: map[parentKey][]*siblings{}}
}

func keyOf(r *record) parentKey { return parentKey{r.PID, r.startNS / uint64(tickNS)} }

// started takes note of the outermost process of a rank. The parent is nil when it is not
// known: then it was never seen, or is dead. One that is known by its calls has no environment
// that others could have, too.
func (l *launches) started(r, parent *record) {
	l.becomes(r)
	if !r.IsRank() || r.Inherited || r.byCalls || r.ParentPID <= 1 || parent != nil && (parent.IsRank() || !parent.alive()) {
		return
	}
	under := parentKey{pid: r.ParentPID}
	if parent != nil {
		under = keyOf(parent)
	}
	if g := r.launched; g != nil && g.retired {
		g.join(r)
		return
	}
	g := l.group(under, keyOfRank(r), r.Domain)
	if l.replaces(g, r) {
		g.retired = true
		g = l.group(under, keyOfRank(r), r.Domain)
	}
	if r.launched != nil && r.launched != g {
		r.launched.forget(r)
	}
	g.join(r)
	g.decide(l.tell)
}

// replaces reports whether r is the rank of g, started again: its launcher, or somebody else, had
// asked the one before to end, which takes its time, and begins the same program once more. A
// script that is stopped runs other programs to tidy up.
func (l *launches) replaces(g *siblings, r *record) bool {
	return len(g.living) > 0 && !slices.ContainsFunc(g.living, func(o *record) bool {
		return o.PID == r.PID || o.startNS > r.startNS || !l.asked(o, r.startNS)
	}) && g.living[0].program == r.program
}

// becomes is for a script that executes a rank in its own place, as bash does with the last
// command: what it had run before was beside it.
func (l *launches) becomes(r *record) {
	if !r.IsRank() {
		return
	}
	for _, g := range slices.Clone(l.of[keyOf(r)]) {
		g.tellWhere(l.tell, func(int, *waitingEnd) bool { return true }, helper)
		l.remove(g, Exit{})
	}
}

// join adds r. While another one lives both are of one rank, begun by the older.
func (g *siblings) join(r *record) {
	r.launched = g
	if at := slices.IndexFunc(g.living, func(o *record) bool { return o.PID == r.PID }); at >= 0 {
		g.living[at] = r // it executes another program
	} else if len(g.living) < maxSiblings {
		g.living = append(g.living, r)
	}
	if first := g.living[0]; first.PID != r.PID && first.startNS <= r.startNS {
		r.RankPID, r.RankStart = first.RankPID, first.RankStart
	}
	for i := range g.waiting {
		g.waiting[i].followed = g.waiting[i].followed || g.waiting[i].ended <= r.startNS
	}
	g.age(r.startNS)
}

// age makes the oldest living one the rank once it has lived long.
func (g *siblings) age(now uint64) {
	for _, r := range g.living {
		if r.startNS+uint64(longLived) <= now {
			g.main = mainLives
		}
	}
}

func (g *siblings) forget(r *record) {
	g.living = slices.DeleteFunc(g.living, func(o *record) bool { return o.PID == r.PID })
}

// group returns the siblings of that key, made when there are none. Where there is no room, those give
// way that are oldest of the domain that has most: who starts many takes it from himself.
func (l *launches) group(parent parentKey, key siblingKey, domain string) *siblings {
	for _, g := range l.of[parent] {
		if g.key == key && !g.retired {
			return g
		}
	}
	if l.order.Len() >= maxLaunches {
		l.evicted++
		victim, _ := l.order.Victim()
		l.remove(victim.Value, Exit{Code: 1})
	}
	g := &siblings{parent: parent, key: key, domain: domain}
	l.enter(g)
	return g
}

func (l *launches) enter(g *siblings) {
	l.of[g.parent] = append(l.of[g.parent], g)
	g.element = l.order.Add(g, fairlru.Some, g.domain, g.key.container)
}

// launcher reports whether parent starts several ranks: then it is no launch script.
func (l *launches) launcher(parent parentKey) bool {
	return slices.ContainsFunc(l.of[parent], func(g *siblings) bool { return g.key.rank != l.of[parent][0].key.rank })
}

// ended tells of the end of a process, now or when it is clear what it was.
func (l *launches) ended(r *record, e Exit) {
	g := r.launched
	if g == nil {
		l.tell(e)
		return
	}
	g.age(r.endNS)
	g.forget(r)
	r.launched = nil
	lived := r.endNS - min(r.endNS, r.startNS)
	switch {
	case !r.IsRank(): // a launcher, as its children have shown
	case lived >= uint64(longLived) && r.work <= otherWork && !e.Failed() && !Interpreter(r.program) && g.tries.goOn(r.endNS):
		if len(g.living) == 0 {
			g.main = noMain // what took time between two tries of the rank
		}
		l.tell(helper(e))
	case lived >= uint64(longLived) && r.work == otherWork && !r.starts && g.main != mainEndedWell:
		g.endedBefore(r, e, lived, l)
	case lived >= uint64(longLived):
		g.main = mainEndedWell
		if e.Failed() {
			g.main = mainFailed
		}
		l.tell(e)
	case g.main == mainLives || l.beside(g, r.endNS):
		l.tell(helper(e))
	case l.launcher(g.parent) || e.crashed() || len(g.waiting) >= maxWaiting:
		l.tell(e)
	case r.Domain == unknownDomain:
		// It was gone before anybody could ask whose it was, and so was its parent: what a script
		// ran in a subshell, as the shims of pyenv do. Nothing says that it was the rank.
		l.tell(helper(e))
	default:
		g.waiting = append(g.waiting, waitingEnd{Exit: e, lived: lived, ended: r.endNS})
	}
	g.decide(l.tell)
}

// endedBefore is for the end of one that lived long and does not train. It may have prepared the
// training, or waited for something; else it was the rank.
func (g *siblings) endedBefore(r *record, e Exit, lived uint64, l *launches) {
	if g.main == mainLives && !slices.ContainsFunc(g.living, func(o *record) bool { return o.startNS+uint64(longLived) <= r.endNS }) {
		g.main = noMain // it was that one
	}
	if e.Signal != 0 || e.Code == 0 || l.launcher(g.parent) || len(g.waiting) >= maxWaiting {
		l.tell(e)
		return
	}
	g.waiting = append(g.waiting, waitingEnd{Exit: e, lived: lived, ended: r.endNS, long: true})
}

// trains reports whether one of those that live trains.
func (g *siblings) trains() bool {
	return slices.ContainsFunc(g.living, func(r *record) bool { return r.work >= training })
}

// beside reports whether the rank of g lives in the same container under another parent: g
// is a health check, which the container's runtime starts.
func (l *launches) beside(g *siblings, now uint64) bool {
	lives := false
	if g.key.container == "" {
		return lives
	}
	l.order.Each(func(o *siblings) {
		if o != g && o.key == g.key && !o.retired {
			o.age(now)
			lives = lives || o.main == mainLives
		}
	})
	return lives
}

// crashed reports whether a signal ended it that scripts do not send to what they run.
func (e Exit) crashed() bool {
	switch e.Signal {
	case 0, 1, 2, 13, 15: // HUP, INT, PIPE, TERM
		return false
	}
	return true
}

func helper(e Exit) Exit {
	e.Helper, e.RankPID, e.RankStart = true, 0, time.Time{}
	return e
}

// decide tells of the ends that are clear: those beside a rank, and of those that others
// followed all but the longest, which may have been the rank.
func (g *siblings) decide(tell func(Exit)) {
	kept, trains := g.longest(), g.trains()
	g.tellWhere(tell, func(i int, w *waitingEnd) bool {
		return g.main == mainLives && (!w.long || trains) || w.followed && i != kept
	}, helper)
}

// tellWhere tells of the ends that which picks, each marked by as, and forgets them.
func (g *siblings) tellWhere(tell func(Exit), which func(int, *waitingEnd) bool, as func(Exit) Exit) {
	var stay []waitingEnd
	for i := range g.waiting {
		if which(i, &g.waiting[i]) {
			tell(as(g.waiting[i].Exit))
		} else {
			stay = append(stay, g.waiting[i])
		}
	}
	g.waiting = stay
}

func (g *siblings) longest() int {
	at := -1
	for i := range g.waiting {
		if at < 0 || g.waiting[i].lived >= g.waiting[at].lived {
			at = i
		}
	}
	return at
}

func itself(e Exit) Exit { return e }

// parentEnded moves the siblings of a subshell to the shell, and decides what those of a
// launch script were.
func (l *launches) parentEnded(r, parent *record, e Exit) {
	for _, key := range [...]parentKey{keyOf(r), {pid: r.PID}} {
		for _, g := range slices.Clone(l.of[key]) {
			switch {
			case r.IsRank():
				g.inherit(r, l.tell)
				l.remove(g, e)
			case parent != nil && parent.alive() && parent.Comm == r.Comm && !parent.IsRank():
				l.move(g, keyOf(parent))
			default:
				l.remove(g, e)
			}
		}
	}
}

// inherit makes the siblings what they are: processes of the rank whose subshell started
// them.
func (g *siblings) inherit(rank *record, tell func(Exit)) {
	for _, r := range g.living {
		r.complete(&rank.Process)
	}
	g.tellWhere(tell, func(int, *waitingEnd) bool { return true }, func(e Exit) Exit {
		e.complete(&rank.Process)
		return e
	})
}

// move puts g under another parent.
func (l *launches) move(g *siblings, parent parentKey) {
	l.leave(g)
	if g.retired { // it stays apart from its rank that was started again
		g.parent = parent
		l.enter(g)
		return
	}
	into := l.group(parent, g.key, g.domain)
	for _, r := range g.living {
		into.join(r)
	}
	into.waiting = append(into.waiting, g.waiting...)
	for _, o := range g.tries {
		o.of.among = into
		into.tries.add(o)
	}
	into.main = max(into.main, g.main)
	into.decide(l.tell)
}

// remove forgets g, whose parent ended so. The last to end was the rank where it failed
// and the script with it, or where nothing shows that another one was. Where another one lived
// long and failed before it, nothing says which of the two was, and both are told.
func (l *launches) remove(g *siblings, parent Exit) {
	kept, last := g.longest(), len(g.waiting)-1
	failedTogether := last >= 0 && !g.waiting[last].followed && g.waiting[last].Failed() && parent.Failed()
	rank := func(i int, w *waitingEnd) bool {
		switch {
		case g.main == mainEndedWell || g.main == mainLives && !w.long:
			return false
		case g.waiting[kept].long:
			return i == kept || i == last && failedTogether
		case failedTogether:
			return i == last
		default:
			return i == kept
		}
	}
	g.tellWhere(func(Exit) {}, func(i int, w *waitingEnd) bool {
		if rank(i, w) {
			l.tell(w.Exit)
		} else {
			l.tell(helper(w.Exit))
		}
		return true
	}, itself)
	for _, r := range g.living {
		r.launched = nil
	}
	l.leave(g)
}

func (l *launches) leave(g *siblings) {
	is := func(o *siblings) bool { return o == g }
	if left := slices.DeleteFunc(l.of[g.parent], is); len(left) > 0 {
		l.of[g.parent] = left
	} else {
		delete(l.of, g.parent)
	}
	l.order.Remove(g.element)
}

// expire tells of the ends that nothing followed, and forgets parents of whom nothing is
// left to decide.
func (l *launches) expire(now uint64) {
	l.order.Each(func(g *siblings) {
		g.age(now)
		g.decide(l.tell)
		g.tellWhere(l.tell, func(_ int, w *waitingEnd) bool { return w.followed && !w.long && w.ended+uint64(longest) <= now }, helper)
		g.tellWhere(l.tell, func(_ int, w *waitingEnd) bool { return w.followed && w.long && w.ended+uint64(longest) <= now }, itself)
		due := func(_ int, w *waitingEnd) bool { return !w.followed && w.ended+uint64(undecided) <= now }
		as := itself
		if g.main == mainEndedWell {
			as = helper
		}
		g.tellWhere(l.tell, due, as)
		if len(g.living)+len(g.waiting) == 0 && (g.main == noMain || g.retired) && !g.tries.goOn(now) {
			l.leave(g)
		}
	})
}

// flush tells of all that waits.
func (l *launches) flush() {
	for l.order.Len() > 0 {
		l.remove(l.order.Oldest(), Exit{Code: 1})
	}
}
