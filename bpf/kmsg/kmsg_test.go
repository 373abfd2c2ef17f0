//go:build linux && (amd64 || arm64)

package kmsg

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/internal/room"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// The first thread has the process's number, which is what the tests look for. A
// goroutine is sure to run on it only when locked to it while packages initialize.
func init() { //nolint:gochecknoinits // only there is the first thread still certain
	if os.Getenv(childVar) != "" {
		runtime.LockOSThread()
	}
}

func TestMain(m *testing.M) {
	if name := os.Getenv(childVar); name != "" {
		os.Exit(children[name]())
	}
	goleak.VerifyTestMain(m)
}

// uniqueWord is a word that nobody else on this machine writes to the kernel log.
func uniqueWord(t testing.TB) string {
	t.Helper()
	nonce := make([]byte, 6)
	_, err := rand.Read(nonce)
	require.NoError(t, err)
	return "kmsg-test-" + hex.EncodeToString(nonce)
}

func openProbe(t testing.TB, opts Options) *Probe {
	t.Helper()
	privtest.Require(t)
	p, err := Open(opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// write puts lines into the kernel log, each with a descriptor of its own so that
// the rate limit per descriptor does not matter.
func write(t testing.TB, lines ...string) {
	t.Helper()
	for _, line := range lines {
		f, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = f.WriteString(line)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
}

// read waits for the next event.
func read(t testing.TB, p *Probe) Event {
	t.Helper()
	late := time.AfterFunc(hosttest.Patience, func() { p.Close() })
	defer late.Stop()
	var e Event
	require.NoError(t, p.Read(&e), "no event came within 20 s")
	return e
}

func TestWriteToKernelLogIsDelivered(t *testing.T) {
	word := uniqueWord(t)
	p := openProbe(t, Options{Words: []string{word}})
	comm, err := os.ReadFile("/proc/thread-self/comm")
	require.NoError(t, err)

	for name, tc := range map[string]struct{ line, want string }{
		"with a level":              {"<3>NVRM: Xid " + word, "NVRM: Xid " + word},
		"without a level":           {word + " x\n", word + " x"},
		"behind a device name":      {"<6>nvidia 0000:65:00.0: " + word + "\n", "nvidia 0000:65:00.0: " + word},
		"several lines, one record": {"<6>a\nb " + word + "\nc\n", "a\nb " + word + "\nc"},
		"bytes that are not UTF-8":  {"<6>" + word + " \xff\xfe\n", word + " �"},
		"facility kern is refused":  {"<0>" + word, word},
	} {
		t.Run(name, func(t *testing.T) {
			before := time.Now()
			write(t, tc.line)
			e := read(t, p)
			require.Equal(t, tc.want, e.Text)
			require.WithinRange(t, e.Time, before.Add(-time.Second), time.Now().Add(time.Second))
			require.EqualValues(t, os.Getpid(), e.PID)
			require.Equal(t, strings.TrimSpace(string(comm)), e.Comm)
			require.Equal(t, WriterUserspace, e.Writer)
			require.False(t, e.Truncated)
		})
	}
	require.Zero(t, p.Stats().Dropped)
	require.Zero(t, p.Stats().Invalid)
}

func TestUnmatchedLinesStayInTheKernel(t *testing.T) {
	word := uniqueWord(t)
	p := openProbe(t, Options{Words: []string{word}})

	write(t, "ordinary line\n", word[:len(word)-1]+"\n", strings.Repeat(".", matchBytes)+word+"\n", "fence "+word+"\n")
	require.Equal(t, "fence "+word, read(t, p).Text)
	require.Equal(t, probe.Stats{Events: 1}, p.Stats())
}

// The kernel cuts a record at LOG_LINE_MAX or PRINTKRB_RECORD_MAX, whose values
// moved; what is left must come whole.
func TestLongRecordComesAsTheKernelHoldsIt(t *testing.T) {
	word := uniqueWord(t)
	p := openProbe(t, Options{Words: []string{word}})

	line := word + strings.Repeat("0123456789", 90)
	write(t, line)
	e := read(t, p)
	require.Equal(t, line, e.Text)
	require.False(t, e.Truncated)
}

func TestDefaultWordsDeliverAnXid(t *testing.T) {
	word := uniqueWord(t)
	p := openProbe(t, Options{})

	write(t, "<3>NVRM: Xid (PCI:0000:65:00): 79, name="+word)
	for {
		// Others may write lines of interest while this runs.
		if e := read(t, p); strings.Contains(e.Text, word) {
			require.Equal(t, "NVRM: Xid (PCI:0000:65:00): 79, name="+word, e.Text)
			return
		}
	}
}

func TestSelfTestIsNotDelivered(t *testing.T) {
	word := uniqueWord(t)
	p := openProbe(t, Options{Words: []string{markerPrefix, word}})
	write(t, "fence "+word)
	for {
		e := read(t, p)
		require.NotEqual(t, p.marker, e.Text)
		if strings.Contains(e.Text, word) {
			return
		}
	}
}

func TestCloseEndsReadAndKeepsTheCounters(t *testing.T) {
	word := uniqueWord(t)
	p := openProbe(t, Options{Words: []string{word}})
	write(t, word)
	read(t, p)

	var wg sync.WaitGroup
	var err error
	wg.Go(func() { err = p.Read(&Event{}) })
	require.NoError(t, p.Close())
	wg.Wait()
	require.ErrorIs(t, err, probe.ErrClosed)
	require.ErrorIs(t, p.Read(&Event{}), probe.ErrClosed)
	require.NoError(t, p.Close())
	require.Equal(t, probe.Stats{Events: 1}, p.Stats())
}

func TestFullRingIsCounted(t *testing.T) {
	word := uniqueWord(t)
	p := openProbe(t, Options{Words: []string{word}, RingBytes: os.Getpagesize()})
	hosttest.UnlimitKmsg(t)

	const lines = 500
	for i := range lines {
		write(t, fmt.Sprintf("%s %d", word, i))
	}
	dropped := p.Stats().Dropped
	require.NotZero(t, dropped)
	for i := range lines - int(dropped) {
		require.Equal(t, fmt.Sprintf("%s %d", word, i), read(t, p).Text)
	}
	write(t, "fence "+word)
	require.Equal(t, "fence "+word, read(t, p).Text)
	require.Equal(t, probe.Stats{Events: lines - dropped + 1, Dropped: dropped}, p.Stats())
}

// Who has one part of the kernel print without end fills the ring for that part alone: what
// another part says finds room.
func TestAFloodLeavesRoomForOtherCode(t *testing.T) {
	word := uniqueWord(t)
	p := openProbe(t, Options{Words: []string{word}, RingBytes: 16 * os.Getpagesize()})
	hosttest.UnlimitKmsg(t)

	const lines = 2000
	for range lines {
		write(t, "<7>"+word)
	}
	require.ErrorIs(t, unix.Mount("none", t.TempDir(), "tmpfs", 0, word), unix.EINVAL)
	told := 0
	for e := read(t, p); strings.HasPrefix(e.Text, word); e = read(t, p) {
		require.Equal(t, WriterUserspace, e.Writer)
		told++
	}
	dropped := p.Stats().Dropped
	require.EqualValues(t, lines, uint64(told)+dropped)
	crowded, err := room.ReadCrowded(p.collection.Maps[bpfMapCrowded])
	require.NoError(t, err)
	require.Equal(t, dropped, crowded.Records)
	write(t, word)
	require.Equal(t, word, read(t, p).Text, "what was read gives its room back")
}

func TestStormLosesNothingUncounted(t *testing.T) {
	word := uniqueWord(t)
	p := openProbe(t, Options{Words: []string{word}})
	hosttest.UnlimitKmsg(t)

	lines := hosttest.Size(100_000, 10_000)
	log, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer log.Close()

	var events uint64
	fenced := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(fenced)
		for e := (Event{}); p.Read(&e) == nil && !strings.HasPrefix(e.Text, "fence "); {
			events++
		}
	})
	start := time.Now()
	for i := range lines {
		_, err := fmt.Fprintf(log, "<6>NVRM: Xid (PCI:0000:65:00): 45, pid=%d, name=%s", i, word)
		require.NoError(t, err)
	}
	took := time.Since(start)
	dropped := p.Stats().Dropped

	deadline := time.After(hosttest.Patience)
	for done := false; !done; {
		write(t, "fence "+word) // repeated: a full ring can drop it
		select {
		case <-fenced:
			done = true
		case <-deadline:
			t.Fatal("the ring was not drained")
		case <-time.After(100 * time.Millisecond):
		}
	}
	wg.Wait()
	t.Logf("%d lines in %v: %d delivered, %d dropped and counted", lines, took, events, dropped)
	require.EqualValues(t, lines, events+dropped)
}
