package procfs

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConnectionOfASocket(t *testing.T) {
	const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	root := t.TempDir()
	put(t, root, "1/net/tcp", head+
		"   0: 0100007F:733C 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0000000000000000 100 0 0 10 0\n"+
		"   1: 0100007F:A3C2 0100007F:733C 01 00000000:00000000 00:00000000 00000000     0        0 12 1 0000000000000000 20 4 30 10 -1\n"+
		"   2: 0500000A:A3C4 0900000A:733C 02 00000001:00000000 01:00000063 00000002     0        0 13 2 0000000000000000 400 0 0 1 7\n"+
		"   3: nonsense:A3C4 nonsense:733C 02 00000001:00000000 01:00000063 00000002     0        0 14 2\n")
	put(t, root, "1/net/tcp6", head+
		"   0: 0000000000000000FFFF00000500000A:A3C4 0000000000000000FFFF00000900000A:733C 02 00000001:00000000 01:00000063 00000002 0 0 21 2\n"+
		"   1: 000000FD000000000000000003000000:A3C4 000000FD000000000000000004000000:733C 01 00000001:00000000 01:00000063 00000002 0 0 22 2\n")
	put(t, root, "2/net/tcp", strings.Repeat("x", maxConnections+1))
	fs := Open(root)
	for name, tt := range map[string]struct {
		pid   uint32
		inode uint64
		peer  string // "" for none
		state TCPState
	}{
		"connected":              {1, 12, "127.0.0.1:29500", Established},
		"asks":                   {1, 13, "10.0.0.9:29500", SynSent},
		"IPv4 in IPv6":           {1, 21, "10.0.0.9:29500", SynSent},
		"IPv6":                   {1, 22, "[fd00::4]:29500", Established},
		"listens":                {1, 11, "", 0},
		"no address":             {1, 14, "", 0},
		"no TCP socket":          {1, 99, "", 0},
		"a process that is gone": {9, 12, "", 0},
		"a table without end":    {2, 12, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := fs.Connection(tt.pid, tt.inode)
			if tt.peer == "" {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, Connection{netip.MustParseAddrPort(tt.peer), tt.state}, got)
		})
	}
}
