package kerneleventsreceiver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// Keys under which the roll is kept: the ranks that live, and when that was last looked at.
const (
	rollKey     = "ranks"
	rollSeenKey = "ranks_seen"
)

// Bounds of what is kept of living ranks. A node has 8 or 16.
const (
	mostOnRoll     = 512
	mostRollText   = mostOnRoll * (4 << 10)
	mostEndsNoted  = 32 // at once in a second
	rollSeenAtMost = noteEvery
)

// roll is which ranks live, for the process after this: of what is not there at its start nobody saw the end.
type roll struct {
	watched *watched
	began   kmsg.Moment // since when ends are told; 0 where none are
	now     func() kmsg.Moment

	living  map[uint32]*onRoll // by pid
	untaken *untaken
	before  []onRoll    // as the process before this left it; nil once it was looked at
	seen    kmsg.Moment // when that one last looked

	written []byte
	wrote   time.Time
	ends    int // that were noted at once since the last look
}

// onRoll is the outermost process of a rank.
type onRoll struct {
	identity.Process
	// Since is since when its job has been watched on this host. 0: since its start, or all of the job's
	// ranks lived at one time since.
	Since kmsg.Moment
	// Sent is what others have sent it, as the kernel told the process that noted it.
	Sent *identity.Sent `json:",omitempty"`
}

func newRoll(watched *watched) *roll {
	return &roll{watched: watched, now: kmsg.Now, living: map[uint32]*onRoll{}, untaken: newUntaken()}
}

// open takes up what was kept in this boot. What is damaged, or of the future, is as good as none.
func (r *roll) open() {
	r.began = r.now()
	text := r.watched.kept(context.Background(), rollKey)
	seen := r.watched.kept(context.Background(), rollSeenKey)
	if text == nil || seen == nil || len(text) > mostRollText {
		return
	}
	var at kmsg.Moment
	var ranks []onRoll
	err := json.Unmarshal(seen, &at)
	if err == nil {
		err = json.Unmarshal(text, &ranks)
	}
	if err != nil || at > r.began || len(ranks) > mostOnRoll {
		r.watched.settings.Logger.Warn("which ranks lived before this start is not known: the note of it makes no sense", zap.Error(err))
		return
	}
	r.before, r.seen = ranks, at
}

// absent is a rank of which nobody saw the end.
type absent struct {
	identity.Process
	unwatched time.Duration
	again     bool
}

// absent returns the ranks that are not there any more, in the order of their starts. A rank that
// lives on as another process of before, as one does that its wrapper has left, is not gone. What
// lives on of Python, which wraps no rank, are its workers: they look every five seconds whether it does
// (MP_STATUS_CHECK_INTERVAL of torch.utils.data).
func (r *roll) absent(living []identity.Process, unseen func(identity.Born) bool) (gone []absent) {
	for i := range r.before {
		p := &r.before[i]
		if !unseen(p.Born()) {
			continue
		}
		one := absent{Process: p.Process, unwatched: time.Duration(r.began - max(r.seen, kmsg.Moment(p.StartNS)))}
		outlived := false
		for j := range living {
			if o := &living[j]; sameRank(o, &p.Process) {
				if before := kmsg.Moment(o.StartNS) < r.seen; !before {
					one.again = one.again || o.Leads() // what its wrapper runs between two lives does not
				} else if o.StartNS >= p.StartNS && !identity.Interpreter(p.Comm) {
					outlived = true
				}
			}
		}
		if !outlived {
			gone = append(gone, one)
		}
	}
	slices.SortFunc(gone, func(a, b absent) int { return cmp.Or(cmp.Compare(a.StartNS, b.StartNS), cmp.Compare(a.PID, b.PID)) })
	return gone
}

// jobOf is the job of a rank, as far as its host can tell it from others.
type jobOf struct {
	domain, id, rendezvous, pod string
	world                       int
}

func jobOfRank(p *identity.Process) jobOf {
	return jobOf{p.Domain, p.JobID, p.Rendezvous, cmp.Or(p.PodUID, p.ContainerID), p.WorldSize}.named()
}

// named leaves out the pod where the job has a name: its ranks may be in several.
func (j jobOf) named() jobOf {
	if j.id != "" || j.rendezvous != "" {
		j.pod = ""
	}
	return j
}

func sameRank(a, b *identity.Process) bool { return a.Rank == b.Rank && jobOfRank(a) == jobOfRank(b) }

// look takes the ranks that live now.
func (r *roll) look(ranks []identity.Process) {
	ranks = fairlru.Trim(ranks, mostOnRoll, func(p identity.Process) []string {
		return []string{p.Domain, cmp.Or(p.PodUID, p.ContainerID), p.JobID}
	})
	living := make(map[uint32]*onRoll, len(ranks))
	for i := range ranks {
		living[ranks[i].PID] = &onRoll{Process: ranks[i], Since: r.since(&ranks[i])}
	}
	r.living, r.before, r.ends = living, nil, 0
	r.whole()
}

// since is since when the job of a rank is watched, where that is later than the start of its process.
func (r *roll) since(p *identity.Process) kmsg.Moment {
	if known := r.living[p.PID]; known != nil && known.Born() == p.Born() {
		return known.Since
	}
	for i := range r.before {
		if b := &r.before[i]; b.Born() == p.Born() {
			return b.Since
		}
	}
	if kmsg.Moment(p.StartNS) < r.began {
		return r.began
	}
	return 0
}

