package otlpreceiver

import (
	"net"
	"sync"

	"github.com/tracecoreai/tracecore/internal/memorylimit"
	"github.com/tracecoreai/tracecore/internal/peer"
)

// perSender is the part of all connections that one sender may have.
const perSender = 4

// newGate counts the open connections of all listeners of a receiver.
func newGate() *shares {
	most := min(memorylimit.Budget(connectionShare)/connectionCost, int64(maxOpenFiles()/4))
	return &shares{size: most, each: max(1, most/perSender)}
}

// listener closes what comes beyond the limits of its gate at once.
type listener struct {
	net.Listener
	gate    *shares
	refused func()
}

// Accept returns the next connection within the limits.
func (l listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address := peer.Of(c)
		from := originOf(address)
		if l.gate.take(from, 1) {
			return &conn{Conn: c, address: address, leave: sync.OnceFunc(func() { l.gate.giveBack(from, 1) })}, nil
		}
		l.refused()
		_ = c.Close()
	}
}

// conn is an accepted connection that is counted until it is closed.
type conn struct {
	net.Conn
	address net.Addr
	leave   func()
}

// RemoteAddr says whose the other end is, too.
func (c *conn) RemoteAddr() net.Addr { return c.address }

// Close closes the connection once and gives its place back.
func (c *conn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// NetConn returns the connection underneath, as that of package tls does.
func (c *conn) NetConn() net.Conn { return c.Conn }
