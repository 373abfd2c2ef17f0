package procfs

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// routes writes a routing table as the kernel does: interface, network, gateway.
func routes(lines ...[3]string) string {
	number := func(text string) uint32 {
		address := netip.MustParseAddr(text).As4()
		return binary.NativeEndian.Uint32(address[:])
	}
	text := "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
	for _, line := range lines {
		network := netip.MustParsePrefix(line[1])
		mask := netip.PrefixFrom(netip.MustParseAddr("255.255.255.255"), network.Bits()).Masked().Addr()
		text += fmt.Sprintf("%s\t%08X\t%08X\t0001\t0\t0\t0\t%08X\t0\t0\t0\n", line[0], number(network.Addr().String()), number(line[2]), number(mask.String()))
	}
	return text
}

func TestInterfaceOfALocalAddress(t *testing.T) {
	root := t.TempDir()
	put(t, root, "1/net/route", routes(
		[3]string{"eth0", "0.0.0.0/0", "10.0.0.1"}, [3]string{"eth0", "10.0.0.0/16", "0.0.0.0"}, [3]string{"eth3", "10.0.3.0/24", "0.0.0.0"},
		[3]string{"eth4", "10.0.4.0/24", "0.0.0.0"}, [3]string{"eth5", "10.0.4.0/24", "0.0.0.0"}, [3]string{"eth6", "10.0.6.0/24", "10.0.0.9"},
	))
	put(t, root, "1/net/if_inet6", "fe800000000000000a0027fffe4e66a1 02 40 20 80     eth0\nfd000000000000000000000000000003 05 40 00 80     eth3\n00000000000000000000000000000001 01 80 10 80       lo\nnonsense\n")
	put(t, root, "2/net/route", routes([3]string{"eth0", "0.0.0.0/0", "169.254.1.1"}, [3]string{"eth0", "169.254.1.1/32", "0.0.0.0"}, [3]string{"*", "10.244.0.0/16", "0.0.0.0"})) // of a pod, and what its node refuses
	put(t, root, "3/net/route", routes([3]string{"eth4", "10.0.4.0/24", "0.0.0.0"}, [3]string{"eth5", "10.0.4.0/24", "0.0.0.0"}, [3]string{"eth4", "10.0.4.0/24", "0.0.0.0"}))
	put(t, root, "5/net/route", routes([3]string{"e\xff0", "10.0.4.0/24", "0.0.0.0"}))
	put(t, root, "4/net/route", strings.Repeat("x", maxRoutes+1))
	fs := Open(root)
	for name, tt := range map[string]struct {
		pid            uint32
		address, gives string
	}{
		"the narrowest network":       {1, "10.0.3.17", "eth3"},
		"a wider one":                 {1, "10.0.9.17", "eth0"},
		"a network behind a gateway":  {1, "10.0.6.17", "eth0"},
		"a network of two interfaces": {1, "10.0.4.17", ""},
		"told twice":                  {3, "10.0.4.17", ""},
		"no network of its own":       {1, "192.168.0.1", ""},
		"the only interface of a pod": {2, "10.244.1.7", "eth0"},
		"a name that is no text":      {5, "10.0.4.17", "e\ufffd0"},
		"IPv4 in IPv6":                {1, "::ffff:10.0.3.17", "eth3"},
		"IPv6":                        {1, "fd00::3", "eth3"},
		"IPv6 that nobody has":        {1, "fd00::4", ""},
		"a process that is gone":      {9, "10.0.3.17", ""},
		"a table without end":         {4, "10.0.3.17", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := fs.Interface(tt.pid, netip.MustParseAddr(tt.address))
			require.Equal(t, tt.gives, got)
			require.Equal(t, tt.gives == "", err != nil)
		})
	}
}
