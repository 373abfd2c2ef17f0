package gate

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

// again is how often an address that is taken is tried again.
const again = time.Second

// Patient listens. Any user of a machine can have a port of its loopback before tracecore
// does: that costs what is asked there, and not the process. taken is told of it once, and
// the listener accepts as soon as the address is free; then back is called. All other errors
// are the caller's.
func Patient(ctx context.Context, listen func(context.Context) (net.Listener, error), taken func(error), back func()) (net.Listener, error) {
	l, err := listen(ctx)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	taken(err)
	p := &patient{listen: listen, back: back}
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return p, nil
}

// patient is a listener that waits for its address.
type patient struct {
	listen func(context.Context) (net.Listener, error)
	back   func()
	ctx    context.Context // of its life
	cancel context.CancelFunc

	mu    sync.Mutex // guards inner
	inner net.Listener
}

// Accept returns the next connection.
func (p *patient) Accept() (net.Conn, error) {
	l, err := p.wait()
	if err != nil {
		return nil, err
	}
	return l.Accept()
}

// wait returns the listener once there is one.
func (p *patient) wait() (net.Listener, error) {
	for {
		if l, err := p.try(); l != nil || err != nil {
			return l, err
		}
		select {
		case <-p.ctx.Done():
			return nil, net.ErrClosed
		case <-time.After(again):
		}
	}
}

func (p *patient) try() (net.Listener, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ctx.Err() != nil:
		return nil, net.ErrClosed
	case p.inner != nil:
		return p.inner, nil
	}
	if l, err := p.listen(p.ctx); err == nil {
		p.inner = l
		p.back()
	}
	return p.inner, nil
}

// Close ends the waiting, and the listener.
func (p *patient) Close() error {
	p.cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inner == nil {
		return nil
	}
	return p.inner.Close()
}

// Addr is where it listens, once it does.
func (p *patient) Addr() net.Addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inner == nil {
		return awaited{}
	}
	return p.inner.Addr()
}

type awaited struct{}

// Network and String implement net.Addr.
func (awaited) Network() string { return "tcp" }
func (awaited) String() string  { return "an address that is taken" }
