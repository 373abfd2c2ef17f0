//go:build linux && (amd64 || arm64)

package cudaoom

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/cudaoom/fakejob"
	"github.com/tracecoreai/tracecore/internal/privtest"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

func TestLibraryIsDetachedWhenItsLastProcessIsGone(t *testing.T) {
	p := open(t, Options{})
	library := install(t)
	first, second := job(t, library), job(t, library)
	require.Equal(t, Watched{Libraries: 1}, watch(t, p, first, second))
	require.NoError(t, first.Close())
	require.Equal(t, Watched{Libraries: 1}, watch(t, p, second))
	require.NoError(t, second.Do(fakejob.Malloc(gib, fakejob.OutOfMemory)))
	require.Equal(t, second.PID(), next(t, p).PID)

	require.Equal(t, Watched{}, watch(t, p))
	require.NoError(t, second.Do(fakejob.Malloc(gib, fakejob.OutOfMemory)))
	nothing(t, p)
	require.Equal(t, Watched{Libraries: 1}, watch(t, p, second), "and found again")
	require.NoError(t, second.Do(fakejob.Malloc(gib, fakejob.OutOfMemory)))
	require.Equal(t, second.PID(), next(t, p).PID)
}

// A container with a driver of its own, beside one with the host's.
func TestEachLibraryIsAttachedOnItsOwn(t *testing.T) {
	p := open(t, Options{})
	one, other := job(t, install(t)), job(t, install(t))
	require.Equal(t, Watched{Libraries: 2}, watch(t, p, one, other))
	for _, j := range []*fakejob.Job{one, other} {
		require.NoError(t, j.Do(fakejob.Malloc(gib, fakejob.OutOfMemory)))
		require.Equal(t, j.PID(), next(t, p).PID)
	}
}

func TestProcessThatMapsTheLibraryLaterIsSeen(t *testing.T) {
	p := open(t, Options{})
	library := install(t)
	watched := job(t, library)
	watch(t, p, watched)
	late := job(t, library) // nobody told the probe of it
	require.NoError(t, late.Do(fakejob.Malloc(gib, fakejob.OutOfMemory)))
	require.Equal(t, late.PID(), next(t, p).PID)
}

// A driver update replaces the file under a job that runs on.
func TestLibraryThatWasReplacedIsStillWatched(t *testing.T) {
	p := open(t, Options{})
	library := install(t)
	j := job(t, library)
	require.NoError(t, os.Remove(library))
	require.NoError(t, os.WriteFile(library, []byte("not a library"), 0o644))
	require.Equal(t, Watched{Libraries: 1}, watch(t, p, j))
	require.NoError(t, j.Do(fakejob.Create(2<<20, 0, fakejob.OutOfMemory)))
	require.Equal(t, MemCreate, next(t, p).Function)
}

func TestLibrariesBeyondTheLimitAreCountedAndHadWhenThereIsRoom(t *testing.T) {
	p := open(t, Options{MaxLibraries: 1})
	first := job(t, install(t))
	require.Equal(t, Watched{Libraries: 1}, watch(t, p, first))
	second := job(t, install(t))
	for range 3 {
		require.Equal(t, Watched{Libraries: 1, Over: 1}, watch(t, p, first, second))
	}
	watch(t, p, second) // the first is gone
	require.Equal(t, Watched{Libraries: 1}, watch(t, p, second))
	require.NoError(t, second.Do(fakejob.Malloc(gib, fakejob.OutOfMemory)))
	require.Equal(t, second.PID(), next(t, p).PID)
}

func TestDriverWithoutTheNewerFunctionsIsWatchedAllTheSame(t *testing.T) {
	p := open(t, Options{})
	j := job(t, install(t, "cuMemAlloc_v2", "cuMemAllocManaged"))
	require.Equal(t, Watched{Libraries: 1}, watch(t, p, j))
	require.NoError(t, j.Do(fakejob.Malloc(gib, fakejob.OutOfMemory)))
	require.Equal(t, MemAlloc, next(t, p).Function)
}

// A file of that name without the driver's functions: said once, tried again after
// the longest pause.
func TestLibraryThatCannotBeAttachedIsTriedAgainNowAndThen(t *testing.T) {
	p := open(t, Options{})
	j := job(t, bareLibrary(t))
	w, err := p.Watch(processes(j))
	require.NoError(t, err)
	require.ErrorContains(t, w.Err, "exports none of the driver's allocation functions")
	require.Equal(t, 1, w.Failed)
	told := 0
	for range 2 * (maxPause + 1) {
		w, err = p.Watch(processes(j))
		require.NoError(t, err)
		require.Equal(t, 1, w.Failed)
		if w.Err != nil {
			told++
		}
	}
	require.Equal(t, 2, told)
}

