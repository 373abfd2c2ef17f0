//go:build linux && (amd64 || arm64)

package ncclcall

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/internal/uprobe"
	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// statics finds in the files of processes what makes no call that could be seen. It is of one
// goroutine.
type statics struct {
	proc     *procfs.FS
	looks    map[uint32]*glance
	files    map[procfs.Version]*fairlru.Element[*searched]
	order    fairlru.List[*searched] // owners share the room
	owners   map[string]*turn
	given    map[owned]attempt // up, for a while
	round    int
	pace     int           // how many times longer than a search it rests after it
	patience time.Duration // with one search
	rests    time.Time     // until then
}

// searched is a file, and whether it has NCCL inside.
type searched struct {
	file procfs.Version
	has  bool
}

// turn is when an owner has had a file searched, and until when none of his is searched again.
type turn struct {
	round int
	rests time.Time
}

// owned is a file as an owner has it mapped.
type owned struct {
	owner, device string
	inode         uint64
}

// attempt is how far a search came that was given up, and until when.
type attempt struct {
	file   procfs.Version
	pieces int
	until  time.Time
}

// glance is what was found of one process.
type glance struct {
	start  time.Time
	looks  int
	next   int  // round of the next look
	waits  bool // for its files to be searched
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
	// searchPace: who maps ever new files has the agent search with 0.3 % of a core, no more. Of one
	// owner it searches for 0.3 % of the time: his files may lie where reading takes long.
	searchPace = 300
	// searchPatience is how long one search may take. The largest takes 0.2 s of files in memory.
	searchPatience = 2 * time.Second
	// givenUp is how many rests of its owner long a file is left alone that could not be searched, so
	// that others of his come first.
	givenUp = 4
	// leastHang is what a read that hangs counts for at least: it is not begun while another hangs.
	leastHang = 100 * time.Millisecond
	// keptAttempts is how long it is remembered after that how far the search came.
	keptAttempts = time.Hour
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
	return statics{
		proc: proc, looks: map[uint32]*glance{}, files: map[procfs.Version]*fairlru.Element[*searched]{}, owners: map[string]*turn{}, given: map[owned]attempt{},
		pace: pace, patience: searchPatience,
	}
}

