package apiserver

import (
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// server is an API server that counts what it is asked, and answers one node's name.
type server struct {
	*httptest.Server
	asked atomic.Int64
	last  atomic.Pointer[http.Request]
}

func serve(t *testing.T) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		s.last.Store(r)
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"node-17"}}`)
	}))
	s.Config.ErrorLog = nil
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *server) authority() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// kubeconfig has two contexts: one of s with its authority, and one of s that trusts the
// machine's authorities.
func (s *server) kubeconfig(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	authority := filepath.Join(dir, "ca.crt")
	require.NoError(t, os.WriteFile(authority, s.authority(), 0o600))
	path := filepath.Join(dir, "config")
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: known
clusters:
- {name: known, cluster: {server: %q, certificate-authority: %q}}
- {name: stranger, cluster: {server: %q}}
users:
- {name: agent, user: {token: secret-of-the-agent}}
- {name: other, user: {token: another}}
contexts:
- {name: known, context: {cluster: known, user: agent}}
- {name: stranger, context: {cluster: stranger, user: agent}}
- {name: as-other, context: {cluster: known, user: other}}
`, s.URL, authority, s.URL), 0o600))
	return path
}

func getNode(t *testing.T, c *Client) (*corev1.Node, error) {
	t.Helper()
	node := &corev1.Node{}
	return node, c.Get().Resource("nodes").Name("node-17").VersionedParams(&metav1.GetOptions{ResourceVersion: "5"}, c.Params).Do(t.Context()).Into(node)
}

func TestAContextSaysWhichServerAndAsWhom(t *testing.T) {
	s := serve(t)
	path := s.kubeconfig(t)
	for context, token := range map[string]string{"": "secret-of-the-agent", "known": "secret-of-the-agent", "as-other": "another"} {
		config, err := (&Connection{Kubeconfig: path, Context: context}).Config()
		require.NoError(t, err)
		client, err := NewCore(config, "tracecore/test")
		require.NoError(t, err)
		before := s.asked.Load()
		node, err := getNode(t, client)
		require.NoError(t, err)
		require.Equal(t, "node-17", node.Name)
		require.EqualValues(t, 1, s.asked.Load()-before)
		asked := s.last.Load()
		require.Equal(t, "/api/v1/nodes/node-17", asked.URL.Path)
		require.Equal(t, "5", asked.URL.Query().Get("resourceVersion"), "options are encoded")
		require.Equal(t, "tracecore/test", asked.UserAgent())
		require.Equal(t, "Bearer "+token, asked.Header.Get("Authorization"))
	}
}

func TestNothingIsAskedBeforeItIsWanted(t *testing.T) {
	s := serve(t)
	config, err := (&Connection{Kubeconfig: s.kubeconfig(t)}).Config()
	require.NoError(t, err)
	_, err = NewCore(config, "tracecore/test")
	require.NoError(t, err)
	require.Zero(t, s.asked.Load())
}

// A token is shown to the server of the configuration alone, over TLS that is verified.
func TestNoTokenForAServerThatIsNotKnown(t *testing.T) {
	s := serve(t)
	config, err := (&Connection{Kubeconfig: s.kubeconfig(t), Context: "stranger"}).Config()
	require.NoError(t, err)
	client, err := NewCore(config, "tracecore/test")
	require.NoError(t, err)
	_, err = getNode(t, client)
	var unverified *tls.CertificateVerificationError
	require.ErrorAs(t, err, &unverified)
	require.NotContains(t, err.Error(), "secret-of-the-agent")
	require.Zero(t, s.asked.Load())
}

func TestAGroupHasItsPathAndItsTypesAlone(t *testing.T) {
	s := serve(t)
	config, err := (&Connection{Kubeconfig: s.kubeconfig(t)}).Config()
	require.NoError(t, err)
	client, err := New(config, "tracecore/test", authenticationv1.SchemeGroupVersion, authenticationv1.AddToScheme)
	require.NoError(t, err)
	review := &authenticationv1.TokenReview{}
	err = client.Post().Resource("tokenreviews").Body(&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "t"}}).Do(t.Context()).Into(review)
	require.Equal(t, "/apis/authentication.k8s.io/v1/tokenreviews", s.last.Load().URL.Path)
	require.Equal(t, http.MethodPost, s.last.Load().Method)
	require.ErrorContains(t, err, "no kind \"Node\" is registered", "the server answers with what was not asked for")
	require.Empty(t, review.Status.User.Username)
}

// Components share one configuration.
func TestTheConfigurationOfOthersIsNotChanged(t *testing.T) {
	s := serve(t)
	config, err := (&Connection{Kubeconfig: s.kubeconfig(t)}).Config()
	require.NoError(t, err)
	before := rest.CopyConfig(config)
	_, err = NewCore(config, "tracecore/test")
	require.NoError(t, err)
	require.Equal(t, before.String(), config.String())
	require.Nil(t, config.GroupVersion)
	require.Empty(t, config.UserAgent)
}

func TestWhatCannotWorkIsSaid(t *testing.T) {
	require.NoError(t, (&Connection{}).Validate())
	require.NoError(t, (&Connection{Kubeconfig: "f", Context: "c"}).Validate())
	require.EqualError(t, (&Connection{Context: "c"}).Validate(), "context: needs kubeconfig, the file that defines it")

	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBERNETES_SERVICE_PORT", "")
	_, err := (&Connection{}).Config()
	require.ErrorIs(t, err, rest.ErrNotInCluster)
	require.ErrorContains(t, err, "run in a pod with a service account, or set kubeconfig")

	s := serve(t)
	whole := s.kubeconfig(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	for name, c := range map[string]Connection{
		"no file":          {Kubeconfig: filepath.Join(dir, "none")},
		"a folder":         {Kubeconfig: dir},
		"no such context":  {Kubeconfig: whole, Context: "none"},
		"not YAML":         {Kubeconfig: write("broken", "\x00{{{")},
		"of another kind":  {Kubeconfig: write("kind", "apiVersion: v1\nkind: Pod\n")},
		"nothing in it":    {Kubeconfig: write("empty", "")},
		"authority is not": {Kubeconfig: write("ca", "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{name: a, cluster: {server: 'https://localhost', certificate-authority: /none/ca.crt}}]\ncontexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a, user: {}}]\n")},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.Config()
			require.ErrorContains(t, err, "read kubeconfig "+c.Kubeconfig+": ")
		})
	}
}

func TestAGroupThatDoesNotFitIsAnError(t *testing.T) {
	wrong := fmt.Errorf("types that are there twice")
	_, err := New(&rest.Config{}, "tracecore/test", corev1.SchemeGroupVersion, func(*runtime.Scheme) error { return wrong })
	require.ErrorIs(t, err, wrong)
	_, err = NewCore(&rest.Config{Host: "https://localhost", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("none")}}, "tracecore/test")
	require.ErrorContains(t, err, "connect to the API server: ")
}
