package selfmetrics

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configtelemetry"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/service/telemetry"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
	"go.opentelemetry.io/contrib/otelconf/v0.3.0"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

func text(t *testing.T, port int) (int, string) {
	t.Helper()
	code, body, err := scrape(port)
	require.NoError(t, err)
	return code, body
}

func scrape(port int) (int, string, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: hosttest.Patience}
	resp, err := client.Get("http://" + address(port) + "/metrics")
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

func address(port int) string { return (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}).String() }

// provider makes a meter provider with one counter. The configuration is the default but
// for its port and what change does.
func provider(t *testing.T, f telemetry.Factory, port int, change func(*otelconftelemetry.Config)) (telemetry.MeterProvider, error) {
	t.Helper()
	config := f.CreateDefaultConfig().(*otelconftelemetry.Config)
	host := "127.0.0.1"
	p := config.Metrics.Readers[0].Pull.Exporter.Prometheus
	p.Host, p.Port = &host, &port
	if change != nil {
		change(config)
	}
	resource := pcommon.NewResource()
	resource.Attributes().PutStr("service.name", "tracecore")
	resource.Attributes().PutInt("number", 7)
	made, err := f.CreateMeterProvider(t.Context(), telemetry.MeterSettings{Settings: telemetry.Settings{Resource: &resource}, Logger: zap.NewNop()}, config)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = made.Shutdown(context.Background()) })
	counter, err := made.Meter("test").Int64Counter("otelcol_test_records")
	require.NoError(t, err)
	counter.Add(t.Context(), 3)
	return made, nil
}

// TestServesWhatTheCollectorServes under the same names and with the same labels.
func TestServesWhatTheCollectorServes(t *testing.T) {
	yes, no := true, false
	for name, change := range map[string]func(*otelconf.Prometheus){
		"by default": func(*otelconf.Prometheus) {},
		"with units": func(p *otelconf.Prometheus) { p.WithoutUnits = &no },
		"with scope": func(p *otelconf.Prometheus) { p.WithoutScopeInfo = &no },
		"with nothing said": func(p *otelconf.Prometheus) {
			p.WithoutUnits, p.WithoutScopeInfo, p.WithoutTypeSuffix = nil, nil, nil
		},
		"host in brackets": func(p *otelconf.Prometheus) { host := "[127.0.0.1]"; p.Host, p.WithoutUnits = &host, &yes },
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, f := range []telemetry.Factory{NewFactory(), otelconftelemetry.NewFactory()} {
				port := hosttest.FreePort(t)
				_, err := provider(t, f, port, func(c *otelconftelemetry.Config) { change(c.Metrics.Readers[0].Pull.Exporter.Prometheus) })
				require.NoError(t, err)
				code, said := text(t, port)
				require.Equal(t, http.StatusOK, code)
				require.Contains(t, said, "otelcol_test_records")
				var own []string
				for line := range strings.Lines(said) {
					if !strings.Contains(line, "promhttp") {
						own = append(own, line)
					}
				}
				got = append(got, strings.Join(own, ""))
			}
			require.Equal(t, got[1], got[0])
		})
	}
}

// TestAFloodOfConnectionsDoesNotHoldAScrape: ten times as many as there are places.
func TestAFloodOfConnectionsDoesNotHoldAScrape(t *testing.T) {
	for name, asks := range map[string]string{
		"nothing": "", "half a header": "GET /metrics HTTP/1.1\r\nX-", "asks and stays": "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			port := hosttest.FreePort(t)
			_, err := provider(t, NewFactory(), port, nil)
			require.NoError(t, err)
			var open []net.Conn
			for range 10 * mostConnections {
				c, err := net.Dial("tcp", address(port))
				require.NoError(t, err)
				defer c.Close()
				_, _ = io.WriteString(c, asks)
				open = append(open, c)
			}
			require.Eventually(t, func() bool {
				// Beside those that are asked at once, and those of this address whose connections still come.
				code, _, err := scrape(port)
				return err == nil && code == http.StatusOK
			}, hosttest.Patience, time.Millisecond)
			var closed atomic.Int32
			for _, c := range open {
				go func() {
					_, _ = io.ReadAll(c)
					closed.Add(1)
				}()
			}
			require.Eventually(t, func() bool { return closed.Load() >= 9*mostConnections }, hosttest.Patience, time.Millisecond)
		})
	}
}

// TestWhatIsNotOursIsTheCollectors: no metrics at all, readers of other kinds, and labels
// of the resource.
func TestWhatIsNotOursIsTheCollectors(t *testing.T) {
	p := &otelconf.Prometheus{}
	labelled := &otelconf.Prometheus{WithResourceConstantLabels: &otelconf.IncludeExclude{}}
	pull := func(p *otelconf.Prometheus) otelconf.MetricReader {
		return otelconf.MetricReader{Pull: &otelconf.PullMetricReader{Exporter: otelconf.PullMetricExporter{Prometheus: p}}}
	}
	periodic := otelconf.MetricReader{Periodic: &otelconf.PeriodicMetricReader{}}
	served, others := split([]otelconf.MetricReader{periodic, pull(p), pull(labelled), pull(nil)})
	require.Equal(t, []*otelconf.Prometheus{p}, served)
	require.Equal(t, []otelconf.MetricReader{periodic, pull(labelled), pull(nil)}, others)

	port := hosttest.FreePort(t)
	_, err := provider(t, NewFactory(), port, func(c *otelconftelemetry.Config) { c.Metrics.Level = configtelemetry.LevelNone })
	require.NoError(t, err)
	_, err = net.Dial("tcp", address(port))
	require.Error(t, err)
}

func TestAPortThatIsTakenIsWaitedFor(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	_, err = provider(t, NewFactory(), port, nil)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", address(port))
		return err == nil && c.Close() == nil
	}, hosttest.Patience, time.Millisecond)
	code, _ := text(t, port)
	require.Equal(t, http.StatusOK, code)
	_, err = provider(t, NewFactory(), 0, func(c *otelconftelemetry.Config) { c.Metrics.Readers[0].Pull.Exporter.Prometheus.Host = nil })
	require.ErrorContains(t, err, "needs host and port")
}
