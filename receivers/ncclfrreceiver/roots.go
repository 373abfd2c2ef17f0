package ncclfrreceiver

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// Bounds of one round. A user who starts processes can make ranks of them.
const (
	mostLooks = 1024 // ranks looked at; users share them
	// mostHung is how many reads of one user may be left behind: one for each dead mount.
	mostHung = 4
	// afterlife is how long the dump of a rank that has ended is looked for, through
	// another process that has its root.
	afterlife = time.Minute
	// answer is how long a file system may take.
	answer = 2 * time.Second
)

// roots finds dumps where ranks write them: at the names that the environment of each
// leads to, in its own root.
type roots struct {
	resolver identity.Resolver // nil: none is looked for
	proc     *procfs.FS
	known    map[started]*rank
	turns    map[string]int // where the next round begins, by domain, while they do not all fit in one
	hung     *hung
}

// started is one process, once.
type started struct {
	pid   uint32
	start int64
}

// rank is what is known of a rank's dumps.
type rank struct {
	identity.Process
	names  []dumpName // of its dump, first choice first
	place  place      // where it sees them
	uid    uint32
	ended  time.Time // zero while it lives
	placed bool
	bare   int  // looks that found no environment
	twin   bool // another process of the rank has the same names in the same place
}

// dumpName is the name of a dump up to the rank. The rank chose it, or it is a default.
type dumpName struct {
	text   string
	chosen bool
}

// place tells roots apart: two processes with the same one see the same files.
type place struct {
	root  fileID
	mount uint64 // namespace
}

// written is a dump that was found where a rank writes it.
type written struct {
	process identity.Process
	path    string // as the rank calls it
	through uint32 // the process through whose root it is read
	uid     uint32
}

func newRoots(root string) *roots {
	return &roots{
		proc: procfs.Open(root).WithPatience(answer), known: map[started]*rank{}, turns: map[string]int{},
		hung: &hung{by: map[string]int{}},
	}
}

// look returns the dumps of ranks that are there, and what lies there and is none.
func (r *roots) look(now time.Time) (found []candidate, refused []refusal) {
	if r.resolver == nil {
		return nil, nil
	}
	r.renew(now)
	for _, one := range r.turn() {
		if one.placed || r.settle(one) {
			f, no := r.of(one)
			found, refused = append(found, f...), append(refused, no...)
		}
	}
	return claimedOnce(found), refused
}

// renew takes in the processes of ranks that live now. A worker counts: the outermost
// process of a rank may be what starts its container.
func (r *roots) renew(now time.Time) {
	living := map[started]bool{}
	for _, p := range r.resolver.Ranks() {
		id := started{p.PID, p.StartTime.Round(procfs.Tick).UnixNano()}
		living[id] = true
		if r.known[id] == nil {
			r.known[id] = &rank{Process: p}
		}
		r.known[id].Process = p // the launcher may be told from it only later
	}
	for id, one := range r.known {
		switch {
		case living[id]:
		case one.ended.IsZero():
			one.ended = now
		case now.Sub(one.ended) > afterlife:
			delete(r.known, id)
		}
	}
}

// turn returns the ranks to look at now: all of them, or as many as fit, the same number
// of each domain, the next ones in the next round.
func (r *roots) turn() []*rank {
	all := slices.SortedFunc(maps.Values(r.known), outermostFirst)
	all = slices.DeleteFunc(all, func(one *rank) bool { return one.twin })
	if len(all) <= mostLooks {
		clear(r.turns)
		return all
	}
	domains := map[string][]*rank{}
	for _, one := range all {
		domains[one.Domain] = append(domains[one.Domain], one)
	}
	maps.DeleteFunc(r.turns, func(domain string, _ int) bool { return domains[domain] == nil })
	var chosen []*rank
	names := slices.Sorted(maps.Keys(domains))
	for taken := 0; len(chosen) < mostLooks; taken++ {
		for _, domain := range names {
			if all := domains[domain]; taken < len(all) {
				chosen = append(chosen, all[r.turns[domain]%len(all)])
				r.turns[domain] = (r.turns[domain] + 1) % len(all)
			}
		}
	}
	return chosen[:mostLooks]
}

func outermostFirst(a, b *rank) int {
	return cmp.Or(a.StartTime.Compare(b.StartTime), cmp.Compare(a.PID, b.PID))
}

// of returns the dump of one rank. An older file under its name is of an earlier process.
func (r *roots) of(one *rank) (found []candidate, refused []refusal) {
	through := r.through(one)
	if one.twin || through == 0 {
		return nil, nil
	}
	for _, name := range one.names {
		w := &written{process: one.Process, path: name.text + strconv.Itoa(one.Rank), through: through, uid: one.uid}
		if !filepath.IsAbs(w.path) && through != one.PID {
			continue // only the rank itself knows where it works
		}
		print, err := r.find(w, one.place)
		switch {
		case err == nil && canHaveWritten(one.Process, time.Unix(0, print.ModNS)):
			found = append(found, candidate{path: w.key(), print: print, owner: owner{one.uid, one.Domain}, written: w})
		case err != nil && worthSaying(err, name):
			refused = append(refused, refusal{w.key(), one.uid, w, err})
		}
	}
	return found, refused
}

