package story

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// member is one rank of a story's job.
type member struct {
	host, job, domain string
	rank              int
}

// asOneRun are the arrivals of s, with the process of each rank, which is the same all the
// time, and the ranks.
func (s told) asOneRun(began time.Time) ([]arrival, []member) {
	arrivals := s.Input.arrivals()
	ranks := map[member]bool{}
	for i := range arrivals {
		r := *arrivals[i].record
		rank, ok := r.Attributes[rule.AttributeRank].(int)
		if !ok || r.Log == "" {
			continue
		}
		r.Attributes = maps.Clone(r.Attributes)
		if word(r.Attributes[rule.AttributeJob]) == "" {
			r.Attributes[rule.AttributeRendezvous] = "10.0.0.1:29500/8"
		}
		r.Attributes[rule.AttributeRankPID], r.Attributes[rule.AttributeRankStart] = 100_000+rank, began.UnixNano()
		arrivals[i].record = &r
		host := cmp.Or(word(r.Resource["host.name"]), word(s.Input.Resource["host.name"]))
		job := cmp.Or(word(r.Attributes[rule.AttributeJob]), word(r.Attributes[rule.AttributeRendezvous]))
		ranks[member{host, job, word(r.Attributes[rule.AttributeJobDomain]), rank}] = true
	}
	return arrivals, slices.SortedFunc(maps.Keys(ranks), func(a, b member) int {
		return cmp.Or(cmp.Compare(a.job, b.job), cmp.Compare(a.domain, b.domain), cmp.Compare(a.rank, b.rank), cmp.Compare(a.host, b.host))
	})
}

func word(v any) string {
	s, _ := v.(string)
	return s
}

// again are records of the job's next start: its ranks begin, and once each waits for two
// seconds, as healthy ones do.
func again(ranks []member, at time.Time) []arrival {
	var all []arrival
	add := func(when time.Time, event string, m member, more map[string]any) {
		attributes := map[string]any{
			rule.AttributeTrust: "proven", rule.AttributeRank: m.rank, "process.pid": 200_000 + m.rank, "process.executable.name": "python",
			rule.AttributeJob: m.job, rule.AttributeRankPID: 200_000 + m.rank, rule.AttributeRankStart: at.UnixNano(),
		}
		if m.domain != "" {
			attributes[rule.AttributeJobDomain] = m.domain
		}
		maps.Copy(attributes, more)
		r := &Record{Log: event, Attributes: attributes, Resource: map[string]any{"host.name": m.host}}
		all = append(all, arrival{record: r, at: when, time: when})
	}
	for _, m := range ranks {
		add(at.Add(5*time.Second), "process.start", m, nil)
	}
	for _, step := range []struct {
		after time.Duration
		event string
		more  map[string]any
	}{
		{20 * time.Second, "nccl.socket.stall", map[string]any{"nccl.socket.stall.age_ns": int64(2 * time.Second)}},
		{21 * time.Second, "nccl.socket.stall.end", map[string]any{"nccl.socket.stall.age_ns": int64(3 * time.Second), "nccl.socket.stall.end_reason": "moved"}},
	} {
		for _, m := range ranks {
			step.more["nccl.socket.stall.id"] = fmt.Sprintf("%s-%d", m.host, m.rank)
			add(at.Add(step.after), step.event, m, maps.Clone(step.more))
		}
	}
	return all
}

// A job that is started again is healthy: nothing of its last start joins or explains
// anything of it, and what was open about that is resolved.
func TestARestartBringsNoVerdictAndEndsTheOld(t *testing.T) {
	ended := 0
	each(t, func(t *testing.T, s told) {
		of := map[string]bool{}
		for i := range s.rules {
			of[s.rules[i].Name] = s.rules[i].OfRun
		}
		arrivals, ranks := s.asOneRun(start.Add(-time.Hour))
		if len(ranks) == 0 {
			return // no ranks
		}
		end := last(arrivals)
		before := map[string]bool{}
		for _, v := range s.toldUntil(t, arrivals, end.Add(2*time.Minute)) {
			before[v.ID] = true
		}
		jobs := map[string]bool{}
		for _, m := range ranks {
			jobs[m.job] = true
		}
		for _, v := range s.toldUntil(t, append(slices.Clone(arrivals), again(ranks, end.Add(20*time.Second))...), end.Add(2*time.Minute)) {
			require.True(t, before[v.ID], "new: %s: %s", v.Pattern, v.Headline)
			if of[v.Pattern] && jobs[v.Culprit["job"]] {
				if slices.ContainsFunc(v.Evidence, func(e verdict.Evidence) bool { return e.Name == "restarted" }) {
					ended++
				}
				require.Equal(t, verdict.Resolved, v.Status, "%s: %s", v.Pattern, v.Headline)
				require.False(t, v.Resolved.After(end.Add(2*time.Minute)))
			}
		}
	})
	require.Greater(t, ended, 20, "the test sees something")
}

