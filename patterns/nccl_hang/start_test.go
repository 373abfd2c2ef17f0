package ncclhang

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

// begun stamps on records which processes the ranks were that began the job then.
func begun(ld plog.Logs, at time.Time) plog.Logs {
	each(ld, func(r plog.LogRecord) {
		a := r.Attributes()
		rank, found := rule.Integer(a, "nccl.fr.rank")
		if !found {
			rank, _ = rule.Integer(a, rule.AttributeRank)
		}
		a.PutInt(rule.AttributeRankPID, at.Unix()%10_000*100+rank)
		a.PutInt(rule.AttributeRankStart, at.Add(time.Duration(rank)*time.Second).UnixNano())
	})
	return ld
}

// starts are the records of all ranks of a job that begins then.
func startsOf(world int, at time.Time) plog.Logs {
	ld := plog.NewLogs()
	for rank := range world {
		resource := ld.ResourceLogs().AppendEmpty()
		resource.Resource().Attributes().PutStr("host.name", fmt.Sprintf("node-%d", rank))
		r := resource.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
		r.SetEventName(rule.EventStart)
		r.SetTimestamp(pcommon.NewTimestampFromTime(at))
		r.Attributes().PutStr("gen_ai.training.job_id", "llm")
		r.Attributes().PutInt("gen_ai.training.rank", int64(rank))
	}
	return begun(ld, at)
}

func findingsOf(rounds []Round) (all []Finding) {
	for _, r := range rounds {
		all = append(all, r.Findings...)
	}
	return all
}

// TestDumpsOfTwoStartsAreNotMixed: rank 2 hangs the job; it is started again, and now rank 0
// does. Whatever comes first, each start has its own culprit.
func TestDumpsOfTwoStartsAreNotMixed(t *testing.T) {
	first, second := written.Add(-time.Hour), written.Add(-20*time.Second)
	old := newJob(3).does(1, steps(reduce, reduce, reduce), 0, 1).does(1, steps(reduce), 2)
	old.at = written.Add(-40 * time.Second)
	fresh := newJob(3).does(1, steps(reduce, reduce), 1, 2).does(1, steps(reduce), 0)
	fresh.waited = 10 * time.Second
	part := func(j *job, i int, at time.Time) plog.Logs {
		one := *j
		one.said = j.said[i : i+1]
		return begun(one.logs(), at)
	}
	for name, add := range map[string]func(j joinUnderTest){
		"one after the other": func(j joinUnderTest) {
			j.Add(begun(old.logs(), first), written)
			j.Add(begun(fresh.logs(), second), written)
		},
		"by turns": func(j joinUnderTest) {
			for i := range old.said {
				j.Add(part(fresh, i, second), written)
				j.Add(part(old, i, first), written)
			}
		},
		"the ranks told that they run": func(j joinUnderTest) {
			j.Add(startsOf(3, first), first)
			j.Add(startsOf(3, second), second)
			j.Add(begun(fresh.logs(), second), written)
			j.Add(begun(old.logs(), first), written)
		},
		"dumps do not say whose they are": func(j joinUnderTest) { // their time does
			j.Add(startsOf(3, first), first)
			j.Add(old.logs(), old.at)
			j.Add(startsOf(3, second), second)
			j.Add(fresh.logs(), written)
		},
		"through a snapshot": func(j joinUnderTest) {
			j.Add(begun(old.logs(), first), written)
			j.Add(startsOf(3, second), second)
			state, err := j.Snapshot()
			require.NoError(t, err)
			require.NoError(t, j.Restore(state))
			j.Add(begun(fresh.logs(), second), written)
		},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJoin(DefaultOptions)
			add(j)
			found := findingsOf(j.Flush())
			require.Len(t, found, 2)
			culprits := map[int]Finding{}
			for _, f := range found {
				require.Equal(t, NotEntered, f.Kind)
				require.Len(t, f.Culprits, 1)
				culprits[f.Culprits[0]] = f
			}
			require.Contains(t, culprits, 0)
			require.Contains(t, culprits, 2)
			require.NotEqual(t, found[0].ID, found[1].ID)
			if name == "dumps do not say whose they are" {
				return
			}
			for rank, began := range map[int]time.Time{2: first, 0: second} {
				f := culprits[rank]
				require.Equal(t, began.Add(time.Duration(rank)*time.Second).UnixNano(), f.record(0).Attributes[rule.AttributeRankStart])
			}
		})
	}
}

// TestASilentRankOfANewStartIsSilent: its dump of the last start does not speak for it.
func TestASilentRankOfANewStartIsSilent(t *testing.T) {
	j := newJoin(DefaultOptions)
	first, second := written.Add(-time.Hour), written.Add(-30*time.Minute)
	ended := newJob(3).does(1, steps(reduce), 0, 1, 2)
	ended.at = second.Add(-time.Minute)
	j.Add(startsOf(3, first), first)
	j.Add(begun(ended.logs(), first), written)
	j.Add(startsOf(3, second), second)
	j.Add(begun(newJob(3).does(0, steps(reduce), 0, 1).logs(), second), written)
	found := findingsOf(j.Flush())
	require.Len(t, found, 1)
	require.Equal(t, []int{2}, found[0].NoDump)
	require.Equal(t, []int{0, 1}, found[0].Waiting)
	require.Equal(t, second.Add(2*time.Second).UnixNano(), found[0].Process.Start, "known from its start alone")
}

