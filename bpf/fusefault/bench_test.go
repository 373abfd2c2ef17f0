//go:build linux && (amd64 || arm64)

package fusefault

import (
	"errors"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/fusefault/hangfs"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// BenchmarkRequest is a stat that asks the daemon each time, without the probe and
// with it, and in probe-ns/op how much of that is the probe's programs.
func BenchmarkRequest(b *testing.B) {
	withAndWithout(b, func(b *testing.B, f *hangfs.FS) func() {
		path := f.Path(hangfs.Cached)
		var st unix.Statx_t
		return func() {
			if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS, &st); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkFault is a load from a page of a mapped file that is in no cache.
func BenchmarkFault(b *testing.B) {
	withAndWithout(b, func(b *testing.B, f *hangfs.FS) func() {
		memory, forget := mapFile(b, f.Path(hangfs.Cached))
		pages := rand.New(rand.NewPCG(1, 2)).Perm(len(memory) / os.Getpagesize())
		next := 0
		return func() {
			if next == len(pages) {
				b.StopTimer()
				forget()
				next = 0
				b.StartTimer()
			}
			touch(memory, pages[next]*os.Getpagesize())
			next++
		}
	})
}

// BenchmarkFaultElsewhere is a store to a private mapping of a file on another file
// system whose pages are in memory: each is a fault, none waits.
func BenchmarkFaultElsewhere(b *testing.B) {
	withAndWithout(b, func(b *testing.B, _ *hangfs.FS) func() {
		const size = 16 << 20
		file, err := os.Create("bench-file") // not in a temporary directory, which may be a tmpfs
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, errors.Join(file.Close(), os.Remove("bench-file"))) })
		_, err = file.Write(make([]byte, size))
		require.NoError(b, err)
		memory, err := unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, unix.Munmap(memory)) })
		next := 0
		return func() {
			if next >= size {
				b.StopTimer()
				require.NoError(b, unix.Madvise(memory, unix.MADV_DONTNEED))
				b.StartTimer()
				next = 0
			}
			memory[next] = 1
			next += os.Getpagesize()
		}
	})
}

//go:noinline
func touch(memory []byte, offset int) byte { return memory[offset] }

// mapFile maps a file without readahead and returns how to empty the cache.
func mapFile(b *testing.B, path string) (memory []byte, forget func()) {
	b.Helper()
	file, err := os.Open(path)
	require.NoError(b, err)
	info, err := file.Stat()
	require.NoError(b, err)
	size := int(info.Size())
	memory, err = unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	require.NoError(b, err)
	require.NoError(b, unix.Madvise(memory, unix.MADV_RANDOM))
	b.Cleanup(func() {
		require.NoError(b, unix.Munmap(memory))
		require.NoError(b, file.Close())
	})
	forget = func() {
		require.NoError(b, unix.Madvise(memory, unix.MADV_DONTNEED))
		require.NoError(b, unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED))
	}
	forget()
	return memory, forget
}

// withAndWithout runs what prepare returns without the probe, with it, and with the
// kernel's own clock on the probe's programs, which costs a little itself.
func withAndWithout(b *testing.B, prepare func(*testing.B, *hangfs.FS) func()) {
	privtest.Require(b)
	for _, how := range []string{"without probe", "with probe", "programs timed"} {
		b.Run(how, func(b *testing.B) {
			once := prepare(b, mount(b, hangfs.Options{}))
			if how == "without probe" {
				fastest(b, once)
				return
			}
			p := open(b, Options{})
			if how == "programs timed" {
				stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
				require.NoError(b, err)
				defer stats.Close()
			}
			fastest(b, once)
			if how == "programs timed" {
				b.ReportMetric(float64(programTime(b, p).Nanoseconds())/float64(b.N), "probe-ns/op")
			}
		})
	}
}

// fastest runs the loop and reports the mean of its fastest hundred in a row: what
// it takes when nothing else has the CPU.
func fastest(b *testing.B, once func()) {
	b.Helper()
	const row = 100
	best, n, begun := time.Hour, 0, time.Now()
	for b.Loop() {
		once()
		if n++; n%row == 0 {
			now := time.Now()
			best, begun = min(best, now.Sub(begun)), now
		}
	}
	if n >= row {
		b.ReportMetric(float64(best.Nanoseconds())/row, "best-ns/op")
	}
}

// programTime sums up what the kernel measured of the attached programs.
func programTime(b *testing.B, p *Probe) time.Duration {
	b.Helper()
	var sum time.Duration
	for _, l := range p.hooks.links {
		info, err := l.Info()
		require.NoError(b, err)
		program, err := ebpf.NewProgramFromID(info.Program)
		require.NoError(b, err)
		stats, err := program.Stats()
		require.NoError(b, err)
		require.NoError(b, program.Close())
		sum += stats.Runtime
	}
	return sum
}
