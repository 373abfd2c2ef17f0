package socketstall

import (
	"net/netip"
	"time"
)

// Outside are the processes of a job that wait for one which is no rank of it: an engine that generates what is trained on, a
// parameter server. It returns by key the stall towards that one. Gloo asks before it sends or receives: whom a process asked
// last it waits for (gloo/transport/tcp/unbound_buffer.cc). Nil where ranks of the job are not seen. So it is for a job of one
// rank: nobody waits for that.
func (j *Job) Outside(now int64) map[string]*Stall {
	ranks := make(map[int]bool, len(j.Processes))
	for _, p := range j.Processes {
		ranks[p.Rank] = true
	}
	if j.World < 2 || len(ranks) < j.World {
		return nil
	}
	var found map[string]*Stall
	ends := j.ends()
	for key, p := range j.Processes {
		if s := p.outside(ends, now); s != nil {
			if found == nil {
				found = map[string]*Stall{}
			}
			found[key] = s
		}
	}
	return found
}

// outside is the newest wait of the process for one that is no rank, nil where it asked a rank later. As late is as likely the
// process of no rank: who has just answered its ranks asks that one in the same tick.
func (p *Process) outside(e *ends, now int64) (last *Stall) {
	asked := int64(0)
	for _, s := range p.Stalls {
		if s.Kind != Gloo || s.Sent == 0 || !s.OpenAt(now) || s.CauseAt(now) != Waiting {
			continue
		}
		switch {
		case !e.foreign(p.Host, s):
			asked = max(asked, s.Sent)
		case last == nil || s.Sent > last.Sent || s.Sent == last.Sent && s.Direction < last.Direction:
			last = s
		}
	}
	if last == nil || asked-last.Sent > int64(Tick(time.Duration(p.Tick))) {
		return nil
	}
	return last
}

// ends is where the ranks of a job can be reached.
type ends struct {
	ports map[netip.AddrPort]bool
	hosts map[netip.Addr]string // host that alone has a process there
}

// severalHosts have the address.
const severalHosts = "\x00"

func (j *Job) ends() *ends {
	e := &ends{ports: make(map[netip.AddrPort]bool, j.stalls), hosts: make(map[netip.Addr]string, len(j.Processes))}
	for _, p := range j.Processes {
		for _, s := range p.Stalls {
			if !s.Local.IsValid() {
				continue
			}
			e.ports[s.Local] = true
			if at := s.Local.Addr(); e.hosts[at] == "" {
				e.hosts[at] = p.Host
			} else if e.hosts[at] != p.Host {
				e.hosts[at] = severalHosts
			}
		}
	}
	return e
}

// foreign reports whether nobody of the job is at the other end. Of an end on the same host the record would say which rank
// it is. At an address where ranks of another host are, another of their ports may be meant.
func (e *ends) foreign(host string, s *Stall) bool {
	if s.PeerRank >= 0 || !s.Peer.IsValid() || e.ports[s.Peer] {
		return false
	}
	at := e.hosts[s.Peer.Addr()]
	return at == "" || at == host || s.Peer.Addr().IsLoopback()
}
