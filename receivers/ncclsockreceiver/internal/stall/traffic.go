package stall

import (
	"net/netip"
	"time"

	"github.com/tracecoreai/tracecore/bpf/ncclsock"
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

// meet counts what a new socket moved before we saw it, unless we are new too.
func (t *traffic) meet(s *socket, first bool) {
	if s.resolve() == socketstall.Other {
		return
	}
	s.series = t.of(s.rank.job.id, s.now.Remote.Addr())
	if !first {
		var zero ncclsock.Socket
		s.series.add(&zero, &s.now)
	}
}

// count adds what moved since the last snapshot.
func (t *traffic) count(s *socket, next *ncclsock.Socket) {
	if s.series != nil {
		s.series.add(&s.now, next)
	}
}

func (s *Series) add(before, now *ncclsock.Socket) {
	s.SentBytes += grown(before.BytesSent, now.BytesSent)
	s.ReceivedBytes += grown(before.BytesReceived, now.BytesReceived)
	s.Retransmits += grown(uint64(before.Retransmits), uint64(now.Retransmits))
}

// grown is never negative: a counter that fell is another connection's.
func grown(before, now uint64) uint64 {
	if now < before {
		return 0
	}
	return now - before
}

// stalled adds the time of one snapshot, once for each cause.
func (s *Series) stalled(cause socketstall.Cause, step time.Duration, round uint64) {
	if s != nil && s.stalledRound[cause] != round {
		s.stalledRound[cause] = round
		s.Stalled[cause] += step
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
