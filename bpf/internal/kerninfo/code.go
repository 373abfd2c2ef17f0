package kerninfo

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Symbol is one line of /proc/kallsyms. Its texts hold until the next is read.
type Symbol struct {
	Address uint64
	Kind    byte   // as nm(1) has them: t and T are code
	Name    []byte // without what the compiler adds to pieces and clones: .cold, .isra.0, .constprop.0
	Module  []byte // [fuse]; empty for the kernel's own
}

// Read goes through lines of "address type name[<tab>[module]]", in the order of the
// text. Symbols whose address is hidden are left out. It ends with an error where
// a line is none of the kernel's.
func Read(symbols io.Reader) iter.Seq2[Symbol, error] {
	return func(yield func(Symbol, error) bool) {
		lines := bufio.NewScanner(symbols)
		for lines.Scan() {
			s, err := parse(lines.Bytes())
			if err != nil {
				yield(Symbol{}, err)
				return
			}
			if s.Address != 0 && !yield(s, nil) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(Symbol{}, fmt.Errorf("read kernel symbols: %w", err))
		}
	}
}

func parse(line []byte) (Symbol, error) {
	address, rest, _ := bytes.Cut(line, []byte(" "))
	kind, name, found := bytes.Cut(rest, []byte(" "))
	if !found || len(kind) != 1 {
		return Symbol{}, fmt.Errorf("read kernel symbols: %q is no address, type and name", line)
	}
	n, err := strconv.ParseUint(string(address), 16, 64)
	if err != nil {
		return Symbol{}, fmt.Errorf("read kernel symbols: %w", err)
	}
	name, module, _ := bytes.Cut(name, []byte("\t"))
	name, _, _ = bytes.Cut(name, []byte("."))
	return Symbol{n, kind[0], name, module}, nil
}

// Range is the machine code of one symbol.
type Range struct{ Start, End uint64 }

// Code are pieces of kernel functions.
type Code []Range

// Has reports whether a return address lies in it. A call at the very end of a
// function returns to its end.
func (c Code) Has(address uint64) bool {
	return slices.ContainsFunc(c, func(r Range) bool { return address > r.Start && address <= r.End })
}

// On reports whether one of the return addresses on a stack does.
func (c Code) On(stack []uint64) bool { return slices.ContainsFunc(stack, c.Has) }

// FindCode adds each symbol of a table to the Code that find returns for it; nil is not
// wanted. The next greater address ends a function; the last of all has no end and is
// not found.
func FindCode(t *Table, find func(Symbol) *Code) {
	for i := range t.symbols {
		s := t.symbol(i)
		code := find(s)
		if code == nil {
			continue
		}
		if next := i + slices.IndexFunc(t.symbols[i:], func(p placed) bool { return p.address > s.Address }); next > i {
			*code = append(*code, Range{s.Address, t.symbols[next].address})
		}
	}
}

// Table are the symbols of a kernel in order, so that any number of addresses costs one
// reading of the list: some 5 MB for 120,000 symbols.
type Table struct {
	symbols []placed
	names   []byte
	modules [][]byte
	places  map[string]Range
}

// placed is a symbol by its place; its name is in names, its module in modules.
type placed struct {
	address      uint64
	name         uint32
	length, kind uint8
	module       uint16
}

// ReadTable reads the text of /proc/kallsyms and that of /proc/modules: what lies behind a
// module's last symbol and outside the module is not the module's.
func ReadTable(symbols, modules io.Reader) (*Table, error) {
	places, err := readModules(modules)
	if err != nil {
		return nil, err
	}
	t := &Table{places: places}
	numbers := map[string]uint16{}
	for s, err := range Read(symbols) {
		if err != nil {
			return nil, err
		}
		module, known := numbers[string(s.Module)]
		if !known {
			module = uint16(len(t.modules))
			t.modules = append(t.modules, bytes.Clone(s.Module))
			numbers[string(s.Module)] = module
		}
		length := min(len(s.Name), math.MaxUint8)
		t.symbols = append(t.symbols, placed{s.Address, uint32(len(t.names)), uint8(length), s.Kind, module})
		t.names = append(t.names, s.Name[:length]...)
	}
	slices.SortStableFunc(t.symbols, func(a, b placed) int { return cmp.Compare(a.address, b.address) })
	return t, nil
}

// All are the symbols, by their addresses. Their texts hold as long as the table.
func (t *Table) All() iter.Seq[Symbol] {
	return func(yield func(Symbol) bool) {
		for i := range t.symbols {
			if !yield(t.symbol(i)) {
				return
			}
		}
	}
}

func (t *Table) symbol(i int) Symbol {
	s := t.symbols[i]
	return Symbol{s.address, s.kind, t.names[s.name:][:s.length], t.modules[s.module]}
}

// Functions says in which function each return address lies. Addresses without a function
// are left out.
func (t *Table) Functions(addresses []uint64) map[uint64]Symbol {
	found := make(map[uint64]Symbol, len(addresses))
	for _, address := range addresses {
		next, _ := slices.BinarySearchFunc(t.symbols, address, func(s placed, address uint64) int { return cmp.Compare(s.address, address) })
		if next == 0 {
			continue
		}
		s := t.symbol(next - 1)
		inModule := len(s.Module) == 0 || Code{t.places[string(s.Module)]}.Has(address)
		if strings.ContainsRune("tTwW", rune(s.Kind)) && inModule {
			found[address] = s
		}
	}
	return found
}

// readModules reads lines of "name size uses users state address", and says where each
// module lies; its name is in brackets, as a symbol's is.
func readModules(modules io.Reader) (map[string]Range, error) {
	places := make(map[string]Range)
	lines := bufio.NewScanner(modules)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 {
			return nil, fmt.Errorf("read modules: %q has no address", lines.Text())
		}
		size, err := strconv.ParseUint(fields[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read modules: %w", err)
		}
		start, err := strconv.ParseUint(fields[5], 0, 64)
		if err != nil {
			return nil, fmt.Errorf("read modules: %w", err)
		}
		places["["+fields[0]+"]"] = Range{start, start + size}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read modules: %w", err)
	}
	return places, nil
}
