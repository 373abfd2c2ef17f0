package procmem

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/internal/procfs"
)

func openSelf(t *testing.T) *Process {
	t.Helper()
	p, err := Open(procfs.Open("/proc").WithPatience(time.Minute), uint32(os.Getpid()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// pages are mapped and not touched; their number is count.
func pages(t *testing.T, count int, file *os.File) (memory []byte, address uint64) {
	t.Helper()
	fd, flags := -1, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS
	if file != nil {
		fd, flags = int(file.Fd()), unix.MAP_PRIVATE
	}
	memory, err := unix.Mmap(fd, 0, count*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, flags)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(memory)) })
	require.NoError(t, unix.Madvise(memory, unix.MADV_RANDOM)) // no page comes with its neighbour
	return memory, uint64(uintptr(unsafe.Pointer(&memory[0])))
}

func TestMemoryIsRead(t *testing.T) {
	p := openSelf(t)
	want := []byte("the quick brown fox")
	got := make([]byte, len(want))
	require.NoError(t, p.Read(uint64(uintptr(unsafe.Pointer(&want[0]))), got))
	require.Equal(t, want, got)
	runtime.KeepAlive(want)
	large := make([]byte, MaxRead)
	for i := range large {
		large[i] = byte(i % 251)
	}
	got = make([]byte, MaxRead)
	require.NoError(t, p.Read(uint64(uintptr(unsafe.Pointer(&large[0]))), got))
	require.Equal(t, large, got)
	require.NoError(t, p.Read(0, nil))
}

func TestPartsAreReadTogether(t *testing.T) {
	p, size := openSelf(t), uint64(os.Getpagesize())
	memory, address := pages(t, 3, nil)
	memory[0], memory[5], memory[2*size] = 1, 2, 3
	got := make([]byte, 3)
	require.NoError(t, p.ReadAll([]Part{{address, got[:1]}, {address + 5, got[1:2]}, {address, nil}, {address + 2*size, got[2:]}}))
	require.Equal(t, []byte{1, 2, 3}, got)
	clear(got)
	require.ErrorIs(t, p.ReadAll([]Part{{address, got[:1]}, {address + size, got[1:2]}}), ErrAbsent)
	require.Equal(t, []byte{0, 0, 0}, got, "all or nothing")
	require.ErrorIs(t, p.ReadAll(make([]Part, MaxParts+1)), ErrAbsent)
	half := make([]byte, MaxRead/2+1)
	require.ErrorIs(t, p.ReadAll([]Part{{address, half}, {address, half}}), ErrAbsent)
	require.NoError(t, p.ReadAll(nil))
}

// TestNoPageIsFaultedIn looks at anonymous memory and at a file's: the page that was absent
// still is, and a read that needs it fails whole.
func TestNoPageIsFaultedIn(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	defer file.Close()
	require.NoError(t, file.Truncate(int64(3*os.Getpagesize())))
	for name, of := range map[string]*os.File{"anonymous": nil, "of a file": file} {
		t.Run(name, func(t *testing.T) {
			p, size := openSelf(t), uint64(os.Getpagesize())
			memory, address := pages(t, 3, of)
			memory[0], memory[2*size] = 1, 3
			require.NoError(t, p.Read(address, make([]byte, size)))
			require.NoError(t, p.Read(address+2*size, make([]byte, size)))
			for _, tc := range []struct{ address, length uint64 }{{address + size, 8}, {address, 3 * size}, {address + size - 4, 8}, {address + 2*size - 4, 8}} {
				require.ErrorIs(t, p.Read(tc.address, make([]byte, tc.length)), ErrAbsent)
			}
			there, err := p.kernel.present(address, 3)
			require.NoError(t, err)
			require.Equal(t, []bool{true, false, true}, there)
		})
	}
}

func TestWhatIsNotReadable(t *testing.T) {
	p, size := openSelf(t), uint64(os.Getpagesize())
	memory, address := pages(t, 1, nil)
	memory[0] = 1
	require.NoError(t, unix.Mprotect(memory, unix.PROT_NONE))
	for name, tc := range map[string]struct{ address, length uint64 }{
		"no access":               {address, 8},
		"nothing":                 {0, 8},
		"the kernel's":            {0xffff800000000000, 8},
		"behind user space":       {1<<47 - size/2, size},
		"the end":                 {math.MaxUint64 - 7, 8},
		"round the end":           {math.MaxUint64 - 3, 8},
		"too much":                {address, MaxRead + 1},
		"from nowhere, very long": {1 << 62, MaxRead},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, p.Read(tc.address, make([]byte, tc.length)), ErrAbsent)
		})
	}
	require.NoError(t, p.over, "none of these says anything about the next read")
}

