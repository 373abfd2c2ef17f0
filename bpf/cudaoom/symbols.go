package cudaoom

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
)

// maxSymbolBytes bounds the symbol tables that are read of a file of which all that
// is known is that a job calls it libcuda. The driver's have some 100 KiB, those
// of a Go program with all its symbols a few MiB.
const maxSymbolBytes = 64 << 20

// offsets finds where in the file the code of the functions begins. A function
// that the file does not export is left out.
func offsets(file io.ReaderAt, functions []string) (found map[string]uint64, err error) {
	defer func() { // debug/elf promises nothing for damaged files
		if r := recover(); r != nil {
			err = fmt.Errorf("read its symbols: %v", r)
		}
	}()
	f, err := elf.NewFile(file)
	if err != nil {
		return nil, err
	}
	if err := bounded(f); err != nil {
		return nil, err
	}
	wanted := make(map[string]bool, len(functions))
	for _, name := range functions {
		wanted[name] = true
	}
	found = make(map[string]uint64, len(functions))
	for _, table := range []func() ([]elf.Symbol, error){f.DynamicSymbols, f.Symbols} {
		symbols, err := table()
		if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
			return nil, err
		}
		for _, s := range symbols {
			if !wanted[s.Name] || elf.ST_TYPE(s.Info) != elf.STT_FUNC {
				continue
			}
			if at, ok := codeOffset(f, s.Value); ok {
				found[s.Name] = at
			}
		}
	}
	return found, nil
}

func bounded(f *elf.File) error {
	var total uint64
	for _, s := range f.Sections {
		if s.Type == elf.SHT_DYNSYM || s.Type == elf.SHT_SYMTAB || s.Type == elf.SHT_STRTAB {
			total += min(s.Size, maxSymbolBytes+1)
		}
	}
	if total > maxSymbolBytes {
		return fmt.Errorf("its symbol tables have more than %d bytes", maxSymbolBytes)
	}
	return nil
}

// codeOffset turns the address of a function into its place in the file.
func codeOffset(f *elf.File, address uint64) (uint64, bool) {
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && address >= p.Vaddr && address-p.Vaddr < p.Filesz {
			return address - p.Vaddr + p.Off, true
		}
	}
	return 0, false
}
