package ncclfrreceiver

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/receivers/ncclfrreceiver/internal/flightrecorder"
)

// Find returns the files that names (files, folders, globs) lead to, each once,
// in order. What is no regular file, such as the pipe that PyTorch puts beside a
// dump, is left out; a link stays in, for its reader to say that it is not
// followed. A name that leads nowhere is no error: dumps come later.
func Find(names []string) []string {
	var found []string
	for _, name := range names {
		matches, _ := filepath.Glob(name) // a bad pattern is an error of the configuration
		for _, match := range matches {
			found = append(found, inside(match, match == name)...)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// inside returns the files of a folder, or the file itself. A folder behind a link
// is looked into only where the configuration names that link: one that a glob
// finds anybody may have put there.
func inside(path string, named bool) []string {
	info, err := os.Lstat(path)
	if err != nil {
		return nil
	}
	if target, err := os.Stat(path); named && err == nil && target.IsDir() {
		info = target
	}
	if fileOrLink(info.Mode()) {
		return []string{path}
	}
	if !info.IsDir() {
		return nil
	}
	entries, _ := os.ReadDir(path) // those it could read
	var files []string
	for _, entry := range entries {
		if fileOrLink(entry.Type()) && !strings.HasPrefix(entry.Name(), ".") {
			files = append(files, filepath.Join(path, entry.Name()))
		}
	}
	return files
}

func fileOrLink(mode fs.FileMode) bool { return mode.IsRegular() || isLink(mode) }

func isLink(mode fs.FileMode) bool { return mode&fs.ModeSymlink != 0 }

// fingerprint tells one state of a file from another without reading it.
type fingerprint struct {
	Device uint64
	Inode  uint64
	Size   int64
	ModNS  int64
}

func fingerprintOf(info fs.FileInfo) fingerprint {
	device, inode, _ := identify(info)
	return fingerprint{Device: device, Inode: inode, Size: info.Size(), ModNS: info.ModTime().UnixNano()}
}

// content is a file as it was read.
type content struct {
	data    []byte
	print   fingerprint
	changed time.Time
	hash    [16]byte
}

var (
	// errChanging is a file that was written to while we read it.
	errChanging = errors.New("the file changes while it is read")
	// errLink is a link. Those who may write a dump may not read what a link
	// leads to: a file whose reading waits or takes (/proc/kmsg, trace_pipe), or
	// one of another user.
	errLink = errors.New("a link is not followed, a writer of dumps could lead it anywhere: name what it leads to")
)

// readWhole reads a regular file of at most most bytes. It does not wait for a
// pipe that took the file's place, nor follow a link that did. An empty file is
// not read: those of proc and tracefs say that they are, and reading them may
// wait.
func readWhole(path string, most int64) (content, error) {
	file, err := openPlain(path)
	if err != nil {
		return content{}, err
	}
	return readOpen(file, most)
}

// readOpen is readWhole of a file that is open. It closes it.
func readOpen(file *os.File, most int64) (content, error) {
	defer file.Close()
	before, err := file.Stat()
	if err != nil {
		return content{}, err
	}
	if !before.Mode().IsRegular() {
		return content{}, fmt.Errorf("%s is no regular file: remove it", file.Name())
	}
	c := content{print: fingerprintOf(before), changed: before.ModTime()}
	if before.Size() > most {
		return c, fmt.Errorf("%w: %d bytes, read are %d: raise max_file_size", flightrecorder.ErrTooLarge, before.Size(), most)
	}
	if before.Size() == 0 {
		return c, nil
	}
	if c.data, err = io.ReadAll(io.LimitReader(file, before.Size()+1)); err != nil {
		return content{}, err
	}
	after, err := file.Stat()
	if err != nil {
		return content{}, err
	}
	if c.print != fingerprintOf(after) || int64(len(c.data)) != after.Size() {
		return content{}, errChanging
	}
	sum := sha256.Sum256(c.data)
	c.hash = [16]byte(sum[:16])
	return c, nil
}

func openPlain(path string) (*os.File, error) {
	if info, err := os.Lstat(path); err == nil && isLink(info.Mode()) {
		return nil, fmt.Errorf("%s: %w", path, errLink)
	}
	file, err := os.OpenFile(path, os.O_RDONLY|plainly, 0)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("%w: give the collector the right to read it", err)
	}
	return file, err
}

// rankAtEnd finds the rank in a file's name: PyTorch ends it with the rank,
// people add .pickle or .json.
var rankAtEnd = regexp.MustCompile(`^(.*?)(\d+)(\.[A-Za-z]\w*)*$`)

// splitRank returns the rank in the name of a file, Unknown where there is none,
// and the path without it, which the dumps of one job have in common.
func splitRank(path string) (rank int, run string) {
	dir, base := filepath.Split(path)
	parts := rankAtEnd.FindStringSubmatch(base)
	if parts == nil {
		return flightrecorder.Unknown, path
	}
	n, err := strconv.Atoi(parts[2])
	if err != nil || n > flightrecorder.MaxRank {
		return flightrecorder.Unknown, path
	}
	return n, dir + parts[1]
}
