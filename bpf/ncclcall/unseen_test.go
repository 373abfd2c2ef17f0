//go:build linux && (amd64 || arm64)

package ncclcall

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/ncclcall/fakejob"
	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// mapped are the files that processes of a /proc of the test's own have mapped.
type mapped struct{ root, files string }

func newMapped(t *testing.T) *mapped { return &mapped{root: t.TempDir(), files: t.TempDir()} }

// file makes a file of a size that has NCCL's, with these texts.
func (m *mapped) file(t *testing.T, name, text string) string {
	t.Helper()
	texts := append(bytes.Repeat([]byte("any text\x00"), leastStatic/9+1), text...)
	at := filepath.Join(m.files, name)
	require.NoError(t, os.WriteFile(at, fakejob.Library{Functions: []string{"cuGraphLaunch"}, Texts: texts}.Content(), 0o700))
	return at
}

func (m *mapped) process(t *testing.T, pid uint32, files ...string) Process {
	t.Helper()
	folder := filepath.Join(m.root, fmt.Sprint(pid))
	require.NoError(t, os.MkdirAll(folder, 0o700))
	require.NoError(t, os.Symlink("/", filepath.Join(folder, "root")))
	var maps strings.Builder
	for i, file := range files {
		var info syscall.Stat_t
		require.NoError(t, syscall.Stat(file, &info))
		fmt.Fprintf(&maps, "%x000-%x000 r-xp 00001000 fd:01 %d %s\n", 16+2*i, 17+2*i, info.Ino, file)
	}
	require.NoError(t, os.WriteFile(filepath.Join(folder, "maps"), []byte(maps.String()), 0o600))
	return Process{PID: pid, Start: time.Unix(int64(pid), 0)}
}

func TestWhatMakesNoCallIsSaid(t *testing.T) {
	m := newMapped(t)
	cuda := m.file(t, "libcuda.so.550", "")
	nccl, rccl := m.file(t, "train", "\x00NCCL version 2.29.7+cuda13.0\x00"), m.file(t, "librccl_user.so", "\x00RCCL version : 2.22.3-develop\x00")
	words := m.file(t, "libtorch_cuda.so", "\x00this needs NCCL version 2.18.1 or later\x00NCCL version \x00NCCL version 2.18\x00")
	processes := []Process{
		m.process(t, 1, cuda, nccl), m.process(t, 2, cuda, rccl), m.process(t, 3, cuda, words),
		m.process(t, 4, nccl),       // no GPU
		m.process(t, 5, cuda, nccl), // it has another one, whose calls are seen
		m.process(t, 6, cuda, m.file(t, "libnvshmem_host.so.3", "")),
		m.process(t, 7, cuda, m.file(t, "nvshmem_bootstrap_uid.so.3", ""), m.file(t, "nvshmem_transport_ibgda.so.103", "")),
	}
	s := m.statics(0)
	seen := map[uint32]bool{5: true}
	var found []Unseen
	for range 8 { // one file each time
		found = s.look(processes, seen)
	}
	require.Equal(t, []Unseen{
		{PID: 1, Why: Static, File: nccl}, {PID: 2, Why: Static, File: rccl},
		{PID: 7, Why: GPUInitiated, File: filepath.Join(m.files, "nvshmem_bootstrap_uid.so.3")},
	}, found)

	processes[0].Start = processes[0].Start.Add(time.Second) // another process has its number, and no file yet
	require.NoError(t, os.WriteFile(filepath.Join(m.root, "1", "maps"), nil, 0o600))
	require.Len(t, s.look(processes, seen), 2)
	require.Len(t, s.look(processes[6:], seen), 1)
	require.Len(t, s.looks, 1, "who has ended is forgotten")
}

func (m *mapped) statics(pace int) *statics {
	proc := procfs.Open(m.root)
	proc.WithPatience(hosttest.Patience)
	s := newStatics(proc, pace)
	s.patience = hosttest.Patience
	return &s
}

const version = "\x00NCCL version 2.29.7+cuda13.0\x00"

func TestTheSearchOfFilesIsPaced(t *testing.T) {
	m := newMapped(t)
	process := m.process(t, 1, m.file(t, "libcuda.so.550", ""), m.file(t, "train", version))
	s := m.statics(1e9)
	for range 3 {
		require.Empty(t, s.look([]Process{process}, nil))
	}
	require.Len(t, s.files, 1)
	s.rests = time.Time{}
	require.Empty(t, s.look([]Process{process}, nil), "its owner rests")
	s.owners[process.Owner].rests = time.Time{}
	require.Len(t, s.look([]Process{process}, nil), 1)
}

