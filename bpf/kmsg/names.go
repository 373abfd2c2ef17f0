package kmsg

import (
	"slices"
	"strings"
	"time"
)

// The names kept: the kernel's side sends each again after a second, so what is
// forgotten is unknown for no longer.
const maxNames = 8192

// Where the kernel does not name its functions, how often its list of symbols is read, and
// for how long it holds: a module can take the place of another. It is read again before for
// addresses that it does not have, so a process that makes the kernel print by many ways uses up
// nothing that a driver's line needs.
const (
	readsAtMost = 16
	listHolds   = 10 * time.Second
)

// lookup finds names in a list of symbols that was read.
type lookup func(addresses []uint64) map[uint64]Function

// names are the functions that return addresses belong to.
type names struct {
	young, old map[uint64]frame
	// read reads the kernel's list of symbols. Nil where the kernel itself names its
	// functions.
	read  func() lookup
	list  lookup // what was read; nil: nothing
	reads int
	until time.Time // when the list ends to hold

	addresses [maxFrames]uint64
	frames    []frame
	last      []uint64 // the stack read last
	told      attribution
}

// learn keeps a name. When there are too many, those not asked for since the last
// time go.
func (n *names) learn(address uint64, f Function) {
	if n.young == nil || len(n.young) == maxNames {
		n.young, n.old = make(map[uint64]frame), n.young
	}
	n.young[address] = newFrame(f)
	n.last = n.last[:0] // it may read otherwise now
}

func (n *names) get(address uint64) (frame, bool) {
	if f, known := n.young[address]; known {
		return f, true
	}
	f, known := n.old[address]
	if known {
		n.learn(address, f.Function)
	}
	return f, known
}

// attribute says what a stack of return addresses tells. The lines of a storm have
// one stack, which is read once.
func (n *names) attribute(addresses []uint64, now time.Time) attribution {
	holds := n.read == nil || now.Before(n.until)
	if !holds || len(n.last) == 0 || !slices.Equal(addresses, n.last) {
		n.told = attribute(n.stack(addresses, now))
		n.last = append(n.last[:0], addresses...)
	}
	return n.told
}

// stack is the functions of return addresses. It holds until the next.
func (n *names) stack(addresses []uint64, now time.Time) []frame {
	if n.read != nil {
		n.find(addresses, now)
	}
	n.frames = n.frames[:0]
	for _, address := range addresses {
		f, _ := n.get(address)
		n.frames = append(n.frames, f)
	}
	return n.frames
}

// find looks for all addresses of a stack at once, when one is not known.
func (n *names) find(addresses []uint64, now time.Time) {
	if now.After(n.until) {
		n.young, n.old, n.list, n.reads, n.until = nil, nil, nil, 0, now.Add(listHolds)
	}
	known := func(address uint64) bool {
		_, known := n.get(address)
		return known
	}
	unknown := slices.DeleteFunc(slices.Clone(addresses), known)
	if len(unknown) == 0 {
		return
	}
	var found map[uint64]Function
	if n.list != nil {
		found = n.list(unknown)
	}
	if len(found) < len(unknown) && n.reads < readsAtMost {
		n.reads++
		if list := n.read(); list != nil {
			n.list, found = list, list(unknown)
		}
	}
	for _, address := range unknown {
		n.learn(address, found[address]) // also that it has no name
	}
}

// parseName reads "function", or "function [module]", as the kernel prints an
// address (lib/vsprintf.c, %ps). An address without a name is printed as a number.
func parseName(text string) Function {
	name, module, found := strings.Cut(text, " [")
	if found {
		module, found = strings.CutSuffix(module, "]")
		if !found || module == "" {
			return Function{}
		}
	}
	name, _, _ = strings.Cut(name, ".")
	if name == "" || strings.HasPrefix(name, "0x") || strings.ContainsAny(name+module, " []") {
		return Function{}
	}
	return Function{Name: name, Module: module}
}