// worthSaying: that there is no dump is as usual; so is, under a default name, the file of
// somebody else.
func worthSaying(err error, name dumpName) bool {
	if errors.Is(err, procfs.ErrHung) {
		return true
	}
	return name.chosen && !errors.Is(err, procfs.ErrGone) && !errors.Is(err, syscall.ENOTDIR)
}

// mostBare is how often a process without an environment is asked again. In the middle of
// execve(2) one has none: files that close on exec are closed before the new environment is
// there (begin_new_exec and create_elf_tables, fs/exec.c and fs/binfmt_elf.c).
const mostBare = 3

// begins reports whether a process seems to be in the middle of execve(2).
func (one *rank) begins(environ []byte) bool {
	if len(environ) > 0 || one.bare == mostBare {
		return false
	}
	one.bare++
	return true
}

// settle learns, while it lives, where a process writes and what it sees.
func (r *roots) settle(one *rank) bool {
	if !one.ended.IsZero() {
		return false
	}
	before, err := r.proc.Stat(one.PID)
	if err != nil {
		return false
	}
	uid, err1 := r.proc.User(one.PID)
	at, err2 := r.placeOf(one.PID, one.Domain)
	environ, err3 := r.proc.Environ(one.PID)
	after, err4 := r.proc.Stat(one.PID)
	if errors.Join(err1, err2, err3, err4) != nil || after.StartTicks != before.StartTicks {
		return false
	}
	if one.begins(environ.Content) {
		return false
	}
	one.names, one.place, one.uid = dumpNames(environ.Content), at, uid
	for _, other := range r.known {
		one.twin = one.twin || other != one && other.same(one)
	}
	one.placed = true
	return true
}

// same reports whether two processes of a rank write the same dump.
func (one *rank) same(other *rank) bool {
	return one.placed && !one.twin && one.ended.IsZero() && one.Rank == other.Rank && one.JobID == other.JobID && one.Domain == other.Domain &&
		one.MasterAddr == other.MasterAddr && one.MasterPort == other.MasterPort &&
		one.place == other.place && one.uid == other.uid && slices.Equal(one.names, other.names) && other.Inherited
}

// through is a living process that sees what the rank sees, 0 for none: itself, else its
// parent, the first process of the machine, or another rank.
func (r *roots) through(one *rank) uint32 {
	if one.ended.IsZero() {
		return one.PID
	}
	others := []uint32{one.ParentPID, 1}
	for _, other := range r.known {
		if other.ended.IsZero() && other.placed && other.place == one.place {
			others = append(others, other.PID)
		}
	}
	for _, pid := range others {
		if at, err := r.placeOf(pid, one.Domain); pid != 0 && err == nil && at == one.place {
			return pid
		}
	}
	return 0
}

// key is the name of the file in messages, and in the memory of what was read.
func (w *written) key() string {
	return "/proc/" + strconv.FormatUint(uint64(w.process.PID), 10) + "/root" + w.path
}

// claimedOnce leaves out who wrote a file that two ranks can have written.
func claimedOnce(found []candidate) []candidate {
	by := map[fileID]*written{}
	for _, c := range found {
		first, claimed := by[c.id()]
		if !claimed {
			by[c.id()] = c.written
		} else if c.written.process.PID != first.process.PID {
			first.process, c.written.process = nobody(first.process.Rank), nobody(c.written.process.Rank)
		}
	}
	return found
}

// The names under which PyTorch writes the dump of a rank, its number at the end
// (DebugInfoWriter::getWriter: ProcessGroupNCCL.cpp and NCCLUtils.cpp of 2.2 to 2.5,
// FlightRecorder.cpp since).
const (
	nameUntil25 = "/tmp/nccl_trace_rank_"
	nameOf26    = "/torch/nccl_trace_rank_"     // in the cache folder
	nameSince28 = "/torch/comm_lib_trace_rank_" // in the cache folder
)

// dumpNames are the names that an environment leads to, in every version of PyTorch.
func dumpNames(environ []byte) []dumpName {
	vars := map[string]string{}
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		name, value, found := strings.Cut(string(entry), "=")
		switch name {
		case "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "XDG_CACHE_HOME", "HOME":
			if _, twice := vars[name]; found && !twice {
				vars[name] = value
			}
		}
	}
	home := cmp.Or(vars["HOME"], "/tmp") + "/.cache"
	cache := cmp.Or(vars["XDG_CACHE_HOME"], home)
	var names []dumpName
	for i, text := range []string{
		vars["TORCH_FR_DUMP_TEMP_FILE"], vars["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"],
		nameUntil25, cache + nameSince28, home + nameSince28, home + nameOf26,
	} {
		const longest = 3800 // PATH_MAX is 4,096
		known := slices.ContainsFunc(names, func(n dumpName) bool { return n.text == text })
		if text != "" && len(text) < longest && !known {
			names = append(names, dumpName{text, i < 2})
		}
	}
	return names
}
