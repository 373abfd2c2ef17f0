package command

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/extension/extensionauth"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/collector/extension/xextension/storage"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/distro/internal/components"
	"github.com/tracecoreai/tracecore/internal/history"
)

// What a setting may name is what the component would take.
func TestServesIsWhatExtensionsAre(t *testing.T) {
	factories, err := components.Factories()
	require.NoError(t, err)
	does := map[string][]string{}
	for of, factory := range factories.Extensions {
		x, err := factory.Create(t.Context(), extensiontest.NewNopSettings(of), factory.CreateDefaultConfig())
		require.NoError(t, err, "%s", of)
		add := func(what string, is bool) {
			if is {
				does[what] = append(does[what], of.String())
				slices.Sort(does[what])
			}
		}
		_, keeps := x.(storage.Extension)
		add("storage", keeps)
		_, knows := x.(identity.Resolver)
		add("identity", knows)
		_, remembers := x.(history.Keeper)
		add("history", remembers)
		_, asks := x.(extensionauth.Server)
		_, shows := x.(extensionauth.GRPCClient)
		add("authenticator", asks || shows)
	}
	require.Equal(t, does, serves)
}
