package stall

import (
	"net/netip"
	"time"

	"github.com/tracecoreai/tracecore/bpf/ncclsock"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// maxRefusals bounds how many targets that refuse are remembered.
const maxRefusals = 1024

// target is where connections are refused.
type target struct {
	netns  uint64
	remote netip.AddrPort
}

// refusals of one target in a row. A rank that waits for its peer tries again
// and again; each try is a socket that no snapshot sees.
type refusals struct {
	first, last time.Duration
	errno       int32
	local       netip.AddrPort
}

// Note takes a change of a socket between two snapshots.
func (t *Tracker) Note(c *ncclsock.Change) {
	if c.Error == 0 {
		return
	}
	if s := t.sockets.byCookie[c.Cookie]; s != nil {
		s.errno = c.Error
	}
	if c.Kind != ncclsock.StateChanged || c.Old != ncclsock.SynSent {
		return
	}
	key := target{c.NetNS, plain(c.Remote)}
	r := t.refused[key]
	if r == nil {
		if len(t.refused) >= maxRefusals {
			t.counters.ChangesDropped++
			return
		}
		r = &refusals{first: t.now}
		t.refused[key] = r
	}
	r.last, r.errno, r.local = t.now, c.Error, plain(c.Local)
}

// refusing returns what ranks were refused, and forgets targets that were not
// tried for a while: they answer, or nobody wants them any more.
func (t *Tracker) refusing() []finding {
	var found []finding
	for key, r := range t.refused {
		if t.now-r.last > t.o.Connect {
			delete(t.refused, key)
			continue
		}
		for _, k := range t.callers(key) {
			s := &socket{rank: k, far: Unknown, kind: socketstall.Store, errno: r.errno, now: ncclsock.Socket{
				NetNS: key.netns, PID: k.now.PID, Local: r.local, Remote: key.remote, State: ncclsock.SynSent, LastSentAge: Unknown, LastReceivedAge: Unknown,
			}}
			if int(key.remote.Port()) != k.now.MasterPort {
				s.kind = socketstall.Bootstrap
			}
			found = append(found, finding{s: s, cause: socketstall.Connecting, direction: socketstall.Send, since: r.first, due: t.now-r.first >= t.o.Connect})
		}
	}
	return found
}

// callers are the ranks that can have been refused: those in that network
// namespace that look for their store there and have none yet; else, for a port
// that the kernel chose, the one rank of the namespace.
func (t *Tracker) callers(key target) []*rank {
	var store, others []*rank
	for _, r := range t.ranks {
		switch {
		case r.now.NetNS != key.netns || r.now.Inherited:
		case r.now.MasterPort == int(key.remote.Port()):
			if t.sockets.ports[portKey{pid: r.now.PID, kind: socketstall.Send, peer: key.remote.Addr(), port: key.remote.Port(), netns: key.netns}] == 0 {
				store = append(store, r)
			}
		case key.remote.Port() >= t.o.RankPortsFrom:
			others = append(others, r)
		}
	}
	if len(others) == 1 {
		store = append(store, others[0])
	}
	return store
}
