package fold

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/receivers/internal/catalogue"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/kernellog"
)

var start = time.Unix(1_700_000_000, 0)

func at(offset time.Duration) time.Time { return start.Add(offset) }

// player feeds kernel-log lines to a parser and a folder at chosen times.
type player struct {
	t      *testing.T
	parser *kernellog.Parser
	*Folder
}

func newPlayer(t *testing.T, open int) *player {
	meanings, err := catalogue.Load()
	require.NoError(t, err)
	return &player{t, kernellog.NewParser(meanings), New(Limits{Quiet: time.Second, Longest: 10 * time.Second, Open: open})}
}

func (p *player) line(offset time.Duration, text string) []Report {
	event := kmsg.Event{Time: at(offset), Text: text}
	faults, _ := p.parser.Parse(nil, &event)
	require.Len(p.t, faults, 1, text)
	return p.Add(nil, faults[0], at(offset))
}

func xid(code, pid int) string {
	return fmt.Sprintf("NVRM: Xid (PCI:0000:65:00): %d, pid=%d, name=python, Ch 0", code, pid)
}

func action(from, to string) string {
	return fmt.Sprintf("NVRM: Xid (PCI:0000:65:00): 154, GPU recovery action changed from 0x9 (%s) to 0x9 (%s)", from, to)
}

func TestFaultThatCallsForActionLeavesAtOnceAndOnce(t *testing.T) {
	p := newPlayer(t, 16)
	reports := p.line(0, xid(79, 1))
	require.Len(t, reports, 1)
	require.EqualValues(t, 1, reports[0].Count)
	require.False(t, reports[0].Repeat)
	require.Empty(t, p.Expire(nil, at(999*time.Millisecond)))
	require.Empty(t, p.Expire(nil, at(time.Second)), "nothing was added to what left")
	require.Zero(t, p.Open())
}

func TestRepeatedFaultClosesWithItsTotal(t *testing.T) {
	p := newPlayer(t, 16)
	opening := p.line(0, xid(79, 1))
	require.Empty(t, p.line(100*time.Millisecond, xid(79, 1)))
	require.Empty(t, p.line(300*time.Millisecond, xid(79, 1)))
	require.Empty(t, p.Expire(nil, at(1200*time.Millisecond)))
	closing := p.Expire(nil, at(1300*time.Millisecond))
	require.Len(t, closing, 1)
	require.True(t, closing[0].Repeat)
	require.EqualValues(t, 3, closing[0].Count)
	require.Equal(t, at(0), closing[0].First)
	require.Equal(t, at(300*time.Millisecond), closing[0].Last)
	require.Equal(t, opening[0].ID, closing[0].ID)
	require.EqualValues(t, 2, p.Folded())
}

func TestTenThousandCleanUpsAreOneRecord(t *testing.T) {
	p := newPlayer(t, 16)
	for i := range 10_000 {
		require.Empty(t, p.line(time.Duration(i)*10*time.Microsecond, xid(45, 7)))
	}
	reports := p.Expire(nil, at(2*time.Second))
	require.Len(t, reports, 1)
	require.EqualValues(t, 10_000, reports[0].Count)
	require.False(t, reports[0].Repeat)
	require.Empty(t, p.Flush(nil))
}

func TestStormKeepsExactCountFirstAndLast(t *testing.T) {
	const lines = 100_000
	p := newPlayer(t, 16)
	var reports []Report
	for i := range lines {
		offset := time.Duration(i) * 300 * time.Microsecond // 30 s
		reports = append(reports, p.line(offset, xid(119, 7))...)
		reports = p.Expire(reports, at(offset))
	}
	reports = p.Flush(reports)
	require.Len(t, reports, 4, "at once, twice after 10 s, at the end")
	for i, r := range reports {
		require.Equal(t, i > 0, r.Repeat)
		require.Equal(t, reports[0].ID, r.ID)
		require.Equal(t, at(0), r.First)
	}
	require.EqualValues(t, lines, reports[3].Count)
	require.Equal(t, at((lines-1)*300*time.Microsecond), reports[3].Last)
}

func TestWaitingFaultReportsAfterTheLongestWindow(t *testing.T) {
	p := newPlayer(t, 16)
	var reports []Report
	for offset := time.Duration(0); offset <= 10*time.Second; offset += 500 * time.Millisecond {
		require.Empty(t, p.line(offset, xid(13, 7)))
		reports = p.Expire(reports, at(offset))
	}
	require.Len(t, reports, 1)
	require.False(t, reports[0].Repeat)
	require.EqualValues(t, 21, reports[0].Count)
}

