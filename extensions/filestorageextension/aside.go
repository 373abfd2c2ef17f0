package filestorageextension

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// What is set aside lies in one folder, so that a person can look at it. The oldest
// leave beyond these limits.
const (
	asideFolder    = "set-aside"
	mostAside      = 8
	mostAsideBytes = 64 << 20
)

// setAside moves a file or folder of state out of the way.
func setAside(directory, path string, now time.Time) (to string, err error) {
	aside := filepath.Join(directory, asideFolder)
	if err := os.MkdirAll(aside, 0o700); err != nil {
		return "", err
	}
	relative, err := filepath.Rel(directory, path)
	if err != nil {
		return "", err
	}
	name := now.UTC().Format("20060102T150405.000000000Z") + "-" + filepath.Base(filepath.Dir(relative)) + "-" + filepath.Base(relative)
	to = filepath.Join(aside, name)
	if err := os.Rename(path, to); err != nil {
		return "", err
	}
	prune(aside)
	return to, nil
}

// prune removes the oldest of what is set aside. What cannot be removed stays.
func prune(aside string) {
	entries, _ := os.ReadDir(aside)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(b.Name(), a.Name()) }) // newest first
	var bytes int64
	for i, e := range entries {
		path := filepath.Join(aside, e.Name())
		bytes += sizeOf(path)
		if i >= mostAside || bytes > mostAsideBytes {
			_ = os.RemoveAll(path)
		}
	}
}

// sizeOf returns the bytes of all files under a path.
func sizeOf(path string) (bytes int64) {
	_ = filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := e.Info(); err == nil {
			bytes += info.Size()
		}
		return nil
	})
	return bytes
}
