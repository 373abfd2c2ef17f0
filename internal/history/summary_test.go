package history

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

var began = time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)

func after(minutes float64) time.Time {
	return began.Add(time.Duration(minutes * float64(time.Minute)))
}

func ended(minutes float64) *Run {
	end := after(minutes)
	return &Run{
		ID: "r1", Job: "llm", Domain: "user 0", Trust: verdict.Proven, Began: began, Updated: end, Ended: &end, Outcome: RunFailed, WorldSize: 1024,
		Ranks: "0-7", RanksCount: 8, EndedRanks: "0-7", EndedCount: 8, Hosts: []string{"node-17"}, First: &Death{Rank: 3, Host: "node-17", At: end, How: "SIGKILL"},
	}
}

func stood(from, to float64, pattern string) Stood { return Stood{after(from), after(to), pattern} }

func TestWhatARunCameTo(t *testing.T) {
	for name, c := range map[string]struct {
		run    func(*Run)
		stood  []Stood
		wall   float64 // minutes, below 0: not known
		moving float64
		stands float64
		causes map[string]float64
	}{
		"nothing was wrong": {wall: 60, moving: 60, causes: map[string]float64{}},
		"stalls that overlap count once": {
			stood: []Stood{stood(10, 20, "fuse_stall"), stood(15, 25, "gpu_lost"), stood(12, 14, "fuse_stall"), stood(40, 41, "gpu_lost")},
			wall:  60, moving: 44, stands: 16, causes: map[string]float64{"fuse_stall": 10, "gpu_lost": 11},
		},
		"it stood when it was ended, and before it began": {
			stood: []Stood{{after(50), time.Unix(0, 1<<63-1), "fuse_stall"}, stood(-5, 5, "gpu_lost"), stood(-9, -1, "gpu_lost"), stood(70, 80, "gpu_lost")},
			wall:  60, moving: 45, stands: 15, causes: map[string]float64{"fuse_stall": 10, "gpu_lost": 5},
		},
		"an end was not seen, the next start was": {
			run: func(r *Run) {
				next := after(30)
				r.EndedCount, r.EndedRanks, r.Outcome, r.Followed = 7, "0-6", RunFollowed, &next
			},
			stood: []Stood{stood(20, 40, "fuse_stall")},
			wall:  -1, moving: -1, stands: 10, causes: map[string]float64{"fuse_stall": 10},
		},
		"clocks that go back": {run: func(r *Run) { end := after(-1); r.Ended = &end }, wall: -1, moving: -1, causes: map[string]float64{}},
	} {
		t.Run(name, func(t *testing.T) {
			run := ended(60)
			if c.run != nil {
				c.run(run)
			}
			s := Summarize(run, c.stood, 2, nil)
			for _, of := range []struct {
				want float64
				got  *float64
			}{{c.wall, s.Wall}, {c.moving, s.Moving}} {
				if of.want < 0 {
					require.Nil(t, of.got)
				} else {
					require.InDelta(t, of.want*60, *of.got, 1e-6)
				}
			}
			require.InDelta(t, c.stands*60, s.Standing, 1e-6)
			require.InDelta(t, c.stands/60*8, s.RankHours, 1e-6)
			causes := map[string]float64{}
			for i, one := range s.Causes {
				causes[one.Pattern] = one.Seconds / 60
				require.True(t, i == 0 || s.Causes[i-1].Seconds >= one.Seconds, "the longest first")
			}
			require.InDeltaMapValues(t, c.causes, causes, 1e-6)
		})
	}
}

