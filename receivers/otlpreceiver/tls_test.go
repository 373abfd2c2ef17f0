package otlpreceiver

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configopaque"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configtls"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/testdata"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// Over TLS a client chooses HTTP/2 or HTTP/1.1, and its records come in.
func TestRecordsComeInOverTLS(t *testing.T) {
	made := httptest.NewTLSServer(http.NotFoundHandler()) // it brings a certificate
	defer made.Close()
	key, err := x509.MarshalPKCS8PrivateKey(made.TLS.Certificates[0].PrivateKey)
	require.NoError(t, err)
	b := start(t, roomy, nil, func(c *otlpreceiver.Config) {
		c.Protocols.HTTP.Get().ServerConfig.TLS = configoptional.Some(configtls.ServerConfig{Config: configtls.Config{
			CertPem: configopaque.String(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made.TLS.Certificates[0].Certificate[0]})),
			KeyPem:  configopaque.String(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})),
		}})
	})
	trusts := x509.NewCertPool()
	trusts.AddCert(made.Certificate())
	body, err := plogotlp.NewExportRequestFromLogs(testdata.GenerateLogs(1)).MarshalProto()
	require.NoError(t, err)
	for _, second := range []bool{true, false} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusts}, ForceAttemptHTTP2: second, DisableKeepAlives: true}
		client := &http.Client{Transport: transport, Timeout: hosttest.Patience}
		response, err := client.Post("https://"+b.http+"/v1/logs", protoType, bytes.NewReader(body))
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusOK, response.StatusCode)
		require.Equal(t, second, response.ProtoMajor == 2, response.Proto)
		transport.CloseIdleConnections()
	}
	require.Equal(t, 2, b.logs.LogRecordCount())
}
