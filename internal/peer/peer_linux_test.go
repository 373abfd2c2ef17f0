package peer

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// connectTo in the environment makes this binary a process that connects there, says so, and
// closes its end once standard input ends.
const connectTo = "PEER_TEST_CONNECT"

func TestMain(m *testing.M) {
	if address := os.Getenv(connectTo); address != "" {
		c, err := net.Dial("tcp", address)
		if err != nil {
			os.Exit(1)
		}
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = c.Close()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("this machine has no such loopback: %v", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func accept(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	c, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestTheKernelTellsWhoseTheOtherEndIs(t *testing.T) {
	for name, tc := range map[string]struct{ at, from string }{
		"IPv4":                        {"127.0.0.1:0", "127.0.0.1:0"},
		"another address of loopback": {"127.0.0.1:0", "127.0.0.77:0"},
		"IPv6":                        {"[::1]:0", "[::1]:0"},
		"IPv4 to a listener for both": {"[::]:0", "127.0.0.1:0"},
	} {
		t.Run(name, func(t *testing.T) {
			l := listen(t, tc.at)
			from, err := net.ResolveTCPAddr("tcp", tc.from)
			require.NoError(t, err)
			to := &net.TCPAddr{IP: from.IP, Port: l.Addr().(*net.TCPAddr).Port}
			if to.IP.Equal(net.IPv4(127, 0, 0, 77)) {
				to.IP = net.IPv4(127, 0, 0, 1)
			}
			c, err := net.DialTCP("tcp", from, to)
			require.NoError(t, err)
			defer c.Close()
			got, ok := Of(accept(t, l)).(Addr)
			require.True(t, ok)
			require.EqualValues(t, os.Getuid(), got.User)
		})
	}
}

// An end that its process has closed would be told as root's: it is nobody's.
func TestAnotherUsersEndIsHisWhileHeHasIt(t *testing.T) {
	hosttest.Require(t, "starts a process as another user")
	l := listen(t, "127.0.0.1:0")
	child := exec.Command("/proc/self/exe")
	child.Env = []string{connectTo + "=" + l.Addr().String()}
	child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}}
	stdin, err := child.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	c := accept(t, l)
	got, ok := Of(c).(Addr)
	require.True(t, ok)
	require.EqualValues(t, 12345, got.User)
	require.False(t, got.Gone)

	require.NoError(t, stdin.Close())
	require.NoError(t, child.Wait())
	require.NoError(t, c.SetReadDeadline(time.Now().Add(hosttest.Patience)))
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	got, ok = Of(c).(Addr)
	require.True(t, ok)
	require.True(t, got.Gone)
	require.Zero(t, got.User)
}

func TestWhatIsNoAnswerNamesNobody(t *testing.T) {
	at := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	request := requestFor(at, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2})
	good := make([]byte, answerBytes)
	copy(good[idAtAnswer:], request[idAt:][:portsBytes])
	binary.NativeEndian.PutUint32(good[userAt:], 7)
	binary.NativeEndian.PutUint32(good[inodeAt:], 9)
	user, known := parse(good, request)
	require.True(t, known)
	require.EqualValues(t, 7, user)
	for name, spoil := range map[string]func([]byte) []byte{
		"too short":             func(b []byte) []byte { return b[:answerBytes-1] },
		"the one who listens":   func(b []byte) []byte { b[1] = tcpListen; return b },
		"another socket":        func(b []byte) []byte { b[idAtAnswer]++; return b },
		"closed by its process": func(b []byte) []byte { binary.NativeEndian.PutUint32(b[inodeAt:], 0); return b },
	} {
		t.Run(name, func(t *testing.T) {
			_, known := parse(spoil(append([]byte{}, good...)), request)
			require.False(t, known)
		})
	}
}

func TestOtherConnectionsKeepTheirAddress(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	require.NoError(t, err)
	file := os.NewFile(uintptr(fds[0]), "")
	defer file.Close()
	require.NoError(t, unix.Close(fds[1]))
	c, err := net.FileConn(file)
	require.NoError(t, err)
	defer c.Close()
	require.Equal(t, c.RemoteAddr(), Of(c))
}

func BenchmarkOf(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(b, err)
	defer c.Close()
	accepted, err := l.Accept()
	require.NoError(b, err)
	defer accepted.Close()
	for b.Loop() {
		Of(accepted)
	}
}
