//go:build linux && (amd64 || arm64)

package ncclsock

import (
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// manyFiles allows this process as many descriptors as it may have, at most n, and
// returns how many that is.
func manyFiles(t testing.TB, n uint64) int {
	t.Helper()
	var before unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	wanted := unix.Rlimit{Cur: n, Max: max(n, before.Max)}
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &wanted) != nil { // without CAP_SYS_RESOURCE
		wanted = unix.Rlimit{Cur: min(n, before.Max), Max: before.Max}
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &wanted))
	}
	return int(wanted.Cur)
}

// manyConnections makes n connections of this process with itself, until the test
// ends, and returns their descriptors and the listener's.
func manyConnections(t testing.TB, n int) []int {
	t.Helper()
	manyFiles(t, 16<<10)
	fds, err := connectMany(n)
	t.Cleanup(func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	})
	require.NoError(t, err)
	return fds
}

func TestTenThousandSockets(t *testing.T) {
	probes := openAll(t, Options{})
	fds := manyConnections(t, hosttest.Size(5000, 500))
	for _, p := range probes {
		s := snapshot(t, p, uint32(os.Getpid()))
		for end := time.Now().Add(hosttest.Patience); p.Report().Rung == RungDiag && s.Unreadable > 0 && time.Now().Before(end); {
			s = snapshot(t, p, uint32(os.Getpid())) // on a busy machine so many may take longer than the probe waits
		}
		require.Len(t, s.Sockets, len(fds))
		require.Zero(t, s.Over+s.Unreadable)
		seen := map[uint64]bool{}
		for _, socket := range s.Sockets {
			require.False(t, seen[socket.Cookie])
			seen[socket.Cookie] = true
		}
		again := *s
		require.NoError(t, p.Snapshot([]uint32{uint32(os.Getpid())}, &again))
		for _, socket := range again.Sockets {
			require.True(t, seen[socket.Cookie], "the same in every snapshot")
		}
	}
}

func TestSocketsBeyondTheLimitAreCounted(t *testing.T) {
	probes := openAll(t, Options{MaxSockets: 100})
	fds := manyConnections(t, 150)
	for _, p := range probes {
		for range 2 {
			s := snapshot(t, p, uint32(os.Getpid()))
			require.Len(t, s.Sockets, 100)
			// 6.1 visits a process's files more than once where its pid is given: what
			// did not fit is then counted as often.
			require.GreaterOrEqual(t, s.Over, len(fds)-100)
		}
	}
}

func TestOwnersBeyondTheLimitAreCounted(t *testing.T) {
	for _, p := range openAll(t, Options{MaxOwners: 2}) {
		require.Equal(t, 3, snapshot(t, p, 5<<24, 4<<24, 3<<24, 2<<24, 1<<24, 1<<24, 0).Unreadable)
	}
}

// A descriptor table of a hundred thousand entries that all are one socket. Where no program reads
// it, and the machine takes longer for it than a process may hold up the others, that is said.
func TestHugeDescriptorTable(t *testing.T) {
	probes := openAll(t, Options{})
	fd := manyConnections(t, 1)[1]
	allowed := manyFiles(t, 128<<10)
	var copies []int
	defer func() {
		for _, fd := range copies {
			_ = unix.Close(fd)
		}
	}()
	for range min(hosttest.Size(100_000, 20_000), allowed-1000) {
		copied, err := unix.Dup(fd)
		require.NoError(t, err)
		copies = append(copies, copied)
	}
	for _, p := range probes {
		s := snapshot(t, p, uint32(os.Getpid()))
		if p.Report().Rung == RungDiag && s.Unreadable == 1 {
			require.Empty(t, s.Sockets)
			continue
		}
		require.Len(t, s.Sockets, 3)
		require.Zero(t, s.Unreadable)
	}
}

func TestSocketsThatComeAndGoUnderTheSnapshot(t *testing.T) {
	probes := openAll(t, Options{})
	var plain net.ListenConfig
	plain.SetMultipathTCP(false) // Go's default is another protocol
	listener, err := plain.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		}
	})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if c, err := net.Dial("tcp", listener.Addr().String()); err == nil {
					_ = c.Close()
				}
			}
		}
	})
	// Before the probes detach: qemu's software emulation can crash a kernel whose
	// tracepoint is patched while another CPU runs through it (int3 in
	// inet_sk_state_store).
	defer func() {
		close(stop)
		_ = listener.Close()
		wg.Wait()
	}()
	for _, p := range probes {
		for range 25 {
			s := snapshot(t, p, uint32(os.Getpid()))
			require.Zero(t, s.Unreadable)
			require.NotEmpty(t, s.Sockets, "the listener at least")
			for _, socket := range s.Sockets {
				require.Zero(t, socket.ReceiveQueueBytes+socket.UnsentBytes, "%+v", socket)
				require.LessOrEqual(t, socket.UnackedBytes, uint32(1), "a SYN or FIN that leaves while it is read: %+v", socket)
			}
		}
	}
}

func TestMultipathSocketsArePassedOver(t *testing.T) {
	probes := openAll(t, Options{})
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_MPTCP)
	if err != nil {
		t.Logf("this kernel has no multipath TCP: %v", err)
		return
	}
	defer unix.Close(fd)
	for _, p := range probes {
		require.Empty(t, snapshot(t, p, uint32(os.Getpid())).Sockets)
	}
}

// TestAProcessThatHoldsManySocketsBlindsNoOther: this process holds more than a snapshot
// has room for, and a child one pair.
func TestAProcessThatHoldsManySocketsBlindsNoOther(t *testing.T) {
	probes := openAll(t, Options{MaxSockets: 100})
	quiet := newPlayer(t)
	c := connected(t, quiet, quiet, loopback4)
	inode := quiet.info(t, c.connected).Inode
	manyConnections(t, 300)
	for _, p := range probes {
		for range 2 {
			s := snapshot(t, p, uint32(os.Getpid()), quiet.pid)
			_, ok := find(t, s, inode)
			require.True(t, ok, p.Report().Rung)
			require.Greater(t, len(s.Sockets), 90, "%s: the room that is left is used", p.Report().Rung)
			require.NotZero(t, s.Over)
		}
	}
}
