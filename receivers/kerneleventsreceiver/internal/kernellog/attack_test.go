//go:build linux && (amd64 || arm64)

package kernellog

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
	"github.com/tracecoreai/tracecore/internal/stranger"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

func TestMain(m *testing.M) {
	stranger.Main()
	loseMemory()
	os.Exit(m.Run())
}

// corpus is every line of testdata/lines.txt.
func corpus(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("testdata/lines.txt")
	require.NoError(t, err)
	var lines []string
	for line := range strings.Lines(string(text)) {
		line = strings.ReplaceAll(strings.TrimSpace(line), `\n`, "\n")
		if line != "" && !strings.HasPrefix(line, "## ") && !strings.HasPrefix(line, "=> ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// knows reports whether a parser has anything to say about a text.
func (f family) knows(t *testing.T, text string) bool {
	t.Helper()
	p := newTestParser(t)
	first, more, _ := strings.Cut(text, "\n")
	_, outcome := f.parse(&p.proven, nil, line{&kmsg.Event{Time: start, Text: text}, first, more})
	return outcome != Unrecognized
}

// forged are the texts of the attacks: the lines of each parser, as they are and behind a
// newline. In a machine, and where tests are small, one of each parser.
func forged(t *testing.T) []string {
	t.Helper()
	lines := corpus(t)
	var first []string
	for i, f := range families() {
		at := slices.IndexFunc(lines, func(text string) bool { return f.knows(t, text) })
		require.GreaterOrEqual(t, at, 0, "testdata/lines.txt has no line of parser %d", i)
		first = append(first, lines[at])
	}
	if hosttest.Small() || os.Getenv("VMTESTS_KERNEL") != "" {
		lines = first
	}
	texts := []string{control}
	for _, line := range slices.Compact(slices.Sorted(slices.Values(lines))) {
		texts = append(texts, line, "x\n"+line)
	}
	return texts
}

// A process without any privilege makes this kernel print the lines of every driver. The
// one thing that is proven of it is how its own processes ended.
func TestStrangersProveNothing(t *testing.T) {
	privtest.Require(t)
	probe, err := kmsg.Open(kmsg.Options{})
	require.NoError(t, err)
	defer probe.Close()
	texts := forged(t)

	var attacks []stranger.Attack
	heard := listen(t, probe, func() { attacks = stranger.Attacks(t, texts) })

	requirePrinted(t, attacks, heard)
	p, crashed := newTestParser(t), false
	for _, e := range slices.Concat(slices.Collect(maps.Values(heard))...) {
		faults, _ := p.Parse(nil, &e)
		for _, f := range faults {
			if f.Key.Trust == record.Proven {
				require.Equal(t, metadata.EventProcessSegfault, f.Key.Event, "%s: %q", e.Origin, e.Text)
				require.Equal(t, e.PID, f.OwnerPID, "%s: %q", e.Origin, e.Text)
				crashed = crashed || f.OwnerName == control
			}
		}
	}
	require.True(t, crashed, "a crash in %s was to be proven: the kernel tells it", control)
}

// requirePrinted: an attack that the kernel did not print shows nothing.
func requirePrinted(t *testing.T, attacks []stranger.Attack, heard map[uint32][]kmsg.Event) {
	t.Helper()
	printed, refused := map[string]int{}, map[string]string{}
	for _, a := range attacks {
		if a.Refused != "" {
			refused[a.Route] = a.Refused
		} else if slices.ContainsFunc(heard[a.PID], func(e kmsg.Event) bool { return strings.Contains(e.Text, begin(a.Text)) }) {
			printed[a.Route]++
		}
	}
	t.Logf("the kernel printed %v, refused %v", printed, refused)
	for _, route := range stranger.Routes() {
		require.True(t, printed[route] > 0 || refused[route] != "", "%s: nothing of it was printed", route)
	}
	require.Positive(t, printed[stranger.Crash])
	require.Positive(t, printed[stranger.Write])
}

// control is the name of a file that a process can honestly crash in.
const control = "libnccl.so.2.99"

// begin is as much of a text as the name of a process holds.
func begin(text string) string { return text[:min(len(text), 15)] }

// listen returns, by the process that wrote them, the records up to the end of attacks.
func listen(t *testing.T, probe *kmsg.Probe, attacks func()) map[uint32][]kmsg.Event {
	t.Helper()
	late := time.AfterFunc(hosttest.Patience, func() { probe.Close() })
	defer late.Stop()
	fence := fmt.Sprintf("NVRM: the end of the attacks, %d", time.Now().UnixNano())
	heard := map[uint32][]kmsg.Event{}
	var err error
	var wg sync.WaitGroup
	wg.Go(func() {
		for e := (kmsg.Event{}); err == nil && e.Text != fence; err = probe.Read(&e) {
			heard[e.PID] = append(heard[e.PID], e)
		}
	})
	attacks()
	require.NoError(t, os.WriteFile("/dev/kmsg", []byte("<7>"+fence), 0))
	wg.Wait()
	require.NoError(t, err, "the end of the attacks did not come")
	return heard
}
