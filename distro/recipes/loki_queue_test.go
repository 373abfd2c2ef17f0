package recipes

import (
	"bytes"
	"compress/gzip"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// inbox takes logs over OTLP, as Loki does, and keeps the status of each verdict, in order.
type inbox struct {
	mu       sync.Mutex
	statuses []string
	wrong    error
}

func (i *inbox) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	unpacked, err := gzip.NewReader(r.Body)
	if err != nil {
		i.wrong = err
		return
	}
	body, err := io.ReadAll(unpacked)
	request := plogotlp.NewExportRequest()
	if err != nil || request.UnmarshalProto(body) != nil {
		i.wrong = io.ErrUnexpectedEOF
		return
	}
	for _, resource := range request.Logs().ResourceLogs().All() {
		for _, scope := range resource.ScopeLogs().All() {
			for _, record := range scope.LogRecords().All() {
				if status, ok := record.Attributes().Get("pattern.status"); ok {
					i.statuses = append(i.statuses, status.Str())
				}
			}
		}
	}
}

func (i *inbox) got() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.statuses)
}

// Loki is away and records have filled their queue. The verdicts that are made then come once it
// is back, each once, though tracecore told the open ones again.
func TestRecordsTakeNoRoomFromVerdictsForLoki(t *testing.T) {
	address, otlp := hosttest.FreeAddress(t), hosttest.FreeAddress(t)
	t.Setenv("LOKI", "http://"+address)
	rule, all := filepath.Join(t.TempDir(), "rule.yaml"), filepath.Join(t.TempDir(), "all")
	require.NoError(t, os.WriteFile(rule, []byte(alarmRule), 0o600))
	a := start(t, "loki.yaml", "--set=processors.patterndetector.rules=["+rule+"]", "--set=processors.patterndetector.repeat=1s",
		"--set=exporters.otlp_http/loki.sending_queue.queue_size=1", "--set=exporters.otlp_http/loki.sending_queue.num_consumers=1",
		"--config=yaml:exporters::file::path: "+all, "--config=yaml:service::pipelines::logs/all: {receivers: [forward/out], exporters: [file]}",
		"--set=receivers.otlp.senders=agents", "--set=receivers.otlp.protocols.http.endpoint="+otlp)
	send(t, otlp, "site.other")
	require.Eventually(t, func() bool { return !post(t, otlp, "site.other") }, patience, time.Millisecond, "the queue is full")

	post(t, otlp, "site.alarm")
	a.await(t, "the alarm", about("site_alarm", "host", host))
	require.Eventually(t, func() bool {
		said, err := os.ReadFile(all)
		return err == nil && bytes.Contains(said, []byte(verdict.AttrRepeated))
	}, patience, 10*time.Millisecond, "the alarm is told again")
	post(t, otlp, "site.calm")
	a.await(t, "the calm", func(v verdict.Verdict) bool { return v.Status == verdict.Resolved })

	listener, err := net.Listen("tcp", address)
	require.NoError(t, err)
	loki := &inbox{}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: loki}} //nolint:gosec // nobody but this test asks it
	server.Start()
	t.Cleanup(server.Close)
	require.Eventually(t, func() bool { return slices.Contains(loki.got(), "resolved") }, patience, 10*time.Millisecond, "%v\n%s", loki.got(), a.Stderr)
	require.Equal(t, []string{"open", "resolved"}, loki.got())
	require.NoError(t, loki.wrong)
}
