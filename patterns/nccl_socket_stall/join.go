package ncclsocketstall

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// mostJoined bounds the later starts that a job remembers as its own: each rank that begins again alone is one.
const mostJoined = 256

// ofRun says of which start a record is, and returns the name of the earlier start whose ranks live beside
// those of its own, "" for none. Ranks that begin again alone are another start until the engine
// is sure. One connection between both is surer: they are one job.
func (d *detector) ofRun(r *rule.Record, record *socketstall.Record) (beside string) {
	own := socketstall.RunName(record.Job, r.Run)
	if earlier := cmp.Or(r.Beside, r.With); earlier != "" {
		beside = socketstall.RunName(record.Job, earlier)
	}
	with := r.With
	if earlier := d.jobs[beside]; with == "" && earlier != nil && slices.Contains(earlier.One, own) {
		with = r.Beside
	}
	if j := d.jobs[own]; with != "" && j != nil {
		j.Beside, j.Whole, j.Changed = beside, true, true
	}
	record.OfRun(r.Run, with)
	return beside
}

// join makes one job of starts that are one. What was told of the later alone is taken back.
func (d *detector) join() (findings []rule.Finding) {
	for _, name := range slices.Sorted(maps.Keys(d.jobs)) {
		j := d.jobs[name]
		earlier := d.jobs[j.Beside]
		if earlier == nil || earlier == j || !j.Changed && !earlier.Changed || !j.Whole && !connected(j.stalls, earlier.stalls) {
			continue
		}
		findings = append(findings, j.takeBack()...)
		if !slices.Contains(earlier.One, name) && len(earlier.One) < mostJoined {
			earlier.One = append(earlier.One, name)
		}
		d.book.Join(j.stalls, earlier.stalls)
		delete(d.jobs, name)
		earlier.Changed = true
	}
	return findings
}

// connected reports whether one connection between hosts has an end in each of two jobs.
func connected(a, b *socketstall.Job) bool {
	type pair struct{ local, peer netip.AddrPort }
	ends := make(map[pair]bool, a.Len())
	for s := range a.Stalls() {
		ends[pair{s.Peer, s.Local}] = s.Local.IsValid() && s.Peer.IsValid() && !s.Local.Addr().IsLoopback()
	}
	for s := range b.Stalls() {
		if ends[pair{s.Local, s.Peer}] {
			return true
		}
	}
	return false
}
