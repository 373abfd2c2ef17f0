package stacksreceiver

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/golden"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/plogtest"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/taskstack"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/pystack"
	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/internal/stacks"
	"github.com/tracecoreai/tracecore/internal/unwind"
	"github.com/tracecoreai/tracecore/internal/waitclass"
	"github.com/tracecoreai/tracecore/receivers/internal/activity"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/stacksreceiver/internal/metadata"
)

var update = flag.Bool("update", false, "rewrite the golden records")

func newTestConverter() *converter {
	builder := metadata.NewLogsBuilder(metadata.DefaultLogsBuilderConfig(), receivertest.NewNopSettings(metadata.Type))
	return newConverter(builder, record.Host{Name: "node-1", ID: "0123456789abcdef0123456789abcdef", NodeName: "node-1", Boot: "b00t"}, 32)
}

// taken is a stack of a rank at its own line, of which all leaves the node.
func taken(change func(*standing)) *standing {
	s := &standing{process: rank(42, 3), rest: &activity.Rest{}, seen: saving(42), why: asleep, at: start, still: 2 * time.Second, where: true, frames: true}
	change(s)
	s.hash = s.seen.Threads[0].Hash()
	return s
}

// rests is a rank whose child is stopped.
func rests() *activity.Rest {
	r := &activity.Rest{}
	r.Goes(start.Add(-time.Minute), start.Add(-time.Minute), true)
	for ago := 4; ago >= 0; ago-- {
		r.Look(&activity.Process{CPU: activity.Unknown, MainCPU: activity.Unknown, State: socketstall.Sleeping, Inside: &activity.Inside{
			Compared: true, Syscall: "read", Channel: "pipe_read", File: "pipe:[9]", Tree: []uint32{52}, Holder: &activity.Holder{PID: 52, Comm: "ffmpeg", State: socketstall.Stopped, Awaited: true},
		}}, start.Add(time.Duration(-ago)*time.Second))
	}
	return r
}

func TestGoldenRecords(t *testing.T) {
	for name, tc := range map[string]struct {
		make  func(*converter) plog.Logs
		event string
	}{
		"own_code": {func(c *converter) plog.Logs {
			return c.stack(taken(func(s *standing) {
				s.seen.Threads[0].Native = []unwind.Frame{{Object: "/usr/lib/libc.so.6", Symbol: "__write"}, {Object: "/opt/ext.so", Offset: 7}}
				s.seen.Threads[0].Kernel = []taskstack.Function{{Name: "request_wait_answer", Module: "fuse"}}
			}), start)
		}, "process.stack"},
		"collective": {func(c *converter) plog.Logs {
			return c.stack(taken(func(s *standing) { s.seen, s.where, s.frames = waiting(42), false, false }), start)
		}, "process.stack"},
		"another_thread_holds_the_lock": {func(c *converter) plog.Logs {
			return c.stack(taken(func(s *standing) {
				s.why, s.still = sameCall, 20*time.Second
				s.seen.Threads[0].State = 'R'
				s.seen.Threads = append(s.seen.Threads, stacks.Thread{TID: 50, GIL: true, Python: []pystack.Frame{{File: "/home/ann/tokens.py", Line: 7, Function: "split"}}})
			}), start)
		}, "process.stack"},
		"kernel_alone": {func(c *converter) plog.Logs {
			return c.stack(taken(func(s *standing) {
				s.process = identity.Process{PID: 42, Rank: identity.Unknown, LocalRank: identity.Unknown, WorldSize: identity.Unknown}
				s.why = peerEnded
				s.seen = &stacks.Process{PID: 42, Threads: []stacks.Thread{{
					TID: 42, State: 'D', Kernel: []taskstack.Function{{Name: "nfs_wait_bit_killable", Module: "nfs"}},
					Wait:   waitclass.Wait{Class: waitclass.Storage, Function: "nfs_wait_bit_killable", Owner: "nfs"},
					Errors: []error{errors.New("compiled code: permission denied")},
				}}, Errors: []error{errors.New("Python: CPython 3.15 is not known; native and kernel frames remain")}}
			}), start)
		}, "process.stack"},
		"hostile_names": {func(c *converter) plog.Logs {
			return c.stack(taken(func(s *standing) {
				long := pystack.Frame{File: strings.Repeat("ä", 4096), Line: 1 << 30, Function: strings.Repeat("f\x00\x1b[2J", 200)}
				s.seen.Threads[0].Python = []pystack.Frame{long, long}
				s.seen.Threads[0].Native = []unwind.Frame{{Object: "/x\xff", Symbol: "\xfe"}}
				s.seen.Threads[0].Name = "\xff"
			}), start)
		}, "process.stack"},
		"its_program_is_over": {func(c *converter) plog.Logs {
			return c.stack(taken(func(s *standing) {
				s.seen.Threads[0] = stacks.Thread{
					TID: 42, Name: "python3", Main: true, State: 'S', Ending: true, Native: []unwind.Frame{{Object: "/usr/bin/python3.11", Symbol: "Py_FinalizeEx"}},
					Kernel: []taskstack.Function{{Name: "hrtimer_nanosleep"}}, Wait: waitclass.Wait{Class: waitclass.OwnCode, Function: "hrtimer_nanosleep"},
				}
			}), start)
		}, "process.stack"},
		"a_child_holds_it_up": {func(c *converter) plog.Logs {
			return c.stack(taken(func(s *standing) {
				s.rest, s.mount = rests(), procfs.Mount{Point: "/data", Source: "filer:/vol", Type: "nfs4"}
				s.signal = identity.Signal{Number: 19}
			}), start)
		}, "process.stack"},
		"doing": {func(c *converter) plog.Logs {
			f := newFollower(rank(42, 3))
			f.rest, f.told = *rests(), &told{since: start.Add(-time.Minute), hash: 7, class: waitclass.DataLoading}
			return c.doing(f, start, identity.Signal{}, start)
		}, "process.stack.doing"},
		"moving": {func(c *converter) plog.Logs {
			p := rank(42, 3)
			return c.moving(&p, &told{since: start.Add(-time.Minute), hash: 7}, start, start)
		}, "process.stack.moving"},
	} {
		t.Run(name, func(t *testing.T) {
			logs := tc.make(newTestConverter())
			file := filepath.Join("testdata", "golden", name+".yaml")
			if *update {
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
				require.NoError(t, golden.WriteLogsToFile(file, logs))
			}
			want, err := golden.ReadLogs(file)
			require.NoError(t, err)
			require.NoError(t, plogtest.CompareLogs(want, logs))
			require.Equal(t, tc.event, want.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).EventName())
			text, err := (&plog.ProtoMarshaler{}).MarshalLogs(logs)
			require.NoError(t, err)
			require.Less(t, len(text), 8<<10)
		})
	}
}
