//go:build linux

// Package kerninfo holds what several probes ask the running kernel when they load: its
// types and its symbols. The kernel takes 30 ms to print the types, and this package 15 ms
// to index the symbols (2 CPUs, Linux 6.18, 2026-11-22), on each of a dozen rungs. So both are
// read once, and forgotten when no probe has asked for a while: they are megabytes.
package kerninfo

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// keep is for how long nobody may ask.
const keep = 10 * time.Second

var shared answers

// decoding is held while somebody uses the types. btf.Cache says that it is safe for
// concurrent use; the types of a module (split BTF) decode those of the kernel without
// the kernel's lock, though (cilium/ebpf v0.22.0, decoder.inflateType in
// btf/unmarshal.go), and two at a time end the process: "concurrent map writes".
var decoding sync.Mutex

type answers struct {
	mu      sync.Mutex
	modules string // the answers hold as long as the kernel has these
	types   *btf.Cache
	symbols *Table
	forget  *time.Timer
}

// Load is ebpf.NewCollectionWithOptions with the types that all probes share.
func Load(spec *ebpf.CollectionSpec, options ebpf.CollectionOptions) (*ebpf.Collection, error) {
	return Types(func(types *btf.Cache) (*ebpf.Collection, error) {
		options.Cache = types
		return ebpf.NewCollectionWithOptions(spec, options)
	})
}

// Types calls look with the types of the kernel and its modules, from BTF, and returns
// what look returns. The types belong to all: look must not change them, and must not
// keep the cache; types that it found there are its own to read.
func Types[T any](look func(*btf.Cache) (T, error)) (T, error) {
	decoding.Lock()
	defer decoding.Unlock()
	return look(sharedTypes())
}

func sharedTypes() *btf.Cache {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.refresh()
	if shared.types == nil {
		shared.types = btf.NewCache()
	}
	return shared.types
}

// Symbols are those of the running kernel: none where it hides their addresses
// (kernel.kptr_restrict=2, or without CAP_SYSLOG).
func Symbols() (*Table, error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.refresh()
	if shared.symbols == nil {
		table, err := readSymbols()
		if err != nil {
			return nil, err
		}
		shared.symbols = table
	}
	return shared.symbols, nil
}

// LoadCode is FindCode with the symbols of the running kernel.
func LoadCode(find func(Symbol) *Code) error {
	symbols, err := Symbols()
	if err != nil {
		return fmt.Errorf("look up kernel functions: %w", err)
	}
	FindCode(symbols, find)
	return nil
}

// Release is what the running kernel calls itself, as "6.1.0-18-amd64"; "unknown" where it does not say.
func Release() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

func readSymbols() (*Table, error) {
	symbols, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		return nil, err
	}
	modules, err := os.ReadFile("/proc/modules")
	if err != nil && !errors.Is(err, os.ErrNotExist) { // a kernel without modules
		return nil, err
	}
	return ReadTable(bytes.NewReader(symbols), bytes.NewReader(modules))
}

// refresh drops what was said before a module came or went.
func (a *answers) refresh() {
	if now := loadedModules(); now != a.modules {
		a.modules, a.types, a.symbols = now, nil, nil
	}
	if a.forget == nil {
		a.forget = time.AfterFunc(keep, a.drop)
		return
	}
	a.forget.Reset(keep)
}

func (a *answers) drop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.types, a.symbols = nil, nil
}

// loadedModules are the names in /proc/modules, whose other columns change with use.
func loadedModules() string {
	text, err := os.ReadFile("/proc/modules")
	if err != nil {
		return "" // a kernel without modules
	}
	var names strings.Builder
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(line, " ")
		names.WriteString(name + "\n")
	}
	return names.String()
}
