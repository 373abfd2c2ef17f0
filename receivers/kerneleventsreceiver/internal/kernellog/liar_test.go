//go:build linux && (amd64 || arm64)

package kernellog

import (
	"encoding/binary"
	"maps"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// The firewall is a part of the kernel that begins a line with any text it is given. Each
// parser knows its own line there, and none of them is proven.
func TestTextThatAnotherDriverPrintsIsNotProven(t *testing.T) {
	if !inMachine(t) {
		return
	}
	const mark = 0x6c6965
	probe, err := kmsg.Open(kmsg.Options{})
	require.NoError(t, err)
	defer probe.Close()
	logPackets(t, mark)
	heard := slices.Concat(slices.Collect(maps.Values(listen(t, probe, func() { sendMarked(t, mark) })))...)
	p := newTestParser(t)
	for name, shape := range shapes {
		at := slices.IndexFunc(heard, func(e kmsg.Event) bool {
			return strings.HasPrefix(e.Text, shape.line) && strings.Contains(e.Text, "SRC=127.0.0.1")
		})
		require.GreaterOrEqual(t, at, 0, "%s: the firewall did not print it", name)
		e := &heard[at]
		require.Equal(t, kmsg.WriterKernel, e.Writer, name)
		require.NotEmpty(t, e.Origin.Name, name)
		faults, _ := p.Parse(nil, e)
		faults = p.Expire(faults, time.Now().Add(time.Hour)) // some wait for the next line of their writer
		require.Len(t, faults, 1, "%s: %q", name, e.Text)
		require.Equal(t, record.Claimed, faults[0].Key.Trust, "%s: %s: %q", name, e.Origin, e.Text)
		t.Logf("%s wrote %q", e.Origin, e.Text)
	}
}

// logPackets has the firewall log packets with this mark, once with the line of each parser.
func logPackets(t *testing.T, mark uint32) {
	t.Helper()
	conn, err := nftables.New()
	require.NoError(t, err)
	table := conn.AddTable(&nftables.Table{Name: "kernellog", Family: nftables.TableFamilyIPv4})
	chain := conn.AddChain(&nftables.Chain{Name: "out", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityFilter})
	for _, shape := range shapes {
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.NativeEndian.AppendUint32(nil, mark)},
			&expr.Log{Key: 1 << unix.NFTA_LOG_PREFIX, Data: []byte(shape.line + " ")},
		}})
	}
	require.NoError(t, conn.Flush())
	t.Cleanup(func() {
		conn.DelTable(table)
		require.NoError(t, conn.Flush())
	})
}

// sendMarked sends a packet with this mark to nobody.
func sendMarked(t *testing.T, mark int) {
	t.Helper()
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, mark) })
		if err != nil {
			return err
		}
		return failed
	}}
	conn, err := dialer.DialContext(t.Context(), "udp4", "127.0.0.1:9")
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("x"))
	require.NoError(t, err)
}
