package otlpreceiver

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"

	"go.opentelemetry.io/collector/config/confignet"
)

// listen listens where the configuration says. The file of a Unix socket is this user's
// alone: what its mode lets in is on this machine and of this user.
func listen(ctx context.Context, address confignet.AddrConfig) (net.Listener, error) {
	path := address.Endpoint
	if address.Transport != confignet.TransportTypeUnix {
		return address.Listen(ctx)
	}
	if strings.HasPrefix(path, "@") {
		return nil, fmt.Errorf("listen on %s: an abstract socket has no mode, and every process could send: use the path of a file", path)
	}
	if err := vacant(ctx, path); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l, err := listenUnix(ctx, address)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listen on %s: %w: make its folder", path, err)
	}
	return l, err
}

// vacant reports why a path cannot become a socket: something that is no socket lies
// there, or somebody answers. What a process that was killed left behind is no reason.
func vacant(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return errors.New("something else lies there: remove it, or name another path")
	}
	c, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil //nolint:nilerr // nobody answers: it is a leftover
	}
	return errors.Join(errors.New("another process listens there: end it, or name another path"), c.Close())
}

// listenUnix makes the socket under a name that nobody knows and gives it its mode before
// its own name: the mode of a new socket is that of the umask.
func listenUnix(ctx context.Context, address confignet.AddrConfig) (net.Listener, error) {
	nonce := make([]byte, 4)
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	path := address.Endpoint
	address.Endpoint += "." + hex.EncodeToString(nonce)
	l, err := address.Listen(ctx)
	if err != nil {
		return nil, err
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // it would take the first name
	}
	err = os.Chmod(address.Endpoint, 0o600)
	if err == nil {
		err = os.Rename(address.Endpoint, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(address.Endpoint))
	}
	file, err := os.Lstat(path)
	return &socket{Listener: l, path: path, file: file}, err
}

// socket takes its file along when it is closed.
type socket struct {
	net.Listener
	path string
	file fs.FileInfo
}

// Close ends the socket, and removes its file unless another has its place.
func (s *socket) Close() error {
	err := s.Listener.Close()
	if now, e := os.Lstat(s.path); e == nil && os.SameFile(s.file, now) {
		err = errors.Join(err, os.Remove(s.path))
	}
	return err
}
