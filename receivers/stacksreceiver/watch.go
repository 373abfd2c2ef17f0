package stacksreceiver

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/pystack"
	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/internal/stacks"
	"github.com/tracecoreai/tracecore/internal/waitclass"
	"github.com/tracecoreai/tracecore/receivers/internal/activity"
	"github.com/tracecoreai/tracecore/receivers/internal/gpuask"
)

// Bounds of one look.
const (
	longestLook = 250 * time.Millisecond // for stacks
	maxPrepares = 32
	maxKin      = 64 // processes of a rank that are asked for how long they have run
)

// Pauses between two times that a process is prepared: programs load libraries later.
const (
	firstPrepare   = 5 * time.Second
	longestPrepare = 10 * time.Minute
)

// noPython is how many times in a row a process is prepared without an interpreter that runs
// before that is a problem: some 20 s. One that starts or ends has none for a moment.
const noPython = 3

// Pauses between looks into the processes of ranks that stand: a part of the time for which they do.
const (
	restsPerLook = 20
	longestPause = 10 * time.Second
)

// A job whose ranks end is looked at once in this time.
const endOfJob = time.Minute

// process is one process, once.
type process struct {
	pid     uint32
	startNS uint64
}

func processOf(p *identity.Process) process { return process{p.PID, p.StartNS} }

// prepared is a process whose files are open.
type prepared struct {
	program
	name  string // a process may become another program
	due   time.Time
	pause time.Duration
	idle  int  // times in a row that its interpreter did not run
	said  bool // that it trains
}

// watch is the ranks that are followed, through one source.
type watch struct {
	*stacksReceiver
	source     source
	known      map[process]*prepared
	follows    map[process]*follower
	budgets    map[string]*budget
	texts      map[job]texts
	ended      map[job]time.Time
	began      time.Time // of the first look
	lookedAt   time.Time // for ranks
	lookedInto time.Time // their processes
	now        time.Time
	prepares   int    // in this look
	samples    int    // in this look
	tries      int    // in this look
	said       string // the last problem in the log
	news       bool   // it was told that a rank stands, or does so no more, since that was kept
}

func newWatch(r *stacksReceiver, s source) *watch {
	return &watch{
		stacksReceiver: r, source: s, known: map[process]*prepared{}, follows: map[process]*follower{}, budgets: map[string]*budget{},
		texts: map[job]texts{}, ended: map[job]time.Time{},
	}
}

func (w *watch) end() { w.followed.Store(0) }

// look looks at all ranks. Its error says that none could be looked at.
func (w *watch) look(ctx context.Context, now time.Time) error {
	w.now, w.samples = now, 0
	if w.began.IsZero() {
		w.began = now
	}
	if now.Sub(w.lookedAt) >= w.config.LookInterval || now.Before(w.lookedAt) {
		w.lookedAt = now
		w.search(ctx)
	}
	if err := w.lookAt(ctx, func(*follower) bool { return true }); err != nil {
		return err
	}
	w.lookAtAwaited(ctx)
	return nil
}

// peerEnded looks at the ranks of a job at once, when the first of them has failed. A job of which
// none is followed costs nothing: anybody can start processes that fail, each of another job.
func (w *watch) peerEnded(ctx context.Context, of job) {
	if last, again := w.ended[of]; of.id == "" || again && w.now.Sub(last) < endOfJob {
		return
	}
	followed := false
	for _, f := range w.follows {
		if jobOf(&f.Process) == of {
			f.peer, followed = f.peer || f.told == nil, true
		}
	}
	if !followed {
		return
	}
	w.ended[of] = w.now
	_ = w.lookAt(ctx, func(f *follower) bool { return f.peer }) // the next look tells what is broken
}

// search looks for the processes of ranks.
func (w *watch) search(ctx context.Context) {
	w.prepares = 0
	ranks := w.resolver.Ranks()
	living := make(map[process]bool, len(ranks))
	for i := range ranks {
		living[processOf(&ranks[i])] = true
	}
	for p := range w.known {
		if !living[p] {
			w.forget(p)
		}
	}
	some, over := share(families(ranks), w.config.MaxProcesses)
	next := make(map[process]*follower, len(w.follows))
	for _, family := range some {
		for _, p := range family.themselves(w.know) {
			if len(next) == w.config.MaxProcesses {
				over++
				continue
			}
			next[processOf(&p)] = w.follow(p)
			w.sayTrains(p)
		}
	}
	for p, f := range w.follows {
		if next[p] == nil && f.told != nil { // nobody would tell that it goes on
			w.moving(ctx, f, f.leaves(w.now))
		}
	}
	w.follows = next
	w.telemetry.ReceiverStacksProcessesSkipped.Add(ctx, int64(over))
	w.followed.Store(int64(len(w.follows)))
	w.prune()
}

