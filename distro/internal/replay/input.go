package replay

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/klauspost/compress/zstd"
)

// Bounds of what is read. A head, which is the next message of a file, is held
// of each file that is open.
const (
	mostMessage = 64 << 20 // bytes of one message, line or document
	mostWindow  = 64 << 20 // bytes that a zstd stream may make its reader hold
	mostOpen    = 512      // files read side by side
	mostFiles   = 100_000  // files found below folders
)

// Stdin is the path that means standard input.
const Stdin = "-"

// expand replaces folders by the files below them, in order of their names.
func expand(paths []string) (files []string, problems []error) {
	for _, path := range paths {
		info, err := os.Stat(path)
		switch {
		case path == Stdin:
			files = append(files, path)
		case err != nil:
			problems = append(problems, err)
		case info.IsDir():
			below, err := filesBelow(path)
			if err == nil && len(below) == 0 {
				err = fmt.Errorf("%s: the folder has no file", path)
			}
			if err != nil {
				problems = append(problems, err)
			}
			files = append(files, below...)
		default:
			files = append(files, path)
		}
	}
	if len(files) > mostFiles {
		problems = append(problems, fmt.Errorf("%d files, the first %d are read: replay fewer at once", len(files), mostFiles))
		files = files[:mostFiles]
	}
	return files, problems
}

func filesBelow(dir string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !entry.IsDir() {
			files = append(files, path)
		}
		return nil
	})
	slices.Sort(files)
	return files, err
}

// file is one input, decompressed as it is read.
type file struct {
	name   string // in messages
	path   string
	packed bool // it is decompressed on the way
	r      *bufio.Reader
	close  func() error
}

// ended reports whether nothing is left to read.
func (f *file) ended() bool {
	_, err := f.r.Peek(1)
	return errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF)
}

// open opens a regular file or standard input. count is told of bytes read.
func open(path string, stdin io.Reader, count func(int)) (*file, error) {
	if path == Stdin {
		return decompress(&file{name: "stdin", path: path, close: func() error { return nil }}, counted{stdin, count})
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: neither file nor folder: give a recording, or - for standard input", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	in, err := decompress(&file{name: path, path: path, close: f.Close}, counted{f, count})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return in, nil
}

// counted tells of the bytes that pass.
type counted struct {
	io.Reader
	count func(int)
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.count(n)
	return n, err
}

// Magic numbers: RFC 1952 section 2.3.1, RFC 8878 section 3.1.1.
var (
	gzipMagic = []byte{0x1f, 0x8b}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

const buffer = 64 << 10

func decompress(f *file, r io.Reader) (*file, error) {
	f.r = bufio.NewReaderSize(r, buffer)
	head, err := f.r.Peek(len(zstdMagic))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, gzipMagic):
		unzipped, err := gzip.NewReader(f.r)
		if err != nil {
			return nil, err
		}
		f.r, f.packed = bufio.NewReaderSize(unzipped, buffer), true
	case bytes.HasPrefix(head, zstdMagic):
		d, err := zstd.NewReader(f.r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(mostWindow))
		if err != nil {
			return nil, err
		}
		closeFile := f.close
		f.close = func() error { d.Close(); return closeFile() }
		f.r, f.packed = bufio.NewReaderSize(d, buffer), true
	}
	return f, nil
}

// readLine returns the next line without its end, whatever it holds. What is
// longer than most is cut, and the rest of the line skipped.
func readLine(r *bufio.Reader, most int) (line []byte, long bool, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if room := most - len(line); len(part) > room {
			part, long = part[:room], true
		}
		line = append(line, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil && (len(line) == 0 || !errors.Is(err, io.EOF)) {
			return nil, long, err
		}
		return bytes.TrimRight(line, "\r\n"), long, nil
	}
}
