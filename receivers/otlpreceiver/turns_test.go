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

	"github.com/tracecoreai/tracecore/internal/otlpscan"
	"github.com/tracecoreai/tracecore/receivers/otlpreceiver/internal/metadata"
)

// message has so many bytes of text, in values that are not too long.
func message(t *testing.T, bytes int) []byte {
	t.Helper()
	logs := plog.NewLogs()
	records := logs.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords()
	for bytes > 0 {
		n := min(bytes, otlpscan.MaxValue)
		records.AppendEmpty().Body().SetStr(strings.Repeat("x", n))
		bytes -= n
	}
	body, err := plogotlp.NewExportRequestFromLogs(logs).MarshalProto()
	require.NoError(t, err)
	return body
}

// now are the turns that are taken.
func (t *turns) now() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.taken
}

// TestLargeMessagesWaitForTheirTurn: with all turns taken a large message waits, and goes
// when its sender does; a small one does not wait, and no consumer is waited for.
func TestLargeMessagesWaitForTheirTurn(t *testing.T) {
	r, err := newReceiver(receivertest.NewNopSettings(metadata.Type), newFactory().CreateDefaultConfig().(*otlpreceiver.Config))
	require.NoError(t, err)
	require.NotZero(t, r.turns.most)
	inConsumer := -1
	next, err := consumer.NewLogs(func(context.Context, plog.Logs) error { inConsumer = r.turns.now(); return nil })
	require.NoError(t, err)
	send := func(ctx context.Context, body []byte) error {
		_, err := r.export(ctx, &r.http, logsExporter(next), inProto, body)
		return err
	}
	var leave []func()
	for range r.turns.most {
		one, err := r.turns.enter(t.Context(), origin{}, large)
		require.NoError(t, err)
		leave = append(leave, one)
	}
	require.NoError(t, send(t.Context(), message(t, 100)))
	require.Equal(t, r.turns.most, inConsumer)

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, codes.Unavailable, status.Code(send(gone, message(t, large))))

	done := make(chan error)
	go func() { done <- send(t.Context(), message(t, large)) }()
	leave[0]()
	leave[0]()
	require.NoError(t, <-done)
	require.Equal(t, r.turns.most-1, inConsumer, "a message that is decoded has left")

	for _, bad := range [][]byte{make([]byte, large), append(message(t, large), 0xff)} {
		require.Error(t, send(t.Context(), bad))
		require.Equal(t, r.turns.most-1, r.turns.now(), "so has one that is none")
	}
}

// TestWhoSendsLargeMessagesWithoutEndWaitsForOthers: each sender has one message after the other,
// and the messages of one in their order.
func TestWhoSendsLargeMessagesWithoutEndWaitsForOthers(t *testing.T) {
	turns := newTurns()
	for range turns.most {
		<-turns.line(origin{user: 1, local: true})
	}
	flood, other, third := origin{user: 1, local: true}, origin{user: 2, local: true}, origin{user: 3, local: true}
	lines := []chan struct{}{turns.line(flood), turns.line(flood), turns.line(flood), turns.line(other), turns.line(other), turns.line(third)}
	waiting := func() (all []int) {
		for i, one := range lines {
			select {
			case <-one:
			default:
				all = append(all, i)
			}
		}
		return all
	}
	require.Equal(t, []int{0, 1, 2, 3, 4, 5}, waiting())
	for _, left := range [][]int{{1, 2, 3, 4, 5}, {1, 2, 4, 5}, {1, 2, 4}, {2, 4}, {2}, nil} {
		turns.pass()
		require.Equal(t, left, waiting())
	}
	for range turns.most {
		turns.pass()
	}
	require.Zero(t, turns.now())
	require.Empty(t, turns.next)
	require.Empty(t, turns.lines)
}

// TestWhoGivesUpATurnPassesItOn: also where it came just then.
func TestWhoGivesUpATurnPassesItOn(t *testing.T) {
	turns := newTurns()
	one, two := origin{user: 1, local: true}, origin{user: 2, local: true}
	for range turns.most {
		<-turns.line(one)
	}
	first, second, third := turns.line(one), turns.line(two), turns.line(one)
	turns.giveUp(one, first)
	turns.pass()
	<-third // one is first in the line still, and has this message alone
	turns.giveUp(one, third)
	<-second
	turns.giveUp(two, second)
	require.Equal(t, turns.most-1, turns.now())
	require.Empty(t, turns.next)
	require.Empty(t, turns.lines)
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
