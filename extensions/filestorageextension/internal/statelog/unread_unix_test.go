//go:build unix

package statelog

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOnlyDamageSetsStateAside: a start that cannot read its state, for want of anything,
// costs what comes until the next start. It costs nothing of what was.
func TestOnlyDamageSetsStateAside(t *testing.T) {
	for _, why := range []error{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EACCES, syscall.EPERM, syscall.EINTR, syscall.EAGAIN, syscall.ENOSPC, syscall.EDQUOT,
		syscall.EIO, syscall.EROFS, syscall.ESTALE, syscall.ETIMEDOUT, syscall.EBUSY, syscall.ENODEV, io.ErrUnexpectedEOF,
	} {
		for _, at := range []int{1, 2, 3} { // which of the files
			t.Run(fmt.Sprint(why, " at ", at), func(t *testing.T) {
				dir, want := filepath.Join(t.TempDir(), "log"), map[string]string{}
				for i := range 3 {
					old := open(t, dir)
					require.NoError(t, old.Apply(set(fmt.Sprint(i), "old"), set("last", fmt.Sprint(i)), Op{Key: fmt.Sprint(i - 1), Delete: true}))
					require.NoError(t, old.Close())
				}
				want["2"], want["last"] = "old", "2"
				require.NoError(t, os.WriteFile(filepath.Join(dir, "junk"), nil, 0o600))
				before := listed(t, dir)

				reads, opened := 0, []*os.File{}
				r := openBut(t, dir, func(path string) (*os.File, []byte, error) {
					if reads++; reads == at {
						return nil, nil, &fs.PathError{Op: "read", Path: path, Err: why}
					}
					file, data, err := readFile(path)
					opened = append(opened, file)
					return file, data, err
				})
				require.Empty(t, r.all(t), "no part of it")
				require.ErrorIs(t, r.last, errKept)
				require.ErrorIs(t, r.last, why)
				for _, file := range opened {
					require.ErrorIs(t, file.Close(), os.ErrClosed, "it has enough files open without")
				}
				require.NoError(t, r.Apply(set("last", "new"), set("3", "new")))
				for range 2 * mostUnread {
					r.Tend()
				}
				require.Equal(t, map[string]string{"last": "new", "3": "new"}, r.all(t))
				require.ErrorIs(t, r.Close(), ErrLost)
				require.Subset(t, []string{"junk"}, r.aside)
				require.Equal(t, without(before, "junk"), without(listed(t, dir), "junk"))

				r = open(t, dir)
				require.Equal(t, want, r.all(t))
				require.NoError(t, r.Apply(set("3", "new")))
				require.NoError(t, r.Close())
				want["3"] = "new"
				require.Equal(t, want, open(t, dir).all(t))
			})
		}
	}
}

// TestAProcessWithoutFilesKeepsItsState has no file number left at the start.
func TestAProcessWithoutFilesKeepsItsState(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	old := open(t, dir)
	require.NoError(t, old.Apply(set("a", "old")))
	require.NoError(t, old.Close())
	before := listed(t, dir)

	giveBack := useUpFiles(t)
	r := open(t, dir)
	require.Empty(t, r.all(t))
	require.ErrorIs(t, r.last, syscall.EMFILE)
	require.NoError(t, r.Apply(set("a", "new")))
	r.Tend()
	giveBack()
	r.Tend()
	require.Equal(t, map[string]string{"a": "new"}, r.all(t))
	require.Empty(t, r.aside)
	require.Equal(t, before, listed(t, dir))
	require.ErrorIs(t, r.Close(), ErrLost)
	require.Equal(t, map[string]string{"a": "old"}, open(t, dir).all(t))
}

// useUpFiles leaves this process no file to open until giveBack.
func useUpFiles(t *testing.T) (giveBack func()) {
	t.Helper()
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	first, err := os.Open(os.DevNull)
	require.NoError(t, err)
	held := []*os.File{first}
	lowered := limit
	lowered.Cur = uint64(first.Fd()) + 1
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lowered))
	giveBack = sync.OnceFunc(func() {
		require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
		for _, file := range held {
			require.NoError(t, file.Close())
		}
	})
	t.Cleanup(giveBack)
	for {
		one, err := os.Open(os.DevNull)
		if err != nil {
			require.ErrorIs(t, err, syscall.EMFILE)
			return giveBack
		}
		held = append(held, one)
	}
}

// listed is the content of each file of a folder.
func listed(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		files[e.Name()] = string(data)
	}
	return files
}

func without(files map[string]string, name string) map[string]string {
	files = maps.Clone(files)
	delete(files, name)
	return files
}
