//go:build linux && (amd64 || arm64)

package kernellog

import (
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/internal/privtest"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

// inMachine asks that this is a machine of vmtests, which nobody else uses and which forgets
// what was done to it.
func inMachine(t *testing.T) bool {
	t.Helper()
	privtest.Require(t)
	return os.Getenv("VMTESTS_KERNEL") != ""
}

// requireProven parses what was heard and wants a proven fault of that event, written by
// that module.
func requireProven(t *testing.T, heard map[uint32][]kmsg.Event, event, module string) Fault {
	t.Helper()
	p := newTestParser(t)
	var said []string
	for _, events := range heard {
		for _, e := range events {
			faults, _ := p.Parse(nil, &e)
			for _, f := range faults {
				if f.Key.Event == event && f.Key.Trust == record.Proven && f.Origin.Module == module {
					t.Logf("%s wrote %q", f.Origin, f.Text)
					return f
				}
			}
			said = append(said, fmt.Sprintf("%s: %q", e.Origin, e.Text))
		}
	}
	require.Failf(t, "nothing is proven", "%s of %s: %s", event, module, said)
	return Fault{}
}

// The word of a driver that is a module: the client of NFS, whose server says nothing.
func TestTheNFSClientIsProven(t *testing.T) {
	if !inMachine(t) {
		return
	}
	known, err := os.ReadFile("/proc/filesystems")
	require.NoError(t, err)
	if !strings.Contains(string(known), "\tnfs\n") {
		t.Log("this kernel has no NFS client, or its module is not loaded")
		return
	}
	probe, err := kmsg.Open(kmsg.Options{})
	require.NoError(t, err)
	defer probe.Close()
	server := silentServer(t)
	var heard map[uint32][]kmsg.Event
	// A busy machine answers the program that mounts too late for the shortest patience,
	// in tenths of a second: then no question of NFS was asked.
	for _, patience := range []int{1, 5, 20, 60} {
		options := fmt.Sprintf("vers=3,proto=tcp,mountproto=tcp,port=%d,mountport=%[1]d,addr=127.0.0.1,mountaddr=127.0.0.1,soft,nolock,timeo=%d,retrans=1", server, patience)
		heard = listen(t, probe, func() {
			require.Error(t, unix.Mount("127.0.0.1:/", t.TempDir(), "nfs", 0, options), "a server that says nothing has no files")
		})
		if says(heard, "nfs: server ") {
			break
		}
	}
	if !says(heard, "nfs: server ") {
		t.Skip("the NFS client of this kernel says nothing of its server")
	}
	f := requireProven(t, heard, metadata.EventStorageNotResponding, "sunrpc")
	require.Equal(t, "127.0.0.1", f.Key.Subject)
}

// says reports whether a record has these words.
func says(heard map[uint32][]kmsg.Event, words string) bool {
	return slices.ContainsFunc(slices.Concat(slices.Collect(maps.Values(heard))...), func(e kmsg.Event) bool { return strings.Contains(e.Text, words) })
}

// silentServer is a server of NFS that tells where its files are and nothing else. It
// returns its port.
func silentServer(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go answer(conn)
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

// answer answers the program that mounts (RFC 1813, appendix I), each call in a record of
// RFC 5531 with one fragment. To NFS it says that it is there (procedure 0), and no more.
func answer(conn net.Conn) {
	defer conn.Close()
	const mountProgram, last = 100005, 1 << 31
	order := binary.BigEndian
	for {
		var head [4]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return
		}
		call := make([]byte, order.Uint32(head[:])&^last&0xffff)
		if _, err := io.ReadFull(conn, call); err != nil || len(call) < 24 {
			return
		}
		program, procedure := order.Uint32(call[12:]), order.Uint32(call[20:])
		if program != mountProgram && procedure != 0 {
			continue
		}
		words := []uint32{0, order.Uint32(call), 1, 0, 0, 0, 0} // xid, a reply, accepted, no verifier, success
		if procedure == 1 {                                     // MNT: fine, a handle of 4 bytes, one flavor, that of Unix
			words = append(words, 0, 4, 1, 1, 1)
		}
		words[0] = last | uint32(4*len(words)-4)
		reply := make([]byte, 0, 4*len(words))
		for _, word := range words {
			reply = order.AppendUint32(reply, word)
		}
		if _, err := conn.Write(reply); err != nil {
			return
		}
	}
}

// The word of the kernel itself: memory that a process has goes bad, until the machine boots
// again.
func TestLostMemoryIsProven(t *testing.T) {
	if !inMachine(t) {
		return
	}
	probe, err := kmsg.Open(kmsg.Options{})
	require.NoError(t, err)
	defer probe.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{loses + "=1"}
	heard := listen(t, probe, func() { _ = cmd.Run() })
	if cmd.ProcessState.Success() {
		t.Log("this kernel does not handle lost memory (CONFIG_MEMORY_FAILURE)")
		return
	}
	if !says(heard, "Killing ") && !says(heard, "Sending SIGBUS") {
		t.Skip("this kernel names no process that loses memory")
	}
	f := requireProven(t, heard, metadata.EventHostMemoryError, "")
	require.Contains(t, filepath.Base(os.Args[0]), f.OwnerName)
}

// loses makes this program, by its environment, a process that loses a page and dies of it,
// or ends well where the kernel has no such thing.
const loses = "KERNELLOG_TEST_LOSES_MEMORY"

func loseMemory() {
	if os.Getenv(loses) == "" {
		return
	}
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err == nil && unix.Madvise(page, unix.MADV_HWPOISON) == nil {
		page[0]++
	}
	os.Exit(0)
}
