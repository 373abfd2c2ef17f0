package historyextension

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// peer is the user who connected (SO_PEERCRED, unix(7)).
func peer(c *net.UnixConn) (uid uint32, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var credentials *unix.Ucred
	var refused error
	err = raw.Control(func(fd uintptr) {
		credentials, refused = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, refused); err != nil {
		return 0, err
	}
	return credentials.Uid, nil
}
