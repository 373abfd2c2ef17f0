package pipeline

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

func otlpToSink(address string) string {
	return `{receivers: {otlp: {senders: agents, protocols: {http: {endpoint: "` + address + `"}}}}, exporters: {sink: {}},
		service: {telemetry: {metrics: {level: none}}, pipelines: {logs: {receivers: [otlp], exporters: [sink]}}}}`
}

func TestARecordSentReachesTheSink(t *testing.T) {
	address := hosttest.FreeAddress(t)
	got := make(chan string, 1)
	p, err := Start(t.Context(), otlpToSink(address), func(_ time.Time, records plog.Logs) {
		got <- records.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).EventName()
	})
	require.NoError(t, err)

	records := plog.NewLogs()
	records.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty().SetEventName("gpu.xid")
	body, err := plogotlp.NewExportRequestFromLogs(records).MarshalProto()
	require.NoError(t, err)
	resp, err := http.Post("http://"+address+"/v1/logs", "application/x-protobuf", bytes.NewReader(body))
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "gpu.xid", <-got)
	require.NoError(t, p.Stop())
	require.NoError(t, p.Stop())
}

func TestAPipelineThatCannotStartSaysWhy(t *testing.T) {
	_, err := Start(t.Context(), "{receivers: {nosuch: {}}}", nil)
	require.ErrorContains(t, err, "nosuch")
}

func TestStartGivesUpWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p, err := Start(ctx, otlpToSink(hosttest.FreeAddress(t)), func(time.Time, plog.Logs) {})
	if err == nil { // it was ready before anybody looked
		require.NoError(t, p.Stop())
		return
	}
	require.ErrorIs(t, err, context.Canceled)
}
