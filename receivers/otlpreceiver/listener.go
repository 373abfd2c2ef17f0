package otlpreceiver

import (
	"net"
	"net/netip"
	"sync"

	"github.com/tracecoreai/tracecore/internal/memorylimit"
)

// perAddress is the part of all connections that one address may have.
const perAddress = 4

// gate counts the open connections of all listeners of a receiver.
type gate struct {
	max     int
	refused func()

	mu   sync.Mutex // guards what follows
	all  int
	from map[netip.Prefix]int
}

func newGate(refused func()) *gate {
	most := int(memorylimit.Budget(connectionShare) / connectionCost)
	return &gate{max: min(most, maxOpenFiles()/4), refused: refused, from: map[netip.Prefix]int{}}
}

func (g *gate) enter(from netip.Prefix) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all >= g.max || g.from[from] >= max(1, g.max/perAddress) {
		return false
	}
	g.all++
	g.from[from]++
	return true
}

func (g *gate) leave(from netip.Prefix) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all--
	if g.from[from]--; g.from[from] == 0 {
		delete(g.from, from)
	}
}

func (g *gate) open() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return int64(g.all)
}

// listener closes what comes beyond the limits of its gate at once.
type listener struct {
	net.Listener
	gate *gate
}

// Accept returns the next connection within the limits.
func (l listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := sender(c.RemoteAddr())
		if l.gate.enter(from) {
			return &conn{Conn: c, leave: sync.OnceFunc(func() { l.gate.leave(from) })}, nil
		}
		l.gate.refused()
		_ = c.Close()
	}
}

// sender is who shares a limit: an IPv4 address, the network of an IPv6 host, for it
// has 2^64 addresses, or all that come through a Unix socket.
func sender(address net.Addr) netip.Prefix {
	tcp, ok := address.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap()
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	prefix, _ := ip.WithZone("").Prefix(bits)
	return prefix
}

// conn is an accepted connection that is counted until it is closed.
type conn struct {
	net.Conn
	leave func()
}

// Close closes the connection once and gives its place back.
func (c *conn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// NetConn returns the connection underneath, as that of package tls does.
func (c *conn) NetConn() net.Conn { return c.Conn }
