// Package gate bounds the connections of a listener that answers small questions: the
// health of the process, its metrics.
package gate

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"runtime"
	"sync"

	"go.opentelemetry.io/collector/config/confighttp"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/internal/peer"
)

// gate bounds the connections of a listener. Beyond the limit it closes one of the owner that
// has most: over loopback an owner is a user of the machine, else a network. The one that has
// waited longest for a question leaves first, and one whose question is being answered last.
// A new one always enters, so a probe is answered within milliseconds, whatever other owners
// hold. A probe that shares its owner with a flood may lose its connection if it asks slower
// than the flood connects.
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
	one := &conn{Conn: c, gate: g, owner: ownerOf(c)}
	if g.full() {
		runtime.Gosched() // those that came before have their turn to ask
	}
	if gives := g.enter(one); gives != nil {
		_ = gives.Close()
	}
	return one, nil
}

func (g *gate) full() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open.Len() >= g.max
}

// enter notes a connection and returns the one that has to give way, nil for none.
func (g *gate) enter(one *conn) *conn {
	g.mu.Lock()
	defer g.mu.Unlock()
	one.element = g.open.Add(one, waiting, one.owner)
	if g.open.Len() <= g.max {
		return nil
	}
	victim, _ := g.open.Victim()
	g.open.Remove(victim)
	victim.Value.gone = true
	return victim.Value
}

// ownerOf names who shares a limit.
func ownerOf(c net.Conn) string {
	switch at := peer.Of(c).(type) {
	case peer.Addr:
		if at.Gone {
			return "gone"
		}
		return fmt.Sprint("user ", at.User)
	case *net.TCPAddr:
		return peer.NetworkOf(at).String()
	default: // a Unix socket
		return at.String()
	}
}

// The worths of connections.
const (
	waiting = fairlru.Some // for a question
	asked   = fairlru.Much
)

// conn is a connection that is counted until it is closed.
type conn struct {
	net.Conn
	gate    *gate
	owner   string
	element *fairlru.Element[*conn]
	gone    bool // it is not counted any more
}

// is says what a connection does from now on.
func (c *conn) is(worth fairlru.Worth) {
	c.gate.mu.Lock()
	defer c.gate.mu.Unlock()
	if !c.gone {
		c.gate.open.Touch(c.element, worth)
	}
}

// Close closes the connection and gives its place back.
func (c *conn) Close() error {
	c.gate.mu.Lock()
	c.gate.open.Remove(c.element)
	c.gone = true
	c.gate.mu.Unlock()
	return c.Conn.Close()
}

// connKey is the key of a connection in the contexts of its questions.
type connKey struct{}

// InContext is the ConnContext of a server whose listener is bounded here and whose questions
// Answers answers.
func InContext(ctx context.Context, c net.Conn) context.Context {
	if above, ok := c.(*tls.Conn); ok {
		c = above.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}
