// Package setaside moves files of state that cannot be used out of the way, so that a
// person can look at them.
package setaside

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// What is set aside lies in one folder. The oldest leave beyond these limits.
const (
	Folder    = "set-aside"
	Most      = 8
	MostBytes = 64 << 20
)

// Move moves a file or folder of state below directory into the folder.
func Move(directory, path string, now time.Time) (to string, err error) {
	aside := filepath.Join(directory, Folder)
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
		if i >= Most || bytes > MostBytes {
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
