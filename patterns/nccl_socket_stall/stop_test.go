package ncclsocketstall

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

// exitOf is the end of a rank of the job under test.
func exitOf(at, rank int64, does map[string]any) *rule.Record {
	r := &rule.Record{Name: "process.exit", Time: at, Resource: pcommon.NewMap(), Attributes: pcommon.NewMap()}
	r.Resource.PutStr("host.name", "node-0")
	r.Attributes.PutInt("process.pid", 1000+rank)
	r.Attributes.PutInt(rule.AttributeRank, rank)
	r.Attributes.PutStr("gen_ai.training.job_id", "job")
	for key, value := range does {
		if key == "event" {
			r.Name = value.(string)
			continue
		}
		if err := r.Attributes.PutEmpty(key).FromRaw(value); err != nil {
			panic(err)
		}
	}
	return r
}

// TestAJobThatIsStoppedStallsForNobody: where ranks ended because somebody ends the job, those that are
// left are killed soon, and a stall of them is told only if it lasts longer than that.
func TestAJobThatIsStoppedStallsForNobody(t *testing.T) {
	asked := map[string]any{"process.exit.signal": 15, "signal.number": 15, "signal.sender.relation": "scheduler"}
	for name, tc := range map[string]struct {
		end   map[string]any
		waits bool
	}{
		"asked, and none has ended yet": {map[string]any{"event": "process.asked", "signal.number": 15, "signal.sender.relation": "launcher", "process.asked.spared_ranks": 0}, true},
		"noticed by its scheduler":      {map[string]any{"event": "process.asked", "signal.number": 10, "signal.sender.relation": "scheduler"}, true},
		"a person wants stacks":         {map[string]any{"event": "process.asked", "signal.number": 10, "signal.sender.relation": "other"}, false},
		"asked alone, and it lives":     {map[string]any{"event": "process.asked", "signal.number": 15, "process.asked.spared_ranks": 3}, false},
		"asked to end with its job":     {asked, true},
		"by SIGINT, with a status":      {map[string]any{"process.exit.code": 1, "signal.number": 2, "signal.sender.relation": "kernel"}, true},
		"asked to end alone":            {map[string]any{"process.exit.signal": 15, "signal.number": 15, "process.exit.spared_ranks": 3}, false},
		"by a fault of its own":         {map[string]any{"process.exit.signal": 11}, false},
		"of another job":                {map[string]any{"process.exit.signal": 15, "signal.number": 15, "gen_ai.training.job_id": "another"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			d, now := fresh(), began+second
			d.Observe(exitOf(now-second, 7, tc.end))
			observe(d, hung(nil))
			first := d.Decide(now)
			require.Equal(t, tc.waits, len(first) == 0)
			if !tc.waits {
				return
			}
			until := now - second + int64(2*time.Minute)
			require.Equal(t, until, d.Due())
			require.Empty(t, d.Decide(until-1))
			require.Len(t, d.Decide(until), 1, "the others still stand")
		})
	}
	t.Run("asked again and again", func(t *testing.T) {
		d, now := fresh(), began+second
		for _, ago := range []int64{180, 120, 60, 1} {
			d.Observe(exitOf(now-ago*second, 7, map[string]any{"event": "process.asked", "signal.number": 15, "signal.sender.relation": "other"}))
		}
		observe(d, hung(nil))
		require.Len(t, d.Decide(now), 1, "who asks again and again ends nothing")
	})
	t.Run("all end", func(t *testing.T) {
		d, now := fresh(), began+second
		d.Observe(exitOf(now-second, 7, asked))
		observe(d, hung(nil))
		require.Empty(t, d.Decide(now))
		for rank := range int64(4) {
			d.Observe(exitOf(now+30*second, rank, map[string]any{"process.exit.signal": 9}))
		}
		require.Empty(t, d.Decide(now+31*second))
		require.Empty(t, d.Decide(now+int64(3*time.Minute)), "and nobody tells of their sockets")
	})
	t.Run("what was told before stands", func(t *testing.T) {
		d, now := fresh(), began+second
		observe(d, hung(nil))
		require.Len(t, d.Decide(now), 1)
		d.Observe(exitOf(now+second, 7, asked))
		require.Empty(t, d.Decide(now+2*second))
		require.Len(t, d.Decide(now+int64(fixed.refresh)), 0)
	})
}
