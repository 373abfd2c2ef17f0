package stall

import (
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/tracecoreai/tracecore/bpf/ncclsock"
	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// maxRefusals bounds how many targets that refuse are remembered.
const maxRefusals = 1024

// target is where the connections of a process are refused.
type target struct {
	pid    uint32
	netns  uint64
	remote netip.AddrPort
}

// refusals of one target in a row. A rank that waits for its peer tries again
// and again; each try is a socket that no snapshot sees.
type refusals struct {
	target
	first, last time.Duration
	errno       int32
	local       netip.AddrPort
}

// refused are the targets that are remembered, gone some seconds after the last refusal.
// Domains and their processes share the room.
type refused struct {
	of    map[target]*fairlru.Element[*refusals]
	order fairlru.List[*refusals]
}

func (rs *refused) note(key target, domain string) *refusals {
	if e := rs.of[key]; e != nil {
		rs.order.Touch(e, fairlru.Some)
		return e.Value
	}
	e := rs.order.Add(&refusals{target: key, first: never}, fairlru.Some, domain, strconv.FormatUint(uint64(key.pid), 10))
	rs.of[key] = e
	return e.Value
}

// evict makes room where there is none, and reports whether it did.
func (rs *refused) evict() bool {
	if len(rs.of) <= maxRefusals {
		return false
	}
	e, _ := rs.order.Victim()
	rs.forget(e.Value)
	return true
}

func (rs *refused) forget(r *refusals) {
	rs.order.Remove(rs.of[r.target])
	delete(rs.of, r.target)
}

// Note takes a change of a socket between two snapshots.
func (t *Tracker) Note(c *ncclsock.Change) {
	if s := t.sockets.of(c); s != nil && c.Kind == ncclsock.StateChanged {
		t.closes(s, c)
		if s.rank.open <= 0 { // else it is not the last of many
			t.vouch(s.rank)
		}
	}
	if c.Error == 0 {
		return
	}
	if s := t.sockets.byCookie[c.Cookie]; s != nil {
		s.errno = c.Error
	}
	k := t.ranks[c.PID]
	if c.Kind != ncclsock.StateChanged || c.Old != ncclsock.SynSent || k == nil {
		return
	}
	r := t.refused.note(target{c.PID, c.NetNS, plain(c.Remote)}, k.now.Domain)
	if r.first == never {
		r.first = t.now
	}
	r.last, r.errno, r.local = t.now, c.Error, plain(c.Local)
	if t.refused.evict() {
		t.counters.ChangesDropped++
	}
}

// refusing returns what ranks were refused, and forgets targets that were not
// tried for a while: they answer, or nobody wants them any more.
func (t *Tracker) refusing() []finding {
	var found []finding
	for key, e := range t.refused.of {
		r := e.Value
		if t.now-r.last > t.o.Connect {
			t.refused.forget(r)
			continue
		}
		k := t.caller(key)
		if k == nil {
			continue
		}
		s := &socket{rank: k, far: Unknown, kind: socketstall.Store, errno: r.errno, now: ncclsock.Socket{
			NetNS: key.netns, PID: k.now.PID, Local: r.local, Remote: key.remote, State: ncclsock.SynSent, LastSentAge: Unknown, LastReceivedAge: Unknown,
		}}
		if int(key.remote.Port()) != k.now.MasterPort {
			s.kind = socketstall.Bootstrap
		}
		found = append(found, finding{s: s, cause: socketstall.Connecting, direction: socketstall.Send, since: r.first, due: t.now-r.first >= t.o.Connect})
	}
	return found
}

// caller is the rank that was refused: it looks for its store there and has none yet; or, for a
// port that the kernel chose, it is the one rank of its job in that network namespace. Nil for
// what else a rank connects to. What a process of the rank tries is the rank's.
func (t *Tracker) caller(key target) *rank {
	r := t.ranks[key.pid]
	if r == nil {
		return nil
	}
	if root := t.ranks[r.now.RankPID]; r.now.Inherited && root != nil {
		r = root
	}
	port := key.remote.Port()
	switch {
	case int(port) == r.now.MasterPort:
		if t.sockets.ports[portKey{pid: r.now.PID, kind: socketstall.Send, peer: key.remote.Addr(), port: port, netns: key.netns}] > 0 {
			return nil
		}
	case port < t.o.RankPortsFrom || r.now.Inherited || r.job == nil || slices.ContainsFunc(r.job.ranks, func(o *rank) bool {
		return o != r && o.now.NetNS == key.netns && !o.now.Inherited
	}):
		return nil
	}
	return r
}
