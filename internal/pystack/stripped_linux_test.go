package pystack

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/procmem"
)

// copied is a copy of an interpreter, changed and called otherwise, beside it or elsewhere.
func copied(tb testing.TB, py python, to string, change func([]byte) []byte) python {
	tb.Helper()
	program, err := filepath.EvalSymlinks(filepath.Join(py.root, py.path))
	require.NoError(tb, err)
	b, err := os.ReadFile(program)
	require.NoError(tb, err)
	require.NoError(tb, os.WriteFile(filepath.Join(py.root, to), change(b), 0o755))
	py.path = to
	py.env = append(py.env, "PYTHONHOME=/usr")
	return py
}

// withoutSections forgets where section headers are (Elf64_Ehdr e_shoff, e_shnum, e_shstrndx),
// and that there are any.
func withoutSections(b []byte) []byte {
	clear(b[0x28:0x30])
	clear(b[0x3c:0x40])
	return b
}

// withoutSymbols renames what an interpreter exports of itself and is looked for.
func withoutSymbols(b []byte) []byte {
	for _, name := range []string{"_PyRuntime", "PyCode_Type", "PyType_Type", "Py_Version"} {
		b = bytes.ReplaceAll(b, []byte("\x00"+name+"\x00"), []byte("\x00"+name[:len(name)-1]+"?\x00"))
	}
	return b
}

func TestAnInterpreterWithoutSectionHeadersAndWithAnotherName(t *testing.T) {
	py := copied(t, hostPython(t), filepath.Join(t.TempDir(), "trainer"), withoutSections)
	same(t, start(t, py, "scene.py", "still"))
}

func TestWhoRunsNoPython(t *testing.T) {
	reader := New(procfs.Open("").WithPatience(hosttest.Patience))
	_, err := reader.Open(uint32(os.Getpid()))
	require.ErrorIs(t, err, ErrNoPython)
	j := start(t, hostPython(t), "idle.py")
	settle(t, j) // it says that it is ready, and then goes to sleep
	p, err := reader.Open(j.pid)
	require.NoError(t, err)
	defer p.Close()
	s, err := p.Stacks(Options{OnlyMain: true})
	require.NoError(t, err)
	require.Len(t, s.Threads, 1)
	mark, err := p.PlaceOf(j.pid)
	require.NoError(t, err)
	require.NotZero(t, mark)
	require.Equal(t, mark, s.Threads[0].Place, "the stack is of that place")
	j.kill()
	_, err = p.Stacks(Options{})
	require.ErrorIs(t, err, procfs.ErrGone)
	_, err = p.PlaceOf(j.pid)
	require.ErrorIs(t, err, procfs.ErrGone)
	_, err = reader.Open(j.pid)
	require.ErrorIs(t, err, procfs.ErrGone)
	require.NoError(t, p.Close())
	require.NoError(t, p.Close())
	_, err = p.Stacks(Options{})
	require.ErrorIs(t, err, procfs.ErrGone)
}

func TestAThreadOfTheKernelRunsNoPython(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "2"), 0o755))
	stat := "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
	require.NoError(t, os.WriteFile(filepath.Join(root, "2/stat"), []byte(stat), 0o600))
	_, err := New(procfs.Open(root).WithPatience(hosttest.Patience)).Open(2)
	require.ErrorIs(t, err, ErrNoPython)
	_, err = New(procfs.Open(root).WithPatience(hosttest.Patience)).Open(3)
	require.ErrorIs(t, err, procfs.ErrGone)
}

func TestAForeignProcIsNotRead(t *testing.T) {
	fs := procfs.Open("")
	fs.SetForeign(true)
	_, err := New(fs).Open(uint32(os.Getpid()))
	require.ErrorIs(t, err, procfs.ErrForeign)
}

// TestBoundsOfALook cuts what is more, and says so.
func TestBoundsOfALook(t *testing.T) {
	j := start(t, hostPython(t), "scene.py", "still")
	settle(t, j)
	p := open(t, j.pid)
	s, err := p.Stacks(Options{Threads: 3, Frames: 2})
	require.NoError(t, err)
	require.Len(t, s.Threads, 3)
	require.True(t, s.Cut)
	require.True(t, s.Threads[0].Main)
	all := look(t, p, len(j.threads))
	for i, one := range s.Threads {
		require.False(t, one.Torn)
		require.Equal(t, len(all.Threads[i].Frames) > 2, one.Cut)
		require.Equal(t, all.Threads[i].Frames[:2], one.Frames)
	}
}

// broken is the memory of a process of which some reads fail.
type broken struct {
	memory
	err   error
	after int
}

func (b *broken) Read(address uint64, into []byte) error {
	if b.after--; b.after < 0 {
		return b.err
	}
	return b.memory.Read(address, into)
}

// TestWhatIsNotInMemoryIsSaid: each read of a look fails once. Then the thread is torn, or only
// lines are missing; where the kernel does not answer, the look ends.
func TestWhatIsNotInMemoryIsSaid(t *testing.T) {
	j := start(t, hostPython(t), "idle.py")
	p := open(t, j.pid)
	settle(t, j)
	whole := look(t, p, 1).Threads[0]
	live := p.in.memory
	torn, enough := 0, false
	for after := 0; !enough && after < 1000; after++ {
		p.in.memory = &broken{live, procmem.ErrAbsent, after}
		s, err := p.Stacks(Options{})
		switch {
		case err != nil: // the list of threads
			require.ErrorIs(t, err, procmem.ErrAbsent)
			require.Empty(t, s.Threads)
		case s.Threads[0].Torn:
			torn++
			require.Empty(t, s.Threads[0].Frames)
			require.Error(t, s.Threads[0].Err)
		default:
			enough = len(whole.Frames) > 0 && s.Threads[0].Frames[0] == whole.Frames[0]
		}
		p.in.memory = &broken{live, procfs.ErrHung, after}
		if s, err := p.Stacks(Options{}); err == nil {
			require.Equal(t, whole.Frames, s.Threads[0].Frames)
		} else {
			require.True(t, errors.Is(err, procfs.ErrHung), "%v", err)
		}
	}
	require.True(t, enough)
	require.NotZero(t, torn)
}

// TestAnotherFileWithAnInodeThatIsKnown: an inode is used again for another interpreter, or
// for one where there was none.
func TestAnotherFileWithAnInodeThatIsKnown(t *testing.T) {
	j := start(t, hostPython(t), "idle.py")
	reader := New(procfs.Open("").WithPatience(hosttest.Patience))
	p, err := reader.Open(j.pid)
	require.NoError(t, err)
	require.NoError(t, p.Close())
	require.Len(t, reader.images.files, 1)
	for id := range reader.images.files {
		right := *reader.images.get(id)
		other, cookies := right, right
		other.codeType += 8
		cookies.codeType, cookies.runtime = 0, right.runtime+8
		for _, wrong := range []*image{&other, &cookies} {
			reader.images.put(id, wrong)
			_, err = reader.Open(j.pid)
			require.Error(t, err)
			p, err = reader.Open(j.pid)
			require.NoError(t, err)
			require.NoError(t, p.Close())
		}
	}
}
