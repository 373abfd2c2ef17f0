package cluster_test

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/client"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/extension/extensionauth"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"gopkg.in/yaml.v3"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tracecoreai/tracecore/extensions/agentauthextension"
	"github.com/tracecoreai/tracecore/internal/ingress"
)

// audience is the one that the chart gives the tokens of the release.
const audience = "test-tracecore-gateway." + release

// podToken is the projected token of a pod on a node, as its kubelet asks for it.
func (s *server) podToken(t *testing.T, account, pod, node string, audiences ...string) string {
	t.Helper()
	pods := s.CoreV1().Pods(release)
	found, err := pods.Get(t.Context(), pod, metav1.GetOptions{})
	if err != nil {
		found, err = pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod}, Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: account, Containers: []corev1.Container{{Name: "tracecore", Image: "registry.test/tracecore:1"}},
		}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	return s.token(t, account, &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod, UID: found.UID}, audiences...)
}

func (s *server) token(t *testing.T, account string, bound *authenticationv1.BoundObjectReference, audiences ...string) string {
	t.Helper()
	request, err := s.CoreV1().ServiceAccounts(release).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, BoundObjectRef: bound},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return request.Status.Token
}

// resign changes what a token says of itself and signs it with a key.
func resign(t *testing.T, token string, key *rsa.PrivateKey, change map[string]any) string {
	t.Helper()
	parts := strings.Split(token, ".")
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	require.NoError(t, err)
	var claims map[string]any
	require.NoError(t, json.Unmarshal(text, &claims))
	for name, value := range change {
		claims[name] = value
	}
	text, err = json.Marshal(claims)
	require.NoError(t, err)
	signed := parts[0] + "." + base64.RawURLEncoding.EncodeToString(text)
	sum := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	require.NoError(t, err)
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// key is the one that the API server signs tokens with.
func (s *server) key(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "accounts.key"))
	require.NoError(t, err)
	block, _ := pem.Decode(text)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	require.NoError(t, err)
	return key.(*rsa.PrivateKey)
}

// door is the authenticator of the gateway as the chart renders it, with the rights of
// the gateway's own account.
func (s *server) door(t *testing.T) extensionauth.Server {
	t.Helper()
	var config map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(tierConfig(t, "gateway")), &config))
	set(t, config, s.kubeconfig(t, "test-tracecore-gateway"), "extensions", "agent_auth", "token_review", "kubeconfig")
	f := agentauthextension.NewFactory()
	own := f.CreateDefaultConfig()
	require.NoError(t, confmap.NewFromStringMap(config["extensions"].(map[string]any)["agent_auth"].(map[string]any)).Unmarshal(own))
	require.NoError(t, confmap.Validate(own))
	e, err := f.Create(t.Context(), extensiontest.NewNopSettings(component.MustNewType("agent_auth")), own)
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context(), nil))
	t.Cleanup(func() { require.NoError(t, e.Shutdown(context.Background())) })
	return e.(extensionauth.Server)
}

// TestAgentsProveTheirNode shows the gateway tokens that a real API server has made.
func TestAgentsProveTheirNode(t *testing.T) {
	s := serverWithRights(t)
	door := s.door(t)
	agent, gpu17 := "test-tracecore", ""
	who := func(token string) (any, error) {
		headers := map[string][]string{}
		if token != "" {
			headers["authorization"] = []string{"Bearer " + token}
		}
		ctx, err := door.Authenticate(t.Context(), headers)
		return client.FromContext(ctx).Auth, err
	}
	gpu17 = s.podToken(t, agent, "agent-17", "gpu-17", audience)
	for name, tt := range map[string]struct {
		token string
		want  any
		says  string
	}{
		"agent of gpu-17":               {gpu17, ingress.Agent{Host: "gpu-17", Node: true}, ""},
		"another pod's, of gpu-18":      {s.podToken(t, agent, "agent-18", "gpu-18", audience), ingress.Agent{Host: "gpu-18", Node: true}, ""},
		"for the gateway and others":    {s.podToken(t, agent, "agent-19", "gpu-19", "other", audience), ingress.Agent{Host: "gpu-19", Node: true}, ""},
		"events":                        {s.podToken(t, "test-tracecore-events", "events-0", "gpu-18", audience), ingress.Agent{Relay: true}, ""},
		"no token":                      {"", nil, "no credential"},
		"wrong audience":                {s.podToken(t, agent, "agent-17", "gpu-17", "other"), nil, "another audience"},
		"for the API server":            {s.podToken(t, agent, "agent-17", "gpu-17"), nil, "another audience"},
		"another account's":             {s.podToken(t, "test-tracecore-gateway", "gateway-0", "gpu-18", audience), nil, "another account"},
		"of the account, of no pod":     {s.token(t, agent, nil, audience), nil, "names no node"},
		"expired":                       {resign(t, gpu17, s.key(t), map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}), nil, "expired"},
		"not yet valid":                 {resign(t, gpu17, s.key(t), map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}), nil, "does not take"},
		"signed by somebody":            {resign(t, gpu17, somebodysKey(t), nil), nil, "does not take"},
		"an audience that was added":    {resign(t, s.podToken(t, agent, "agent-17", "gpu-17", "other"), somebodysKey(t), map[string]any{"aud": []string{audience}}), nil, "does not take"},
		"no signature":                  {gpu17[:strings.LastIndexByte(gpu17, '.')+1], nil, "does not take"},
		"another issuer's":              {resign(t, gpu17, s.key(t), map[string]any{"iss": "https://elsewhere"}), nil, "does not take"},
		"of a person, by a static file": {s.config.BearerToken, nil, "no service account"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := who(tt.token)
			require.Equal(t, tt.want, got)
			if tt.says == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tt.says)
			}
		})
	}

	gone := s.podToken(t, agent, "agent-20", "gpu-20", audience)
	now := int64(0)
	require.NoError(t, s.CoreV1().Pods(release).Delete(t.Context(), "agent-20", metav1.DeleteOptions{GracePeriodSeconds: &now}))
	require.True(t, s.api.comes(t, func() bool {
		_, err := s.door(t).Authenticate(t.Context(), map[string][]string{"authorization": {"Bearer " + gone}})
		return err != nil && strings.Contains(err.Error(), "does not take")
	}), "the token of a pod that has gone")

	door = s.door(t) // what it has heard counts for a minute
	_, err := who(gpu17)
	require.NoError(t, err)
	s.api.kill()
	_, err = who(s.tokenWithoutServer(t, gpu17))
	require.ErrorContains(t, err, "does not answer", "an agent tries again")
	_, err = who(gpu17)
	require.NoError(t, err, "an agent that is known")
}

// tokenWithoutServer is one that the API server would take and has not seen.
func (s *server) tokenWithoutServer(t *testing.T, token string) string {
	t.Helper()
	return resign(t, token, s.key(t), map[string]any{"jti": "new"})
}

func somebodysKey(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	return key
}
