package healthcheckextension

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/extension/extensiontest"

	"github.com/tracecoreai/tracecore/extensions/healthcheckextension/internal/metadata"
	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// started returns an extension that answers, and its address.
func started(t *testing.T, change func(*Config)) (*health, string) {
	address := hosttest.FreeAddress(t)
	config := defaultConfig().(*Config)
	config.NetAddr.Endpoint = address
	change(config)
	require.NoError(t, config.Validate())
	made, err := NewFactory().Create(t.Context(), extensiontest.NewNopSettings(metadata.Type), config)
	require.NoError(t, err)
	require.NoError(t, made.Start(t.Context(), componenttest.NewNopHost()))
	t.Cleanup(func() { require.NoError(t, made.Shutdown(context.Background())) })
	return made.(*health), address
}

func ask(t *testing.T, url string) (int, string) {
	code, text, err := probe(url)
	require.NoError(t, err)
	return code, text
}

// probe asks over a connection of its own.
func probe(url string) (int, string, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: hosttest.Patience}
	response, err := client.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

func TestAnswersWhetherThePipelinesAreUp(t *testing.T) {
	h, address := started(t, func(c *Config) { c.Path = "/health" })
	url := "http://" + address + "/health"
	for _, step := range []struct {
		do   func() error
		code int
		text string
	}{
		{func() error { return nil }, 503, "{\"status\":\"Server not available\"}\n"},
		{h.Ready, 200, "{\"status\":\"Server available\"}\n"},
		{h.NotReady, 503, "{\"status\":\"Server not available\"}\n"},
	} {
		require.NoError(t, step.do())
		code, text := ask(t, url)
		require.Equal(t, step.code, code)
		require.Equal(t, step.text, text)
	}
	code, _ := ask(t, "http://"+address+"/other")
	require.Equal(t, 404, code)
}

// TestAFloodOfConnectionsDoesNotHoldAProbe: connections that ask nothing, or that ask and
// stay, ten times as many as there are places. A probe from the same address is answered,
// and no more connections are open than places.
func TestAFloodOfConnectionsDoesNotHoldAProbe(t *testing.T) {
	const most = 16
	for name, text := range map[string]string{
		"nothing":        "",
		"half a header":  "GET / HTTP/1.1\r\nHost: x\r\nX-",
		"asks and stays": "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			h, address := started(t, func(c *Config) { c.MaxConnections = most })
			require.NoError(t, h.Ready())
			var open []net.Conn
			for range 10 * most {
				c, err := net.Dial("tcp", address)
				require.NoError(t, err)
				defer c.Close()
				_, _ = io.WriteString(c, text)
				open = append(open, c)
			}
			require.Eventually(t, func() bool { // beside those of this address whose connections still come
				code, _, err := probe("http://" + address + "/")
				return err == nil && code == 200
			}, hosttest.Patience, time.Millisecond)
			for _, c := range open[:9*most] { // given way, each is told so
				require.NoError(t, c.SetReadDeadline(time.Now().Add(hosttest.Patience)))
				_, err := io.ReadAll(c)
				require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
			}
		})
	}
}

// TestAConnectionThatAsksNothingIsClosed by time alone.
func TestAConnectionThatAsksNothingIsClosed(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "half a header": "GET / HTTP/1.1\r\nX-", "half a body": "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nx", "stays": "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, address := started(t, func(c *Config) {
				c.ReadHeaderTimeout, c.ReadTimeout, c.WriteTimeout, c.IdleTimeout = time.Millisecond, time.Millisecond, time.Second, time.Millisecond
			})
			c, err := net.Dial("tcp", address)
			require.NoError(t, err)
			defer c.Close()
			_, _ = io.WriteString(c, text)
			require.NoError(t, c.SetReadDeadline(time.Now().Add(hosttest.Patience)))
			_, err = io.ReadAll(c)
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
		})
	}
}

func TestConfigurationsWithoutALimitAreRefused(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"endpoint":       func(c *Config) { c.NetAddr.Endpoint = "" },
		"path":           func(c *Config) { c.Path = "health" },
		"connections":    func(c *Config) { c.MaxConnections = 0 },
		"header timeout": func(c *Config) { c.ReadHeaderTimeout = 0 },
		"read timeout":   func(c *Config) { c.ReadTimeout = 0 },
		"write timeout":  func(c *Config) { c.WriteTimeout = 0 },
		"idle timeout":   func(c *Config) { c.IdleTimeout = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			c := defaultConfig().(*Config)
			require.NoError(t, c.Validate())
			change(c)
			require.Error(t, c.Validate())
		})
	}
}

// TestAPortThatIsTakenIsWaitedFor: who has it keeps tracecore from nothing else.
func TestAPortThatIsTakenIsWaitedFor(t *testing.T) {
	squatter, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := squatter.Addr().String()
	config := defaultConfig().(*Config)
	config.NetAddr.Endpoint = address
	made, err := NewFactory().Create(t.Context(), extensiontest.NewNopSettings(metadata.Type), config)
	require.NoError(t, err)
	require.NoError(t, made.Start(t.Context(), componenttest.NewNopHost()))
	defer func() { require.NoError(t, made.Shutdown(context.Background())) }()
	require.NoError(t, made.(*health).Ready())
	require.NoError(t, squatter.Close())
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", address)
		return err == nil && c.Close() == nil
	}, hosttest.Patience, time.Millisecond)
	code, _ := ask(t, "http://"+address+"/")
	require.Equal(t, 200, code)
}
