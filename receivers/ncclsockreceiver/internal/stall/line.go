package stall

import "net/netip"

// mostLines bounds the local addresses of one process that are told apart.
const mostLines = 32

// Line is what a process moved on collective sockets of one local address, since it was seen to.
type Line struct{ Sent, Received uint64 }

// Lines calls fn for each local address over which the processes of ranks move data.
func (t *Tracker) Lines(fn func(of *Process, local netip.Addr, moved Line)) {
	for _, r := range t.ranks {
		for local, moved := range r.lines {
			fn(&r.now, local, *moved)
		}
	}
}

// carry counts what a socket moved since the snapshot before. What it moved before it was met
// is not of now.
func (r *rank) carry(s *socket) {
	local := s.now.Local.Addr().Unmap()
	if s.met == s.round || local.IsLoopback() || s.change.sent+s.change.received == 0 {
		return
	}
	moved := r.lines[local]
	if moved == nil {
		if len(r.lines) == mostLines {
			return
		}
		if r.lines == nil {
			r.lines = map[netip.Addr]*Line{}
		}
		moved = &Line{}
		r.lines[local] = moved
	}
	moved.Sent += s.change.sent
	moved.Received += s.change.received
}
