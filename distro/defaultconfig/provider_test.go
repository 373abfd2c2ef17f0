package defaultconfig

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSchemeIsOneTheCollectorAccepts(t *testing.T) {
	require.NoError(t, confmaptest.ValidateProviderScheme(provider{}))
}

func TestDefaultResolvesWithStateDir(t *testing.T) {
	t.Setenv(StateDirVariable, "/some/where")
	resolver, err := confmap.NewResolver(confmap.ResolverSettings{
		URIs:              []string{URI},
		ProviderFactories: []confmap.ProviderFactory{NewFactory()},
	})
	require.NoError(t, err)
	conf, err := resolver.Resolve(t.Context())
	require.NoError(t, err)
	require.Equal(t, "/some/where", conf.Get("extensions::file_storage::directory"))
	require.NoError(t, resolver.Shutdown(t.Context()))
}

// What a recipe stamps on records must be what the receivers call this host.
func TestHostName(t *testing.T) {
	hostname, err := os.Hostname()
	require.NoError(t, err)
	for variable, want := range map[string]string{"": hostname, "node-7": "node-7"} {
		t.Setenv("K8S_NODE_NAME", variable)
		retrieved, err := provider{}.Retrieve(t.Context(), hostNameURI, nil)
		require.NoError(t, err)
		got, err := retrieved.AsRaw()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestUnknownNameIsRefused(t *testing.T) {
	_, err := provider{}.Retrieve(t.Context(), "tracecore:other", nil)
	require.ErrorContains(t, err, "tracecore:default")
}

func TestStateDir(t *testing.T) {
	root := os.Geteuid() == 0
	ownState := func(dir string) string {
		if root {
			return "/var/lib/tracecore"
		}
		return dir
	}
	for name, tt := range map[string]struct {
		variable, xdg, home, want, err string
	}{
		"the variable wins":       {variable: "/a/b", xdg: "/c", home: "/h", want: "/a/b"},
		"a relative one is wrong": {variable: "a/b", err: "absolute"},
		"the user's state folder": {xdg: "/c", home: "/h", want: ownState("/c/tracecore")},
		"its default":             {home: "/h", want: ownState("/h/.local/state/tracecore")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(StateDirVariable, tt.variable)
			t.Setenv("XDG_STATE_HOME", tt.xdg)
			t.Setenv("HOME", tt.home)
			got, err := StateDir()
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}
