package setaside

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWhatIsSetAsideIsBounded(t *testing.T) {
	dir := t.TempDir()
	for n := range 20 {
		path := filepath.Join(dir, "state")
		require.NoError(t, os.WriteFile(path, fmt.Append(nil, n), 0o600))
		_, err := Move(dir, path, time.Unix(int64(n), 0))
		require.NoError(t, err)
	}
	left, err := os.ReadDir(filepath.Join(dir, Folder))
	require.NoError(t, err)
	require.Len(t, left, Most)
	newest, err := os.ReadFile(filepath.Join(dir, Folder, left[Most-1].Name()))
	require.NoError(t, err)
	require.Equal(t, "19", string(newest))

	large := filepath.Join(dir, "large")
	require.NoError(t, os.WriteFile(large, nil, 0o600))
	require.NoError(t, os.Truncate(large, MostBytes+1))
	_, err = Move(dir, large, time.Unix(21, 0))
	require.NoError(t, err)
	left, err = os.ReadDir(filepath.Join(dir, Folder))
	require.NoError(t, err)
	require.Empty(t, left, "one that is too large is not kept")
}
