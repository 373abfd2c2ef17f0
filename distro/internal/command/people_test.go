package command

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/internal/hosttest"
)

const askedConfig = `
extensions:
  health_check: {}
  %[4]s
  history: {directory: %[1]s/history, http: {endpoint: "%[2]s", auth: {authenticator: %[3]s}, tls: {cert_file: %[1]s/gateway.crt, key_file: %[1]s/gateway.key}}}
receivers: {heartbeat: {}}
exporters: {terminal: {}}
service:
  extensions: [health_check, %[3]s, history]
  telemetry: {metrics: {level: none}}
  pipelines: {logs: {receivers: [heartbeat], exporters: [terminal]}}
`

// issuer signs who somebody is, as a company's OpenID Connect provider does.
type issuer struct {
	*httptest.Server
	signer jose.Signer
}

func newIssuer(t *testing.T, a *authority) *issuer {
	t.Helper()
	a.make(t, "issuer")
	certificate, err := tls.LoadX509KeyPair(filepath.Join(a.dir, "issuer.crt"), filepath.Join(a.dir, "issuer.key"))
	require.NoError(t, err)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	public := jose.JSONWebKey{Key: key, KeyID: "one", Algorithm: string(jose.RS256), Use: "sig"}
	i := &issuer{}
	i.signer, err = jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: public}, nil)
	require.NoError(t, err)
	i.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any = map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys", "id_token_signing_alg_values_supported": []string{"RS256"}}
		if r.URL.Path == "/keys" {
			answer = jose.JSONWebKeySet{Keys: []jose.JSONWebKey{public.Public()}}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	i.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	i.StartTLS()
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) token(t *testing.T, audience string, ends time.Time) string {
	t.Helper()
	text, err := jwt.Signed(i.signer).Claims(jwt.Claims{Issuer: i.URL, Subject: "ada", Audience: jwt.Audience{audience}, Expiry: jwt.NewNumericDate(ends)}).Serialize()
	require.NoError(t, err)
	return text
}

// A gateway that asks who somebody is answers commands and browsers that show it, and nobody else.
func TestAGatewayAnswersWhoShowsWhoHeIs(t *testing.T) {
	a := newAuthority(t)
	a.make(t, "gateway")
	company := newIssuer(t, a)
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	browser := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	hour := time.Now().Add(time.Hour)
	for name, tc := range map[string]struct {
		authenticator, extension string
		known                    string
		strangers                map[string]string
	}{
		"a token of a file": {
			"bearertokenauth", fmt.Sprintf("bearertokenauth: {filename: %s/tokens}", a.dir), "s3cret",
			map[string]string{"another": "wrong"},
		},
		"OpenID Connect": {
			"oidc", fmt.Sprintf("oidc: {providers: [{issuer_url: %q, issuer_ca_path: %s/ca.crt, audience: tracecore}]}", company.URL, a.dir),
			company.token(t, "tracecore", hour),
			map[string]string{
				"for another service": company.token(t, "wiki", hour), "that has ended": company.token(t, "tracecore", time.Now().Add(-time.Hour)),
				"that nobody signed": "eyJhbGciOiJub25lIn0.e30.",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(filepath.Join(a.dir, "tokens"), []byte("s3cret\nanother-one\n"), 0o600))
			asked := hosttest.FreeAddress(t)
			config := filepath.Join(t.TempDir(), "config.yaml")
			require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, askedConfig, a.dir, asked, tc.authenticator, tc.extension), 0o600))
			commandtest.Start(t, commandtest.New(t, "--config="+config, "--set=extensions.health_check.endpoint="+hosttest.FreeAddress(t)))
			ask := func(token string, args ...string) commandtest.Outcome {
				cmd := commandtest.New(t, append(args, "--address=https://"+asked)...)
				cmd.Env = append(cmd.Env, "SSL_CERT_FILE="+filepath.Join(a.dir, "ca.crt"))
				if token != "" {
					cmd.Env = append(cmd.Env, headersVariable+"=authorization=Bearer%20"+url.PathEscape(token))
				}
				return commandtest.Finish(t, cmd)
			}
			page := func(token string) (int, string) {
				request, err := http.NewRequest(http.MethodGet, "https://"+asked+"/", nil)
				require.NoError(t, err)
				if token != "" {
					request.Header.Set("Authorization", "Bearer "+token)
				}
				response, err := browser.Do(request)
				require.NoError(t, err)
				defer response.Body.Close()
				text, err := io.ReadAll(response.Body)
				require.NoError(t, err)
				return response.StatusCode, string(text)
			}
			for _, args := range [][]string{{"incidents"}, {"jobs"}, {"status"}, {"top"}} {
				got := ask(tc.known, args...)
				require.NotEqual(t, exitInternal, got.Code, "%v: %s", args, got.Stderr)
				require.Empty(t, got.Stderr, "%v", args)
				require.NotEmpty(t, got.Stdout, "%v", args)
			}
			code, text := page(tc.known)
			require.Equal(t, http.StatusOK, code)
			require.Contains(t, text, "<html")

			tc.strangers["nobody"] = ""
			for who, token := range tc.strangers {
				got := ask(token, "incidents")
				require.Equal(t, exitInternal, got.Code, who)
				require.Contains(t, got.Stderr, "it does not know who asks (HTTP 401): set "+headersVariable+"='authorization=Bearer%20…'", who)
				require.Empty(t, got.Stdout, who)
				if token != "" {
					require.NotContains(t, got.Stderr, token, who)
				}
				code, text = page(token)
				require.Equal(t, http.StatusUnauthorized, code, who)
				require.NotContains(t, text, "<html", who)
			}
		})
	}
}

// A header that shows who somebody is goes nowhere unencrypted, and never to a program that listens at
// the address of the tracecore of this machine.
func TestHeadersAreShownToWhomTheyAreMeantFor(t *testing.T) {
	t.Setenv(headersVariable, "authorization=Bearer%20hunter2")
	for _, address := range []string{"gateway:13134", "http://gateway:13134", "http://192.0.2.1"} {
		_, err := siteOf(address)
		require.EqualError(t, err, headersVariable+" would go to "+must(addressOf(address)).Host+" unencrypted: use https://")
		require.Equal(t, exitUsage, exitCode(err))
	}
	for address, shown := range map[string]bool{historyAddress: false, "https://gateway": true, "http://localhost:9000": true, "127.0.0.1:9000": true} {
		at, err := siteOf(address)
		require.NoError(t, err)
		request, err := at.request(t.Context(), "/v1/status")
		require.NoError(t, err)
		require.Equal(t, shown, request.Header.Get("Authorization") == "Bearer hunter2", address)
	}
	t.Setenv(headersVariable, "hunter2")
	_, err := siteOf("https://gateway")
	require.ErrorContains(t, err, headersVariable+": header 1 is not of the form name=value")
	require.NotContains(t, err.Error(), "hunter2")
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