func TestEachChangeOfStateIsAnEvent(t *testing.T) {
	p := newPlayer(t, 16)
	for i, step := range []struct{ from, to string }{
		{"None", "GPU Reset Required"},
		{"GPU Reset Required", "None"},
		{"None", "GPU Reset Required"},
	} {
		reports := p.line(time.Duration(i)*time.Millisecond, action(step.from, step.to))
		require.Len(t, reports, 1, step)
		require.False(t, reports[0].Repeat)
	}
	require.Empty(t, p.line(5*time.Millisecond, action("None", "GPU Reset Required")), "the same state again is a repetition")
	closing := p.line(6*time.Millisecond, action("GPU Reset Required", "None"))
	require.Len(t, closing, 2, "the end of the state before, and the new one")
	require.True(t, closing[0].Repeat)
	require.EqualValues(t, 2, closing[0].Count)
	require.Equal(t, "none", closing[1].State)
}

func TestAFoldClosesEarlyBeyondTheCap(t *testing.T) {
	p := newPlayer(t, 8)
	var reports []Report
	const pids = 1000
	for pid := 1; pid <= pids; pid++ {
		reports = append(reports, p.line(0, xid(43, pid))...)
		require.LessOrEqual(t, p.Open(), 8)
	}
	require.Len(t, reports, pids-8)
	require.EqualValues(t, pids-8, p.ClosedEarly())
	require.EqualValues(t, 1, reports[0].OwnerPID)
	require.Len(t, p.Flush(reports), pids, "nothing is lost")
}

// TestAFloodClosesItsOwnFolds: lines about ever other things come without end, claimed or
// of a driver. The fold of a driver's storm goes on through them.
func TestAFloodClosesItsOwnFolds(t *testing.T) {
	for name, trust := range map[string]record.Trust{"claims": record.Claimed, "a driver's": record.Proven} {
		t.Run(name, func(t *testing.T) {
			f := New(Limits{Quiet: time.Hour, Longest: time.Hour, Open: 8})
			storm := kernellog.Fault{Key: kernellog.Key{Event: "gpu.xid", Subject: "0000:65:00", Trust: record.Proven, Code: 13}, ApplicationCaused: true, Time: start}
			reports := f.Add(nil, storm, start)
			for i := range uint32(1000) {
				other := kernellog.Fault{Key: kernellog.Key{Event: "gpu.xid", Subject: "0000:ff:00", Trust: trust, PID: i}, ApplicationCaused: true, Time: start}
				reports = f.Add(reports, other, start)
				reports = f.Add(reports, storm, start)
			}
			require.EqualValues(t, 1000-7, f.ClosedEarly())
			var counts []uint64
			for _, r := range f.Flush(reports) {
				if r.Key == storm.Key {
					counts = append(counts, r.Count)
				}
			}
			require.Equal(t, []uint64{1001}, counts)
		})
	}
}

func TestForgedLineDoesNotJoinATrueOne(t *testing.T) {
	p := newPlayer(t, 8)
	for _, writer := range []kmsg.Writer{kmsg.WriterKernel, kmsg.WriterUserspace, kmsg.WriterUnknown} {
		event := kmsg.Event{Time: start, Writer: writer, Text: xid(79, 1)}
		faults, _ := p.parser.Parse(nil, &event)
		require.Len(t, p.Add(nil, faults[0], start), 1)
	}
}

func TestTimesOutOfOrderKeepFirstAndLast(t *testing.T) {
	p := newPlayer(t, 8)
	for _, offset := range []time.Duration{5, 3, 9, 1} {
		p.line(offset, xid(45, 1))
	}
	reports := p.Flush(nil)
	require.Equal(t, at(1), reports[0].First)
	require.Equal(t, at(9), reports[0].Last)
	require.EqualValues(t, 4, reports[0].Count)
}

func TestFaultsOfDifferentPlacesDoNotFold(t *testing.T) {
	p := newPlayer(t, 64)
	lines := []string{
		xid(79, 1), xid(79, 2), xid(119, 1),
		"NVRM: Xid (PCI:0000:66:00): 79, pid=1, name=python, Ch 0",
		"NVRM: Xid (PCI:0000:65:00 GPU-I:00): 79, pid=1, name=python, Ch 0",
		"NVRM: Xid (PCI:0000:65:00 GPU-I:01): 79, pid=1, name=python, Ch 0",
		"NVRM: Xid (PCI:0000:65:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x025001c6 0x0)",
		"NVRM: Xid (PCI:0000:65:00): 149, NETIR_LINK_EVT Fatal XC0 i1 Link 08 (0x025001c6 0x0)",
		"NVRM: Xid (PCI:0000:65:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 09 (0x025001c6 0x0)",
		"NVRM: Xid (PCI:0000:65:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x026001c6 0x0)",
		"NVRM: Xid (PCI:0000:65:00): 149, NETIR_LINK_DOWN Fatal XC0 i0 Link 08 (0x025001c6 0x0)",
	}
	for _, text := range lines {
		require.Len(t, p.line(0, text), 1, text)
	}
	require.Equal(t, len(lines), p.Open())
}
