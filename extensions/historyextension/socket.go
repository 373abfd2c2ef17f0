package historyextension

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/tracecoreai/tracecore/internal/gate"
)

// uidPrefix begins the address of a caller on the Unix socket.
const uidPrefix = "uid "

// listenUnix listens on the socket in the folder of the history. It is there under its
// name once only this user may connect.
func (k *keeper) listenUnix(ctx context.Context) (net.Listener, error) {
	if err := os.MkdirAll(k.config.Directory, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(k.config.Directory, SocketName)
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "unix", fresh)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(fresh, 0o600), os.Rename(fresh, path)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return gate.Share(&callers{Listener: l}, k.config.HTTP.MaxConnections), nil
}

// callers are connections that say who called.
type callers struct{ net.Listener }

// Accept returns the next connection whose caller the kernel names.
func (l *callers) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		uid, err := peer(c.(*net.UnixConn))
		if err != nil { // it has gone
			_ = c.Close()
			continue
		}
		return &call{Conn: c, caller: caller(fmt.Sprint(uidPrefix, uid))}, nil
	}
}

// call is a connection; its remote address is the user at the other end.
type call struct {
	net.Conn
	caller caller
}

// RemoteAddr says who called.
func (c *call) RemoteAddr() net.Addr { return c.caller }

type caller string

// Network and String implement net.Addr.
func (caller) Network() string  { return "unix" }
func (c caller) String() string { return string(c) }