// TestSocketsOfAnotherStartSayNothing: they accuse rank 1, which had hung the last start.
func TestSocketsOfAnotherStartSayNothing(t *testing.T) {
	first, second := written.Add(-time.Hour), written.Add(-time.Minute)
	for name, tc := range map[string]struct {
		at   time.Time
		want Agreement
	}{"this start": {second, Agree}, "the last start": {first, ""}} {
		t.Run(name, func(t *testing.T) {
			j := newJoin(DefaultOptions)
			j.Add(startsOf(2, first), first)
			j.Add(startsOf(2, second), second)
			j.Add(begun(socketLogs(deaf(1, 0)), tc.at), written)
			j.Add(begun(behind("llm", "", 1).logs(), second), written)
			found := findingsOf(j.Flush())
			require.Len(t, found, 1)
			require.Equal(t, []int{1}, found[0].Culprits)
			require.Equal(t, tc.want, found[0].Sockets)
		})
	}
}

// TestRecordsWithoutProcessesJoinAsBefore: recordings, and agents of an older version.
func TestRecordsWithoutProcessesJoinAsBefore(t *testing.T) {
	j := newJoin(DefaultOptions)
	whole := newJob(3).does(1, steps(reduce, reduce), 0, 1).does(1, steps(reduce), 2)
	for i := range whole.said { // one of the three nodes has an agent of this version
		one := *whole
		one.said = whole.said[i : i+1]
		logs := one.logs()
		if i == 1 {
			begun(logs, written.Add(-time.Hour))
		}
		j.Add(logs, written)
	}
	found := findingsOf(j.Flush())
	require.Len(t, found, 1)
	require.Equal(t, []int{2}, found[0].Culprits)
	require.Equal(t, []int{0, 1}, found[0].Waiting)
}

// again says that a rank is a later process, which began then.
func again(ld plog.Logs, rank, pid int64, at time.Time) plog.Logs {
	each(ld, func(r plog.LogRecord) {
		a := r.Attributes()
		of, found := rule.Integer(a, "nccl.fr.rank")
		if !found {
			of, _ = rule.Integer(a, rule.AttributeRank)
		}
		if of != rank {
			return
		}
		for _, key := range []string{"process.pid", rule.AttributeRankPID} {
			a.PutInt(key, pid)
		}
		a.PutInt(rule.AttributeRankStart, at.UnixNano())
	})
	return ld
}

// TestARankThatBeganAgainAloneIsOfTheJob: a hot spare calls with the others, which have lived on, and one of
// them all is late.
func TestARankThatBeganAgainAloneIsOfTheJob(t *testing.T) {
	first, second := written.Add(-time.Hour), written.Add(-10*time.Minute)
	for name, tc := range map[string]struct {
		late  int
		began time.Time
		dumps bool
	}{
		"itself, by calls": {3, second, false}, "another, by calls": {0, first, false},
		"itself, by dumps": {3, second, true}, "another, by dumps": {0, first, true},
	} {
		for _, restored := range []bool{false, true} {
			t.Run(fmt.Sprint(name, restored), func(t *testing.T) {
				j := newJoin(DefaultOptions)
				before := newCalls(4)
				before.begun, before.at = first, written.Add(-30*time.Minute)
				j.Add(before.stands(before.all(), 3, "usual", but(4)...).list, before.at)
				spare := newCalls(4)
				spare.at = second.Add(5 * time.Second)
				spare.record(rule.EventStart, comm{}, 3, nil)
				j.Add(again(spare.list, 3, 9003, second), spare.at)
				after := newCalls(4)
				after.begun = first
				in := after.all()
				in.name = "0xb22"
				records := again(after.stands(in, 10, "overdue", but(4, tc.late)...).stands(in, 9, "overdue", tc.late).list, 3, 9003, second)
				if tc.dumps {
					records = newJob(4).does(1, steps(reduce, reduce), but(4, tc.late)...).does(1, steps(reduce), tc.late).logs()
					each(records, func(r plog.LogRecord) {
						r.Attributes().PutStr("gen_ai.training.job_domain", "slurm 7")
						rank, _ := rule.Integer(r.Attributes(), "nccl.fr.rank")
						r.Attributes().PutInt(rule.AttributeRankPID, 1000+rank)
						r.Attributes().PutInt(rule.AttributeRankStart, first.UnixNano())
					})
					for _, from := range records.ResourceLogs().All() {
						from.Resource().Attributes().PutStr("host.name", "node-0")
					}
					again(records, 3, 9003, second)
				}
				j.Add(records, written)
				if restored {
					state, err := j.Snapshot()
					require.NoError(t, err)
					require.NoError(t, j.Restore(state))
				}
				var found []Finding
				for _, f := range findingsOf(append(j.Advance(written.Add(settled)), j.Flush()...)) {
					if len(f.Culprits) > 0 {
						found = append(found, f)
					}
				}
				require.NotEmpty(t, found)
				f := found[len(found)-1]
				require.Equal(t, []int{tc.late}, f.Culprits)
				require.Equal(t, but(4, tc.late), f.Waiting)
				require.Equal(t, Certain, f.Sure)
				require.Equal(t, tc.began.UnixNano(), f.Process.Start)
			})
		}
	}
}
