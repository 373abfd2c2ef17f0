// Package alertmanagertest runs an Alertmanager in the process of a test: its own API,
// store and dispatcher, without its pages and its cluster.
package alertmanagertest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/alertmanager/alert"
	apiv2 "github.com/prometheus/alertmanager/api/v2"
	"github.com/prometheus/alertmanager/config"
	"github.com/prometheus/alertmanager/dispatch"
	"github.com/prometheus/alertmanager/eventrecorder"
	"github.com/prometheus/alertmanager/marker"
	"github.com/prometheus/alertmanager/notify"
	"github.com/prometheus/alertmanager/provider/mem"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
)

// settings of an Alertmanager that tells each alert at once.
const settings = `
route: {receiver: people, group_by: ['...'], group_wait: 1ms, group_interval: 1ms, repeat_interval: 1h}
receivers: [{name: people}]
`

// Alert is an alert as the API shows it.
type Alert struct {
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       time.Time         `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL"`
}

// Told is what people would be notified of.
type Told struct {
	Labels   map[string]string
	Resolved bool
}

// Server is a running Alertmanager.
type Server struct {
	URL string

	mu       sync.Mutex
	told     []Told
	resolved map[string]bool // by the labels
}

// Start runs one until the test ends.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s := &Server{resolved: map[string]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	logger, metrics := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	cfg, err := config.Load(settings)
	require.NoError(tb, err)
	alerts, err := mem.NewAlerts(ctx, time.Hour, 0, nil, logger, eventrecorder.NopRecorder(), metrics, nil)
	require.NoError(tb, err)
	dispatcher := dispatch.NewDispatcher(alerts, dispatch.NewRoute(cfg.Route, nil), notify.StageFunc(s.notify), marker.NewGroupMarker(),
		func(d time.Duration) time.Duration { return max(d, time.Second) }, time.Minute, nil, logger, eventrecorder.NopRecorder(), nil)
	api, err := apiv2.NewAPI(alerts, dispatcher.Groups, func(string, string) ([]string, bool) { return nil, false }, nil, nil, logger, metrics)
	require.NoError(tb, err)
	api.Update(cfg, func(context.Context, model.LabelSet) {})
	go dispatcher.Run(time.Now())
	mux := http.NewServeMux()
	mux.Handle("/api/v2/", api.Handler)
	server := httptest.NewServer(mux)
	s.URL = server.URL
	tb.Cleanup(func() {
		server.Close()
		dispatcher.Stop()
		alerts.Close()
		cancel()
	})
	return s
}

// notify is the end of the dispatcher's way: here people would be told.
func (s *Server) notify(ctx context.Context, _ *slog.Logger, alerts ...*alert.Alert) (context.Context, []*alert.Alert, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range alerts {
		labels := map[string]string{}
		for name, value := range a.Labels {
			labels[string(name)] = string(value)
		}
		name, now := fmt.Sprint(labels), a.Resolved()
		if before, known := s.resolved[name]; !known || before != now {
			s.told = append(s.told, Told{labels, now})
		}
		s.resolved[name] = now
	}
	return ctx, alerts, nil
}

// Told are the notifications so far, without those that repeat what was told of an alert.
func (s *Server) Told() []Told {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Told(nil), s.told...)
}

// Alerts are the alerts that its API says are open.
func (s *Server) Alerts(tb testing.TB) []Alert {
	tb.Helper()
	response, err := http.Get(s.URL + "/api/v2/alerts")
	require.NoError(tb, err)
	defer response.Body.Close()
	require.Equal(tb, http.StatusOK, response.StatusCode)
	var alerts []Alert
	require.NoError(tb, json.NewDecoder(response.Body).Decode(&alerts))
	return alerts
}