func (s *statics) look(processes []Process, seen map[uint32]bool) (all []Unseen) {
	s.round++
	now := time.Now()
	there, busy := make(map[uint32]bool, len(processes)), now.Before(s.rests)
	for _, process := range s.inTurn(processes, now) {
		there[process.PID] = true
		known := s.looks[process.PID]
		if known == nil || !known.start.Equal(process.Start) {
			known = &glance{start: process.Start}
			s.looks[process.PID] = known
		}
		its := s.owners[process.Owner]
		rests := busy || now.Before(its.rests)
		if s.round < known.next || known.waits && rests {
			continue
		}
		read := rests
		if s.lookAt(&process, known, seen[process.PID], &read); read != rests {
			busy, its.round = true, s.round
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
// nobody else's from being searched. An owner without processes rests on.
func (s *statics) inTurn(processes []Process, now time.Time) []Process {
	there := make(map[string]bool, len(s.owners))
	for _, p := range processes {
		there[p.Owner] = true
		if s.owners[p.Owner] == nil {
			s.owners[p.Owner] = &turn{}
		}
	}
	maps.DeleteFunc(s.owners, func(owner string, its *turn) bool { return !there[owner] && !now.Before(its.rests) })
	maps.DeleteFunc(s.given, func(_ owned, one attempt) bool { return now.Sub(one.until) > keptAttempts })
	processes = slices.Clone(processes)
	slices.SortStableFunc(processes, func(a, b Process) int { return cmp.Compare(s.owners[a.Owner].round, s.owners[b.Owner].round) })
	return processes
}

func (s *statics) lookAt(process *Process, known *glance, seen bool, read *bool) {
	code, err := s.proc.AllCode(process.PID)
	if err != nil {
		return
	}
	var unseen []Unseen
	gpu, whole, waits := false, true, false
	add := func(why Why, m *procfs.Mapping) {
		if len(unseen) == 0 || unseen[len(unseen)-1].Why != why {
			unseen = append(unseen, Unseen{PID: process.PID, Why: why, File: m.Path})
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
		has, so := s.has(process, &code[i], read)
		whole, waits = whole && so == looked, waits || so == later
		if has {
			add(Static, &code[i])
		}
	}
	if known.waits = waits; !waits {
		known.looks++
		known.next = s.round + min(known.looks*known.looks, longestPause)
	}
	if whole {
		known.unseen = unseen
		return
	}
	for _, one := range slices.Concat(unseen, known.unseen) { // what is not looked into takes nothing back
		if !slices.ContainsFunc(known.unseen, func(o Unseen) bool { return o.Why == one.Why }) {
			known.unseen = append(known.unseen, one)
		}
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

// glimpse is whether a file was looked into.
type glimpse uint8

const (
	looked glimpse = iota
	later          // when its turn comes
	never          // at this look: it cannot be read
)

// has reports whether a file has NCCL inside.
func (s *statics) has(process *Process, m *procfs.Mapping, read *bool) (bool, glimpse) {
	its := owned{process.Owner, m.Device, m.Inode}
	before := s.given[its]
	if *read {
		return false, later
	}
	if time.Now().Before(before.until) {
		return false, never
	}
	began := time.Now()
	file, err := s.proc.MappedVersion(process.PID, *m)
	switch known := s.files[file]; {
	case errors.Is(err, procfs.ErrHung):
		*read = true
		s.giveUp(its, before, max(time.Since(began), leastHang))
		return false, later
	case err != nil:
		return false, never
	case file.Size < leastStatic:
		return false, looked
	case known != nil:
		s.order.Touch(known, fairlru.Little)
		return known.Value.has, looked
	}
	*read = true
	opened, err := s.open(process.PID, m, file)
	switch {
	case errors.Is(err, procfs.ErrHung):
		s.giveUp(its, before, max(time.Since(began), leastHang))
		return false, later
	case err != nil:
		return false, never
	}
	if before.file != file {
		before = attempt{file: file}
	}
	// Who has mapped another file of that name is not held up.
	name := fmt.Sprintf("%s (device %s, inode %d)", m.Path, m.Device, m.Inode)
	has, pieces, cpu, err := s.search(process.PID, opened, name, before.pieces)
	err = cmp.Or(s.proc.Close(opened), err)
	took := time.Since(began)
	s.rests = time.Now().Add(time.Duration(s.pace) * cpu)
	if errors.Is(err, procfs.ErrHung) || errors.Is(err, errSlow) {
		s.giveUp(its, attempt{file: file, pieces: pieces}, max(took, leastHang))
		return false, later
	}
	s.rest(its.owner, took)
	delete(s.given, its)
	for s.order.Len() >= mostFiles {
		victim, _ := s.order.Victim()
		s.order.Remove(victim)
		delete(s.files, victim.Value.file)
	}
	s.files[file] = s.order.Add(&searched{file, has}, fairlru.Little, process.Owner)
	return has, looked
}

// open opens what a process has mapped, which must be this file still.
func (s *statics) open(pid uint32, m *procfs.Mapping, file procfs.Version) (*os.File, error) {
	opened, err := s.proc.OpenMapped(pid, *m)
	if err != nil {
		return nil, err
	}
	is, err := s.proc.Version(opened, m.Inode)
	if err == nil && is != file {
		err = errors.New("another file is mapped there by now")
	}
	if err != nil {
		return nil, errors.Join(err, s.proc.Close(opened))
	}
	return opened, nil
}

// rest has an owner wait for his next search.
func (s *statics) rest(owner string, took time.Duration) {
	s.owners[owner].rests = time.Now().Add(time.Duration(s.pace) * took)
}

// giveUp leaves a file alone for a while, for its owner.
func (s *statics) giveUp(its owned, so attempt, took time.Duration) {
	s.rest(its.owner, took)
	so.until = time.Now().Add(givenUp * time.Duration(s.pace) * took)
	s.given[its] = so
}

var errSlow = errors.New("to read it takes too long")

// search reads the texts of a file in pieces, each with patience, from where it came to before. It
// returns how many pieces it has read, and what CPU time that took.
func (s *statics) search(pid uint32, opened *os.File, name string, before int) (has bool, pieces int, cpu time.Duration, err error) {
	began := time.Now()
	parts, cpu, err := measured(s.proc, pid, name, func() ([]*io.SectionReader, error) { return uprobe.Constants(opened) })
	if err != nil {
		return false, before, cpu, err
	}
	for _, part := range parts {
		for at := int64(0); at < part.Size() && pieces < mostText/pieceText; at += pieceText - longestVersion {
			if pieces++; pieces <= before {
				continue
			}
			if pieces > before+1 && time.Since(began) > s.patience {
				return false, pieces - 1, cpu, errSlow
			}
			found, took, err := measured(s.proc, pid, name, func() (bool, error) { return hasVersion(part, at) })
			if cpu += took; found || err != nil {
				return found, pieces - 1, cpu, err
			}
		}
	}
	return false, pieces, cpu, nil
}

func hasVersion(part *io.SectionReader, at int64) (bool, error) {
	piece := make([]byte, min(pieceText, part.Size()-at))
	n, err := part.ReadAt(piece, at)
	if errors.Is(err, io.EOF) { // a file that is shorter than it says
		err = nil
	}
	return isVersion.Match(piece[:n]), err
}

// measured reads with patience, and says what CPU time that took; 0 where it hangs.
func measured[T any](proc *procfs.FS, pid uint32, name string, read func() (T, error)) (T, time.Duration, error) {
	type timed struct {
		value T
		cpu   time.Duration
	}
	got, err := procfs.PatientlyOf(proc, pid, name, func() (timed, error) {
		runtime.LockOSThread() // whose time it is
		defer runtime.UnlockOSThread()
		began := threadTime()
		value, err := read()
		return timed{value, threadTime() - began}, err
	})
	return got.value, got.cpu, err
}

// threadTime is the CPU time of this thread.
func threadTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
