package socketstall

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
)

func TestStopperIsInWords(t *testing.T) {
	for name, tc := range map[string]struct {
		attributes map[string]any
		want       string
	}{
		"a process":          {map[string]any{"signal.name": "SIGSTOP", "signal.sender.name": "bash", "signal.sender.pid": 812, "signal.sender.user_id": 1000}, "SIGSTOP from bash (pid 812) of user 1000"},
		"root":               {map[string]any{"signal.name": "SIGSTOP", "signal.sender.name": "kill", "signal.sender.pid": 812, "signal.sender.user_id": 0}, "SIGSTOP from kill (pid 812) of user 0"},
		"a debugger":         {map[string]any{"signal.name": "SIGSTOP", "signal.sender.name": "gdb", "signal.sender.pid": 812, "signal.sender.user_id": 1000, "signal.sender.relation": "debugger"}, "the debugger gdb (pid 812) of user 1000"},
		"the kernel":         {map[string]any{"signal.name": "SIGTTIN"}, "SIGTTIN from the kernel"},
		"nobody":             {map[string]any{}, ""},
		"nonsense of a type": {map[string]any{"signal.name": "SIGSTOP", "signal.sender.name": 7, "signal.sender.pid": "812"}, "SIGSTOP from the kernel"},
	} {
		t.Run(name, func(t *testing.T) {
			a := pcommon.NewMap()
			require.NoError(t, a.FromRaw(tc.attributes))
			require.Equal(t, tc.want, stopperOf(a))
		})
	}
	a := pcommon.NewMap()
	require.NoError(t, a.FromRaw(map[string]any{"signal.name": strings.Repeat("x", 1<<16), "signal.sender.name": strings.Repeat("y", 1<<16), "signal.sender.pid": 1}))
	require.LessOrEqual(t, len(stopperOf(a)), 2*MaxText+64)
}
