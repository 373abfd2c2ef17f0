package hosttest

import (
	"context"
	"net"
	"runtime"

	"golang.org/x/sys/unix"
)

// DialAs connects over TCP as a user of this machine, from an address, "" for any. A socket is
// of who its thread acts as for files (sock_alloc, net/socket.c). The test has asked Require.
func DialAs(ctx context.Context, user int, from, to string) (net.Conn, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_, _, _ = unix.RawSyscall(unix.SYS_SETFSUID, uintptr(user), 0, 0)
	defer func() { _, _, _ = unix.RawSyscall(unix.SYS_SETFSUID, 0, 0, 0) }()
	dialer := &net.Dialer{}
	if from != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	return dialer.DialContext(ctx, "tcp", to)
}