// outage are records of a network that fails between two ranks of one job, in its start at began.
func outage(ranks []member, began, at time.Time) (all []arrival) {
	of := slices.DeleteFunc(slices.Clone(ranks), func(m member) bool { return m.job != ranks[0].job || m.domain != ranks[0].domain })
	of = slices.CompactFunc(of, func(a, b member) bool { return a.rank == b.rank })
	if len(of) < 2 || onTwoMachines(ranks) {
		return nil
	}
	for i := range 2 {
		m := of[i]
		attributes := map[string]any{
			rule.AttributeTrust: "proven", rule.AttributeRank: m.rank, "process.pid": 200_000 + m.rank, "process.executable.name": "python",
			rule.AttributeJob: m.job, rule.AttributeRankPID: 200_000 + m.rank, rule.AttributeRankStart: began.UnixNano(), "gen_ai.training.world_size": 2,
			"nccl.socket.stall.id": fmt.Sprint("out-", i), "nccl.socket.stall.age_ns": int64(3 * time.Second), "nccl.socket.kind": "data",
			"nccl.rank.state": "sleeping", "nccl.rank.last_sent_age_ns": int64(3 * time.Second), "nccl.rank.last_received_age_ns": int64(3 * time.Second),
			"network.local.address": fmt.Sprint("10.9.0.", 1+i), "network.local.port": 40000 + i, "network.peer.address": fmt.Sprint("10.9.0.", 2-i), "network.peer.port": 40001 - i,
			"nccl.socket.cause": "waiting", "nccl.socket.direction": "receive",
		}
		if m.domain != "" {
			attributes[rule.AttributeJobDomain] = m.domain
		}
		if i == 0 {
			maps.Copy(attributes, map[string]any{"nccl.socket.cause": "network", "nccl.socket.direction": "send", "nccl.socket.unacked_bytes": 1448, "nccl.socket.retransmits": 4, "nccl.socket.backoff": 3})
		}
		all = append(all, arrival{record: &Record{Log: "nccl.socket.stall", Attributes: attributes, Resource: map[string]any{"host.name": m.host}}, at: at, time: at})
	}
	return all
}

// What befell the last start of a job is no cause of what befalls its next one, but for what
// outlasts both (a machine, its GPU, its adapter), or was seen in the next one, too (a mount).
func TestARestartEndsWhatASharedJobExplains(t *testing.T) {
	seen := 0
	each(t, func(t *testing.T, s told) {
		outlasts := map[string]bool{"nccl_socket_stall": true}
		for i := range s.rules {
			for _, x := range s.rules[i].Explains {
				if x.Pattern == "nccl_socket_stall" && !slices.ContainsFunc(x.Mine, func(field string) bool { return field == "job" || field == "pid" || field == "parent_pid" }) {
					outlasts[s.rules[i].Name] = true
				}
			}
		}
		arrivals, ranks := s.asOneRun(start.Add(-time.Hour))
		if len(ranks) == 0 || s.Input.Kind == Flood {
			return
		}
		end := last(arrivals)
		began := end.Add(20 * time.Second)
		broken := outage(ranks, began, began.Add(time.Minute))
		if len(broken) == 0 {
			return
		}
		verdicts := s.toldUntil(t, slices.Concat(arrivals, again(ranks, began), broken), began.Add(2*time.Minute))
		for _, v := range verdicts {
			if v.Pattern != "nccl_socket_stall" || v.Onset.Before(began) {
				continue
			}
			seen++
			at := slices.IndexFunc(verdicts, func(o verdict.Verdict) bool { return o.ID == v.RootCause })
			again := func(e verdict.Evidence) bool { return e.Last.After(began) }
			require.True(t, at < 0 || outlasts[verdicts[at].Pattern] || slices.ContainsFunc(verdicts[at].Evidence, again), "a symptom of %v", verdicts[max(0, at)].Headline)
		}
	})
	require.Greater(t, seen, 20, "the test sees something")
}