// sayTrains tells the identity extension that a process is the rank which others have started for it: it is followed in
// place of its launcher.
func (w *watch) sayTrains(p identity.Process) {
	known := w.known[processOf(&p)]
	members, ok := w.resolver.(identity.Members)
	if !ok || !p.Inherited || p.TakesPart || known == nil || !known.trains || known.said {
		return
	}
	known.said = true
	members.Trains(p)
}

func (w *watch) follow(p identity.Process) *follower {
	f := w.follows[processOf(&p)]
	if f == nil {
		f = newFollower(p)
		f.older = p.StartTime.Before(w.began)
		if known, is := w.learned.Of(&p); is {
			f.recall(&known, w.now)
		}
	}
	f.Process = p
	w.share(f)
	if known := w.known[processOf(&p)]; known != nil {
		f.python = known.python
	}
	return f
}

// share lets the ranks of one job say their frames once. A process of which nobody knows whose job it is
// shares them with nobody.
func (w *watch) share(f *follower) {
	of := jobOf(&f.Process)
	if of.id == "" || of.domain == "" {
		return
	}
	if w.texts[of] == nil {
		w.texts[of] = texts{}
	}
	f.texts = w.texts[of]
}

// prune forgets jobs and domains of which nothing is left.
func (w *watch) prune() {
	there, jobs := map[string]bool{}, map[job]bool{}
	for _, f := range w.follows {
		there[f.Domain], jobs[jobOf(&f.Process)] = true, true
	}
	for of := range w.texts {
		if !jobs[of] {
			delete(w.texts, of)
		}
	}
	for domain, b := range w.budgets {
		b.records.take(w.now, 0)
		if b.text.take(w.now, 0); !there[domain] && b.records.spent+b.text.spent == 0 {
			delete(w.budgets, domain)
		}
	}
	for of, at := range w.ended {
		if w.now.Sub(at) >= endOfJob {
			delete(w.ended, of)
		}
	}
}

// know says what a process is, and prepares it when that is due. One that stands still is left
// alone: what was not opened while all was well may hang now. Whether it trains is asked where that is wanted, until it does.
// What cannot be asked now trains: a rank stays one.
func (w *watch) know(p identity.Process, trains bool) program {
	is := w.program(p)
	known := w.known[processOf(&p)]
	if !trains || known == nil || known.trains {
		return is
	}
	if w.prepares >= maxPrepares {
		is.trains = true
		return is
	}
	w.prepares++
	found, err := w.source.Trains(p.PID)
	known.trains = found && err == nil
	is.trains = found || err != nil
	return is
}

func (w *watch) program(p identity.Process) program {
	key := processOf(&p)
	known := w.known[key]
	if known == nil {
		known = &prepared{name: p.Comm}
	}
	if known.name != p.Comm {
		*known = prepared{name: p.Comm}
	}
	f := w.follows[key]
	if w.now.Before(known.due) || w.prepares >= maxPrepares || f != nil && f.told != nil {
		return known.program
	}
	w.prepares++
	python, err := w.source.Prepare(p.PID)
	if gone(err) {
		w.forget(key)
		return program{}
	}
	if !errors.Is(err, pystack.ErrNotRunning) {
		known.idle = 0
		w.say(err)
	} else if known.idle++; known.idle >= noPython {
		w.say(err)
	}
	w.known[key] = known
	known.python = python
	known.pause = min(max(3*known.pause, firstPrepare), longestPrepare)
	known.due = w.now.Add(known.pause)
	return known.program
}

// say logs a problem, once until it is another.
func (w *watch) say(err error) {
	if err == nil || errors.Is(err, probe.ErrClosed) || err.Error() == w.said {
		return
	}
	w.said = err.Error()
	w.settings.Logger.Warn("stacks of some ranks may lack a part", zap.Error(err))
}

