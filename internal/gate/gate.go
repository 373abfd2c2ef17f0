// Package gate bounds the connections of a listener that answers small questions: the
// health of the process, its metrics.
package gate

import (
	"context"
	"crypto/tls"
	"net"
	"sync"

	"go.opentelemetry.io/collector/config/confighttp"

	"github.com/tracecoreai/tracecore/internal/fairlru"
)

// gate bounds the connections of a listener. Beyond the limit it closes the one that is
// open for longest, of the address that has most. It never refuses a new one: a probe is
// answered within milliseconds, whatever another address holds. A probe that shares its
// address with a flood may lose its connection if it asks slower than the flood connects.
type gate struct {
	net.Listener
	max int

	mu   sync.Mutex // guards open
	open fairlru.List[*conn]
}

// Share returns a listener with so many open connections at most. Its connections count
// until they are closed.
func Share(l net.Listener, most int) net.Listener { return &gate{Listener: l, max: most} }

// Listen returns what listens as confighttp's ToListener does, with so many open connections at
// most. It speaks HTTP/1.1, one question at a time on a connection.
func Listen(of *confighttp.ServerConfig, most int) func(context.Context) (net.Listener, error) {
	return func(ctx context.Context) (net.Listener, error) {
		return BelowTLS(ctx, of, []string{"http/1.1"}, func(ctx context.Context) (net.Listener, error) {
			l, err := of.NetAddr.Listen(ctx)
			if err != nil {
				return nil, err
			}
			return Share(l, most), nil
		})
	}
}

// BelowTLS returns what listen does, with TLS above it where it is configured: a connection that
// listen bounds counts before its handshake. protocols are those that a client may choose. The
// server takes a connection for TLS by its type alone, so nothing may stand above it.
func BelowTLS(ctx context.Context, of *confighttp.ServerConfig, protocols []string, listen func(context.Context) (net.Listener, error)) (net.Listener, error) {
	if !of.TLS.HasValue() {
		return listen(ctx)
	}
	certificates, err := of.TLS.Get().LoadTLSConfig(ctx)
	if err != nil {
		return nil, err
	}
	certificates.NextProtos = protocols
	l, err := listen(ctx)
	if err != nil {
		return nil, err
	}
	return tls.NewListener(l, certificates), nil
}

// Accept returns the next connection.
func (g *gate) Accept() (net.Conn, error) {
	c, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	one := &conn{Conn: c, gate: g}
	if oldest := g.enter(one); oldest != nil {
		_ = oldest.Close()
	}
	return one, nil
}

// enter notes a connection and returns the one that has to give way, nil for none.
func (g *gate) enter(one *conn) *conn {
	host, _, err := net.SplitHostPort(one.RemoteAddr().String())
	if err != nil {
		host = "" // a Unix socket
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	one.element = g.open.Add(one, fairlru.Some, host)
	if g.open.Len() <= g.max {
		return nil
	}
	victim, _ := g.open.Victim()
	g.open.Remove(victim)
	return victim.Value
}

// conn is a connection that is counted until it is closed.
type conn struct {
	net.Conn
	gate    *gate
	element *fairlru.Element[*conn]
}

// Close closes the connection and gives its place back.
func (c *conn) Close() error {
	c.gate.mu.Lock()
	c.gate.open.Remove(c.element)
	c.gate.mu.Unlock()
	return c.Conn.Close()
}
