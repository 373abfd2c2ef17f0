package stall

import (
	"cmp"
	"encoding/binary"

	"github.com/tracecoreai/tracecore/bpf/ncclsock"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// undecided is the kind of a socket that nothing about itself tells.
const undecided socketstall.Kind = ""

// portRAS is where NCCL's RAS threads listen (src/ras/ras.cc, NCCL_RAS_ADDR).
const portRAS = 28028

// NCCL's handshake (src/include/socket.h): 8-byte magic, 4-byte type.
const (
	magicNCCL     = 0x564ab9f2fc4b9d6c
	handshakeSize = 12

	typeBootstrap = 1
	typeProxy     = 2
	typeNetSocket = 3
	typeNetIB     = 4
	typeRAS       = 5
)

// kindByHandshake reads the first bytes of a connection. A magic other than the
// default one is random for bootstrap and proxy, or chosen by NCCL_SOCKET_MAGIC;
// Gloo's first word is a small number and so is none.
func kindByHandshake(first []byte) socketstall.Kind {
	if len(first) < handshakeSize {
		return undecided
	}
	magic := binary.LittleEndian.Uint64(first)
	if magic != magicNCCL && magic>>32 == 0 {
		return undecided
	}
	switch binary.LittleEndian.Uint32(first[8:]) {
	case typeBootstrap:
		return socketstall.Bootstrap
	case typeProxy:
		return socketstall.Proxy
	case typeNetSocket:
		return socketstall.Data
	case typeNetIB:
		// Exchanges keys of queue pairs, then keeps quiet: the data is elsewhere.
		return socketstall.Proxy
	case typeRAS:
		return socketstall.RAS
	}
	return undecided
}

// kindByPort knows the two services with fixed ports.
func kindByPort(s *ncclsock.Socket, masterPort int) socketstall.Kind {
	local, remote := s.Local.Port(), s.Remote.Port()
	switch {
	case local == portRAS || remote == portRAS:
		return socketstall.RAS
	case masterPort != 0 && (int(local) == masterPort || int(remote) == masterPort):
		return socketstall.Store
	}
	return undecided
}

// decide says what each socket is for. Its port goes first: RAS and store are what
// listens there. Then its first bytes tell, or those that its other end saw.
func decide(seen []*socket) {
	for _, s := range seen {
		if s.told == undecided {
			s.told = cmp.Or(kindByPort(&s.now, s.rank.now.MasterPort), kindByHandshake(s.now.Handshake))
		}
		if s.peer != nil {
			s.told = cmp.Or(s.told, s.peer.told)
			s.peer.told = cmp.Or(s.peer.told, s.told)
		}
		s.now.Handshake = nil // was read, and is the caller's
	}
	for _, s := range seen {
		s.kind, s.guessed = s.resolve(), s.told == undecided
	}
}

// resolve says what the socket is for. Of one between two ranks whose first
// bytes nobody saw, the libraries of its process tell.
func (s *socket) resolve() socketstall.Kind {
	switch {
	case s.told != undecided:
		return s.told
	case !s.between:
		return socketstall.Other
	case s.rank.now.NCCL:
		return socketstall.Data
	default:
		return socketstall.Gloo
	}
}
