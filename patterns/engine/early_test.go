package engine_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/engine"
)

// TestWhatIsCutEarlyIsTheSame: the engine takes what CutLogs left as it does what it cuts itself.
func TestWhatIsCutEarlyIsTheSame(t *testing.T) {
	large := func() plog.Logs {
		ld := logs(2, began, func(i int, lr plog.LogRecord) {
			lr.SetEventName([]string{"opened", "nobody's"}[i])
			lr.Attributes().PutStr("gen_ai.training.job_id", strings.Repeat("j", 1<<20))
			lr.Body().SetStr(strings.Repeat("b", 1<<20))
		})
		ld.ResourceLogs().At(0).Resource().Attributes().PutStr("host.name", strings.Repeat("h", 1<<20))
		return ld
	}
	late, early := blockedEngine(t, bytesRule, engine.Options{}), blockedEngine(t, bytesRule, engine.Options{})
	expected := late.Logs(large())
	ld := large()
	short, cut := early.CutLogs(ld)
	require.Equal(t, expected, early.Logs(short))
	require.Equal(t, large(), ld, "what passes on stays as it was")
	require.Equal(t, 1, expected.LogRecordCount())
	require.Equal(t, 2, cut, "a resource and the record that is wanted")
	require.EqualValues(t, 2, late.Stats().Cut)
	require.Zero(t, early.Stats().Cut)
	one, err := late.Snapshot()
	require.NoError(t, err)
	two, err := early.Snapshot()
	require.NoError(t, err)
	require.Equal(t, string(one), string(two))
}
