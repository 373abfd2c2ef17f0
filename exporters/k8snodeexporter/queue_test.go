package k8snodeexporter

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/exporter/exportertest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tracecoreai/tracecore/exporters/k8snodeexporter/internal/metadata"
	"github.com/tracecoreai/tracecore/internal/apiserver"
	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// patience bounds every wait; only a test that fails comes to its end.
const patience = hosttest.Patience

// run starts the whole exporter, with its queue.
func run(t *testing.T, c *cluster, change func(*Config)) exporter.Logs {
	t.Helper()
	factory := newFactory(func(*Config) (api, error) { return c, nil })
	config := factory.CreateDefaultConfig().(*Config)
	acts(config)
	config.RetryConfig.InitialInterval = time.Millisecond
	if change != nil {
		change(config)
	}
	e, err := factory.CreateLogs(t.Context(), exportertest.NewNopSettings(metadata.Type), config)
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context(), componenttest.NewNopHost()))
	t.Cleanup(func() { require.NoError(t, e.Shutdown(context.Background())) })
	return e
}

func TestServerThatIsAwayForAWhileLosesNothing(t *testing.T) {
	c := newCluster()
	var away atomic.Bool
	var refused atomic.Int64
	away.Store(true)
	c.before = func(string) error {
		if !away.Load() {
			return nil
		}
		refused.Add(1)
		return errors.New("connection refused")
	}
	e := run(t, c, nil)
	require.NoError(t, e.ConsumeLogs(t.Context(), records(lost("gpu-17", "a"))))
	require.NoError(t, e.ConsumeLogs(t.Context(), records(resolved(lost("gpu-17", "a")), lost("gpu-18", "b"))))
	require.Eventually(t, func() bool { return refused.Load() > 3 }, patience, time.Millisecond)
	away.Store(false)
	require.Eventually(t, func() bool { return c.condition(t, "gpu-18", gpuUnhealthy).Status == corev1.ConditionTrue }, patience, time.Millisecond)
	require.Equal(t, corev1.ConditionFalse, c.condition(t, "gpu-17", gpuUnhealthy).Status, "in their order")
}

func TestFullQueueRefusesAndOrdinaryRecordsTakeNoRoom(t *testing.T) {
	c := newCluster()
	release := make(chan struct{})
	c.before = func(string) error {
		<-release
		return nil
	}
	e := run(t, c, func(config *Config) { config.QueueConfig.Get().QueueSize = 2 })
	t.Cleanup(func() { close(release) }) // before the exporter's end
	for range 100 {
		require.NoError(t, e.ConsumeLogs(t.Context(), records()))
	}
	var err error
	for range 5 {
		if err = e.ConsumeLogs(t.Context(), records(lost("gpu-17", "a"))); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, exporterhelper.ErrQueueIsFull)
}

func TestShutdownBeforeStart(t *testing.T) {
	factory := newFactory(func(*Config) (api, error) { return newCluster(), nil })
	e, err := factory.CreateLogs(t.Context(), exportertest.NewNopSettings(metadata.Type), factory.CreateDefaultConfig())
	require.NoError(t, err)
	require.NoError(t, e.Shutdown(t.Context()))
}

// TestRequestsAreThoseOfTheAPI asks a server that answers as an API server does.
func TestRequestsAreThoseOfTheAPI(t *testing.T) {
	asked := make(chan string, 8)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked <- r.Method + " " + r.URL.String() + " " + r.Header.Get("Content-Type") + " " + string(body)
		w.Header().Set("Content-Type", "application/json")
		var answer any = corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: "gpu-17", ResourceVersion: "7"}}
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusConflict)
			answer = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonAlreadyExists, Code: http.StatusConflict}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)
	core, err := apiserver.NewCore(&rest.Config{Host: server.URL}, "test")
	require.NoError(t, err)
	a := &restAPI{core}

	node, err := a.patchStatus(t.Context(), "gpu-17", []byte("{}"))
	require.NoError(t, err)
	require.Equal(t, "7", node.ResourceVersion)
	require.Equal(t, "PATCH /api/v1/nodes/gpu-17/status?fieldManager=tracecore application/strategic-merge-patch+json {}", <-asked)

	event := newEvent(lost("gpu-17", "a"), "gpu-17", "", aboutNode("gpu-17"))
	require.ErrorContains(t, a.createEvent(t.Context(), event), "")
	request := <-asked
	require.Contains(t, request, "POST /api/v1/namespaces/default/events?fieldManager=tracecore application/json ")
	require.Contains(t, request, `"involvedObject":{"kind":"Node","name":"gpu-17","uid":"gpu-17","apiVersion":"v1"}`)
}
