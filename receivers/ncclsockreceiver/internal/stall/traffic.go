package stall

import (
	"cmp"
	"net/netip"
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// Series is the traffic of one job with one peer address since it was first
// seen.
type Series struct {
	JobID, Domain string     // a job is its id inside its domain
	Peer          netip.Addr // not valid: peers beyond the cap

	SentBytes, ReceivedBytes, Retransmits uint64
	Stalled                               map[socketstall.Cause]time.Duration
	// Longest is, for each cause, the stall that had lasted longest, of those that were found
	// since Traffic was asked before.
	Longest map[socketstall.Cause]Standing

	into         *Series // that counts for it since it gave way, nil while it has its room
	stalledRound map[socketstall.Cause]uint64
}

// Standing is a stall of a series.
type Standing struct {
	Process identity.Process // whose socket it is
	Age     time.Duration    // since the last progress
}

// seriesOf are the series of one job.
type seriesOf struct {
	peers map[netip.Addr]*fairlru.Element[*Series]
	other *Series // of the peers beyond the cap, nil while there are none
}

// traffic is bounded: domains, then jobs, share the room for peers, and those beyond share one
// series of their job. There are no more owners than the tracker has jobs.
type traffic struct {
	max    int
	of     map[owner]*seriesOf
	peers  fairlru.List[*Series]
	folded uint64
}

func newTraffic(limit int) traffic { return traffic{max: limit, of: map[owner]*seriesOf{}} }

// Traffic calls fn for each series, which lasts as long as the call.
func (t *Tracker) Traffic(fn func(*Series)) {
	for _, one := range t.traffic.of {
		for _, e := range one.peers {
			fn(e.Value)
			e.Value.Longest = nil
		}
		if one.other != nil {
			fn(one.other)
			one.other.Longest = nil
		}
	}
}

// meet returns the series of a job and a peer. Where there is no room for one more the job that
// has most in the domain that has most gives one away, to that of its other peers.
func (t *traffic) meet(job owner, peer netip.Addr) *Series {
	one := t.of[job]
	if one == nil {
		one = &seriesOf{peers: map[netip.Addr]*fairlru.Element[*Series]{}}
		t.of[job] = one
	}
	peer = peer.Unmap()
	e := one.peers[peer]
	if e == nil {
		e = t.peers.Add(newSeries(job, peer), fairlru.Some, job.domain, job.id)
		one.peers[peer] = e
	}
	if t.peers.Len() > t.max {
		victim, _ := t.peers.Victim()
		t.fold(victim)
	}
	return e.Value.now()
}

// fold adds a series to that of the other peers of its job.
func (t *traffic) fold(e *fairlru.Element[*Series]) {
	t.folded++
	s := e.Value
	job := owner{s.Domain, s.JobID}
	one := t.of[job]
	if one.other == nil {
		one.other = newSeries(job, netip.Addr{})
	}
	t.peers.Remove(e)
	delete(one.peers, s.Peer)
	s.into = one.other
	one.other.add(s)
}

func newSeries(job owner, peer netip.Addr) *Series {
	return &Series{
		JobID: job.id, Domain: job.domain, Peer: peer, Stalled: map[socketstall.Cause]time.Duration{}, stalledRound: map[socketstall.Cause]uint64{},
	}
}

// now is the series that counts what s did.
func (s *Series) now() *Series {
	if s.into != nil {
		return s.into
	}
	return s
}

func (s *Series) add(o *Series) {
	s.SentBytes, s.ReceivedBytes, s.Retransmits = s.SentBytes+o.SentBytes, s.ReceivedBytes+o.ReceivedBytes, s.Retransmits+o.Retransmits
	for cause, d := range o.Stalled {
		s.Stalled[cause] += d
		s.stalledRound[cause] = max(s.stalledRound[cause], o.stalledRound[cause])
	}
}

// take adds what each socket moved. What it moved before its kind was known, or
// before the tracker began, does not count.
func (t *traffic) take(seen []*socket, round uint64) {
	for _, s := range seen {
		if s.kind == socketstall.Other && s.series == nil {
			continue
		}
		if s.series == nil {
			s.series = t.meet(s.rank.job.key.owner, s.now.Remote.Addr())
			if s.met != round || round == 1 {
				continue
			}
		}
		s.series = s.series.now()
		s.series.SentBytes += s.change.sent
		s.series.ReceivedBytes += s.change.received
		s.series.Retransmits += s.change.retransmits
	}
}

// stand adds the time of one snapshot to the series of the stalls that it found,
// once for each cause.
func (t *traffic) stand(open map[stallKey]*stall, c *clock) {
	for _, one := range open {
		series, cause := one.s.series, one.last.Cause
		if one.round != c.round || series == nil {
			continue
		}
		series = series.now()
		series.meet(&one.last)
		if series.stalledRound[cause] != c.round {
			series.stalledRound[cause] = c.round
			series.Stalled[cause] += c.now - c.last
		}
	}
}

// meet keeps a stall if none lasted longer; of two that are as old the one of the lower rank.
func (s *Series) meet(e *Event) {
	if known, met := s.Longest[e.Cause]; met &&
		cmp.Or(cmp.Compare(known.Age, e.Age), cmp.Compare(e.Process.Rank, known.Process.Rank), cmp.Compare(e.Process.PID, known.Process.PID)) >= 0 {
		return
	}
	if s.Longest == nil {
		s.Longest = map[socketstall.Cause]Standing{}
	}
	s.Longest[e.Cause] = Standing{e.Process, e.Age}
}

// forget drops the series of a job that is gone.
func (t *traffic) forget(job owner) {
	one := t.of[job]
	if one == nil {
		return
	}
	for _, e := range one.peers {
		t.peers.Remove(e)
	}
	delete(t.of, job)
}
