package record

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/plog"
)

// answers refuses as told, one answer a call, then accepts.
func answers(t *testing.T, calls *int, refusals ...error) consumer.Logs {
	next, err := consumer.NewLogs(func(context.Context, plog.Logs) error {
		*calls++
		if *calls <= len(refusals) {
			return refusals[*calls-1]
		}
		return nil
	})
	require.NoError(t, err)
	return next
}

var errFull = errors.New("queue is full")

func TestDeliverTriesAgainWhatMayPass(t *testing.T) {
	calls := 0
	require.NoError(t, Deliver(t.Context(), answers(t, &calls, errFull, errFull), plog.NewLogs(), time.Minute))
	require.Equal(t, 3, calls)
}

func TestDeliverTakesAPermanentRefusalAsFinal(t *testing.T) {
	calls := 0
	refusal := consumererror.NewPermanent(errFull)
	require.ErrorIs(t, Deliver(t.Context(), answers(t, &calls, refusal), plog.NewLogs(), time.Minute), errFull)
	require.Equal(t, 1, calls)
	calls = 0
	require.ErrorIs(t, Deliver(t.Context(), answers(t, &calls, errFull, refusal), plog.NewLogs(), time.Minute), errFull)
	require.Equal(t, 2, calls)
}

func TestDeliverGivesUpWhenPatienceOrContextEnds(t *testing.T) {
	calls := 0
	always := make([]error, 1000)
	for i := range always {
		always[i] = errFull
	}
	require.ErrorIs(t, Deliver(t.Context(), answers(t, &calls, always...), plog.NewLogs(), 5*time.Millisecond), errFull)
	require.Greater(t, calls, 1)

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	calls = 0
	require.ErrorIs(t, Deliver(ended, answers(t, &calls, always...), plog.NewLogs(), time.Hour), errFull)
	require.Equal(t, 1, calls)
}
