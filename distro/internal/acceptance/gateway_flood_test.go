//go:build linux

package acceptance

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// gatewayLimit is the memory that a gateway is said to need.
const gatewayLimit = 1 << 30

// TestAFloodKillsNoGatewayAndHidesNoVerdict floods a gateway as if an agent did: it is
// believed. Between the floods another agent tells of a GPU that is lost, and tries again
// where it is told to.
func TestAFloodKillsNoGatewayAndHidesNoVerdict(t *testing.T) {
	privtest.Require(t)
	if inTestMachine(t) {
		t.Skip("the senders of the floods would take the whole memory")
	}
	encoding.RegisterCompressor(asItIs{"zstd"}) // of this process; the gateway is another
	f := startFlooded(t, gatewayLimit, "--config="+filepath.Join("testdata", "gateway.yaml"))
	agent := dial(t, f)
	withstand(t, f, func(t *testing.T, f flooded, n int) {
		gpu := fmt.Sprintf("0000:%02x:00.0", 0x20+n)
		tell(t, agent, lostGPU(gpu))
		f.await(t, "the lost GPU", about("gpu_lost", "gpu", gpu))
	})
}

// lostGPU is what the driver said on the node of an agent.
func lostGPU(gpu string) plog.Logs {
	logs := plog.NewLogs()
	resource := logs.ResourceLogs().AppendEmpty()
	resource.Resource().Attributes().PutStr("host.name", "node-1")
	record := resource.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	record.SetTimestamp(pcommon.NewTimestampFromTime(time.Now()))
	record.SetEventName("gpu.lost")
	record.Attributes().PutStr("gpu.id", gpu)
	record.Attributes().PutStr("tracecore.trust", "proven")
	return logs
}

// bystander is a user of this machine who sends no flood.
const bystander = 12345

// dial is the connection of another agent than the one that floods: another machine, in a
// fleet. Over loopback that is another user.
func dial(t testing.TB, f flooded) plogotlp.GRPCClient {
	t.Helper()
	conn, err := grpc.NewClient(f.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		return hosttest.DialAs(ctx, bystander, "", address)
	}))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return plogotlp.NewGRPCClient(conn)
}

// tell sends records until they are taken, as an agent's exporter does.
func tell(t testing.TB, agent plogotlp.GRPCClient, logs plog.Logs) {
	t.Helper()
	for deadline := time.Now().Add(hosttest.Patience); ; {
		_, err := agent.Export(t.Context(), plogotlp.NewExportRequestFromLogs(logs), grpc.WaitForReady(true))
		if err == nil {
			return
		}
		require.False(t, time.Now().After(deadline), "not taken: %v", err)
		time.Sleep(50 * time.Millisecond) // as the answer asks for
	}
}
