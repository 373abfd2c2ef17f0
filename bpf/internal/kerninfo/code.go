package kerninfo

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
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

// FindCode adds each symbol to the Code that find returns for it; nil is not wanted.
// A module's symbols come in no order, so the next greater address of all ends a
// function; the last of all has no end and is not found.
func FindCode(symbols io.Reader, find func(Symbol) *Code) error {
	type begun struct {
		code  *Code
		start uint64
	}
	var wanted []begun
	var addresses []uint64
	for s, err := range Read(symbols) {
		if err != nil {
			return err
		}
		addresses = append(addresses, s.Address)
		if code := find(s); code != nil {
			wanted = append(wanted, begun{code, s.Address})
		}
	}
	slices.Sort(addresses)
	for _, w := range wanted {
		if next, _ := slices.BinarySearch(addresses, w.start+1); next < len(addresses) {
			*w.code = append(*w.code, Range{w.start, addresses[next]})
		}
	}
	return nil
}
