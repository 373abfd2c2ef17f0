package ncclsockreceiver

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/receivers/ncclsockreceiver/internal/stall"
)

// However many addresses ranks have, and however long their routing tables are, few are looked
// for in a round, and what was found is kept.
func TestFewInterfacesAreLookedForAtOnce(t *testing.T) {
	sought := 0
	i := interfaces{find: func(pid uint32, _ netip.Addr) (string, error) {
		if sought++; pid == 9 {
			return "", errors.New("no interface")
		}
		return "eth0", nil
	}}
	address := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, n}) }
	process := func(pid uint32, netns uint64) *stall.Process {
		p := &stall.Process{}
		p.PID, p.NetNS = pid, netns
		return p
	}
	named := func() (n int) {
		for a := range byte(40) {
			if i.of(process(1, 7), address(a)) == "eth0" {
				n++
			}
		}
		return n
	}
	for round, want := range []int{mostSought, 2 * mostSought, 40, 40} {
		i.begin()
		require.Equal(t, want, named(), "round %d", round)
	}
	require.Equal(t, 40, sought)

	i.begin()
	require.Equal(t, "eth0", i.of(process(2, 7), address(1)), "another process in the namespace")
	require.Equal(t, 40, sought)
	require.Equal(t, "eth0", i.of(process(3, 0), address(1)))
	require.Equal(t, "eth0", i.of(process(4, 0), address(1)), "whose namespace is not known is asked itself")
	require.Equal(t, 42, sought)
	require.Empty(t, i.of(process(9, 8), address(1)))
	i.begin()
	require.Empty(t, i.of(process(9, 8), address(1)), "it is looked for again")
	require.Equal(t, 44, sought)
	require.Equal(t, "eth0", i.of(process(1, 7), address(1)))
	require.Equal(t, "eth0", i.of(process(1, 7), address(2)), "nobody asked for it in the round before")
	require.Equal(t, 45, sought)
}