// A search counts for all by the CPU time that it takes, and for its owner by the time: one file that
// answers late keeps nobody else's from being searched.
func TestASlowFileHoldsUpItsOwnerAlone(t *testing.T) {
	m := newMapped(t)
	cuda := m.file(t, "libcuda.so.550", "")
	slow, other := m.process(t, 1, cuda, m.file(t, "slow", "")), m.process(t, 2, cuda, m.file(t, "train", version))
	slow.Owner, other.Owner = "user 1", "user 2"
	s := m.statics(0)
	s.look(nil, nil)
	s.inTurn([]Process{slow, other}, time.Now())
	s.pace = searchPace
	file := owned{owner: slow.Owner, device: "fd:01", inode: 7}
	s.giveUp(file, attempt{pieces: 3}, time.Minute)
	require.False(t, s.rests.After(time.Now()), "others go on")
	s.pace = 0
	var found []Unseen
	for range 4 {
		found = s.look([]Process{slow, other}, nil)
	}
	require.Len(t, found, 1)
	require.Equal(t, other.PID, found[0].PID)
	require.Len(t, s.files, 2, "nothing of who rests was searched")
	s.look(nil, nil)
	require.Contains(t, s.owners, slow.Owner, "who ends and comes again rests on")
	require.Greater(t, time.Until(s.given[file].until), 2*time.Hour)
}

// A search that takes too long goes on where it ended, at its next turn.
func TestASearchThatTakesTooLongGoesOnLater(t *testing.T) {
	m := newMapped(t)
	process := m.process(t, 1, m.file(t, "libcuda.so.550", ""), m.file(t, "train", version))
	s := m.statics(0)
	s.patience = 1
	looks := 0
	for len(s.look([]Process{process}, nil)) == 0 {
		looks++
		require.Less(t, looks, 100)
	}
	require.Greater(t, looks, 2*leastStatic/pieceText, "a piece each time")
	require.Len(t, s.files, 2)
	require.Empty(t, s.given)
}

// A file of another with the same path in his root lies on a mount that does not answer.
func TestAFileThatHangsHidesNoneOfItsPath(t *testing.T) {
	m := newMapped(t)
	nccl := m.file(t, "train", version)
	process := m.process(t, 1, m.file(t, "libcuda.so.550", ""), nccl)
	s := m.statics(0)
	release := make(chan struct{})
	s.proc.WithPatience(time.Millisecond)
	_, err := procfs.Patiently(s.proc, nccl, func() (int, error) { <-release; return 0, nil }) // as a search of that file did
	require.ErrorIs(t, err, procfs.ErrHung)
	s.proc.WithPatience(hosttest.Patience)
	var found []Unseen
	for range 3 {
		found = s.look([]Process{process}, nil)
	}
	close(release)
	require.Len(t, found, 1)
}

// A file that hangs is not looked into, and its owner's other files come before it does again.
func TestAFileThatHangsIsLeftAloneForAWhile(t *testing.T) {
	m := newMapped(t)
	hangs := m.file(t, "hangs", version)
	process := m.process(t, 1, hangs, m.file(t, "libcuda.so.550", ""), m.file(t, "train", version))
	s := m.statics(searchPace)
	s.proc.WithPatience(time.Millisecond)
	release := make(chan struct{})
	var info syscall.Stat_t
	require.NoError(t, syscall.Stat(hangs, &info))
	name := fmt.Sprintf("%s (device fd:01, inode %d)", hangs, info.Ino)
	_, err := procfs.PatientlyOf(s.proc, process.PID, name, func() (int, error) { <-release; return 0, nil })
	require.ErrorIs(t, err, procfs.ErrHung)
	s.proc.WithPatience(hosttest.Patience)
	require.Empty(t, s.look([]Process{process}, nil))
	require.Empty(t, s.files, "it was not looked into")
	require.Len(t, s.given, 1)
	require.True(t, s.owners[process.Owner].rests.After(time.Now()))
	for its, one := range s.given {
		require.Greater(t, one.until.Sub(s.owners[process.Owner].rests), time.Minute, "others come first")
		s.given[its] = attempt{until: time.Now().Add(time.Hour)} // longer than this test takes
	}
	again := func() []Unseen {
		s.rests, s.owners[process.Owner].rests = time.Time{}, time.Time{}
		s.round = s.looks[process.PID].next
		return s.look([]Process{process}, nil)
	}
	again()
	found := again()
	require.Len(t, found, 1)
	require.True(t, strings.HasSuffix(found[0].File, "train"))
	close(release)
	require.Eventually(t, func() bool { return s.proc.Left() == 0 }, hosttest.Patience, time.Millisecond)
	clear(s.given)
	again()
	require.Len(t, s.files, 3)

	clear(s.files)
	require.NoError(t, os.Remove(filepath.Join(m.root, "1", "root")))
	require.Len(t, again(), 1, "what cannot be read takes nothing back")
}

