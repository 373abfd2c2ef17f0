package otlpreceiver

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/client"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/testdata"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/peer"
)

// dialAs connects as a user, until the test ends.
func dialAs(t *testing.T, user int, from, to string) net.Conn {
	t.Helper()
	c, err := hosttest.DialAs(t.Context(), user, from, to)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// refusedAtOnce reports whether a connection of a user is closed before it has said anything. One
// that is not stays open.
func refusedAtOnce(t *testing.T, user int, from, to string) bool {
	c, err := hosttest.DialAs(t.Context(), user, from, to)
	if err != nil {
		return false
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		return false
	}
	_, err = c.Read(make([]byte, 1))
	return !os.IsTimeout(err)
}

const stranger = 12345

// TestConnectionsOfAUserTakeNoneOfAnother: one user of the machine opens all that it may, from
// each address of loopback; others send.
func TestConnectionsOfAUserTakeNoneOfAnother(t *testing.T) {
	hosttest.Require(t, "acts as another user")
	const places = 8
	b := start(t, places*perSender*connectionCost/connectionShare, nil)
	for i := range places * perSender {
		dialAs(t, stranger, fmt.Sprintf("127.0.0.%d", 1+i%16), b.http)
	}
	require.Eventually(t, func() bool {
		return refusedAtOnce(t, stranger, "127.0.0.99", b.http)
	}, hosttest.Patience, time.Millisecond)
	resp, err := http.Post("http://"+b.http+"/v1/logs", "application/x-protobuf", bytes.NewReader(message(t, 100)))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
}

// TestBytesOfAUserTakeNoneOfAnother: one user of the machine begins requests that it does not
// end, as many as find memory; a request of another is taken.
func TestBytesOfAUserTakeNoneOfAnother(t *testing.T) {
	hosttest.Require(t, "acts as another user")
	b := start(t, 64<<20, nil) // requests may hold 16 MiB
	const body, requests = 1 << 20, 24
	for range requests {
		c := dialAs(t, stranger, "127.0.0.1", b.http)
		_, err := fmt.Fprintf(c, "POST /v1/logs HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: %d\r\n\r\n", body)
		require.NoError(t, err)
		_, _ = c.Write(make([]byte, body-1)) // one that is refused is not read
	}
	require.Eventually(t, func() bool { return b.refused(t, busy) > 0 }, hosttest.Patience, time.Millisecond)
	resp, err := http.Post("http://"+b.http+"/v1/logs", "application/x-protobuf", bytes.NewReader(message(t, 1200<<10)))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
}

// TestARequestSaysWhoSentIt: the stage behind the receiver learns whose a connection is, by both
// protocols.
func TestARequestSaysWhoSentIt(t *testing.T) {
	var from []net.Addr
	next, err := consumer.NewLogs(func(ctx context.Context, _ plog.Logs) error {
		from = append(from, client.FromContext(ctx).Addr)
		return nil
	})
	require.NoError(t, err)
	b := start(t, 1<<30, next)
	resp, err := http.Post("http://"+b.http+"/v1/logs", "application/x-protobuf", bytes.NewReader(message(t, 1)))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	_, err = plogotlp.NewGRPCClient(b.dial(t)).Export(t.Context(), plogotlp.NewExportRequestFromLogs(testdata.GenerateLogs(1)))
	require.NoError(t, err)
	require.Len(t, from, 2)
	for _, address := range from {
		at, ok := address.(peer.Addr)
		require.True(t, ok, "%T", address)
		require.EqualValues(t, os.Getuid(), at.User)
		require.False(t, at.Gone)
	}
}
