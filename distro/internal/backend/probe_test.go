package backend

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func look(t *testing.T, env map[string]string, args ...string) string {
	t.Helper()
	b, err := read(t, env, args...)
	require.NoError(t, err)
	var out strings.Builder
	b.Look(t.Context(), &out)
	return out.String()
}

func TestABackendThatDoesNotAnswerIsNamedAtTheStart(t *testing.T) {
	plain, secure := httptest.NewServer(http.NotFoundHandler()), httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	authority := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600))

	require.Empty(t, look(t, nil, "--to="+plain.URL))
	require.Empty(t, look(t, map[string]string{authorityVariable: authority}, "--to="+secure.URL))
	said := look(t, nil, "--to="+secure.URL, "--to=grpc://127.0.0.1:1")
	require.Equal(t, 2, strings.Count(said, "\n"), said)
	require.Contains(t, said, secure.URL+" does not answer yet: ")
	require.Contains(t, said, "name its authority by "+authorityVariable)
	require.Contains(t, said, "grpc://127.0.0.1:1 does not answer yet: ")
	require.Contains(t, said, "connection refused; what is sent waits on disk")
	require.Contains(t, look(t, map[string]string{authorityVariable: "/nosuch.pem"}, "--to="+secure.URL), "/nosuch.pem")
	require.Empty(t, look(t, nil))
}
