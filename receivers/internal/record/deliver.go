package record

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/plog"
)

// The pause between two attempts grows from the first to the longest.
const (
	firstPause   = time.Millisecond
	longestPause = 250 * time.Millisecond
)

// Deliver hands logs to next. A refusal that may pass (a full queue, the memory
// limiter) is tried again until patience or ctx ends; the caller waits. A permanent
// refusal is final. The end of ctx ends the waiting, never an attempt under way.
// The error is the last refusal: the logs are lost, count them.
func Deliver(ctx context.Context, next consumer.Logs, logs plog.Logs, patience time.Duration) error {
	return Insist(ctx, patience, func(attempt context.Context) error { return next.ConsumeLogs(attempt, logs) })
}

// Insist is Deliver for any kind of data: package outbox delivers by it.
func Insist(ctx context.Context, patience time.Duration, consume func(context.Context) error) error {
	attempt := context.WithoutCancel(ctx)
	err := consume(attempt)
	if err == nil || consumererror.IsPermanent(err) {
		return err
	}
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		select {
		case <-ctx.Done():
			return err
		case <-deadline.C:
			return err
		case <-time.After(pause):
		}
		if ctx.Err() != nil {
			return err
		}
		if err = consume(attempt); err == nil || consumererror.IsPermanent(err) {
			return err
		}
	}
}
