//go:build linux && (amd64 || arm64)

package ncclcall

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/ncclcall/fakejob"
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
	proc := procfs.Open(m.root)
	proc.WithPatience(hosttest.Patience)
	s := newStatics(proc, 0)
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

func TestTheSearchOfFilesIsPaced(t *testing.T) {
	m := newMapped(t)
	cuda, nccl := m.file(t, "libcuda.so.550", ""), m.file(t, "train", "\x00NCCL version 2.29.7+cuda13.0\x00")
	process := m.process(t, 1, cuda, nccl)
	proc := procfs.Open(m.root)
	proc.WithPatience(hosttest.Patience)
	s := newStatics(proc, 1e9)
	for range 3 {
		require.Empty(t, s.look([]Process{process}, nil))
	}
	require.Len(t, s.files, 1)
	s.rests = time.Time{}
	require.Len(t, s.look([]Process{process}, nil), 1)
}

// TestOwnersTakeTurns: one has ever new files.
func TestOwnersTakeTurns(t *testing.T) {
	m := newMapped(t)
	cuda := m.file(t, "libcuda.so.550", "")
	proc := procfs.Open(m.root)
	proc.WithPatience(hosttest.Patience)
	s := newStatics(proc, 0)
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
	require.Empty(t, s.turns)
}

// TestATextThatLiesOnTheEdgeOfAPieceIsFound: pieces overlap.
func TestATextThatLiesOnTheEdgeOfAPieceIsFound(t *testing.T) {
	proc := procfs.Open(t.TempDir())
	proc.WithPatience(hosttest.Patience)
	s := statics{proc: proc}
	const version = "\x00NCCL version 2.29.7+cuda13.0\x00"
	for _, at := range []int{pieceText - len(version), pieceText - len(version)/2, pieceText - 1, 3*pieceText + 7} {
		texts := bytes.Repeat([]byte{'.'}, 4*pieceText)
		copy(texts[at:], version)
		file := filepath.Join(t.TempDir(), "train")
		require.NoError(t, os.WriteFile(file, fakejob.Library{Texts: texts}.Content(), 0o600))
		opened, err := os.Open(file)
		require.NoError(t, err)
		has, err := s.search(42, opened, file)
		require.NoError(t, err)
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