func TestASummaryIsARecordAndALine(t *testing.T) {
	run, rank := ended(192), 5
	run.Summary = Summarize(run, []Stood{stood(10, 30, "fuse_stall"), stood(100, 102, "nccl_hang")}, 2, &rank)
	record := plog.NewLogRecord()
	ToRecord(run, record)
	require.Equal(t, "Job llm failed after 3 h 12 min: it moved for 2 h 50 min and stood for 22 min 0 s (fuse stall 20 min 0 s, nccl hang 2 min 0 s), 2.9 rank hours lost; "+
		"2 incidents; slowest rank 5; rank 3 on node-17 ended first, with SIGKILL. Seen: ranks 0-7 of 1,024 on node-17", record.Body().Str())
	require.Equal(t, after(192), record.Timestamp().AsTime())
	attributes := record.Attributes().AsRaw()
	delete(attributes, AttrSummaryJSON)
	require.Equal(t, map[string]any{
		"gen_ai.training.job_id": "llm", "gen_ai.training.job_domain": "user 0", "gen_ai.training.run_id": "r1", "gen_ai.training.world_size": int64(1024),
		"tracecore.trust": "proven", "job.summary.outcome": "failed", "job.summary.wall_seconds": 11520.0, "job.summary.moving_seconds": 10200.0,
		"job.summary.standing_seconds": 1320.0, "job.summary.cause_seconds.fuse_stall": 1200.0, "job.summary.cause_seconds.nccl_hang": 120.0,
		"job.summary.rank_hours_lost": 1320.0 / 3600 * 8, "job.summary.incidents": int64(2), "job.summary.slowest_rank": int64(5),
		"job.summary.ranks": "0-7", "job.summary.ranks_count": int64(8), "job.summary.first_failed_rank": int64(3),
	}, attributes)
	read, err := FromRecord(record)
	require.NoError(t, err)
	require.Equal(t, *run, read)

	quiet := ended(1)
	quiet.Outcome, quiet.First, quiet.WorldSize, quiet.Hosts, quiet.Ranks, quiet.RanksCount = RunSucceeded, nil, 0, []string{"a", "b"}, "3", 1
	quiet.Summary = Summarize(quiet, nil, 0, nil)
	require.Equal(t, "Job llm succeeded after 1 min 0 s; no stall was seen. Seen: rank 3 on 2 hosts", Words(quiet))
}

func TestRecordsThatAreNoSummary(t *testing.T) {
	record := plog.NewLogRecord()
	_, err := FromRecord(record)
	require.ErrorIs(t, err, ErrNotSummary)
	record.SetEventName(SummaryEvent)
	for _, text := range []string{"", "{", "{}", `{"run_id":"a","job":"b"}`, `{"run_id":1}`} {
		record.Attributes().PutStr(AttrSummaryJSON, text)
		_, err = FromRecord(record)
		require.Error(t, err, text)
		require.NotErrorIs(t, err, ErrNotSummary)
	}
	// Ranks that fold into no ranges do not make a record grow without end.
	run := ended(1)
	var scattered verdict.Ranks
	for rank := range 8192 {
		scattered = append(scattered, 2*rank)
	}
	run.Ranks, run.RanksCount = scattered.String(), len(scattered)
	run.Summary = Summarize(run, nil, 0, nil)
	ToRecord(run, record)
	value, _ := record.Attributes().Get(AttrSummaryJSON)
	require.Less(t, len(value.Str()), 4*verdict.MaxRangesBytes)
	shown, _ := record.Attributes().Get(attrSummaryRanks)
	require.Regexp(t, `^0,2,4,.*,[0-9]+ and 7,[0-9]{3} more ranks$`, shown.Str())
	read, err := FromRecord(record)
	require.NoError(t, err)
	require.Equal(t, 8192, read.RanksCount)
	first, _ := scattered.First(verdict.MaxRangesBytes)
	require.Equal(t, first, read.Ranks)
	// Those of a job that is larger than any blast radius are one range.
	run.Ranks, run.EndedRanks, run.RanksCount = "0-131071", "0-131070", 131072
	ToRecord(run, record)
	shown, _ = record.Attributes().Get(attrSummaryRanks)
	require.Equal(t, "0-131071", shown.Str())
	read, err = FromRecord(record)
	require.NoError(t, err)
	require.Equal(t, []string{"0-131071", "0-131070"}, []string{read.Ranks, read.EndedRanks})
	// What a stranger wrote is one line.
	run.Job, run.Hosts, run.First.How = "a\x1b[2J\nb", []string{"\u202ehost"}, "\x07"
	require.Regexp(t, `^[\P{C}]*$`, Words(run))
}
