package ranks

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// picture is what was last told of a job.
type picture struct {
	stale bool  // something changed
	due   int64 // when a stall counts no more, unless it is told of again
	job   history.RankJob
}

// mostGroups bounds the groups of a job; the largest stay.
const mostGroups = 64

// States implements history.RankSource.
func (b *Book) States(now time.Time) (jobs []history.RankJob, version uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := now.UnixNano()
	for _, j := range b.jobs {
		if j.over(at) {
			b.forget(j)
			continue
		}
		if j.told.stale || at >= j.told.due {
			before := j.told.job
			j.told = j.picture(at)
			if !same(&before, &j.told.job) {
				b.version++
			}
		}
		one := j.told.job
		one.Steps, one.Sends = j.lately(), j.sends(at)
		jobs = append(jobs, one)
	}
	slices.SortFunc(jobs, func(a, b history.RankJob) int {
		return cmp.Or(compareTimes(b.Began, a.Began), cmp.Compare(a.Job, b.Job), cmp.Compare(a.Domain, b.Domain))
	})
	return jobs, b.version
}

// same compares what is shown but for when the newest record came.
func same(a, b *history.RankJob) bool {
	return a.Job != "" && a.Run == b.Run && a.World == b.World && a.Hosts == b.Hosts && a.Drill == b.Drill &&
		compareTimes(a.Began, b.Began) == 0 && compareTimes(a.Since, b.Since) == 0 && maps.Equal(a.Counts, b.Counts) && slices.Equal(a.Nodes, b.Nodes) &&
		slices.EqualFunc(a.Groups, b.Groups, func(a, b history.RankGroup) bool {
			return a.State == b.State && a.What == b.What && a.Ranks == b.Ranks && compareTimes(a.Since, b.Since) == 0
		})
}

