package otlpreceiver

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tracecoreai/tracecore/receivers/otlpreceiver/internal/metadata"
)

func message(t *testing.T, bytes int) []byte {
	t.Helper()
	logs := plog.NewLogs()
	logs.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty().Body().SetStr(strings.Repeat("x", bytes))
	body, err := plogotlp.NewExportRequestFromLogs(logs).MarshalProto()
	require.NoError(t, err)
	return body
}

// TestLargeMessagesWaitForTheirTurn: with all turns taken a large message waits, and goes
// when its sender does; a small one does not wait, and no consumer is waited for.
func TestLargeMessagesWaitForTheirTurn(t *testing.T) {
	r, err := newReceiver(receivertest.NewNopSettings(metadata.Type), newFactory().CreateDefaultConfig().(*otlpreceiver.Config))
	require.NoError(t, err)
	require.NotZero(t, cap(r.turns))
	inConsumer := -1
	next, err := consumer.NewLogs(func(context.Context, plog.Logs) error { inConsumer = len(r.turns); return nil })
	require.NoError(t, err)
	send := func(ctx context.Context, body []byte) error {
		_, err := r.export(ctx, &r.http, logsExporter(next), inProto, body)
		return err
	}
	var leave []func()
	for range cap(r.turns) {
		one, err := r.turns.enter(t.Context(), large)
		require.NoError(t, err)
		leave = append(leave, one)
	}
	require.NoError(t, send(t.Context(), message(t, 100)))
	require.Equal(t, cap(r.turns), inConsumer)

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, codes.Unavailable, status.Code(send(gone, message(t, large))))

	done := make(chan error)
	go func() { done <- send(t.Context(), message(t, large)) }()
	leave[0]()
	leave[0]()
	require.NoError(t, <-done)
	require.Equal(t, cap(r.turns)-1, inConsumer, "a message that is decoded has left")

	for _, bad := range [][]byte{make([]byte, large), append(message(t, large), 0xff)} {
		require.Error(t, send(t.Context(), bad))
		require.Len(t, r.turns, cap(r.turns)-1, "so has one that is none")
	}
}

// TestWhatCannotFitIsNotRead: a body that is said to be larger than what is left is refused
// before it is read, and what is only said reserves nothing.
func TestWhatCannotFitIsNotRead(t *testing.T) {
	b := newBudget(requestShare)
	require.True(t, b.room(origin{}, b.size))
	require.False(t, b.room(origin{}, b.size+1))
	require.True(t, b.take(origin{}, b.size))
	require.False(t, b.room(origin{}, 1))
	require.True(t, b.room(origin{}, 0))
	b.giveBack(origin{}, b.size)
	require.True(t, b.room(origin{}, b.size))
}