// forget lets go of a process that has ended. Where it was told to stand, it does so no more.
func (w *watch) forget(p process) {
	if f := w.follows[p]; f != nil && f.told != nil {
		w.moving(context.Background(), f, f.leaves(w.now))
	}
	delete(w.known, p)
	delete(w.follows, p)
	w.source.Release(p.pid)
}

// candidate is a rank whose stack is to be taken.
type candidate struct {
	*follower
	why reason
}

// lookAt looks at the threads of some ranks, and takes the stacks of those that stand still.
func (w *watch) lookAt(ctx context.Context, which func(*follower) bool) error {
	var found []candidate
	var failures []error
	var wanted []*follower
	var pids []uint32
	for _, f := range w.follows {
		if which(f) {
			wanted, pids = append(wanted, f), append(pids, f.PID)
		}
	}
	mains, err := w.source.LookAt(pids)
	if err != nil {
		return err
	}
	for i, f := range wanted {
		main := &mains[i]
		switch {
		case gone(main.Err):
			w.forget(processOf(&f.Process))
			continue
		case main.Err != nil:
			failures = append(failures, main.Err)
			continue
		}
		status := main.Status
		of := inquiry{func() (pystack.Place, error) { return w.source.Place(f.PID) }, func() (time.Duration, error) { return main.Ran, main.RanErr }}
		o := f.look(w.now, status, w.config, of)
		if f.looks == 0 {
			f.learnPlace(w.now, func() (waitclass.Class, error) { return w.source.Class(f.PID) }, of.where)
		}
		w.turns(f)
		if o.moved != nil {
			w.moving(ctx, f, o.moved)
		}
		if o.take == "" && w.spins(ctx, f, status) {
			o.take, f.since = spinning, f.spin.began
		}
		if o.take != "" && !w.now.Before(f.notUntil) {
			found = append(found, candidate{f, o.take})
		}
	}
	w.lookInto()
	w.takeAll(ctx, found)
	w.doings(ctx)
	if len(wanted) > 0 && len(failures) == len(wanted) {
		return errors.Join(failures...)
	}
	return nil
}

// turns looks at the thread that does the work of a rank instead of at its main thread, where that waits for it.
// Which thread does the work may show only once it has run for a while.
func (w *watch) turns(f *follower) {
	if f.classes[f.place.Calls] != waitclass.Lock || w.now.Sub(f.inCall) < turnAfter || !f.turnings.take(w.now, 1) {
		return
	}
	_, _ = w.stack(f)
}

// stack reads the stack of a rank. Where that finds another thread that does its work, this is followed from
// now on.
func (w *watch) stack(f *follower) (*stacks.Process, error) {
	seen, err := w.source.Stack(f.PID, f.StartNS)
	if err == nil && seen.Turned {
		f.turn()
	}
	return seen, err
}

// lookInto looks into the process trees of ranks whose main thread has not run for longer than
// usual: a rank that stands may wait for what others of its processes do. All are looked into at
// once, so that each is compared with the look before; more and more rarely, where all have
// stood for long.
func (w *watch) lookInto() {
	var rest []identity.Process
	var of []*follower
	pause := longestPause
	for _, f := range w.follows {
		f.rest.Waits = f.classes[f.place.Calls] == waitclass.Collective
		if f.looks > 0 && f.rest.Wanted(w.now) && (f.told != nil || !f.waitsAsUsual(w.now)) {
			rest, of = append(rest, f.Process), append(of, f)
			pause = min(pause, w.now.Sub(f.rest.Last)/restsPerLook)
		}
	}
	if len(rest) == 0 || w.now == w.lookedInto || w.now.Sub(w.lookedInto) < pause && !w.now.Before(w.lookedInto) {
		return
	}
	w.lookedInto = w.now
	roots := map[uint32]bool{}
	for _, p := range w.resolver.Ranks() {
		roots[p.PID] = !p.Inherited
	}
	does := w.source.Does(rest, roots)
	for _, f := range of {
		if one := does[f.PID]; one != nil {
			f.rest.Found = f.older
			f.rest.Look(one, w.now)
		}
	}
}

