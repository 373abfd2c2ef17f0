package patterndetectorprocessor

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// killDir tells a copy of this test binary to be the detector that is killed.
const killDir = "PATTERNDETECTOR_KILL_DIR"

// TestKilledBetweenTwoPiecesOfEvidence kills a real process with SIGKILL after
// the first piece and gives the second to its successor.
func TestKilledBetweenTwoPiecesOfEvidence(t *testing.T) {
	if dir := os.Getenv(killDir); dir != "" {
		waitToBeKilled(t, dir)
	}
	dir := t.TempDir()
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), killDir+"="+dir)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "first piece consumed, 1 delivered\n", line)
	require.NoError(t, child.Process.Kill())
	require.Error(t, child.Wait())

	r := newRig(t, withStorage(dir)).start(t)
	r.send(t, "test.second", "gpu-1")
	require.Equal(t, []string{"gpu-1"}, r.next.ids(), "one verdict for what straddles the kill, none again for what came before")
}

func waitToBeKilled(t *testing.T, dir string) {
	r := newRig(t, withStorage(dir)).start(t)
	r.send(t, "test.first", "gpu-0", "gpu-1")
	r.send(t, "test.second", "gpu-0")
	fmt.Printf("first piece consumed, %d delivered\n", len(r.next.ids()))
	time.Sleep(time.Hour) // select{} would end the process by itself, for a deadlock
}

// TestAMillionKeysInFlatMemory floods the detector with faults that never get
// their second piece of evidence, with storage on.
func TestAMillionKeysInFlatMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	dir := t.TempDir()
	r := newRig(t, withStorage(dir), withConfig(func(c *Config) { c.Limits.Waiting = 2000 })).start(t)
	const batch, batches = 1000, 1000
	var early uint64
	for b := range batches {
		things := make([]string, batch)
		for i := range things {
			things[i] = fmt.Sprintf("gpu-%d", b*batch+i)
		}
		r.send(t, "test.first", things...)
		if b == batches/10 {
			early = heap()
		}
	}
	require.Less(t, heap(), early+16<<20, "bytes after a million keys, beyond those after a tenth of them")
	stats := r.stats()
	require.LessOrEqual(t, stats.Waiting, 2001)
	require.GreaterOrEqual(t, stats.EvictedWaiting, uint64(batch*batches-2001))
	require.Less(t, stored(t, dir), int64(64<<20), "bytes on disk")
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func stored(t *testing.T, dir string) (size int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		size += info.Size()
	}
	return size
}
