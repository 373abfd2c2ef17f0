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
// dump, is left out. A name that leads nowhere is no error: dumps come later.
func Find(names []string) []string {
	var found []string
	for _, name := range names {
		matches, _ := filepath.Glob(name) // a bad pattern is an error of the configuration
		for _, match := range matches {
			found = append(found, inside(match)...)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// inside returns the files of a folder, or the file itself.
func inside(path string) []string {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	if info.Mode().IsRegular() {
		return []string{path}
	}
	if !info.IsDir() {
		return nil
	}
	entries, _ := os.ReadDir(path) // those it could read
	var files []string
	for _, entry := range entries {
		if entry.Type().IsRegular() && !strings.HasPrefix(entry.Name(), ".") {
			files = append(files, filepath.Join(path, entry.Name()))
		}
	}
	return files
}

// fingerprint tells one state of a file from another without reading it.
type fingerprint struct {
	Inode uint64
	Size  int64
	ModNS int64
}

func fingerprintOf(info fs.FileInfo) fingerprint {
	return fingerprint{Inode: inode(info), Size: info.Size(), ModNS: info.ModTime().UnixNano()}
}

// content is a file as it was read.
type content struct {
	data    []byte
	print   fingerprint
	changed time.Time
	hash    [16]byte
}

// errChanging is a file that was written to while we read it.
var errChanging = errors.New("the file changes while it is read")

// readWhole reads a regular file of at most most bytes. It does not wait for a
// pipe that took the file's place.
func readWhole(path string, most int64) (content, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		return content{}, err
	}
	defer file.Close()
	before, err := file.Stat()
	if err != nil {
		return content{}, err
	}
	if !before.Mode().IsRegular() {
		return content{}, fmt.Errorf("%s is no regular file", path)
	}
	if before.Size() > most {
		return content{print: fingerprintOf(before), changed: before.ModTime()},
			fmt.Errorf("%w: %d bytes, read are %d: raise max_file_size", flightrecorder.ErrTooLarge, before.Size(), most)
	}
	data, err := io.ReadAll(io.LimitReader(file, most+1))
	if err != nil {
		return content{}, err
	}
	after, err := file.Stat()
	if err != nil {
		return content{}, err
	}
	if fingerprintOf(before) != fingerprintOf(after) || int64(len(data)) != after.Size() {
		return content{}, errChanging
	}
	sum := sha256.Sum256(data)
	return content{data: data, print: fingerprintOf(after), changed: after.ModTime(), hash: [16]byte(sum[:16])}, nil
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
