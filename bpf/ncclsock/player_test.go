//go:build linux && (amd64 || arm64)

package ncclsock

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestMain lets the test binary be a process whose sockets are looked at.
func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "":
		os.Exit(m.Run())
	case "play":
		os.Exit(exitCode(play(os.Stdin, os.Stdout)))
	case "hold": // what it inherited, until its standard input ends
		_, err := io.Copy(io.Discard, os.Stdin)
		os.Exit(exitCode(err))
	}
	os.Exit(2)
}

const roleVariable = "TRACECORE_NCCLSOCK_TEST_ROLE"

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// order is one thing a player does, answer what came of it.
type (
	order struct {
		Do      string
		FD, N   int
		Proto   int
		Address netip.AddrPort
		Prefix  string // of an interface
		Link    string
		MAC     string
		Data    []byte
	}
	answer struct {
		FD, N, PID int
		Errno      int
		Error      string
		Info       info
	}
	// info is what the kernel says of a socket to the process that holds it.
	info struct {
		TCP                          unix.TCPInfo
		Cookie, Inode                uint64
		Unread, Unacked, Unsent, MSS int
		Local, Remote                netip.AddrPort
	}
)

// play obeys until its standard input ends.
func play(in io.Reader, out io.Writer) error {
	orders, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var o order
		if err := orders.Decode(&o); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		var a answer
		err := obey(o, &a)
		var errno unix.Errno
		switch {
		case errors.As(err, &errno):
			a.Errno, a.Error = int(errno), err.Error()
		case err != nil:
			a.Errno, a.Error = -1, err.Error()
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

func obey(o order, a *answer) (err error) {
	switch o.Do {
	case "listen":
		a.FD, err = listen(o.Address)
	case "connect":
		a.FD, err = connect(o.Address)
	case "accept":
		a.FD, _, err = unix.Accept4(o.FD, unix.SOCK_CLOEXEC)
	case "write":
		a.N, err = unix.SendmsgN(o.FD, make([]byte, o.N), nil, nil, 0)
	case "say":
		a.N, err = unix.Write(o.FD, o.Data)
	case "xdp":
		err = passThroughXDP(o.Link)
	case "many":
		_, err = connectMany(o.N)
	case "fill":
		a.N, err = fill(o.FD)
	case "read":
		a.N, err = unix.Read(o.FD, make([]byte, o.N))
	case "shutdown":
		err = unix.Shutdown(o.FD, unix.SHUT_WR)
	case "close":
		err = unix.Close(o.FD)
	case "socket":
		a.FD, err = unix.Socket(o.FD, o.N, o.Proto)
	case "info":
		a.Info, err = look(o.FD)
	case "share":
		a.PID, err = share(o.FD)
	case "link":
		err = configure(o)
	case "become": // another user
		err = syscall.Setuid(o.N)
	case "forget":
		err = onLink(o, netlink.AddrDel)
	default:
		err = fmt.Errorf("unknown order %q", o.Do)
	}
	return err
}

func sockaddr(ap netip.AddrPort) (family int, _ unix.Sockaddr) {
	if ap.Addr().Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: int(ap.Port()), Addr: ap.Addr().As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Port: int(ap.Port()), Addr: ap.Addr().As16()}
}

func listen(at netip.AddrPort) (int, error) {
	family, address := sockaddr(at)
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	// A small buffer, so that a window closes after a few segments.
	return fd, errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 16<<10),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.Bind(fd, address),
		unix.Listen(fd, 1024),
	)
}

// connectMany makes n connections of this process with itself and returns their
// descriptors and the listener's.
func connectMany(n int) (fds []int, err error) {
	listener, err := listen(netip.AddrPortFrom(loopback4, 0))
	if err != nil {
		return nil, err
	}
	at, err := unix.Getsockname(listener)
	if err != nil {
		return nil, err
	}
	fds = append(fds, listener)
	for range n {
		fd, err := connect(addrPortOfSockaddr(at))
		if err != nil {
			return fds, err
		}
		accepted, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
		if err != nil {
			return fds, err
		}
		fds = append(fds, fd, accepted)
	}
	return fds, nil
}

// connect does not wait for the answer.
func connect(to netip.AddrPort) (int, error) {
	family, address := sockaddr(to)
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	err = unix.Connect(fd, address)
	if errors.Is(err, unix.EINPROGRESS) {
		err = nil
	}
	return fd, err
}

