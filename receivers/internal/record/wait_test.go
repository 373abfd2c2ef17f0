package record

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWaitEndsWithTheWorkOrTheContext(t *testing.T) {
	over := false
	require.NoError(t, Wait(t.Context(), "the work goes on", func() { over = true }))
	require.True(t, over)

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	held := make(chan struct{})
	defer close(held)
	err := Wait(ended, "the work goes on", func() { <-held })
	require.ErrorIs(t, err, context.Canceled)
	require.EqualError(t, err, "the work goes on: context canceled")
}
