package probereceiver

import (
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/collector/component"
)

// Outbox is how the data of one signal leave: see package outbox.
type Outbox interface {
	Start()
	Close(context.Context) error
}

// Receiver is what the collector has of a life: the receiver of one signal.
type Receiver struct {
	start func(component.Host) error
	leave func(ctx context.Context) error
	out   Outbox
	stop  sync.Once
}

// Receiver makes the receiver of the only signal that this life has.
func (l *Life[S]) Receiver(out Outbox) *Receiver {
	return &Receiver{start: l.start, leave: l.stop, out: out}
}

// SharedReceiver makes the receiver of one of several signals; leave calls stop when
// it is the last of them (shared.Share.Leave).
func (l *Life[S]) SharedReceiver(out Outbox, leave func(last func() error) error) *Receiver {
	return &Receiver{start: l.start, out: out, leave: func(ctx context.Context) error {
		return leave(func() error { return l.stop(ctx) })
	}}
}

// Start opens the probe, if no other signal has, and begins to deliver.
func (r *Receiver) Start(_ context.Context, host component.Host) error {
	r.out.Start()
	return r.start(host)
}

// Shutdown ends this signal, and with the last signal the probe. It waits, no longer
// than ctx, until the next consumer has what was made for it.
func (r *Receiver) Shutdown(ctx context.Context) error {
	var err error
	r.stop.Do(func() { err = errors.Join(r.leave(ctx), r.out.Close(ctx)) })
	return err
}
