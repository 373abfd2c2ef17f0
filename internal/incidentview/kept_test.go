package incidentview

import (
	"bytes"
	"compress/gzip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// largest is the incident of a recording that has most verdicts.
func (r *recording) largest(t testing.TB) []verdict.Verdict {
	t.Helper()
	incidents := verdict.Incidents(r.verdicts(t))
	require.NotEmpty(t, incidents)
	largest := incidents[0]
	for _, incident := range incidents {
		if len(incident) > len(largest) {
			largest = incident
		}
	}
	return largest
}

// collected gives the records from one batch to another to a collector.
func (r *recording) collected(to *Records, from, until int) *Records {
	for _, logs := range r.batches[from:until] {
		to.Logs(logs)
	}
	return to
}

func reopened(t testing.TB, incident []verdict.Verdict, r *Records, most int) *Records {
	t.Helper()
	packed, err := r.Keep(most)
	require.NoError(t, err)
	require.LessOrEqual(t, len(packed), most)
	again := NewRecords(incident)
	require.NoError(t, again.Restore(packed))
	return again
}

// Whatever is kept and taken up, and however often the same records come, the report is
// that of all records read at once.
func TestKeptRecordsGiveTheReportOfARecording(t *testing.T) {
	r := checkpointStops(16)
	incident := r.largest(t)
	all := len(r.batches)
	build := func(records *Records) View {
		return Build(incident, Options{Now: began.Add(20 * time.Minute), Version: "test", Records: records})
	}
	want := build(r.collected(NewRecords(incident), 0, all))
	require.NotEmpty(t, want.Stacks)
	require.NotEmpty(t, want.Near)
	for name, cut := range map[string]int{"before the stall": 3, "in the middle": all / 2, "at the end": all} {
		t.Run(name, func(t *testing.T) {
			records := reopened(t, incident, r.collected(NewRecords(incident), 0, cut), 1<<20)
			r.collected(records, 0, cut) // a journal tells it again
			r.collected(records, cut, all)
			got := build(reopened(t, incident, records, 1<<20))
			require.Equal(t, want.Stacks, got.Stacks)
			require.Equal(t, want.Near, got.Near)
			require.Equal(t, want.Dead, got.Dead)
			require.Equal(t, len(want.Raw), len(got.Raw))
			for i := range want.Raw {
				require.Equal(t, want.Raw[i].Title+want.Raw[i].Note, got.Raw[i].Title+got.Raw[i].Note)
				require.JSONEq(t, string(want.Raw[i].JSON), string(got.Raw[i].JSON))
			}
			require.Equal(t, len(want.Lanes), len(got.Lanes))
			for i := range want.Lanes {
				require.Equal(t, want.Lanes[i].Label, got.Lanes[i].Label)
				require.Equal(t, len(want.Lanes[i].Bars)+len(want.Lanes[i].Points), len(got.Lanes[i].Bars)+len(got.Lanes[i].Points))
			}
			wanted, told := want.Lanes[len(want.Lanes)-1].Levels, got.Lanes[len(got.Lanes)-1].Levels
			require.NotEmpty(t, wanted)
			last := wanted[len(wanted)-1]
			require.Equal(t, last.Dead, told[len(told)-1].Dead)
			require.WithinDuration(t, last.At, told[len(told)-1].At, time.Millisecond)
		})
	}
}

func TestKeptRecordsAreBounded(t *testing.T) {
	r := checkpointStops(64)
	incident := r.largest(t)
	records := r.collected(NewRecords(incident), 0, len(r.batches))
	size := 0
	for _, most := range []int{10, 200, 2000, 5000, 10_000, 1 << 20} {
		packed, err := records.Keep(most)
		require.NoError(t, err)
		require.LessOrEqual(t, len(packed), most)
		require.GreaterOrEqual(t, len(packed), size, "more room holds no less")
		size = len(packed)
		require.NoError(t, NewRecords(incident).Restore(packed))
	}
	require.NotZero(t, size)
	packed, err := NewRecords(incident).Keep(1 << 20)
	require.NoError(t, err)
	require.Empty(t, packed, "nothing was collected")
}

func TestFramesComeFromElsewhere(t *testing.T) {
	r := checkpointStops(16)
	incident := r.largest(t)
	records := NewRecords(incident)
	for _, logs := range r.batches {
		for _, resource := range logs.ResourceLogs().All() { // rank 0 alone told the frames
			record := resource.ScopeLogs().At(0).LogRecords().At(0)
			if record.EventName() == rule.EventStack && word(record.Attributes(), "gen_ai.training.rank") == "0" {
				record.SetTimestamp(record.Timestamp() - 1e9*3600)
			}
		}
		records.Logs(logs)
	}
	unnamed := records.Unnamed()
	require.Len(t, unnamed, 1)
	require.Equal(t, "beef", unnamed[0].Hash)
	forged := plog.NewLogs() // another job says that its stack has the same hash
	r.batches[0].CopyTo(forged)
	for _, resource := range forged.ResourceLogs().All() {
		record := resource.ScopeLogs().At(0).LogRecords().At(0)
		record.SetEventName(rule.EventStack)
		record.Attributes().PutStr("gen_ai.training.job_id", "another")
		record.Attributes().PutStr("process.stack.hash", "beef")
		record.Attributes().PutEmptySlice("process.stack.native").AppendEmpty().SetStr("innocent in job")
	}
	records.Frames(forged)
	require.Equal(t, unnamed, records.Unnamed())
	for _, logs := range r.batches {
		records.Frames(logs)
	}
	require.Empty(t, records.Unnamed())
}

func TestWhatIsNoKeptEvidence(t *testing.T) {
	incident := checkpointStops(16).largest(t)
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	_, _ = w.Write([]byte(`{"near":[`))
	for range 40 {
		_, _ = w.Write(bytes.Repeat([]byte(" "), 1<<20))
	}
	require.NoError(t, w.Close())
	for _, packed := range [][]byte{[]byte("{}"), {0x1f, 0x8b}, bomb.Bytes()} {
		require.Error(t, NewRecords(incident).Restore(packed))
	}
	require.NoError(t, NewRecords(incident).Restore(nil))
}
