package activity

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/procfs"
)

// TestForWhichSocketAThreadWaits: in a system call about it, or in poll(2), as one that connects without blocking.
func TestForWhichSocketAThreadWaits(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	address := listener.Addr().(*net.TCPAddr).AddrPort()
	const connects = "import select, socket, sys, time\ns = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
	for name, tc := range map[string]struct {
		program string
		want    Meeting
	}{
		"receives":     {"s.recv(1)", Meeting{Connection: procfs.Connection{Peer: address, State: procfs.Established}}},
		"polls":        {"p = select.poll(); p.register(s, select.POLLIN); p.poll()", Meeting{Connection: procfs.Connection{Peer: address, State: procfs.Established}}},
		"sleeps":       {"time.sleep(1000)", Meeting{Pauses: true}},
		"reads a file": {"sys.stdin.read()", Meeting{}},
	} {
		t.Run(name, func(t *testing.T) {
			child := exec.Command("python3", "-c", connects+tc.program, strconv.Itoa(int(address.Port())))
			stdin, err := child.StdinPipe()
			require.NoError(t, err)
			child.Stderr = os.Stderr
			require.NoError(t, child.Start())
			defer func() {
				_ = stdin.Close()
				_ = child.Process.Kill()
				_ = child.Wait()
			}()
			taken, err := listener.Accept()
			require.NoError(t, err)
			defer taken.Close()
			r := New(procfs.Open(""))
			require.Eventually(t, func() bool { return r.Meets(uint32(child.Process.Pid)) == tc.want }, 30*time.Second, 10*time.Millisecond)
		})
	}
}
