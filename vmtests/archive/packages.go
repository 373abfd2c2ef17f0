package archive

import (
	"bufio"
	"errors"
	"io"
	"strings"
)

// Package is what an index says about one binary package.
type Package struct {
	Name    string
	Version string
	SHA256  string
	Size    string
	URL     string

	index, root string // where it was found, for other packages of the same build
}

// eachStanza calls do with each paragraph of `Key: value` lines, keeping only
// one in memory; a line that starts with a blank continues the one before, a #
// starts a comment.
func eachStanza(r io.Reader, do func(map[string]string)) error {
	reader := bufio.NewReaderSize(r, 1<<20)
	fields, last := map[string]string{}, ""
	for {
		line, err := reader.ReadString('\n')
		trimmed := strings.TrimRight(line, "\r\n")
		ended := errors.Is(err, io.EOF)
		switch key, value, ok := strings.Cut(trimmed, ":"); {
		case strings.HasPrefix(trimmed, "#"):
		case strings.TrimSpace(trimmed) == "":
			ended = true
		case trimmed[0] == ' ' || trimmed[0] == '\t':
			fields[last] += " " + strings.TrimSpace(trimmed)
		case ok:
			last = key
			fields[key] = strings.TrimSpace(value)
		}
		if ended && len(fields) > 0 {
			do(fields)
			fields, last = map[string]string{}, ""
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// newest returns the package of the highest version whose name matches the
// pattern, or false.
func newest(index io.Reader, pattern, root string) (Package, bool, error) {
	var best Package
	found := false
	err := eachStanza(index, func(f map[string]string) {
		if !matches(pattern, f["Package"]) || f["SHA256"] == "" || f["Filename"] == "" {
			return
		}
		if found && compareVersions(f["Version"], best.Version) <= 0 {
			return
		}
		found = true
		best = Package{Name: f["Package"], Version: f["Version"], SHA256: f["SHA256"], Size: f["Size"], URL: root + "/" + f["Filename"]}
	})
	return best, found, err
}

// matches compares a name with a pattern in which one * stands for a version,
// so it begins with a digit: linux-image-*-cloud does not match
// linux-image-unsigned-6.1-cloud.
func matches(pattern, name string) bool {
	head, tail, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == name
	}
	if len(name) <= len(head)+len(tail) || !strings.HasPrefix(name, head) || !strings.HasSuffix(name, tail) {
		return false
	}
	return name[len(head)] >= '0' && name[len(head)] <= '9'
}