// bareLibrary is a libcuda with one function that no driver has.
func bareLibrary(t *testing.T) string {
	library := filepath.Join(t.TempDir(), fakejob.LibraryName)
	file := fakejob.Library([]string{"cuMemAlloc_v2"})
	for i := range file[:4096] {
		if string(file[i:i+5]) == "cuMem" {
			file[i] = 'x'
		}
	}
	require.NoError(t, os.WriteFile(library, file, 0o755))
	return library
}

func TestProcessesWithoutALibraryAreLookedAtEverMoreRarely(t *testing.T) {
	p := &Probe{proc: procfs.Open(""), max: 1, processes: map[uint32]*looked{}, libraries: map[library]*attached{}}
	own := []Process{{PID: uint32(os.Getpid())}}
	rounds := 0
	for range 1000 {
		_, err := p.Watch(own)
		require.NoError(t, err)
		rounds++
	}
	looks := p.processes[own[0].PID].looks
	require.Greater(t, looks, rounds/maxPause)
	require.Less(t, looks, rounds/4)

	own[0].Start = time.Now() // another process by that number
	_, err := p.Watch(own)
	require.NoError(t, err)
	require.Equal(t, 1, p.processes[own[0].PID].looks)
	_, err = p.Watch(nil)
	require.NoError(t, err)
	require.Empty(t, p.processes)
}

func TestProcessThatCannotBeReadIsCountedAndTriedAgain(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "7", "maps"), 0o755)) // a folder cannot be read
	p := &Probe{proc: procfs.Open(root), max: 1, processes: map[uint32]*looked{}, libraries: map[library]*attached{}}
	for range 2 {
		w, err := p.Watch([]Process{{PID: 7}, {PID: 8}}) // 8 is gone
		require.NoError(t, err)
		require.Equal(t, 1, w.Unreadable)
		require.ErrorContains(t, w.Err, "7/maps")
	}
}

// A process that holds the lock of its memory map, for as long as it is stuck.
func TestStuckProcessesDoNotHoldTheOthers(t *testing.T) {
	root := t.TempDir()
	for _, pid := range []string{"7", "8"} {
		require.NoError(t, os.Mkdir(filepath.Join(root, pid), 0o755))
	}
	// A pipe without a writer holds its reader as a held lock does.
	pipe := filepath.Join(root, "7", "maps")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(root, "8", "maps"), nil, 0o600))
	p := &Probe{proc: procfs.Open(root), max: 1, processes: map[uint32]*looked{}, libraries: map[library]*attached{}}
	for range 2 {
		w, err := p.Watch([]Process{{PID: 7}, {PID: 8}})
		require.NoError(t, err)
		require.Equal(t, 1, w.Unreadable)
		require.ErrorIs(t, w.Err, procfs.ErrHung)
	}
	require.Equal(t, 1, p.proc.Left(), "it is not asked again meanwhile")
	writer, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	require.NoError(t, err)
	require.NoError(t, writer.Close())
	require.Eventually(t, func() bool { return p.proc.Left() == 0 }, time.Minute, time.Millisecond)
}

// BenchmarkWatch is what the processes of a job cost that share a libcuda: the first
// look, which attaches, a look that finds nothing new, and detaching.
func BenchmarkWatch(b *testing.B) {
	privtest.Require(b)
	for _, count := range []int{1, 300} {
		b.Run(fmt.Sprintf("processes=%d", count), func(b *testing.B) {
			library, jobs := install(b, fakejob.Functions()...), make([]*fakejob.Job, count)
			for i := range jobs {
				jobs[i] = job(b, library)
			}
			var attaching, looking, detaching time.Duration
			for b.Loop() {
				p := open(b, Options{})
				attaching += took(func() { require.Equal(b, Watched{Libraries: 1}, watch(b, p, jobs...)) })
				for _, a := range p.libraries {
					b.ReportMetric(float64(len(a.links)), "uprobes")
				}
				looking += took(func() { watch(b, p, jobs...) })
				detaching += took(func() { require.Equal(b, Watched{}, watch(b, p)) })
				require.NoError(b, p.Close())
			}
			for name, spent := range map[string]time.Duration{"ms/attach": attaching, "ms/look": looking, "ms/detach": detaching} {
				b.ReportMetric(float64(spent.Microseconds())/1000/float64(b.N), name)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func took(do func()) time.Duration {
	start := time.Now()
	do()
	return time.Since(start)
}