// doings tells of ranks that were said to stand and do something else meanwhile.
func (w *watch) doings(ctx context.Context) {
	for _, f := range w.follows {
		if !f.changed(w.now) || !w.config.Events.ProcessStackDoing.Enabled || !f.doings.take(w.now, 1) {
			continue
		}
		if !w.budget(f.Domain).records.takeKeeping(w.now, 1, keptFrom(f.rest.Waits)) { // later, if it does that on
			w.telemetry.ReceiverStacksPostponed.Add(ctx, 1)
			continue
		}
		f.told.silence, f.told.halted, f.told.at = f.rest.Silence, f.rest.Now.State.Halted(), w.now
		w.out.Put(w.convert.doing(f, w.now, w.source.Stopper(&f.rest.Now, w.resolver), time.Now()))
	}
}

// mountOf is the file system that a rank waits for, or a child that holds it up.
func (w *watch) mountOf(f *follower, class waitclass.Class) (procfs.Mount, bool) {
	if class != waitclass.Storage && class != waitclass.DataLoading {
		return procfs.Mount{}, false
	}
	if in := f.rest.Now.Inside; in != nil && in.Holder != nil && in.Holder.State == socketstall.DiskSleep {
		return w.source.Mount(in.Holder.PID)
	}
	return w.source.Mount(f.PID)
}

// finds reports whether a thread waits where the ranks of a job find each other: at its start, or in its store.
func finds(w *waitclass.Wait) bool {
	return w.Class == waitclass.Store || w.Class == waitclass.Collective && waitclass.AtStart(w.Call)
}

// spins reports whether a main thread that runs leads nowhere. What turns out to be work after
// all is taken back.
func (w *watch) spins(ctx context.Context, f *follower, status procfs.ThreadStatus) bool {
	place := f.place
	if status.Asleep() {
		place = nowhere
	}
	told := f.spin.told
	if !f.spin.look(w.now, status, place) || w.samples >= maxSamples {
		return false
	}
	w.samples++
	has, err := w.usage(f)
	if err != nil {
		return false
	}
	seen, err := w.stack(f)
	if err != nil || seen.Turned {
		return false
	}
	spins := f.spin.take(w.now, seen, has)
	if told && f.spin.work && f.told != nil {
		w.moving(ctx, f, f.leaves(w.now))
	}
	f.spin.told = told || spins
	return spins && !told
}

// usage is what a process has taken, and how long others of its rank have run.
func (w *watch) usage(f *follower) (usage, error) {
	has, err := w.source.Usage(f.PID)
	if err != nil {
		return has, err
	}
	if has.main, err = w.source.OnCPU(f.PID); err != nil { // a kernel without CONFIG_SCHED_INFO
		has.main, err = has.cpu, nil
	}
	has.others = max(0, has.cpu-has.main)
	kin := activity.Kin(w.resolver.Ranks())[f.RankPID]
	for _, pid := range kin[:min(len(kin), maxKin)] {
		if other, gone := w.source.Usage(pid); pid != f.PID && gone == nil {
			has.others += other.cpu
		}
	}
	return has, err
}

// takeAll takes stacks until the time of a look is over, those first whose domain had fewest.
func (w *watch) takeAll(ctx context.Context, found []candidate) {
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(w.budget(a.Domain).taken, w.budget(b.Domain).taken), cmp.Compare(a.PID, b.PID))
	})
	began := time.Now()
	for i, c := range found {
		if i > 0 && time.Since(began) > w.longest {
			w.telemetry.ReceiverStacksPostponed.Add(ctx, int64(len(found)-i))
			return
		}
		kept := 0
		if c.why == asleep && !c.unusual(w.now) {
			kept = takesKept
		}
		if w.room(ctx, c, c.atWork()) && c.takes.takeKeeping(w.now, 1, kept) {
			w.take(ctx, c)
		}
	}
}

// room reports whether its domain may say that a rank stands: else once there is room, if it stands on.
// Those that wait for others leave a part of it to the rest.
func (w *watch) room(ctx context.Context, c candidate, waits bool) bool {
	if !w.config.Events.ProcessStack.Enabled || w.budget(c.Domain).records.has(w.now, c.cost(), keptFrom(waits)) {
		return true
	}
	w.telemetry.ReceiverStacksPostponed.Add(ctx, 1)
	c.notUntil = w.now.Add(time.Duration(c.cost()) * recordPause)
	return false
}

// cost is how many records it takes to tell that the rank stands, and of its end.
func (f *follower) cost() int {
	if f.told != nil && f.told.paid {
		return 1
	}
	return 2
}

