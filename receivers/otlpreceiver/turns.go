package otlpreceiver

import (
	"context"
	"runtime"
	"sync"
)

// turns lets as many large messages be scanned and decoded at once as leave a processor
// to what reads the kernel: a goroutine that waits for one gets it after up to 10 ms for
// each that computes (forcePreemptNS of Go's scheduler, runtime/proc.go).
type turns chan struct{}

// large is the size of a message that waits for its turn. A smaller one takes less than
// such a slice.
const large = 64 << 10

func newTurns() turns { return make(turns, max(1, runtime.GOMAXPROCS(0)-1)) }

// enter waits for the turn of a message. The caller leaves when it is decoded; leaving
// twice is fine. The error is that of ctx.
func (t turns) enter(ctx context.Context, bytes int) (leave func(), err error) {
	if bytes < large {
		return func() {}, nil
	}
	select {
	case t <- struct{}{}:
		return sync.OnceFunc(func() { <-t }), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
