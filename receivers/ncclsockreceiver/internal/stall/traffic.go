package stall

import (
	"net/netip"
	"time"

	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// Series is the traffic of one job with one peer address since it was first
// seen.
type Series struct {
	JobID string
	Peer  netip.Addr // not valid: peers beyond the cap

	SentBytes, ReceivedBytes, Retransmits uint64
	Stalled                               map[socketstall.Cause]time.Duration

	stalledRound map[socketstall.Cause]uint64
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

// Traffic calls fn for each series.
func (t *Tracker) Traffic(fn func(*Series)) {
	for _, s := range t.traffic.series {
		fn(s)
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
		if one.round == c.round && series != nil && series.stalledRound[cause] != c.round {
			series.stalledRound[cause] = c.round
			series.Stalled[cause] += c.now - c.last
		}
	}
}

// forget drops the series of a job that is long gone.
func (t *traffic) forget(job string) {
	for key := range t.series {
		if key.job == job {
			delete(t.series, key)
		}
	}
}