// crashed are records of the job's start before: its ranks die one after the other.
func crashed(ranks []member) []arrival {
	all := again(ranks, start.Add(-10*time.Minute))
	all = slices.DeleteFunc(all, func(a arrival) bool { return a.record.Log != "process.start" })
	for i, one := range slices.Clone(all) {
		r := *one.record
		r.Log, r.Attributes = "process.exit", maps.Clone(r.Attributes)
		maps.Copy(r.Attributes, map[string]any{"process.exit.code": 1, "process.exit.signal": 0, "process.exit.inherited_identity": false})
		at := start.Add(-5*time.Minute + time.Duration(i)*time.Second)
		all = append(all, arrival{record: &r, at: at, time: at})
	}
	return all
}

// begun are the starts of the ranks that a story is about, as the kernel tells them: what
// only claims to be of a process is of its run by these.
func begun(ranks []member, at time.Time) []arrival {
	all := again(ranks, at)
	all = slices.DeleteFunc(all, func(a arrival) bool { return a.record.Log != "process.start" })
	for i, m := range ranks {
		all[i].record.Attributes[rule.AttributeRankPID], all[i].at, all[i].time = 100_000+m.rank, at, at
	}
	return all
}

// onTwoMachines reports whether a rank of a job is on two: then there are two jobs, or starts.
func onTwoMachines(ranks []member) bool {
	seen := map[member]bool{}
	for _, m := range ranks {
		m.host = ""
		if seen[m] {
			return true
		}
		seen[m] = true
	}
	return false
}

// What befalls a job is told in the same way when its start before had crashed: the dead
// of that explain nothing, and are not blamed.
func TestACrashedStartBeforeChangesNothing(t *testing.T) {
	compared := 0
	each(t, func(t *testing.T, s told) {
		began := start.Add(-2 * time.Minute)
		arrivals, ranks := s.asOneRun(began)
		arrivals = append(begun(ranks, began), arrivals...)
		if len(ranks) == 0 || s.Input.Kind == Flood || onTwoMachines(ranks) {
			return // no ranks, no room for more, or several jobs that the story does not tell apart
		}
		end := last(arrivals).Add(time.Minute)
		// What the records of the starts say, with and without the deaths in the first.
		of := func(arrivals []arrival) (told []string) {
			for _, v := range s.toldUntil(t, arrivals, end) {
				if !v.Onset.Before(start.Add(-time.Minute)) {
					told = append(told, fmt.Sprint(v.Pattern, " ", v.Role, " ", v.Confidence, " ", v.Headline))
				}
			}
			slices.Sort(told)
			return told
		}
		want := of(slices.Clone(arrivals))
		compared += len(want)
		require.Equal(t, want, of(append(crashed(ranks), arrivals...)))
	})
	require.Greater(t, compared, 100, "the test sees something")
}

// toldUntil are the newest revisions of what comes of arrivals, with the time that passes
// behind the story second by second.
func (s told) toldUntil(t *testing.T, arrivals []arrival, end time.Time) []verdict.Verdict {
	t.Helper()
	slices.SortStableFunc(arrivals, func(a, b arrival) int { return a.at.Compare(b.at) })
	e := s.engine(t)
	defer s.done(e)
	newest := map[string]verdict.Verdict{}
	advance := func(at time.Time) {
		e.Advance(at)
		for _, v := range e.Verdicts() {
			newest[v.ID] = v
		}
	}
	behind := last(s.Input.arrivals())
	for _, a := range arrivals {
		for ; behind.Before(a.at); behind = behind.Add(time.Second) {
			advance(behind)
		}
		advance(a.at)
		require.NoError(t, s.feed(e, &a))
	}
	for ; behind.Before(end); behind = behind.Add(time.Second) {
		advance(behind)
	}
	return slices.Collect(maps.Values(newest))
}