// whole notes where all ranks of a job live: none of them has ended.
func (r *roll) whole() {
	jobs := map[jobOf]map[int]bool{}
	for _, p := range r.living {
		job := jobOfRank(&p.Process)
		if jobs[job] == nil {
			jobs[job] = map[int]bool{}
		}
		jobs[job][p.Rank] = true
	}
	for _, p := range r.living {
		if p.WorldSize > 0 && len(jobs[jobOfRank(&p.Process)]) == p.WorldSize {
			p.Since = 0
		}
	}
}

// watchedFor is how long the job of the rank that ended had been watched, 0 where it was from its start.
func (r *roll) watchedFor(e *identity.Exit) time.Duration {
	p := cmp.Or(r.living[e.PID], r.living[e.RankPID])
	if p == nil || p.Since == 0 || e.Late {
		return 0
	}
	return time.Duration(r.now() - p.Since)
}

// ended takes the end of a process from the ranks that live, and returns the ranks that ended with it.
func (r *roll) ended(e *identity.Exit) (ranks []*onRoll) {
	if p := r.living[e.PID]; p != nil && p.Born() == e.Born() {
		ranks = append(ranks, p)
	}
	if e.Wrapper != nil {
		if p := r.living[e.Wrapper.PID]; p != nil && e.Wrapper.PID != e.PID {
			ranks = append(ranks, p)
		}
	}
	for _, p := range ranks {
		delete(r.living, p.PID)
	}
	return ranks
}

// changed writes what has changed by an end, at once where not too many end together.
func (r *roll) changed(now time.Time) {
	if r.ends++; r.ends <= mostEndsNoted {
		r.write(now)
	}
}

// note writes which ranks live if that has changed, and now and then that it was looked at.
func (r *roll) note(now time.Time) {
	r.untaken.settle()
	if since := now.Sub(r.wrote); since < 0 || since >= rollSeenAtMost || !bytes.Equal(r.text(), r.written) {
		r.write(now)
	}
}

// text is which ranks live, and those of whose end the next consumer may not know.
func (r *roll) text() []byte {
	ranks := make([]onRoll, 0, len(r.living))
	for _, p := range slices.AppendSeq(r.untaken.ranks(), maps.Values(r.living)) {
		one := *p
		one.Trace, one.CgroupPath = identity.Trace{}, "" // no record of an end that nobody saw needs them
		if len(ranks) < mostOnRoll {
			ranks = append(ranks, one)
		}
	}
	slices.SortFunc(ranks, func(a, b onRoll) int { return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.StartNS, b.StartNS)) })
	text, err := json.Marshal(ranks)
	if err != nil || len(text) > mostRollText {
		return nil
	}
	return text
}

// close writes which ranks lived at the end.
func (r *roll) close(now time.Time) {
	if r.began != 0 {
		r.write(now)
	}
}

func (r *roll) write(now time.Time) {
	r.wrote = now
	text := r.text()
	if text == nil {
		return
	}
	err := r.untaken.write(r.watched) // first: a rank that is on neither is gone for ever
	if err == nil && !bytes.Equal(text, r.written) {
		err = r.watched.keep(rollKey, text)
	}
	if err == nil {
		r.written = text
		var seen []byte
		if seen, err = json.Marshal(r.now()); err == nil {
			err = r.watched.keep(rollSeenKey, seen)
		}
	}
	if err != nil {
		r.watched.settings.Logger.Debug("note which ranks live", zap.Error(err)) // the storage itself says what is wrong
	}
}

// tellGone tells of ranks that ended while no agent ran, once those ends are known that were told late.
func (w *worker) tellGone(now time.Time) {
	if w.resolver == nil || !w.config.ProcessExits {
		return
	}
	w.roll.open()
	if keeps, ok := w.resolver.(identity.Keeps); ok {
		for i := range w.roll.before {
			if b := &w.roll.before[i]; b.Sent != nil {
				keeps.WasSent(b.Process, *b.Sent)
			}
		}
	}
	told := w.tellAgain()
	for _, exit := range w.exits.Take() {
		if told[exit.Born()] {
			continue
		}
		w.roll.before = slices.DeleteFunc(w.roll.before, func(p onRoll) bool { return p.Born() == exit.Born() && !exit.Inherited })
		w.exit(exit, now)
	}
	if members, ok := w.resolver.(identity.Members); ok {
		for i := range w.roll.before {
			members.Led(w.roll.before[i].Process)
		}
	}
	if endings, ok := w.resolver.(identity.Endings); ok && w.config.Events.ProcessGone.Enabled {
		for _, one := range w.roll.absent(w.resolver.Ranks(), endings.EndedUnseen) {
			w.tells(&end{Process: one.Born(), ranks: []*onRoll{{Process: one.Process}}}, w.convert.gone([]absent{one}, now))
		}
	}
	w.lookAtRanks(now)
}

// gone makes records of ranks whose end nobody saw.
func (c *converter) gone(all []absent, now time.Time) plog.Logs {
	for i := range all {
		p := &all[i]
		text := fmt.Sprintf("rank %d (%s, pid %d) ended within %s in which nobody watched: how is not known", p.Rank, p.Comm, p.PID, p.unwatched.Round(time.Millisecond))
		a := c.builder.ProcessGone(record.Head{Trust: record.Proven, Time: now, Observed: now, Severity: record.Info, Text: text})
		a.Stamp(p.Process)
		a.ProcessGoneUnwatchedNs(p.unwatched.Nanoseconds())
		if p.again {
			a.ProcessGoneAgain(true)
		}
	}
	return c.builder.Emit()
}