func (w *watch) budget(domain string) *budget {
	b := w.budgets[domain]
	if b == nil {
		b = newBudget()
		w.budgets[domain] = b
	}
	return b
}

// take takes the stack of a rank and makes its record.
func (w *watch) take(ctx context.Context, c candidate) {
	seen, err := w.stack(c.follower)
	if gone(err) {
		w.forget(processOf(&c.Process))
		return
	}
	if err != nil {
		if !errors.Is(err, probe.ErrClosed) {
			w.telemetry.ReceiverStacksFailed.Add(ctx, 1)
			w.say(err)
		}
		c.failed(w.now)
		return
	}
	if seen.Turned && c.why != peerEnded || !w.judged(c, &seen.Threads[0]) {
		return
	}
	w.tell(ctx, c, seen, c.since)
}

// tell makes the record of a stack.
func (w *watch) tell(ctx context.Context, c candidate, seen *stacks.Process, since time.Time) {
	main := &seen.Threads[0]
	w.telemetry.ReceiverStacksTaken.Add(ctx, 1, metric.WithAttributes(attribute.String("reason", string(c.why))))
	budget := w.budget(c.Domain)
	budget.taken++
	if known := w.known[processOf(&c.Process)]; known != nil {
		known.waits = strings.HasPrefix(main.Wait.Function, "do_wait") // kernel/exit.c, wait4(2) and waitid(2)
	}
	hash := main.Hash()
	tells := w.config.Events.ProcessStack.Enabled && !c.knows(c.why, hash)
	if tells {
		if !w.room(ctx, c, main.Wait.Class == waitclass.Collective) {
			return
		}
		budget.records.take(w.now, c.cost())
	}
	w.news = true
	c.stands(w.now, c.why, hash, main.Place)
	c.told.since, c.told.class = since, main.Wait.Class
	if c.why == awaited {
		c.told.place, c.told.frames = nowhere, main.Python
	}
	if !tells {
		return
	}
	c.told.paid = true
	s := &standing{process: c.Process, seen: seen, why: c.why, at: w.now, still: w.now.Sub(since), hash: hash, rest: &c.rest}
	if c.rest.Looks > 0 {
		s.signal = w.source.Stopper(&c.rest.Now, w.resolver)
	}
	s.mount, _ = w.mountOf(c.follower, main.Wait.Class)
	if finds(&main.Wait) {
		s.finds, s.meets = true, w.source.Meets(c.PID)
	}
	waits := c.rest.Silence != socketstall.Overdue && main.Wait.Class == waitclass.Collective
	if s.where = w.config.Stacks == All || !waits; !s.where {
		c.told.where = main.Where() // of all that wait for others, that is told once they do so for longer than is usual
	}
	if s.where && c.texts.first(w.now, hash) {
		if s.frames = budget.text.take(w.now, w.convert.textOf(seen)); !s.frames {
			delete(c.texts, hash)
			w.limited(ctx, "text")
		}
	}
	w.out.Put(w.convert.stack(s, time.Now()))
	gpuask.Stands(c.PID, true)
}

// judged reports whether a stack is of the standstill that was judged: the thread goes on while
// it is read. Of a thread that ran, or whose peer has ended, any stack tells.
func (w *watch) judged(c candidate, main *stacks.Thread) bool {
	switch there := c.place == nowhere || main.Place.Calls == c.place.Calls; {
	case c.why == asleep: // its frames of compiled code may be of another moment than those of Python
		return there && w.source.Slept(c.PID, c.status)
	case c.why == sameCall && !there && main.Place != nowhere:
		c.inCall = w.now // so it is in other calls, too
		return false
	case c.why == sameCall:
		return there
	}
	return true
}

func (w *watch) moving(ctx context.Context, f *follower, was *told) {
	w.news = true
	gpuask.Stands(f.PID, false)
	if !w.config.Events.ProcessStackMoving.Enabled {
		return
	}
	if !was.paid && !w.budget(f.Domain).records.take(w.now, 1) {
		w.limited(ctx, "records")
		return
	}
	w.out.Put(w.convert.moving(&f.Process, was, w.now, time.Now()))
}

func (w *watch) limited(ctx context.Context, what string) {
	if what == "records" {
		w.overLimit.Add(1)
	}
	w.telemetry.ReceiverStacksLimited.Add(ctx, 1, metric.WithAttributes(attribute.String("limit", what)))
}