// fill writes until the send queue takes no more.
func fill(fd int) (n int, err error) {
	block := make([]byte, 64<<10)
	for {
		m, err := unix.SendmsgN(fd, block, nil, nil, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		n += m
	}
}

func look(fd int) (i info, err error) {
	var st unix.Stat_t
	var errs [8]error
	errs[0] = unix.Fstat(fd, &st)
	i.Inode = st.Ino
	i.Cookie, errs[1] = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
	tcp, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return i, err
	}
	i.TCP = *tcp
	if State(tcp.State) == Listen {
		return i, errors.Join(errs[:]...)
	}
	i.Unread, errs[2] = unix.IoctlGetInt(fd, unix.SIOCINQ)
	queue, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	errs[3] = err
	i.Unsent, errs[4] = unix.IoctlGetInt(fd, siocOutqNSD)
	i.Unacked = queue - i.Unsent
	local, err := unix.Getsockname(fd)
	errs[5] = err
	i.Local = addrPortOfSockaddr(local)
	if remote, err := unix.Getpeername(fd); err == nil { // not while it connects
		i.Remote = addrPortOfSockaddr(remote)
	}
	return i, errors.Join(errs[:]...)
}

// siocOutqNSD asks for what is not sent, include/uapi/linux/sockios.h.
const siocOutqNSD = 0x894B

func addrPortOfSockaddr(s unix.Sockaddr) netip.AddrPort {
	switch s := s.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(s.Addr), uint16(s.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(s.Addr).Unmap(), uint16(s.Port))
	}
	return netip.AddrPort{}
}

// share starts a process that holds the socket too. It dies with the player.
func share(fd int) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	copied, err := unix.Dup(fd)
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(self)
	cmd.Env = []string{roleVariable + "=hold"}
	cmd.ExtraFiles = []*os.File{os.NewFile(uintptr(copied), "shared")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if _, err := cmd.StdinPipe(); err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	return cmd.Process.Pid, cmd.ExtraFiles[0].Close()
}

// configure sets a link up, with an address, and binds the address of the peer to
// its MAC for good.
func configure(o order) error {
	link, err := netlink.LinkByName(o.Link)
	if err != nil {
		return err
	}
	if o.Prefix != "" {
		if err := onLink(o, netlink.AddrAdd); err != nil {
			return err
		}
	}
	if err := netlink.LinkSetUp(link); err != nil || o.MAC == "" {
		return err
	}
	return bindMAC(link, o)
}

func onLink(o order, do func(netlink.Link, *netlink.Addr) error) error {
	link, err := netlink.LinkByName(o.Link)
	if err != nil {
		return err
	}
	address, err := netlink.ParseAddr(o.Prefix)
	if err != nil {
		return err
	}
	return do(link, address)
}

// player is the parent's end of a playing process.
type player struct {
	pid     uint32
	orders  *json.Encoder
	answers *json.Decoder
	end     func()
}

// newPlayer starts one in a network namespace of its own, with lo up.
func newPlayer(t testing.TB) *player {
	t.Helper()
	p := newPlayerWith(t, syscall.CLONE_NEWNET)
	p.must(t, order{Do: "link", Link: "lo"})
	return p
}

// newPlayerWith starts one with new namespaces of its own.
func newPlayerWith(t testing.TB, namespaces uintptr) *player {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = []string{roleVariable + "=play"}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	ended := false
	p := &player{pid: uint32(cmd.Process.Pid), orders: json.NewEncoder(stdin), answers: json.NewDecoder(stdout)}
	p.end = func() {
		if !ended {
			ended = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(p.end)
	return p
}

func (p *player) do(t testing.TB, o order) answer {
	t.Helper()
	require.NoError(t, p.orders.Encode(o))
	var a answer
	require.NoError(t, p.answers.Decode(&a))
	return a
}

func (p *player) must(t testing.TB, o order) answer {
	t.Helper()
	a := p.do(t, o)
	require.Empty(t, a.Error, "%+v", o)
	return a
}

func (p *player) info(t testing.TB, fd int) info {
	t.Helper()
	return p.must(t, order{Do: "info", FD: fd}).Info
}
