//go:build linux && (amd64 || arm64)

package ncclsock

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/internal/kerninfo"
	"github.com/vishvananda/netlink"
)

// kept are the links of a player; one that is collected detaches.
var kept []link.Link

// passThroughXDP makes a veth copy what it receives into the packet's own memory,
// as the drivers of network cards do. It holds until the player ends.
func passThroughXDP(name string) error {
	device, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2 /* XDP_PASS */), asm.Return()},
	})
	if err != nil {
		return err
	}
	attached, err := link.AttachXDP(link.XDPOptions{Program: program, Interface: device.Attrs().Index})
	kept = append(kept, attached)
	return err
}

var (
	nccl  = []byte{0x6c, 0x9d, 0x4b, 0xfc, 0xf2, 0xb9, 0x4a, 0x56, 3, 0, 0, 0, 7}
	later = []byte("and then data")
)

// showsPages says whether a probe can show what a packet holds in pages.
func showsPages(t testing.TB, p *Probe) bool {
	if runtime.GOARCH == "amd64" && *pagesHere() == (pageVariables{}) {
		t.Log("/proc/kallsyms of this kernel does not tell where pages are")
	}
	return p.Report().Rung != RungDiag && *pagesHere() != pageVariables{}
}

// wantHandshake waits until a socket looks as it should, with NCCL's handshake where the
// probe shows it, and without elsewhere. Queues are read without their lock: a
// snapshot that comes while the kernel puts in a packet, or sends one again, has none.
func wantHandshake(t testing.TB, p *Probe, owner *player, fd int, shows bool, want func(Socket) bool) {
	t.Helper()
	s := until(t, p, owner, fd, func(s Socket) bool { return want(s) && (!shows || len(s.Handshake) > 0) })
	if shows {
		require.Equal(t, nccl, s.Handshake)
	} else {
		require.Empty(t, s.Handshake)
	}
}

func TestHandshakeThatANetworkCardReceived(t *testing.T) {
	probes := openAll(t, Options{})
	e := joined(t)
	e.far.must(t, order{Do: "xdp", Link: "far"})
	c := connected(t, e.near, e.far, e.farAddr)
	e.near.must(t, order{Do: "say", FD: c.connected, Data: nccl})
	for _, p := range probes {
		wantHandshake(t, p, e.far, c.accepted, p.Report().Rung != RungDiag, func(s Socket) bool { return s.ReceiveQueueBytes == 13 })
	}
	e.far.must(t, order{Do: "read", FD: c.accepted, N: 13})
	e.near.must(t, order{Do: "say", FD: c.connected, Data: later})
	for _, p := range probes {
		s := until(t, p, e.far, c.accepted, func(s Socket) bool { return s.ReceiveQueueBytes == 13 })
		require.Empty(t, s.Handshake, "these are not the first bytes")
	}
}

func TestHandshakeInPages(t *testing.T) {
	probes := openAll(t, Options{})
	rank := newPlayer(t)
	c := connected(t, rank, rank, loopback4)
	rank.must(t, order{Do: "say", FD: c.connected, Data: append(append([]byte(nil), nccl...), later...)})
	for _, p := range probes {
		wantHandshake(t, p, rank, c.accepted, showsPages(t, p), func(s Socket) bool { return s.ReceiveQueueBytes == 26 })
	}
}

func TestHandshakeThatIsNotAcknowledged(t *testing.T) {
	probes := openAll(t, Options{})
	e := joined(t)
	c := connected(t, e.near, e.far, e.farAddr)
	e.far.must(t, order{Do: "forget", Link: "far", Prefix: e.farPrefix})
	e.near.must(t, order{Do: "say", FD: c.connected, Data: nccl})
	e.near.must(t, order{Do: "say", FD: c.connected, Data: later})
	for _, p := range probes {
		wantHandshake(t, p, e.near, c.connected, showsPages(t, p), func(s Socket) bool { return s.Retransmits > 0 })
	}
}

func TestPageVariablesAreBothOrNone(t *testing.T) {
	const both = "ffffffff81000000 T _text\nffffffff82a00010 D vmemmap_base\nffffffff82a00018 D page_offset_base\n"
	in := func(text string) *pageVariables {
		symbols, err := kerninfo.ReadTable(strings.NewReader(text), strings.NewReader(""))
		require.NoError(t, err)
		return pageVariablesIn(symbols)
	}
	require.Equal(t, &pageVariables{0xffffffff82a00010, 0xffffffff82a00018}, in(both))
	for _, text := range []string{"", strings.ReplaceAll(both, "page_offset", "other"), fmt.Sprintf("%016x D vmemmap_base\n%016x D page_offset_base\n", 0, 0)} {
		require.Equal(t, &pageVariables{}, in(text))
	}
}
