package ingress

import (
	"context"
	"io/fs"
	"strings"
	"testing"

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
		if s.Input.Kind != story.Fires {
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
