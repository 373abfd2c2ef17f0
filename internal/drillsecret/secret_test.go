//go:build linux

package drillsecret

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func folder(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	require.NoError(t, os.Mkdir(dir, 0o700))
	return dir
}

func TestAgentAndDrillShareOneSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", Name)
	agent, made, err := Open(path)
	require.NoError(t, err)
	require.True(t, made)
	drill, made, err := Open(path)
	require.NoError(t, err)
	require.False(t, made)
	require.True(t, agent.Proves(drill.Token(start), start.Add(time.Second)))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 1)
}

func TestWhoDoesNotKnowTheSecretIsNoDrill(t *testing.T) {
	secret, _, err := Open(filepath.Join(folder(t), Name))
	require.NoError(t, err)
	other, _, err := Open(filepath.Join(folder(t), Name))
	require.NoError(t, err)
	token := secret.Token(start)
	for name, tc := range map[string]struct {
		secret *Secret
		token  string
		start  time.Time
	}{
		"none":             {secret, "", start},
		"a name":           {secret, "tracecore-drill", start},
		"another secret's": {secret, other.Token(start), start},
		"an old one":       {secret, token, start.Add(2 * time.Minute)},
		"one to come":      {secret, token, start.Add(-2 * time.Minute)},
		"a later time":     {secret, strings.Replace(token, token[:3], "999", 1), start},
		"cut":              {secret, token[:len(token)-2], start},
		"no secret":        {nil, token, start},
		"much":             {secret, strings.Repeat("1", 1<<16) + ".00", start},
	} {
		t.Run(name, func(t *testing.T) { require.False(t, tc.secret.Proves(tc.token, tc.start)) })
	}
	require.True(t, secret.Proves(token, start))
}

func TestASecretThatOthersCouldHaveMadeIsRefused(t *testing.T) {
	good := make([]byte, secretBytes)
	for name, tc := range map[string]struct {
		spoil func(dir, path string) error
		says  string
	}{
		"readable":         {func(_, path string) error { return os.WriteFile(path, good, 0o644) }, "chmod 0600"},
		"short":            {func(_, path string) error { return os.WriteFile(path, good[1:], 0o600) }, "not 32 bytes: remove it"},
		"long":             {func(_, path string) error { return os.WriteFile(path, append(good, 1), 0o600) }, "not 32 bytes: remove it"},
		"a link":           {func(dir, path string) error { return os.Symlink("/dev/zero", path) }, "remove it"},
		"a folder":         {func(_, path string) error { return os.Mkdir(path, 0o700) }, "remove it"},
		"in a shared one":  {func(dir, _ string) error { return os.Chmod(dir, 0o777) }, "chmod 0600"},
		"of somebody else": {func(_, path string) error { return other(path, good) }, "chown"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t)
			if err := tc.spoil(dir, filepath.Join(dir, Name)); os.IsPermission(err) {
				t.Skip("needs root: ", err)
			}
			secret, _, err := Open(filepath.Join(dir, Name))
			require.ErrorContains(t, err, tc.says)
			require.Nil(t, secret)
		})
	}
}

func other(path string, content []byte) error {
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return os.ErrPermission
	}
	return os.Chown(path, 65534, 65534)
}
