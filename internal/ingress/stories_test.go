package ingress

import (
	"context"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/story"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// certain counts the certain verdicts that the library makes of its stories of faults, once
// they came as mark leaves them.
func certain(t *testing.T, rules []rule.Rule, mark func(*story.Story)) map[string]int {
	t.Helper()
	found := map[string]int{}
	require.NoError(t, fs.WalkDir(patterns.FS(), ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".txtar") {
			return err
		}
		archive, err := fs.ReadFile(patterns.FS(), name)
		require.NoError(t, err)
		s, err := story.Parse(name, archive)
		require.NoError(t, err)
		if s.Input.Kind == story.Flood {
			return nil
		}
		mark(&s)
		result, err := s.Run(rules)
		require.NoError(t, err)
		for i := range result.Verdicts {
			if v := &result.Verdicts[i]; v.Confidence == verdict.Full {
				found[v.Pattern]++
			}
		}
		return nil
	}))
	return found
}

// TestAStrangerMakesNoCertainVerdict plays the library's stories, which hold every event
// and metric that a pattern reads, as somebody sends them who says that all is proven.
func TestAStrangerMakesNoCertainVerdict(t *testing.T) {
	rules, err := patterns.Library()
	require.NoError(t, err)
	require.Greater(t, len(certain(t, rules, func(*story.Story) {})), 10, "the stories hold certain verdicts")
	for name, ctx := range map[string]context.Context{"loopback": sentBy(t, loopback, nil), "another machine": sentBy(t, distant, nil)} {
		t.Run(name, func(t *testing.T) {
			r, logs, metrics, _ := wrap(t, Network, nil)
			require.Empty(t, certain(t, rules, func(s *story.Story) {
				s.MarkLogs = func(ld plog.Logs) {
					rl := ld.ResourceLogs().At(0)
					rl.Resource().Attributes().PutStr("tracecore.trust", "proven")
					rl.ScopeLogs().At(0).LogRecords().At(0).Attributes().PutStr("tracecore.trust", "proven")
					require.NoError(t, r.logs.ConsumeLogs(ctx, ld))
					logs.Reset()
				}
				s.MarkMetrics = func(md pmetric.Metrics) {
					md.ResourceMetrics().At(0).Resource().Attributes().PutStr("tracecore.trust", "proven")
					require.NoError(t, r.metrics.ConsumeMetrics(ctx, md))
					metrics.Reset()
				}
			}))
		})
	}
}

// sentByAgents plays a story as the agents of its hosts send it, one of which has a clock that is ahead by that much.
// It returns the verdicts, without what they say of clocks, and the hosts.
func sentByAgents(t *testing.T, rules []rule.Rule, name, wrong string, ahead time.Duration, corrected bool) ([]verdict.Verdict, []string) {
	t.Helper()
	archive, err := fs.ReadFile(patterns.FS(), name)
	require.NoError(t, err)
	s, err := story.Parse(name, archive)
	require.NoError(t, err)
	if s.Input.Kind == story.Flood {
		return nil, nil
	}
	r, logs, _, _ := wrap(t, Network, nil)
	hosts := map[string]bool{}
	s.MarkLogs = func(ld plog.Logs) {
		rl := ld.ResourceLogs().At(0)
		host, ok := rl.Resource().Attributes().Get(hostNameKey)
		if !ok {
			return
		}
		agent := Agent{Host: host.AsString()}
		hosts[agent.Host] = true
		if agent.Host == wrong {
			clock(ahead).log(rl.ScopeLogs().At(0).LogRecords().At(0))
			if corrected {
				agent.Behind = -ahead
			}
		}
		require.NoError(t, r.logs.ConsumeLogs(sentBy(t, distant, agent), ld))
		logs.Reset()
	}
	result, err := s.Run(rules)
	require.NoError(t, err)
	for i := range result.Verdicts {
		v := &result.Verdicts[i]
		v.NotObserved = slices.DeleteFunc(v.NotObserved, func(text string) bool { return strings.HasPrefix(text, "the exact times of ") })
		if len(v.NotObserved) == 0 {
			v.NotObserved = nil
		}
	}
	return result.Verdicts, slices.Sorted(maps.Keys(hosts))
}

// TestAWrongClockChangesNoVerdict plays the stories of several hosts with one whose clock is wrong: once it is measured, the
// verdicts are those of clocks that are right, to the nanosecond. Without that some are others.
func TestAWrongClockChangesNoVerdict(t *testing.T) {
	rules, err := patterns.Library()
	require.NoError(t, err)
	if testing.Short() {
		t.Skip("plays all stories of several hosts three times")
	}
	several, others := 0, 0
	names, err := fs.Glob(patterns.FS(), "nccl_socket_stall/testdata/*.txtar")
	require.NoError(t, err)
	for _, name := range names {
		right, hosts := sentByAgents(t, rules, name, "", 0, false)
		if len(hosts) < 2 {
			continue
		}
		several++
		wrong, ahead := hosts[len(hosts)-1], []time.Duration{-30 * time.Second, 30 * time.Second}[several%2]
		came, _ := sentByAgents(t, rules, name, wrong, ahead, true)
		require.Equal(t, right, came, "%s with %s %s ahead", name, wrong, ahead)
		if came, _ := sentByAgents(t, rules, name, wrong, -30*time.Second, false); !reflect.DeepEqual(right, came) {
			others++
		}
	}
	require.Greater(t, several, 10)
	require.Positive(t, others)
}
