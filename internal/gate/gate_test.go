package gate

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configtls"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// overTLS is a configuration with a certificate, and who trusts it.
func overTLS(t *testing.T) (*confighttp.ServerConfig, *tls.Config) {
	t.Helper()
	made := httptest.NewTLSServer(http.NotFoundHandler()) // it brings a certificate
	defer made.Close()
	certificate := made.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	require.NoError(t, err)
	dir := t.TempDir()
	c := confighttp.NewDefaultServerConfig()
	c.NetAddr.Endpoint = "127.0.0.1:0"
	files := configtls.ServerConfig{Config: configtls.Config{CertFile: filepath.Join(dir, "crt"), KeyFile: filepath.Join(dir, "key")}}
	require.NoError(t, os.WriteFile(files.CertFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}), 0o600))
	require.NoError(t, os.WriteFile(files.KeyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))
	c.TLS = configoptional.Some(files)
	trusts := x509.NewCertPool()
	trusts.AddCert(made.Certificate())
	return &c, &tls.Config{RootCAs: trusts}
}

// Over TLS, too, who would speak HTTP/2 is answered, and no more connections are open than may be:
// the oldest gives way, also one that says nothing.
func TestConnectionsOverTLSAreAnsweredAndBounded(t *testing.T) {
	const most = 4
	config, trusts := overTLS(t)
	l, err := Listen(config, most)(t.Context())
	require.NoError(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }), ReadHeaderTimeout: hosttest.Patience}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	var silent []net.Conn
	for range 2 * most {
		c, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		defer c.Close()
		silent = append(silent, c)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: trusts, ForceAttemptHTTP2: true}, Timeout: hosttest.Patience}
	for range most {
		response, err := client.Get("https://" + l.Addr().String())
		require.NoError(t, err)
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, "HTTP/1.1", string(text))
	}
	for _, c := range silent[:most] {
		require.NoError(t, c.SetReadDeadline(time.Now().Add(hosttest.Patience)))
		_, err := c.Read(make([]byte, 1))
		require.Error(t, err)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	}
}

// A certificate that cannot be read is an error, and nobody listens.
func TestABadCertificateIsAnError(t *testing.T) {
	config, _ := overTLS(t)
	require.NoError(t, os.WriteFile(config.TLS.Get().KeyFile, []byte("none"), 0o600))
	_, err := Listen(config, 1)(t.Context())
	require.ErrorContains(t, err, "failed to load TLS")
}
