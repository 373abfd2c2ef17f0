//go:build linux && (amd64 || arm64)

package kmsg

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/privtest"
)

const ownMarker = markerPrefix + "0123456789abcdef"

// buffered is a probe whose marker was seen 100 s after the boot, when the local clock
// said 90 s.
func buffered(t *testing.T) *Probe {
	a, err := newAutomaton([]string{"NVRM: Xid", ownMarker})
	require.NoError(t, err)
	return &Probe{marker: ownMarker, automaton: a, markedNS: 100e9}
}

// log gives records one by one, and errors, as /dev/kmsg does.
func log(records ...any) func([]byte) (int, error) {
	return func(into []byte) (int, error) {
		if len(records) == 0 {
			return 0, syscall.EAGAIN
		}
		next := records[0]
		records = records[1:]
		if err, is := next.(error); is {
			return 0, err
		}
		return copy(into, next.(string)), nil
	}
}

func texts4(b Back) []string {
	var all []string
	for _, e := range b.Events {
		all = append(all, e.Text)
	}
	return all
}

func TestTheBufferIsReadUpToTheProbe(t *testing.T) {
	back, err := buffered(t).readBack(log(
		"3,0,10000000,-;NVRM: Xid (PCI:0000:65:00): 79, first\n",
		"6,1,20000000,-;usb 1-1: nothing of interest\n",
		"4,2,30000000,-;NVRM: Xid (PCI:0000:65:00): 79, second\n SUBSYSTEM=pci\n DEVICE=+pci:0000:65:00.0\n",
		"15,3,90000000,-;"+ownMarker+"\n",
		"3,4,91000000,-;NVRM: Xid (PCI:0000:65:00): 79, which the probe sees\n",
	), 0)
	require.NoError(t, err)
	require.Equal(t, []string{"NVRM: Xid (PCI:0000:65:00): 79, first", "NVRM: Xid (PCI:0000:65:00): 79, second"}, texts4(back))
	require.False(t, back.Gap)
	require.Equal(t, 20*time.Second, back.Events[1].Time.Sub(back.Events[0].Time))
	before := time.Now()
	ago := time.Duration(Now()) - 40*time.Second // the second: 30 s of the local clock are 40 s of the boot clock
	require.WithinRange(t, back.Events[1].Time, before.Add(-ago-5*time.Second), time.Now().Add(-ago+5*time.Second))
	for _, e := range back.Events {
		require.True(t, e.Late)
		require.Equal(t, WriterKernel, e.Writer)
		require.Zero(t, e.Origin, "nothing shows which function wrote it")
	}
}

func TestWhatAProcessWroteIsNotReadBack(t *testing.T) {
	for facility := range 24 {
		line := fmt.Sprintf("%d,7,10000000,-;NVRM: Xid (PCI:0000:65:00): 79, forged\n", facility<<3|3)
		back, err := buffered(t).readBack(log(line), 0)
		require.NoError(t, err)
		require.Equal(t, facility == 0, len(back.Events) == 1, "facility %d", facility)
	}
}

func TestOnlyWhatWasNotSeenIsReadBack(t *testing.T) {
	lines := []any{
		"3,5,10000000,-;NVRM: Xid 1\n", "3,6,20000000,-;NVRM: Xid 2\n", "3,7,30000000,-;NVRM: Xid 3\n", "15,8,90000000,-;" + ownMarker + "\n",
	}
	back, err := buffered(t).readBack(log(lines...), Moment(30e9)) // of the boot clock: the second
	require.NoError(t, err)
	require.Equal(t, []string{"NVRM: Xid 3"}, texts4(back))
	require.False(t, back.Gap, "the buffer reaches further back")

	back, err = buffered(t).readBack(log(lines...), Moment(10e9))
	require.NoError(t, err)
	require.True(t, back.Gap, "the oldest record is younger than what was seen last, and not the first of the boot")
}

func TestAnOverwrittenBufferIsAGap(t *testing.T) {
	back, err := buffered(t).readBack(log(syscall.EPIPE, "3,900,10000000,-;NVRM: Xid 1\n"), 0)
	require.NoError(t, err)
	require.True(t, back.Gap)
	require.Len(t, back.Events, 1)
}

func TestAFloodKeepsTheNewest(t *testing.T) {
	n := 0
	next := func(into []byte) (int, error) {
		if n == MaxBack+10 {
			return 0, syscall.EAGAIN
		}
		n++
		return copy(into, fmt.Sprintf("3,%d,%d,-;NVRM: Xid %d\n", n, n, n)), nil
	}
	back, err := buffered(t).readBack(next, 0)
	require.NoError(t, err)
	require.Equal(t, MaxBack, len(back.Events)) // Len would print them all
	require.Equal(t, 10, back.Cut)
	require.Equal(t, fmt.Sprintf("NVRM: Xid %d", MaxBack+10), back.Events[MaxBack-1].Text)
}

func TestEscapedTextIsItsOwnAgain(t *testing.T) {
	for escaped, want := range map[string]string{
		`a\x0ab`: "a\nb", `\x5cx41`: `\x41`, `tail\x`: `tail\x`, `\xzz`: `\xzz`, `plain`: "plain", `\x09`: "\t", `line\x0a`: "line",
	} {
		require.Equal(t, want, string(unescape([]byte(escaped))), escaped)
	}
}

func TestABrokenBufferIsAnErrorOrPassedOver(t *testing.T) {
	_, err := buffered(t).readBack(log(syscall.EIO), 0)
	require.ErrorIs(t, err, syscall.EIO)
	back, err := buffered(t).readBack(log("", ";", "3,1;NVRM: Xid", "x,1,2,-;NVRM: Xid", "3,1,99999999999999999999,-;NVRM: Xid", "3,1,9223372036854775807,-;NVRM: Xid far\n"), 0)
	require.NoError(t, err)
	require.Len(t, back.Events, 1)
}

func FuzzReadBack(f *testing.F) {
	f.Add("3,0,10000000,-;NVRM: Xid 1\n", uint64(0))
	f.Add("15,3,90000000,-;"+ownMarker, uint64(1<<60))
	f.Add(`3,0,1,c;NVRM: Xid \x0a\x5c`, uint64(5))
	a, err := newAutomaton([]string{"NVRM: Xid"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, record string, since uint64) {
		p := &Probe{marker: ownMarker, automaton: a, markedNS: 100e9}
		back, err := p.readBack(log(record), Moment(since))
		require.NoError(t, err)
		require.LessOrEqual(t, len(back.Events), 1)
	})
}

// The log of this machine: a record of the kernel itself, stored before the probe opened.
func TestTheKernelsOwnRecordsAreReadBack(t *testing.T) {
	privtest.Require(t)
	reportFaults(t)
	before := Now()
	cmd := runChild(t, "segfault")
	require.Error(t, cmd.Run())
	line := faultLine(uint32(cmd.ProcessState.Pid()))
	p, err := Open(Options{Words: []string{line}})
	require.NoError(t, err)
	defer p.Close()
	back, err := p.ReadBack(before)
	require.NoError(t, err)
	require.NotEmpty(t, back.Events, "the kernel said%s", line)
	for _, e := range back.Events {
		require.Contains(t, e.Text, line)
		require.WithinDuration(t, time.Now(), e.Time, time.Minute)
	}
	back, err = p.ReadBack(Now())
	require.NoError(t, err)
	require.Empty(t, back.Events)
}
