package pyexceptionreceiver

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/pyexception"
	"github.com/tracecoreai/tracecore/internal/fairlru"
)

// torch.multiprocessing.spawn catches what ends a rank: the rank displays nothing, and ends with 1.
// Who started it then displays an exception of this type, which quotes the one of the rank
// (torch/multiprocessing/spawn.py, _wrap and ProcessContext.join).
const quoting = "ProcessRaisedException"

// quotingWithin is how long after the end of its rank that may come: it ends the other ranks first,
// which by default takes until they have ended.
const quotingWithin = time.Minute

// mostQuotes bounds the ends of ranks, and the exceptions that quote one, that wait for each other.
// Domains share it.
const mostQuotes = 256

// quotes brings exceptions that quote a rank's together with the end of that rank. Either comes first.
type quotes struct {
	launchers atomic.Pointer[map[identity.Born]string] // who has started ranks, or what may be some, that lived at one of the last two looks, with their domain
	before    map[identity.Born]string                 // at the last look
	list      fairlru.List[*quote]
}

// quote is one side of the two.
type quote struct {
	at       *fairlru.Element[*quote]
	launcher identity.Born
	domain   string
	end      *identity.Exit     // of a rank that it has started, or
	event    *pyexception.Event // what it displayed
}

// saw takes the living ranks and what may be some, and who has a number now. A rank that dies at its start may be
// known as one by its end alone.
func (q *quotes) saw(ranks []identity.Process, who func(pid uint32) (identity.Process, bool)) {
	now, parents := map[identity.Born]string{}, map[uint32]*identity.Process{}
	for i := range ranks {
		r := &ranks[i]
		if r.Inherited || r.ParentPID <= 1 { // process 1 adopts anybody's
			continue
		}
		parent, asked := parents[r.ParentPID]
		if !asked {
			if p, found := who(r.ParentPID); found && !p.Ended {
				parent = &p
			}
			parents[r.ParentPID] = parent
		}
		if parent != nil && started(parent.Born(), parent.Domain, r) {
			now[parent.Born()] = parent.Domain
		}
	}
	both := maps.Clone(now)
	maps.Copy(both, q.before)
	q.before = now
	q.launchers.Store(&both)
}

// started reports whether a process is the one that has started a rank. The number alone does not say
// so: a rank outlives its launcher, and anybody's process may have the number then.
func started(launcher identity.Born, domain string, rank *identity.Process) bool {
	return launcher.PID == rank.ParentPID && launcher.StartNS != 0 && launcher.StartNS <= rank.StartNS && domain == rank.Domain
}

// launched are the processes that have started ranks, with the domain of these.
func (q *quotes) launched() map[identity.Born]string {
	if all := q.launchers.Load(); all != nil {
		return *all
	}
	return nil
}

// launcher reports whether a process has started ranks. It is safe beside the rest.
func (q *quotes) launcher(p *identity.Process) bool {
	_, is := q.launched()[p.Born()]
	return is && !p.Ended // what has ended displays nothing
}

// displayed takes an exception of a process that is no rank, and returns it as the rank's that it
// quotes, with that rank; nil where its end has not come yet, or it quotes none.
func (q *quotes) displayed(e *pyexception.Event, by *identity.Process) (*pyexception.Event, *identity.Process) {
	if !q.launcher(by) || quoteIn(e) == nil {
		return nil, nil
	}
	return q.meet(&quote{launcher: by.Born(), domain: by.Domain, event: e})
}

// exited is the same for the end of a process.
func (q *quotes) exited(end *identity.Exit) (*pyexception.Event, *identity.Process) {
	if end.Inherited || end.Code != exceptionStatus {
		return nil, nil
	}
	launcher, domain := q.launcherOf(&end.Process)
	if launcher.PID == 0 {
		return nil, nil
	}
	return q.meet(&quote{launcher: launcher, domain: domain, end: end})
}

// launcherOf is who has started a rank that has ended; none where nobody knows. It may have ended by now, and
// what it displayed waits.
func (q *quotes) launcherOf(rank *identity.Process) (found identity.Born, domain string) {
	for launcher, domain := range q.launched() {
		if started(launcher, domain, rank) {
			return launcher, domain
		}
	}
	q.list.Each(func(one *quote) {
		if started(one.launcher, one.domain, rank) {
			found, domain = one.launcher, one.domain
		}
	})
	return found, domain
}

// time is when this side came.
func (q *quote) time() time.Time {
	if q.end != nil {
		return q.end.Time
	}
	return q.event.Time
}

// meet finds the other side of one, or has it wait. What has waited for too long counts no more.
func (q *quotes) meet(one *quote) (*pyexception.Event, *identity.Process) {
	var found *quote
	var old []*quote
	ends := 0 // of ranks that nobody numbers
	q.list.Each(func(other *quote) {
		switch {
		case other.launcher != one.launcher:
			return
		case one.time().Sub(other.time()) > quotingWithin:
			old = append(old, other)
			return
		}
		if end := cmp.Or(one.end, other.end); end != nil && end.LocalRank == identity.Unknown {
			ends++
		}
		if found == nil && (other.end == nil) != (one.end == nil) && fits(cmp.Or(one.event, other.event), cmp.Or(one.end, other.end)) {
			found = other
		}
	})
	for _, other := range old {
		q.list.Remove(other.at)
	}
	if found == nil || ends > 1 { // which of them it was, the quote does not say
		for q.list.Len() >= mostQuotes {
			victim, _ := q.list.Victim()
			q.list.Remove(victim)
		}
		one.at = q.list.Add(one, fairlru.Little, one.domain)
		return nil, nil
	}
	q.list.Remove(found.at)
	end := cmp.Or(one.end, found.end)
	return ofRank(cmp.Or(one.event, found.event), end), &end.Process
}

// number is which of its processes the launcher speaks of: its own words come first, then those of the rank.
var number = regexp.MustCompile(`^\s*-- Process (\d+) terminated with the following error:`)

// fits reports whether an exception may quote the one that a rank ended of. The number is that of the
// process on this host, as the local rank is, where that is known.
func fits(e *pyexception.Event, end *identity.Exit) bool {
	after := e.Time.Sub(end.Time)
	found := number.FindStringSubmatch(quoteIn(e).Message)
	return found != nil && after > -time.Second && after <= quotingWithin &&
		(end.LocalRank == identity.Unknown || found[1] == strconv.Itoa(end.LocalRank))
}

// quoteIn is the exception of a chain that quotes the one of a rank; nil for none. Who starts the ranks may
// raise another from it.
func quoteIn(e *pyexception.Event) *pyexception.Exception {
	i := slices.IndexFunc(e.Chain, func(x pyexception.Exception) bool { return x.Type == quoting })
	if i < 0 {
		return nil
	}
	return &e.Chain[i]
}

// ofRank is an exception that quotes another, as the rank that ended of that would have displayed it.
func ofRank(e *pyexception.Event, end *identity.Exit) *pyexception.Event {
	is := *e
	is.PID, is.Thread, is.Comm = end.PID, end.PID, end.Comm
	if chain, more := unquotedChain(quoteIn(e)); len(chain) > 0 {
		is.Chain, is.More = chain, more
	}
	return &is
}
