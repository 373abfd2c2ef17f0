package record

import (
	"context"
	"fmt"
)

// Wait lets a receiver that stops finish what is under way, as wait does, no longer
// than ctx: then the error says with holder what was not over, and wait goes on.
func Wait(ctx context.Context, holder string, wait func()) error {
	finished := make(chan struct{})
	go func() {
		wait()
		close(finished)
	}()
	select {
	case <-finished:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", holder, ctx.Err())
	}
}
