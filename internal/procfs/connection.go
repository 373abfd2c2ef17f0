package procfs

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// maxConnections bounds a table of TCP sockets: one line is 150 bytes.
const maxConnections = 4 << 20

// Connection is a TCP socket that has another end, or asks for it.
type Connection struct {
	Peer  netip.AddrPort
	State TCPState
}

// TCPState is a state as the kernel numbers it (include/net/tcp_states.h).
type TCPState uint8

// The states of a socket that asks for a connection, and of one that has it.
const (
	Established TCPState = 1
	SynSent     TCPState = 2
)

// Connection is the TCP socket of that inode in the network namespace of a process. An error where there is none, or its table
// is too long.
func (f *FS) Connection(pid uint32, inode uint64) (Connection, error) {
	problem := errors.New("no TCP socket")
	for _, table := range [...]string{"tcp", "tcp6"} {
		file, err := f.of(pid, maxConnections, "net", table)
		if err != nil {
			problem = err
			continue
		}
		if c, found := connectionIn(string(file.Content), strconv.FormatUint(inode, 10)); found {
			return c, nil
		}
	}
	return Connection{}, fmt.Errorf("socket %d of process %d: %w", inode, pid, problem)
}

// connectionIn looks for a socket in a table: number, local and remote address, state, queues, timer, retransmits, user, timeout
// and inode (get_tcp4_sock(), net/ipv4/tcp_ipv4.c; get_tcp6_sock(), net/ipv6/tcp_ipv6.c).
func connectionIn(table, inode string) (Connection, bool) {
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 10 || fields[9] != inode {
			continue
		}
		peer, err := endOf(fields[2])
		state, notState := strconv.ParseUint(fields[3], 16, 8)
		return Connection{peer, TCPState(state)}, err == nil && notState == nil && peer.Port() != 0
	}
	return Connection{}, false
}

// endOf reads an address and port. The address is printed in words of 32 bits, as numbers of this machine.
func endOf(text string) (netip.AddrPort, error) {
	words, number, _ := strings.Cut(text, ":")
	port, err := strconv.ParseUint(number, 16, 16)
	raw, notHex := hex.DecodeString(words)
	if err = errors.Join(err, notHex); err != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, errors.Join(err, fmt.Errorf("address %q", text))
	}
	for i := 0; i < len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	address, ok := netip.AddrFromSlice(raw)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("address %q", text)
	}
	return netip.AddrPortFrom(address.Unmap(), uint16(port)), nil
}
