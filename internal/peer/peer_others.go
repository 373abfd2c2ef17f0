//go:build !linux

package peer

import "net"

type end struct {
	user   uint32
	cgroup uint64
}

func askFor(_, _ *net.TCPAddr) (e end, known bool) { return end{}, false }

func pathOf(uint64) string { return "" }
