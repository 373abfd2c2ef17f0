package charts_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"google.golang.org/grpc"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// backend takes logs over OTLP/gRPC and keeps the names of their events.
type backend struct {
	plogotlp.UnimplementedGRPCServer
	mu     sync.Mutex
	events []string
}

// Export implements plogotlp.GRPCServer.
func (b *backend) Export(_ context.Context, request plogotlp.ExportRequest) (plogotlp.ExportResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, resource := range request.Logs().ResourceLogs().All() {
		for _, scope := range resource.ScopeLogs().All() {
			for _, record := range scope.LogRecords().All() {
				b.events = append(b.events, record.EventName())
			}
		}
	}
	return plogotlp.NewExportResponse(), nil
}

func (b *backend) got(event string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.events, event)
}

// TestABackendThatIsBackGetsTheVerdictsOfAFlood: records have filled their queue while it was away.
func TestABackendThatIsBackGetsTheVerdictsOfAFlood(t *testing.T) {
	t.Parallel()
	hosttest.NotShort(t, "a queue fills")
	address := hosttest.FreeAddress(t)
	agent := newCollector(t, config(t, "agent", "--set", "exporter.otlp.insecure=true,exporter.otlp.endpoint="+address))
	agent.set(t, []any{"health_check", "file_storage", "history"}, "service", "extensions")
	agent.address = fmt.Sprintf("127.0.0.1:%d", hosttest.FreePort(t))
	agent.set(t, map[string]any{"http": map[string]any{"endpoint": agent.address}}, "receivers", "otlp", "protocols")
	agent.set(t, "agents", "receivers", "otlp", "senders")
	for _, signal := range []string{"logs", "metrics"} {
		agent.set(t, []any{"otlp"}, "service", "pipelines", signal, "receivers")
	}
	agent.set(t, "json", "exporters", "terminal", "format")
	agent.set(t, 1, "exporters", "otlp_grpc", "sending_queue", "num_consumers")
	agent.set(t, 1, "exporters", "otlp_grpc", "sending_queue", "queue_size")
	agent.start(t)
	require.True(t, assertEventually(func() bool { return agent.offer(t, 0) != http.StatusOK || agent.offer(t, 1, 90) != http.StatusOK }), "the queue is full")
	agent.offer(t, 0, all...)
	require.True(t, assertEventually(func() bool { return len(agent.latest(t)) >= len(all) }), "%s", agent.stderr)

	listener, err := net.Listen("tcp", address)
	require.NoError(t, err)
	server, there := grpc.NewServer(), &backend{}
	plogotlp.RegisterGRPCServer(server, there)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	require.True(t, assertEventually(func() bool { return there.got("pattern.verdict") && there.got("process.exit") }), "%s", agent.stderr)
}
