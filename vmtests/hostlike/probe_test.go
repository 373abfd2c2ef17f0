//go:build linux

// Package hostlike holds no code: its tests assert that a machine of the matrix
// has what the tests of the probes need from a host.
package hostlike

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/internal/privtest"
)

// opInit is the first request of every connection (FUSE_INIT, include/uapi/linux/fuse.h).
const opInit = 26

func TestKernelSpeaksFUSE(t *testing.T) {
	privtest.Require(t)
	device, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(device)
	point := filepath.Join(t.TempDir(), "mount")
	require.NoError(t, os.Mkdir(point, 0o755))
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", device)
	require.NoError(t, unix.Mount("hostlike", point, "fuse", 0, options))
	defer func() { require.NoError(t, unix.Unmount(point, unix.MNT_DETACH)) }()

	request := make([]byte, 64<<10)
	n, err := unix.Read(device, request)
	require.NoError(t, err)
	require.GreaterOrEqual(t, n, 40)
	require.EqualValues(t, opInit, binary.NativeEndian.Uint32(request[4:]))
}

// vethPair makes two joined interfaces that go with the test.
func vethPair(t *testing.T) netlink.Link {
	t.Helper()
	privtest.Require(t)
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "hostlike0"}, PeerName: "hostlike1"}
	require.NoError(t, netlink.LinkAdd(pair))
	t.Cleanup(func() { require.NoError(t, netlink.LinkDel(pair)) })
	require.NoError(t, netlink.LinkSetUp(pair))
	return pair
}

func TestInterfacesCanBeJoined(t *testing.T) {
	pair := vethPair(t)
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "hostlike2"}}
	require.NoError(t, netlink.LinkAdd(bridge))
	defer func() { require.NoError(t, netlink.LinkDel(bridge)) }()
	require.NoError(t, netlink.LinkSetMaster(pair, bridge))
}

func TestTrafficCanBeShaped(t *testing.T) {
	if os.Getenv("VMTESTS_KERNEL") == "" {
		t.Skip("a host need not have sch_netem; the machines must")
	}
	pair := vethPair(t)
	attributes := netlink.QdiscAttrs{LinkIndex: pair.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT}
	slow := netlink.NewNetem(attributes, netlink.NetemQdiscAttrs{Latency: 1000, Loss: 10})
	require.NoError(t, netlink.QdiscReplace(slow))
	narrow := &netlink.Tbf{QdiscAttrs: attributes, Rate: 1 << 20, Buffer: 1 << 16, Limit: 1 << 16}
	require.NoError(t, netlink.QdiscDel(slow))
	require.NoError(t, netlink.QdiscAdd(narrow))
}

func TestPacketsCanBeDroppedAndCounted(t *testing.T) {
	privtest.Require(t)
	conn, err := nftables.New()
	require.NoError(t, err)
	table := conn.AddTable(&nftables.Table{Name: "hostlike", Family: nftables.TableFamilyINet})
	chain := conn.AddChain(&nftables.Chain{Name: "in", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter})
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{9, 9, 9, 9}},
		&expr.Limit{Type: expr.LimitTypePkts, Rate: 10, Unit: expr.LimitTimeSecond},
		&expr.Counter{},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}})
	require.NoError(t, conn.Flush())
	conn.DelTable(table)
	require.NoError(t, conn.Flush())
}

func TestSocketsCanBeListed(t *testing.T) {
	_, err := netlink.SocketDiagTCPInfo(unix.AF_INET)
	require.NoError(t, err)
}

// TestReadingTheClockIsCheap: the first two of these clocks are devices, and reading
// one takes an emulated machine so long that programs stand still; the others only
// tick (see vmtests/machine/clock.go).
func TestReadingTheClockIsCheap(t *testing.T) {
	clock, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	require.NoError(t, err)
	require.NotContains(t, []string{"hpet", "acpi_pm", "jiffies", "refined-jiffies"}, strings.TrimSpace(string(clock)))
}
