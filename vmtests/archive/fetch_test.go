package archive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDownloadsThatMayWorkLaterAreTriedAgain(t *testing.T) {
	broken := errors.New("connection reset")
	for name, tc := range map[string]struct {
		answers []error
		calls   int
		want    error
	}{
		"at once":      {[]error{nil}, 1, nil},
		"third time":   {[]error{broken, broken, nil}, 3, nil},
		"never":        {[]error{broken, broken, broken, broken, nil}, 4, broken},
		"refused":      {[]error{fmt.Errorf("get x: %w: 404", errRefused), nil}, 1, errRefused},
		"then refused": {[]error{broken, errRefused, nil}, 2, errRefused},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			err := retry(context.Background(), time.Nanosecond, func() error {
				calls++
				return tc.answers[calls-1]
			})
			require.ErrorIs(t, err, tc.want)
			require.Equal(t, tc.calls, calls)
		})
	}
}

func TestNobodyWaitsForADownloadThatIsNotWantedAnyMore(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	stopped := errors.New("stopped")
	cancel(stopped)
	require.ErrorIs(t, retry(ctx, time.Hour, func() error { return errors.New("slow") }), stopped)
}

func TestModulesOfTheSameBuildAreFoundBesideTheKernel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "Packages")
	require.NoError(t, os.WriteFile(path, []byte("Package: linux-modules-7.2\nVersion: 7.2-1\nFilename: pool/m.deb\nSHA256: aa\n"), 0o644))
	kernel := Package{Name: "linux-binary-7.2", Version: "7.2-1", index: path, root: "http://mirror.test/debian"}

	got, err := sibling(context.Background(), kernel, "linux-modules-7.2", nil)
	require.NoError(t, err)
	require.Equal(t, "http://mirror.test/debian/pool/m.deb", got.URL)

	kernel.Version = "7.1-1"
	_, err = sibling(context.Background(), kernel, "linux-modules-7.2", nil)
	require.ErrorIs(t, err, errGone, "those of another build do not fit")

	known := []Package{{Name: "linux-modules-7.2", Version: "7.1-1", SHA256: "bb", URL: "pool/old.deb"}}
	got, err = sibling(context.Background(), kernel, "linux-modules-7.2", known)
	require.NoError(t, err)
	require.Equal(t, Package{Name: "linux-modules-7.2", Version: "7.1-1", SHA256: "bb", URL: "http://mirror.test/debian/pool/old.deb"}, got)
}
