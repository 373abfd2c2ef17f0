package ncclsocketstall

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// Both ends of one connection between hosts make two starts one job. Loopback is another on each host.
func TestOneConnectionHasBothItsEnds(t *testing.T) {
	job := func(local, peer string) *socketstall.Job {
		s := &socketstall.Stall{}
		if local != "" {
			s.Local, s.Peer = netip.MustParseAddrPort(local), netip.MustParseAddrPort(peer)
		}
		return &socketstall.Job{Processes: map[string]*socketstall.Process{"p": {Stalls: map[string]*socketstall.Stall{"s": s}}}}
	}
	one := job("10.0.0.1:40000", "10.0.0.2:50000")
	require.True(t, connected(one, job("10.0.0.2:50000", "10.0.0.1:40000")))
	require.False(t, connected(one, job("10.0.0.1:40000", "10.0.0.2:50000")), "it is the same end")
	require.False(t, connected(one, job("10.0.0.2:50001", "10.0.0.1:40000")), "another port")
	require.False(t, connected(job("127.0.0.1:40000", "127.0.0.1:50000"), job("127.0.0.1:50000", "127.0.0.1:40000")))
	require.False(t, connected(job("", ""), job("", "")))
}
