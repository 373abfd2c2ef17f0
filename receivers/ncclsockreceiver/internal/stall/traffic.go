package stall

import (
	"cmp"
	"net/netip"
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// Series is the traffic of one job with one peer address since it was first
// seen.
type Series struct {
	JobID string
	Peer  netip.Addr // not valid: peers beyond the cap

	SentBytes, ReceivedBytes, Retransmits uint64
	Stalled                               map[socketstall.Cause]time.Duration
	// Longest is, for each cause, the stall that had lasted longest, of those that were found
	// since Traffic was asked before.
	Longest map[socketstall.Cause]Standing

	stalledRound map[socketstall.Cause]uint64
}

// Standing is a stall of a series.
type Standing struct {
	Process identity.Process // whose socket it is
	Age     time.Duration    // since the last progress
}

type seriesKey struct {
	job  string
	peer netip.Addr
}

// traffic is bounded: peers beyond the cap share one series per job.
type traffic struct {
	max    int
	series map[seriesKey]*Series
	folded uint64
}

func newTraffic(limit int) traffic { return traffic{max: limit, series: map[seriesKey]*Series{}} }

// Traffic calls fn for each series, which lasts as long as the call.
func (t *Tracker) Traffic(fn func(*Series)) {
	for _, s := range t.traffic.series {
		fn(s)
		s.Longest = nil
	}
}

func (t *traffic) of(job string, peer netip.Addr) *Series {
	key := seriesKey{job, peer.Unmap()}
	s := t.series[key]
	if s == nil && len(t.series) >= t.max && peer.IsValid() {
		t.folded++
		return t.of(job, netip.Addr{})
	}
	if s == nil {
		s = &Series{JobID: job, Peer: key.peer, Stalled: map[socketstall.Cause]time.Duration{}, stalledRound: map[socketstall.Cause]uint64{}}
		t.series[key] = s
	}
	return s
}

// take adds what each socket moved. What it moved before its kind was known, or
// before the tracker began, does not count.
func (t *traffic) take(seen []*socket, round uint64) {
	for _, s := range seen {
		if s.kind == socketstall.Other && s.series == nil {
			continue
		}
		if s.series == nil {
			s.series = t.of(s.rank.job.id, s.now.Remote.Addr())
			if s.met != round || round == 1 {
				continue
			}
		}
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

// forget drops the series of a job that is long gone.
func (t *traffic) forget(job string) {
	for key := range t.series {
		if key.job == job {
			delete(t.series, key)
		}
	}
}
