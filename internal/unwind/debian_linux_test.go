package unwind

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/taskstack"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/vmtests/interpreters"
	"github.com/tracecoreai/tracecore/vmtests/interpreters/interpreterstest"
)

var fetch = flag.Bool("interpreters", false, "unwind the interpreters of Debian's suites too: fetches them")

// TestEveryInterpreterOfDebianIsUnwound: stripped programs and the C library of each suite. On
// arm64 those of trixie and sid sign their return addresses. make verify asks for it.
func TestEveryInterpreterOfDebianIsUnwound(t *testing.T) {
	interpreterstest.Each(t, *fetch, "../../.cache/debian", func(t *testing.T, one interpreters.Interpreter, root string) {
		source, err := os.ReadFile("testdata/waits.py")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(root, "waits.py"), source, 0o644))
		u, probe := open(t)
		for _, arguments := range [][]string{nil, {"thread"}} {
			t.Run("backtrace "+strings.Join(arguments, ""), func(t *testing.T) {
				o := startIn(t, root, one.Path(), append([]string{"-S", "/waits.py"}, arguments...)...)
				trace := unwind(t, u, o.pid, func(p *Process) Trace { return p.Unwind(Registers(asleepInAPipe(t, probe, o.tid).Registers)) })
				o.frames = append(make([]string, 2), o.frames...) // nothing of these is left by now
				if last := &o.frames[len(o.frames)-1]; strings.HasSuffix(*last, " -") && trace.Frames[len(trace.Frames)-1].Symbol == "_start" {
					*last = printed(trace.Frames[len(trace.Frames)-1]) // without a size in its symbol dladdr does not name it
				}
				agrees(t, o, trace)
				require.GreaterOrEqual(t, len(o.frames), 30, "%v", o.frames)
			})
		}
		t.Run("a thread that runs", func(t *testing.T) {
			o := startIn(t, root, one.Path(), "-S", "-c", spinning)
			for range interpreterstest.Size(20, 5) {
				var s taskstack.Stack
				require.NoError(t, taskstack.Sample(o.tid, hosttest.Patience, &s))
				trace := unwind(t, u, o.pid, func(p *Process) Trace { return p.UnwindCopy(Registers(s.Registers), s.Memory) })
				require.NoError(t, trace.End, "%+v", trace.Frames)
				require.True(t, trace.Whole)
				require.Equal(t, "_start", trace.Frames[len(trace.Frames)-1].Symbol, "%+v", trace.Frames)
				require.True(t, slices.ContainsFunc(trace.Frames, func(f Frame) bool { return f.Symbol == "Py_BytesMain" }), "%+v", trace.Frames)
			}
		})
		t.Run("never still", func(t *testing.T) { neverHoldsStill(t, root, one.Path(), interpreterstest.Size(300, 30)) })
	})
}

const spinning = `import threading
print(threading.get_native_id(), "end", sep="\n", flush=True)
while True: sorted([3, 1, 2], key=lambda v: -v)`