// A file of another had that inode of that device before: it was removed, and the number given again.
func TestAnInodeThatIsUsedAgainIsAnotherFile(t *testing.T) {
	m := newMapped(t)
	cuda, program := m.file(t, "libcuda.so.550", ""), m.file(t, "train", version)
	before := m.process(t, 1, cuda, program)
	s := m.statics(0)
	for range 3 {
		s.look([]Process{before}, nil)
	}
	time.Sleep(20 * time.Millisecond)                     // a tick of the kernel's clock for files
	m.file(t, "train", strings.Repeat(".", len(version))) // the same inode and size
	now := m.process(t, 2, cuda, program)
	for range 3 {
		require.Empty(t, s.look([]Process{now}, nil))
	}
}

// What is remembered of files is bounded, and who has most of them gives way.
func TestFilesOfOneOwnerPushOutNoneOfAnother(t *testing.T) {
	m := newMapped(t)
	process := m.process(t, 1, m.file(t, "libcuda.so.550", ""), m.file(t, "train", version))
	process.Owner = "user 1"
	s := m.statics(0)
	for i := range mostFiles {
		file := procfs.Version{Inode: uint64(i), Device: 1 << 40}
		s.files[file] = s.order.Add(&searched{file, false}, fairlru.Little, "user 2")
	}
	for range 3 {
		s.look([]Process{process}, nil)
	}
	require.Len(t, s.files, mostFiles)
	for i := range mostFiles / 2 {
		file := procfs.Version{Inode: uint64(i), Device: 1 << 41}
		victim, _ := s.order.Victim()
		s.order.Remove(victim)
		delete(s.files, victim.Value.file)
		s.files[file] = s.order.Add(&searched{file, false}, fairlru.Little, "user 2")
	}
	s.round = s.looks[process.PID].next
	files := maps.Clone(s.files)
	require.Len(t, s.look([]Process{process}, nil), 1)
	require.Equal(t, files, s.files, "its files are known still")
}

// TestOwnersTakeTurns: one has ever new files.
func TestOwnersTakeTurns(t *testing.T) {
	m := newMapped(t)
	cuda := m.file(t, "libcuda.so.550", "")
	s := m.statics(0)
	late := m.process(t, 9, cuda, m.file(t, "train", "\x00NCCL version 2.29.7+cuda13.0\x00"))
	late.Owner = "user 2"
	var found []Unseen
	for round := range 4 {
		first := m.process(t, uint32(1+round), m.file(t, fmt.Sprint("libcuda.so.", round), ""), m.file(t, fmt.Sprint("new", round), ""))
		first.Owner = "user 1"
		found = s.look([]Process{first, late}, nil)
	}
	require.Len(t, found, 1)
	require.Equal(t, late.PID, found[0].PID)
	s.look(nil, nil)
	require.Empty(t, s.owners)
}

// TestATextThatLiesOnTheEdgeOfAPieceIsFound: pieces overlap.
func TestATextThatLiesOnTheEdgeOfAPieceIsFound(t *testing.T) {
	proc := procfs.Open(t.TempDir())
	proc.WithPatience(hosttest.Patience)
	s := newStatics(proc, 0)
	for _, at := range []int{pieceText - len(version), pieceText - len(version)/2, pieceText - 1, 3*pieceText + 7} {
		texts := bytes.Repeat([]byte{'.'}, 4*pieceText)
		copy(texts[at:], version)
		file := filepath.Join(t.TempDir(), "train")
		require.NoError(t, os.WriteFile(file, fakejob.Library{Texts: texts}.Content(), 0o600))
		opened, err := os.Open(file)
		require.NoError(t, err)
		has, _, cpu, err := s.search(42, opened, file, 0)
		require.NoError(t, err)
		require.Positive(t, cpu)
		require.True(t, has, at)
		require.NoError(t, opened.Close())
	}
}

// A kernel of the program that communicates by itself does so after the program asked for it.
func TestKernelsThatCommunicateByThemselvesAreTold(t *testing.T) {
	p := open(t, Options{})
	j := start(t, fakejob.Library{RankOffset: offset2297, Functions: some("ncclDevCommCreate")})
	watch(t, p, j)
	require.NoError(t, j.Do(plant(1, 77, 1, 4), fakejob.AllReduce(1, 1), fakejob.Call{Function: "ncclDevCommCreate", Comm: 1}))
	e := next(t, p)
	require.Equal(t, []any{Device, uint64(77), j.PID()}, []any{e.Kind, e.Hash, e.PID})
	require.False(t, e.Kind.Init())
	require.Len(t, scan(t, p).Communicators, 1, "it goes on")
}