func TestAProcessThatIsGone(t *testing.T) {
	_, err := Open(procfs.Open("/proc").WithPatience(time.Minute), math.MaxInt32)
	require.ErrorIs(t, err, procfs.ErrGone)
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childVariable+"=true")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var address uint64
	_, err = fmt.Fscanln(stdout, &address)
	require.NoError(t, err)
	p, err := Open(procfs.Open("/proc").WithPatience(time.Minute), uint32(cmd.Process.Pid))
	require.NoError(t, err)
	defer p.Close()
	got := make([]byte, len(secret))
	require.NoError(t, p.Read(address, got))
	require.Equal(t, secret, string(got))
	require.NoError(t, stdin.Close())
	require.NoError(t, cmd.Wait())
	require.ErrorIs(t, p.Read(address, got), procfs.ErrGone)
}

// secret is what the child's memory has.
const (
	childVariable = "PROCMEM_CHILD"
	secret        = "words of a child"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) == "" {
		os.Exit(m.Run())
	}
	words := []byte(strings.Clone(secret))
	fmt.Println(uint64(uintptr(unsafe.Pointer(&words[0]))))
	_, _ = os.Stdin.Read(make([]byte, 1))
	runtime.KeepAlive(words)
}

// stuck is a kernel whose copy does not return before it is let go.
type stuck struct{ free, done chan struct{} }

func (*stuck) present(_ uint64, pages int) ([]bool, error) { return []bool{true}[:pages], nil }
func (*stuck) pageSize() uint64                            { return 1 << 20 }
func (*stuck) close() error                                { return nil }
func (s *stuck) copy(parts []Part) (int, error) {
	<-s.free
	into := parts[0].Into
	for i := range into {
		into[i] = 0xee
	}
	close(s.done)
	return len(into), nil
}

// TestAReadThatHangsIsLeftBehind and writes into nothing that is used.
func TestAReadThatHangsIsLeftBehind(t *testing.T) {
	fs := procfs.Open("/proc").WithPatience(time.Millisecond)
	k := &stuck{make(chan struct{}), make(chan struct{})}
	p := &Process{fs: fs, name: "/proc/1/pagemap", kernel: k}
	into := make([]byte, 8)
	require.ErrorIs(t, p.Read(64, into), procfs.ErrHung)
	require.Equal(t, 1, fs.Left())
	require.ErrorIs(t, p.Read(64, into), procfs.ErrHung)
	require.Equal(t, 1, fs.Left(), "it is not asked again")
	close(k.free)
	<-k.done
	require.Equal(t, make([]byte, 8), into)
	require.ErrorIs(t, p.Read(64, into), procfs.ErrHung)
}

func TestAForeignProcIsNotRead(t *testing.T) {
	fs := procfs.Open("/proc")
	fs.SetForeign(true)
	_, err := Open(fs, uint32(os.Getpid()))
	require.ErrorIs(t, err, procfs.ErrForeign)
}

// FuzzRead reads this very process: whatever is asked for, the answer is what is there.
func FuzzRead(f *testing.F) {
	f.Add(uint64(0), 8)
	f.Add(uint64(1)<<62, MaxRead)
	f.Fuzz(func(t *testing.T, address uint64, length int) {
		p := openSelf(t)
		if err := p.Read(address, make([]byte, uint(length)%(2*MaxRead))); err != nil {
			require.ErrorIs(t, err, ErrAbsent)
		}
	})
}

func BenchmarkRead(b *testing.B) {
	p, err := Open(procfs.Open("/proc"), uint32(os.Getpid()))
	require.NoError(b, err)
	defer p.Close()
	from, into := make([]byte, 64), make([]byte, 64)
	for b.Loop() {
		if err := p.Read(uint64(uintptr(unsafe.Pointer(&from[0]))), into); err != nil {
			b.Fatal(err)
		}
	}
}
