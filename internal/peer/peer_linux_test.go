package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// connected is the connection of a process that starts like that, until end has it close its
// end and has waited for it.
func connected(t *testing.T, l net.Listener, like *syscall.SysProcAttr) (c net.Conn, end func()) {
	t.Helper()
	child := exec.Command("/proc/self/exe")
	child.Env = []string{connectTo + "=" + l.Addr().String()}
	child.SysProcAttr = like
	stdin, err := child.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	return accept(t, l), func() {
		require.NoError(t, stdin.Close())
		require.NoError(t, child.Wait())
	}
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
	c, end := connected(t, l, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}})
	got, ok := Of(c).(Addr)
	require.True(t, ok)
	require.EqualValues(t, 12345, got.User)
	require.False(t, got.Gone)

	end()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(hosttest.Patience)))
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	got, ok = Of(c).(Addr)
	require.True(t, ok)
	require.True(t, got.Gone)
	require.Zero(t, got.User)
}

// unified is where the unified hierarchy is mounted.
func unified(t *testing.T) string {
	t.Helper()
	for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var fs unix.Statfs_t
		if err := unix.Statfs(mount, &fs); err == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC {
			return mount
		}
	}
	require.FailNow(t, "this machine mounts no unified hierarchy of cgroups")
	return ""
}

// TestTheKernelTellsInWhichCgroupTheOtherEndIs: that of the process when it made the socket.
func TestTheKernelTellsInWhichCgroupTheOtherEndIs(t *testing.T) {
	hosttest.Require(t, "makes a cgroup and starts a process in it")
	mount := unified(t)
	folder := filepath.Join(mount, fmt.Sprintf("tracecore-peer-%d", os.Getpid()), "one of two")
	require.NoError(t, os.MkdirAll(folder, 0o755))
	t.Cleanup(func() {
		for _, one := range []string{folder, filepath.Dir(folder)} {
			require.Eventually(t, func() bool { return os.Remove(one) == nil || errors.Is(os.Remove(one), os.ErrNotExist) }, hosttest.Patience, 10*time.Millisecond)
		}
	})
	fd, err := unix.Open(folder, unix.O_PATH|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { _ = unix.Close(fd) }()
	l := listen(t, "127.0.0.1:0")
	c, end := connected(t, l, &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd})
	got, ok := Of(c).(Addr)
	require.True(t, ok)
	require.Equal(t, strings.TrimPrefix(folder, mount), got.Cgroup)

	e, known := askFor(c.RemoteAddr().(*net.TCPAddr), c.LocalAddr().(*net.TCPAddr))
	require.True(t, known)
	t.Setenv("HOST_SYS", t.TempDir())
	require.Empty(t, pathOf(e.cgroup), "tracecore does not see the mount")
	t.Setenv("HOST_SYS", "/sys")
	require.Empty(t, pathOf(1<<60), "there is none of that number")
	require.Equal(t, "/", pathOf(1), "the first of all")
	end()
}

func TestWhatIsNoAnswerNamesNobody(t *testing.T) {
	at := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	request := requestFor(at, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2})
	good := make([]byte, answerBytes)
	copy(good[idAtAnswer:], request[idAt:][:portsBytes])
	binary.NativeEndian.PutUint32(good[userAt:], 7)
	binary.NativeEndian.PutUint32(good[inodeAt:], 9)
	e, known := parse(good, request)
	require.True(t, known)
	require.Equal(t, end{user: 7}, e)
	attribute := func(kind, length uint16, value ...byte) []byte {
		return append(binary.NativeEndian.AppendUint16(binary.NativeEndian.AppendUint16(nil, length), kind), value...)
	}
	number := binary.NativeEndian.AppendUint64(nil, 99)
	for name, tt := range map[string]struct {
		attributes []byte
		cgroup     uint64
	}{
		"behind another":          {attributes: append(attribute(8, 5, 1, 0, 0, 0), attribute(cgroupID, 12, number...)...), cgroup: 99},
		"of another size":         {attributes: attribute(cgroupID, 8, 1, 2, 3, 4)},
		"longer than is":          {attributes: attribute(cgroupID, 12, number[:4]...)},
		"shorter than its header": {attributes: append(attribute(8, 3), attribute(cgroupID, 12, number...)...)},
		"cut short":               {attributes: []byte{12, 0, cgroupID}},
	} {
		t.Run("a cgroup "+name, func(t *testing.T) {
			e, known := parse(append(append([]byte{}, good...), tt.attributes...), request)
			require.True(t, known)
			require.Equal(t, end{user: 7, cgroup: tt.cgroup}, e)
		})
	}
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