func compareTimes(a, b *time.Time) int {
	switch {
	case a == nil || b == nil:
		return cmp.Compare(boolToInt(a != nil), boolToInt(b != nil))
	}
	return a.Compare(*b)
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// over reports whether a job ended so long ago that it is of no interest.
func (j *job) over(now int64) bool {
	if now-j.updated < farewell {
		return false
	}
	for _, r := range j.ranks {
		if r.ended == 0 {
			return false
		}
	}
	return true
}

// state is how a rank fares, what it waits for and since when, and until when that holds
// if nothing more is told.
func (r *rank) state(now int64) (state, what string, since, due int64) {
	const forever = int64(1<<63 - 1)
	switch {
	case r.ended > 0 && r.how != "":
		return history.RankDied, r.how, r.ended, forever
	case r.ended > 0 && r.unseen:
		return history.RankEnded, Unseen, r.ended, forever
	case r.ended > 0:
		return history.RankEnded, "", r.ended, forever
	}
	var last int64
	for _, b := range r.blocks {
		if since == 0 || b.since < since {
			since, what = b.since, strings.TrimSpace(b.what+" on "+b.mount)
		}
		last = max(last, b.last)
	}
	if last > 0 {
		state = history.RankBlocked
	} else {
		for _, s := range r.stalls {
			if since == 0 || s.since < since {
				since = s.since
			}
			last = max(last, s.last)
		}
		if last == 0 {
			return history.RankGoesOn, "", 0, forever
		}
		state = history.RankWaits
	}
	last = max(last, r.stack.at)
	if now-last >= quiet {
		return history.RankSilent, "", last, forever
	}
	return state, what, since, last + quiet
}

// picture is the job as it stands.
func (j *job) picture(now int64) picture {
	type kind struct{ state, what string }
	groups, first := map[kind][]int{}, map[kind]int64{}
	p := picture{due: 1<<63 - 1, job: history.RankJob{
		Job: safetext.Line(j.id), Domain: safetext.Line(j.domain), Run: safetext.Line(j.run), Trust: j.trust, Drill: j.drill,
		Began: moment(j.began), Updated: time.Unix(0, j.updated).UTC(), World: j.world, Hosts: len(j.hosts), Counts: map[string]int{},
	}}
	order := slices.Sorted(maps.Keys(j.ranks))
	var stands int64
	for _, n := range order {
		state, what, since, due := j.ranks[n].state(now)
		k := kind{state, what}
		if _, known := groups[k]; !known && len(groups) == mostGroups {
			k.what = ""
		}
		groups[k] = append(groups[k], n)
		if since > 0 && (first[k] == 0 || since < first[k]) {
			first[k] = since
		}
		if (state == history.RankWaits || state == history.RankBlocked) && (stands == 0 || since < stands) {
			stands = since
		}
		p.job.Counts[state]++
		p.due = min(p.due, due)
	}
	p.job.Since = moment(stands)
	for k, members := range groups {
		p.job.Groups = append(p.job.Groups, history.RankGroup{State: k.state, What: safetext.Line(k.what), Since: moment(first[k]), Ranks: verdict.Ranks(members).String(), Count: len(members)})
	}
	j.unseen(order, &p.job)
	slices.SortFunc(p.job.Groups, func(a, b history.RankGroup) int {
		return cmp.Or(slices.Index(history.RankStates, a.State)-slices.Index(history.RankStates, b.State), cmp.Compare(a.Count, b.Count), cmp.Compare(a.Ranks, b.Ranks))
	})
	p.job.Nodes = j.nodes(order)
	return p
}

// unseen adds the ranks that the job says it has and of which nothing was told.
func (j *job) unseen(seen []int, to *history.RankJob) {
	missing := j.world - len(seen)
	if missing <= 0 || j.world > socketstall.MaxRank {
		return
	}
	var list []int
	at := 0
	for n := range j.world {
		if at < len(seen) && seen[at] == n {
			at++
			continue
		}
		list = append(list, n)
	}
	if len(list) == 0 {
		return
	}
	to.Counts[history.RankUnseen] = len(list)
	to.Groups = append(to.Groups, history.RankGroup{State: history.RankUnseen, Ranks: verdict.Ranks(list).String(), Count: len(list)})
}

// nodes are the machines with their ranks, by their first rank.
func (j *job) nodes(order []int) []history.RankNode {
	members := map[string][]int{}
	var hosts []string
	for _, n := range order {
		host := j.ranks[n].host
		if members[host] == nil {
			hosts = append(hosts, host)
		}
		members[host] = append(members[host], n)
	}
	list := make([]history.RankNode, 0, len(hosts))
	for _, host := range hosts {
		one := history.RankNode{Host: safetext.Line(host), Ranks: verdict.Ranks(members[host]).String()}
		plain, known := true, true
		for i, n := range members[host] {
			l := j.ranks[n].local
			plain, known = plain && (l == i || l < 0), known && l >= 0
		}
		if !plain && known {
			var local []string
			for _, n := range members[host] {
				local = append(local, strconv.Itoa(j.ranks[n].local))
			}
			one.Local = strings.Join(local, ",")
		}
		one.Rails = j.rails(members[host])
		list = append(list, one)
	}
	return list
}

// rails are those of the ranks of a machine, in their order; none unless all are known.
func (j *job) rails(members []int) string {
	var names []string
	for _, n := range members {
		name := strings.ReplaceAll(safetext.Line(j.ranks[n].rail), ",", "_") // which parts them
		if name == "" {
			return ""
		}
		names = append(names, name)
	}
	if len(slices.Compact(slices.Clone(names))) == 1 {
		return names[0]
	}
	return strings.Join(names, ",")
}

func moment(at int64) *time.Time {
	if at <= 0 {
		return nil
	}
	t := time.Unix(0, at).UTC()
	return &t
}

// State implements history.RankSource.
func (b *Book) State(id, domain string, n int, now time.Time) (history.RankDetail, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, j := range b.jobs {
		if safetext.Line(j.id) == id && safetext.Line(j.domain) == domain && j.ranks[n] != nil {
			d := j.ranks[n].detail(n, now.UnixNano())
			d.CPU = j.ranks[n].cores(now.UnixNano())
			d.Rail, d.Sends = safetext.Line(j.ranks[n].rail), j.ranks[n].sends(now.UnixNano())
			d.GPU, d.GPUBusy = safetext.Line(j.ranks[n].gpu), b.busyOf(j.ranks[n], now.UnixNano())
			if d.Stack != nil {
				d.Stack.Frames = b.frames.lists[frameKey{j.jobKey, j.ranks[n].stack.hash}]
			}
			return d, true
		}
	}
	return history.RankDetail{}, false
}

// ending is how it ended, where that is no success.
func (r *rank) ending() string {
	if r.unseen {
		return Unseen
	}
	return r.how
}

func (r *rank) detail(n int, now int64) history.RankDetail {
	state, _, _, _ := r.state(now)
	d := history.RankDetail{
		Rank: n, State: state, Host: safetext.Line(r.host), PID: cmp.Or(r.doing.pid, r.pid), Process: safetext.Line(cmp.Or(r.doing.process, r.process)),
		Began: moment(r.began), Updated: time.Unix(0, r.updated).UTC(), Ended: moment(r.ended), How: safetext.Line(r.ending()),
		Thread: safetext.Line(r.doing.thread), Activity: safetext.Line(r.doing.activity), Syscall: safetext.Line(r.doing.syscall),
		Channel: safetext.Line(r.doing.channel), File: safetext.Line(r.doing.file), Sent: moment(r.doing.sent), Received: moment(r.doing.received),
	}
	if r.local >= 0 {
		d.Local = &r.local
	}
	if r.pace != nil {
		d.Steps = r.pace.steps(r.pace.lately())
	}
	for _, b := range r.blocks {
		d.Waits = append(d.Waits, history.RankWait{For: safetext.Line(b.mount), What: safetext.Line(b.what), Since: time.Unix(0, b.since).UTC()})
	}
	for _, s := range r.stalls {
		d.Waits = append(d.Waits, history.RankWait{For: s.peerName(), What: safetext.Line(s.what), Since: time.Unix(0, s.since).UTC()})
	}
	slices.SortStableFunc(d.Waits, func(a, b history.RankWait) int { return a.Since.Compare(b.Since) })
	if s := r.stack; s.at > 0 {
		d.Stack = &history.RankStack{At: time.Unix(0, s.at).UTC(), Where: safetext.Line(s.where), Waits: safetext.Line(s.waits),
			Function: safetext.Line(s.function), Hash: safetext.Line(s.hash), Unread: safetext.Line(s.unread)}
	}
	return d
}

// peerName is who is at the other end of a connection.
func (s *stall) peerName() string {
	switch {
	case s.peerRank >= 0:
		return "rank " + strconv.Itoa(s.peerRank)
	case s.peer.IsValid():
		return s.peer.String()
	}
	return "a peer that is not known"
}
