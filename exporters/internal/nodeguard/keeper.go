package nodeguard

import (
	"context"
	"time"

	"go.uber.org/zap"
)

// Keep makes a round now and then, the first at once, until ctx ends. A round that fails
// says so once, until one passes.
func Keep(ctx context.Context, every time.Duration, logger *zap.Logger, message string, round func(context.Context) error) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	failing := false
	for {
		err := round(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			logger.Warn(message, zap.Error(err))
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Unconfirmed reports whether nobody has confirmed something for too long, of all the time in
// which somebody could have been heard. Stale is 0 for never.
func Unconfirmed(heard, now time.Time, stale time.Duration) bool {
	return stale > 0 && now.Sub(heard) > stale
}
