package filestorageextension

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/collector/extension/xextension/storage"

	"github.com/tracecoreai/tracecore/extensions/filestorageextension/internal/metadata"
)

func started(t *testing.T, dir string) *fileStorage {
	t.Helper()
	x, err := newFileStorage(extensiontest.NewNopSettings(metadata.Type), &Config{Directory: dir})
	require.NoError(t, err)
	require.NoError(t, x.Start(t.Context(), componenttest.NewNopHost()))
	t.Cleanup(func() { require.NoError(t, x.Shutdown(context.Background())) })
	return x
}

func client1(t *testing.T, x *fileStorage) storage.Client {
	t.Helper()
	c, err := x.GetClient(t.Context(), component.KindReceiver, component.MustNewID("a"), "")
	require.NoError(t, err)
	return c
}

func TestConfigSaysWhatToDo(t *testing.T) {
	require.ErrorContains(t, (&Config{}).Validate(), "directory is not set: name the folder")
	require.ErrorContains(t, (&Config{Directory: "x"}).Validate(), "give the whole path")
	require.NoError(t, (&Config{Directory: "/x"}).Validate())
}

func TestEachComponentHasItsOwn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	x := started(t, dir)
	a := client1(t, x)
	b, err := x.GetClient(t.Context(), component.KindReceiver, component.MustNewIDWithName("a", "../"+strings.Repeat("n", 300)), "logs")
	require.NoError(t, err)
	require.NoError(t, a.Set(t.Context(), "key", []byte("of a")))
	value, err := b.Get(t.Context(), "key")
	require.NoError(t, err)
	require.Nil(t, value)
	_, err = x.GetClient(t.Context(), component.KindReceiver, component.MustNewID("a"), "")
	require.ErrorContains(t, err, "is open already")
	require.NoError(t, a.Close(t.Context()))
	value, err = client1(t, x).Get(t.Context(), "key")
	require.NoError(t, err)
	require.Equal(t, "of a", string(value))
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
}

func TestABatchSeesItsOwnChanges(t *testing.T) {
	a := client1(t, started(t, t.TempDir()))
	before, after, gone := storage.GetOperation("k"), storage.GetOperation("k"), storage.GetOperation("k")
	require.NoError(t, a.Batch(t.Context(), before, storage.SetOperation("k", []byte("1")), after, storage.DeleteOperation("k"), gone))
	require.Nil(t, before.Value)
	require.Equal(t, "1", string(after.Value))
	require.Nil(t, gone.Value)
	require.NoError(t, a.Set(t.Context(), "x", []byte("1")))
	require.NoError(t, a.(storage.Walker).Walk(t.Context(), func(key string, value []byte) ([]*storage.Operation, error) {
		require.Equal(t, "x1", key+string(value))
		return []*storage.Operation{storage.DeleteOperation(key)}, storage.SkipAll
	}))
	value, err := a.Get(t.Context(), "x")
	require.NoError(t, err)
	require.Nil(t, value)
}

func TestAFolderHasOneProcess(t *testing.T) {
	dir := t.TempDir()
	first := started(t, dir)
	second, err := newFileStorage(extensiontest.NewNopSettings(metadata.Type), &Config{Directory: dir})
	require.NoError(t, err)
	require.ErrorIs(t, second.Start(t.Context(), componenttest.NewNopHost()), errTaken)
	require.NoError(t, first.Shutdown(t.Context()))
	require.NoError(t, second.Start(t.Context(), componenttest.NewNopHost()))
	require.NoError(t, second.Shutdown(t.Context()))
}
