package stall

import (
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
