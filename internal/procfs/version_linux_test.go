package procfs

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An inode that is used again, and a file that is written, are another version: also where size and
// time of the last write are set to what they were.
func TestAVersionIsOneContentOfAFile(t *testing.T) {
	r := newTree(t)
	name := filepath.Join(r.Root(), "7/root/libcuda.so")
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(t, os.WriteFile(name, []byte("a"), 0o600))
	var st syscall.Stat_t
	require.NoError(t, syscall.Stat(name, &st))
	m := Mapping{Start: 1, End: 2, Inode: st.Ino, Path: "/libcuda.so"}
	before, err := r.MappedVersion(7, m)
	require.NoError(t, err)
	opened, err := r.OpenMapped(7, m)
	require.NoError(t, err)
	same, err := r.Version(opened, m.Inode)
	require.NoError(t, err)
	require.Equal(t, before, same)

	time.Sleep(20 * time.Millisecond) // a tick of the kernel's clock for files
	require.NoError(t, os.WriteFile(name, []byte("b"), 0o600))
	was := time.Unix(before.Modified.Unix())
	require.NoError(t, os.Chtimes(name, was, was))
	after, err := r.MappedVersion(7, m)
	require.NoError(t, err)
	require.Equal(t, []any{before.Size, before.Modified}, []any{after.Size, after.Modified})
	require.NotEqual(t, before, after)

	m.Inode++
	_, err = r.MappedVersion(7, m)
	require.ErrorContains(t, err, "another file")
	_, err = r.Version(opened, m.Inode)
	require.ErrorContains(t, err, "another file")
	require.NoError(t, r.Close(opened))
	m.Inode, m.Path = st.Ino, "/"
	_, err = r.MappedVersion(7, m)
	require.ErrorIs(t, err, ErrNoPlainFile)
	r.SetForeign(true)
	_, err = r.MappedVersion(7, m)
	require.ErrorIs(t, err, ErrForeign)
}
