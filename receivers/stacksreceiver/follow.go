package stacksreceiver

import (
	"cmp"
	"slices"

	"github.com/tracecoreai/tracecore/bpf/identity"
)

// rankKey is one start of one rank.
type rankKey struct {
	pid   uint32
	start int64
}

// family is the processes of a rank.
type family struct {
	outermost identity.Process
	children  map[uint32][]identity.Process // by parent
}

// families groups the processes of ranks, the oldest first.
func families(ranks []identity.Process) []*family {
	found := map[rankKey]*family{}
	for i := range ranks {
		p := &ranks[i]
		k := rankKey{p.RankPID, 0}
		if p.RankPID == 0 {
			k.pid = p.PID
		} else if !p.RankStart.IsZero() {
			k.start = p.RankStart.UnixNano()
		}
		f := found[k]
		if f == nil {
			f = &family{children: map[uint32][]identity.Process{}}
			found[k] = f
		}
		if !p.Inherited || p.PID == p.RankPID {
			f.outermost = *p
			continue
		}
		f.children[p.ParentPID] = append(f.children[p.ParentPID], *p)
	}
	var all []*family
	for _, f := range found {
		if f.outermost.PID != 0 { // else its outermost process has ended
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b *family) int { return cmp.Compare(a.outermost.PID, b.outermost.PID) })
	return all
}

// maxChildren is how many children of a process are asked whether they are the rank.
const maxChildren = 8

// program is what is known of a process that may be the rank itself.
type program struct {
	python bool
	waits  bool // for a child
	trains bool // it has libraries of a training mapped
}

// themselves are the processes of a rank that do its work: the outermost that runs Python,
// which may have been started by a shell. Where it waits for a child of Python, that too. Where it takes no part in
// the job, or does not train, and one of Python that it has started does, it is a launcher, and that one is the rank. know
// says what is known of a process. A rank without Python is its outermost process, or what a
// shell started.
func (f *family) themselves(know func(p identity.Process, trains bool) program) []identity.Process {
	if found := f.pythons(f.outermost, know, maxDepth); len(found) > 0 {
		return found
	}
	at := f.outermost
	for range maxDepth {
		children := f.children[at.PID]
		if !starter(at.Comm) || len(children) != 1 {
			break
		}
		at = children[0]
	}
	return []identity.Process{at}
}

// maxDepth bounds a chain of processes that start the next.
const maxDepth = 4

func (f *family) pythons(p identity.Process, know func(identity.Process, bool) program, depth int) []identity.Process {
	is := know(p, false)
	if is.python {
		if launched := f.launched(p, p, know, depth); len(launched) > 0 {
			return launched
		}
	}
	var found []identity.Process
	if is.python {
		found = append(found, p)
	}
	if is.python && !is.waits || depth == 0 {
		return found
	}
	for _, child := range f.childrenOf(p) {
		found = append(found, f.pythons(child, know, depth-1)...)
	}
	return found
}

// launched are the processes below at that do the work for which by, a program of Python, is only the launcher.
// What a rank itself has started maps the libraries of its training later than the rank.
func (f *family) launched(by, at identity.Process, know func(identity.Process, bool) program, depth int) (found []identity.Process) {
	if depth == 0 {
		return nil
	}
	for _, child := range f.childrenOf(at) {
		works := !by.TakesPart && (child.TakesPart || know(child, false).python && !know(by, true).trains && know(child, true).trains)
		if works {
			found = append(found, child)
		} else {
			found = append(found, f.launched(by, child, know, depth-1)...)
		}
	}
	return found
}

func (f *family) childrenOf(p identity.Process) []identity.Process {
	children := f.children[p.PID]
	return children[:min(len(children), maxChildren)]
}

// starter reports whether a program starts others and waits for them: a shell, or the first
// process of a container.
func starter(name string) bool {
	switch name {
	case "sh", "bash", "dash", "ash", "ksh", "zsh", "busybox", "tini", "dumb-init", "catatonit":
		return true
	}
	return false
}

// share leaves so many families, the same number of each domain while they have some: who
// starts many ranks takes room from himself.
func share(all []*family, most int) (some []*family, over int) {
	if len(all) <= most {
		return all, 0
	}
	domains := map[string][]*family{}
	var names []string
	for _, f := range all {
		d := f.outermost.Domain
		if domains[d] == nil {
			names = append(names, d)
		}
		domains[d] = append(domains[d], f)
	}
	for round := 0; len(some) < most; round++ {
		for _, name := range names {
			if round < len(domains[name]) && len(some) < most {
				some = append(some, domains[name][round])
			}
		}
	}
	return some, len(all) - len(some)
}
