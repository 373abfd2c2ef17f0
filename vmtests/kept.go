package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tracecoreai/tracecore/vmtests/guest"
	"github.com/tracecoreai/tracecore/vmtests/machine"
)

// kept tells again what passed in a machine, or on this one, that was given the same: kernel,
// modules, init, environment, test binary and its files. The go command does so for its tests.
// A clean clone has kept nothing.
type kept struct {
	dir    string // "": nothing is kept
	kernel string // name and version of the package, or thisHost
	keys   map[string]string
	told   map[string][]guest.Line // package → what its binary said
}

func newKept(dir, kernel string) *kept {
	return &kept{dir: dir, kernel: kernel, keys: map[string]string{}, told: map[string][]guest.Line{}}
}

// take removes from a payload the tests that need not run, and returns what they said.
func (k *kept) take(p *machine.Payload) ([]guest.Line, error) {
	if k.dir == "" {
		return nil, nil
	}
	var again []guest.Line
	var remaining []guest.Test
	for _, test := range p.Manifest.Tests {
		key, err := k.key(*p, test)
		if err != nil {
			return nil, fmt.Errorf("tell whether %s has changed: %w", test.Package, err)
		}
		k.keys[test.Package] = key
		text, err := os.ReadFile(filepath.Join(k.dir, key))
		var lines []guest.Line
		if err != nil || json.Unmarshal(text, &lines) != nil {
			remaining = append(remaining, test)
			continue
		}
		again = append(again, lines...)
	}
	p.Manifest.Tests = remaining
	return again, nil
}

// binaryVariable names the agent's binary to tests. Only those that know the name can use it.
const binaryVariable = "TRACECORE_BINARY"

// key is a digest of all that a test finds in its machine.
func (k *kept) key(p machine.Payload, test guest.Test) (string, error) {
	binary, err := os.ReadFile(p.Files[test.Path])
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintln(sum, k.kernel, test, p.Manifest.Env)
	for _, inside := range slices.Sorted(maps.Keys(p.Files)) {
		others := strings.HasPrefix(inside, "/src/") && !strings.HasPrefix(inside, test.Dir+"/")
		if others || inside == agentPath && !bytes.Contains(binary, []byte(binaryVariable)) {
			continue
		}
		fmt.Fprintln(sum, inside)
		if err := addTree(sum, p.Files[inside]); err != nil {
			return "", err
		}
	}
	if err := addTree(sum, p.Init); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// addTree adds a file, or all files of a folder, to a digest.
func addTree(sum io.Writer, root string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		fmt.Fprintln(sum, strings.TrimPrefix(path, root))
		_, err = io.Copy(sum, file)
		return err
	})
}

// watch passes lines on, and keeps those of each binary that ends well.
func (k *kept) watch(see func(guest.Line)) func(guest.Line) {
	var release guest.Line
	return func(line guest.Line) {
		see(line)
		switch line.Kind {
		case guest.Boot:
			release = line
		case guest.Begin:
			k.told[line.Package] = []guest.Line{{Kind: guest.Kept, Package: line.Package, Text: release.Text}}
		case guest.Output, guest.Measured, guest.End:
			k.told[line.Package] = append(k.told[line.Package], line)
		}
		if endedWell(line) {
			k.write(line.Package)
		}
	}
}

// passed are the packages whose binaries have ended well, and what these said.
func (k *kept) passed() map[string][]guest.Line {
	passed := map[string][]guest.Line{}
	for name, lines := range k.told {
		if endedWell(lines[len(lines)-1]) {
			passed[name] = slices.Clone(lines)
		}
	}
	return passed
}

func endedWell(line guest.Line) bool {
	return line.Kind == guest.End && line.Code == 0 && line.Error == ""
}

// write keeps what a binary said; what cannot be kept is run again.
func (k *kept) write(pkg string) {
	key := k.keys[pkg]
	text, err := json.Marshal(k.told[pkg])
	if key == "" || err != nil || os.MkdirAll(k.dir, 0o755) != nil {
		return
	}
	name := filepath.Join(k.dir, key)
	if os.WriteFile(name+".new", text, 0o644) == nil {
		_ = os.Rename(name+".new", name)
	}
}
