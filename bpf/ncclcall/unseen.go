//go:build linux && (amd64 || arm64)

package ncclcall

import (
	"cmp"
	"errors"
	"io"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/bpf/internal/uprobe"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// statics finds in the files of processes what makes no call that could be seen. It is of one
// goroutine.
type statics struct {
	proc  *procfs.FS
	looks map[uint32]*glance
	files map[file]bool  // whether they have NCCL inside
	turns map[string]int // round of the last search for an owner
	round int
	pace  int       // how many times longer than a search it rests after it
	rests time.Time // until then
}

type file struct {
	device string
	inode  uint64
}

// glance is what was found of one process.
type glance struct {
	start  time.Time
	looks  int
	next   int // round of the next look
	unseen []Unseen
}

// Bounds of what is read.
const (
	// leastStatic is the size of a file below which it has no NCCL inside, whose GPU code alone is
	// larger (2.29.7 for one architecture: 30 MB).
	leastStatic = 4 << 20
	mostText    = 128 << 20 // of one file
	pieceText   = 1 << 20
	mostFiles   = 4096 // that are remembered
	// searchPace: who maps ever new files has the agent search for 0.3 % of the time, no more.
	searchPace = 300
)

// isVersion is NCCL's VERSION_STRING and that of RCCL (src/init.cc: "so that running strings on the
// lib can quickly reveal the version"): a text of its own. What is said of NCCL in others is longer.
var isVersion = regexp.MustCompile(`\x00(?:NCCL version |RCCL version (?:: )?)\d+\.\d+\.\d+[0-9a-zA-Z.+~-]{0,40}\x00`)

const longestVersion = 80

// Unseen says of which of these processes calls are not seen: those of an NCCL that is linked into
// a program or library and exports no function, and those that GPUs make by NVSHMEM. seen says of
// which the NCCL is. Call it again now and then: it looks into one new file each time.
func (p *Probe) Unseen(processes []Process) []Unseen {
	return p.statics.look(processes, p.hooks.seen())
}

// seen are the processes that have mapped an NCCL whose calls are seen.
func (h *hooks) seen() map[uint32]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := map[uint32]bool{}
	for a := range h.libraries {
		if a.nccl {
			for _, u := range a.users {
				all[u.PID] = true
			}
		}
	}
	return all
}

func newStatics(proc *procfs.FS, pace int) statics {
	return statics{proc: proc, looks: map[uint32]*glance{}, files: map[file]bool{}, turns: map[string]int{}, pace: pace}
}

func (s *statics) look(processes []Process, seen map[uint32]bool) (all []Unseen) {
	s.round++
	there := make(map[uint32]bool, len(processes))
	read := time.Now().Before(s.rests)
	for _, process := range s.inTurn(processes) {
		there[process.PID] = true
		known := s.looks[process.PID]
		if known == nil || !known.start.Equal(process.Start) {
			known = &glance{start: process.Start}
			s.looks[process.PID] = known
		}
		if s.round >= known.next {
			before := read
			if s.lookAt(process.PID, known, seen[process.PID], &read); read != before {
				s.turns[process.Owner] = s.round
			}
		}
	}
	for _, process := range processes {
		all = append(all, s.looks[process.PID].unseen...)
	}
	for pid := range s.looks {
		if !there[pid] {
			delete(s.looks, pid)
		}
	}
	return all
}

// inTurn puts those first whose owner had a file searched longest ago: who maps ever new files keeps
// nobody else's from being searched.
func (s *statics) inTurn(processes []Process) []Process {
	there := make(map[string]bool, len(s.turns))
	for _, p := range processes {
		there[p.Owner] = true
	}
	maps.DeleteFunc(s.turns, func(owner string, _ int) bool { return !there[owner] })
	processes = slices.Clone(processes)
	slices.SortStableFunc(processes, func(a, b Process) int { return cmp.Compare(s.turns[a.Owner], s.turns[b.Owner]) })
	return processes
}

func (s *statics) lookAt(pid uint32, known *glance, seen bool, read *bool) {
	code, err := s.proc.AllCode(pid)
	if err != nil {
		return
	}
	var unseen []Unseen
	gpu, whole := false, true
	add := func(why Why, m *procfs.Mapping) {
		if len(unseen) == 0 || unseen[len(unseen)-1].Why != why {
			unseen = append(unseen, Unseen{PID: pid, Why: why, File: m.Path})
		}
	}
	for i := range code {
		base := path.Base(code[i].Path)
		gpu = gpu || strings.HasPrefix(base, "libcuda.so") || strings.HasPrefix(base, "libamdhip64.so")
		if len(unseen) == 0 && initialized(base) {
			add(GPUInitiated, &code[i])
		}
	}
	for i := range code {
		if !gpu || seen || code[i].Inode == 0 {
			continue
		}
		has, ok := s.has(pid, &code[i], read)
		if whole = whole && ok; has {
			add(Static, &code[i])
		}
	}
	known.unseen = unseen
	if whole {
		known.looks++
		known.next = s.round + min(known.looks*known.looks, longestPause)
	}
}

// longestPause is in rounds: ten minutes, where a round is five seconds. What a program is linked
// from does not change; NVSHMEM it may initialize late.
const longestPause = 120

// initialized reports whether a file is one that NVSHMEM loads when it is initialized
// (src/host/bootstrap, src/host/transport): that its own library is mapped says nothing, for PyTorch
// is linked against it since 2.8.
func initialized(base string) bool {
	return strings.HasPrefix(base, "nvshmem_bootstrap_") || strings.HasPrefix(base, "nvshmem_transport_")
}

// has reports whether a file has NCCL inside; ok is false where it was not looked into yet.
func (s *statics) has(pid uint32, m *procfs.Mapping, read *bool) (has, ok bool) {
	key := file{m.Device, m.Inode}
	if has, known := s.files[key]; known {
		return has, true
	}
	if *read {
		return false, false
	}
	opened, err := s.proc.OpenMapped(pid, *m)
	if err != nil {
		return false, true // what cannot be opened is tried again at the next look
	}
	defer opened.Close()
	if len(s.files) >= mostFiles {
		clear(s.files)
	}
	if info, err := opened.Stat(); err != nil || info.Size() < leastStatic {
		s.files[key] = false
		return false, true
	}
	*read = true
	began := time.Now()
	has, err = s.search(pid, opened, m.Path)
	s.rests = time.Now().Add(time.Duration(s.pace) * time.Since(began))
	if errors.Is(err, procfs.ErrHung) {
		return false, true
	}
	s.files[key] = has
	return has, true
}

// search reads the texts of a file in pieces, each with patience.
func (s *statics) search(pid uint32, opened *os.File, name string) (bool, error) {
	parts, err := procfs.PatientlyOf(s.proc, pid, name, func() ([]*io.SectionReader, error) { return uprobe.Constants(opened) })
	if err != nil {
		return false, err
	}
	left := int64(mostText)
	for _, part := range parts {
		for at := int64(0); at < part.Size() && left > 0; at += pieceText - longestVersion {
			left -= pieceText
			piece, err := procfs.PatientlyOf(s.proc, pid, name, func() ([]byte, error) {
				piece := make([]byte, min(pieceText, part.Size()-at))
				n, err := part.ReadAt(piece, at)
				if errors.Is(err, io.EOF) { // a file that is shorter than it says
					err = nil
				}
				return piece[:n], err
			})
			if err != nil {
				return false, err
			}
			if isVersion.Match(piece) {
				return true, nil
			}
		}
	}
	return false, nil
}
