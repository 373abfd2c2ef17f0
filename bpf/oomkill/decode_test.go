//go:build linux && (amd64 || arm64)

package oomkill

import (
	"testing"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/internal/kerninfo"
)

// Two functions of a kernel that never was.
var testCode = kernelCode{kill: kerninfo.Code{{Start: 0x100, End: 0x200}}, cgroupOOM: kerninfo.Code{{Start: 0x300, End: 0x400}}}

// record is a record as the kernel side writes it, changed by change.
func record(change func(*bpfEvent)) []byte {
	r := &bpfEvent{TimeNs: 5, Pid: 42, ParentPid: 7, LimitBytes: 100, UsageBytes: 99, FailureCount: 3}
	putText(r.Comm[:], "python")
	r.Cgroup.State = bpfPathStatePATH_WHOLE
	r.Cgroup.LengthBytes = putText(r.Cgroup.Names[:], "worker\x00pod\x00kubepods\x00")
	r.LimitCgroup.State = bpfPathStatePATH_WHOLE
	r.LimitCgroup.LengthBytes = putText(r.LimitCgroup.Names[:], "pod\x00kubepods\x00")
	change(r)
	return unsafe.Slice((*byte)(unsafe.Pointer(r)), unsafe.Sizeof(*r))
}

func putText(field []int8, text string) uint32 {
	for i := range len(text) {
		field[i] = int8(text[i])
	}
	return uint32(len(text))
}

func putStack(r *bpfEvent, addresses ...uint64) {
	r.StackBytes = int32(8 * copy(r.Stack[:], addresses))
}

func TestConstraintComesFromOOMControlThenFromTheStack(t *testing.T) {
	for name, tc := range map[string]struct {
		change     func(*bpfEvent)
		code       kernelCode
		constraint Constraint
		source     Source
	}{
		"oom_control names a cgroup": {
			func(r *bpfEvent) { r.Exact, r.ExactCgroup = 1, 1; putStack(r, 0x150) },
			testCode, ConstraintCgroup, SourceOOMControl,
		},
		"oom_control names none": {
			func(r *bpfEvent) { r.Exact = 1; putStack(r, 0x150, 0x350) },
			testCode, ConstraintNode, SourceOOMControl,
		},
		"stack passes the cgroup's function": {
			func(r *bpfEvent) { putStack(r, 0x10, 0x150, 0x350, 0x900) },
			testCode, ConstraintCgroup, SourceStack,
		},
		"stack does not": {
			func(r *bpfEvent) { putStack(r, 0x10, 0x150, 0x900) },
			testCode, ConstraintNode, SourceStack,
		},
		"kernel addresses are hidden": {
			func(r *bpfEvent) { putStack(r, 0x10, 0x150, 0x350) },
			kernelCode{}, ConstraintUnknown, SourceNone,
		},
		"no stack": {
			func(r *bpfEvent) { r.StackBytes = -14 },
			testCode, ConstraintUnknown, SourceNone,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var e Event
			require.NoError(t, decode(record(tc.change), tc.code, 0, &e))
			require.Equal(t, tc.constraint, e.Constraint)
			require.Equal(t, tc.source, e.Source)
			if tc.constraint == ConstraintCgroup {
				require.Equal(t, "/kubepods/pod", e.LimitCgroup)
				require.EqualValues(t, 100, e.LimitBytes)
				require.EqualValues(t, 99, e.UsageBytes)
				require.EqualValues(t, 3, e.FailureCount)
			} else {
				require.Empty(t, e.LimitCgroup)
				require.Zero(t, e.LimitBytes+e.UsageBytes+e.FailureCount)
			}
		})
	}
}

func TestProcessThatWasDyingAnywayIsNoKill(t *testing.T) {
	var e Event
	marked := record(func(r *bpfEvent) { putStack(r, 0x10, 0x350) }) // without __oom_kill_process
	require.ErrorIs(t, decode(marked, testCode, 0, &e), errDying)
	require.NoError(t, decode(marked, kernelCode{}, 0, &e), "nothing to tell it by")
}

func TestDecodeReadsTimeNamesAndPaths(t *testing.T) {
	var e Event
	require.NoError(t, decode(record(func(r *bpfEvent) {
		putText(r.Comm[:], "0123456789abcde\xff") // no end, and not UTF-8
		r.Cgroup.State = bpfPathStatePATH_TRUNCATED
		r.LimitCgroup.State, r.LimitCgroup.LengthBytes = bpfPathStatePATH_WHOLE, 0
		r.Exact, r.ExactCgroup = 1, 1
	}), testCode, int64(time.Hour), &e))
	require.Equal(t, time.Unix(3600, 5), e.Time)
	require.Equal(t, "0123456789abcde�", e.Comm)
	require.Equal(t, "…/kubepods/pod/worker", e.CgroupPath)
	require.Equal(t, "/", e.LimitCgroup, "the root has no name")
}

func TestDecodeRefusesWhatCannotBe(t *testing.T) {
	var e Event
	for name, change := range map[string]func(*bpfEvent){
		"no process":           func(r *bpfEvent) { r.Pid = 0 },
		"path beyond its end":  func(r *bpfEvent) { r.Cgroup.LengthBytes = uint32(len(r.Cgroup.Names)) + 1 },
		"limit beyond its end": func(r *bpfEvent) { r.LimitCgroup.LengthBytes = 1 << 31 },
		"stack beyond its end": func(r *bpfEvent) { r.StackBytes = int32(len(r.Stack)*8) + 1 },
	} {
		require.Error(t, decode(record(change), testCode, 0, &e), name)
	}
	whole := record(func(*bpfEvent) {})
	require.ErrorContains(t, decode(whole[:len(whole)-1], testCode, 0, &e), "bytes, want")
	require.Error(t, decode(nil, testCode, 0, &e))
}

func FuzzDecode(f *testing.F) {
	f.Add(record(func(*bpfEvent) {}))
	f.Add(record(func(r *bpfEvent) { putStack(r, 0x150, 0x350); r.Cgroup.State = 9 }))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		var e Event
		if decode(raw, testCode, 0, &e) != nil {
			return
		}
		require.NotZero(t, e.PID)
		for _, text := range []string{e.Comm, e.TriggerComm, e.CgroupPath, e.LimitCgroup} {
			require.True(t, utf8.ValidString(text))
		}
		if e.Constraint != ConstraintCgroup {
			require.Empty(t, e.LimitCgroup)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	raw := record(func(r *bpfEvent) { putStack(r, 0x10, 0x150, 0x350) })
	var e Event
	b.ReportAllocs()
	for b.Loop() {
		if err := decode(raw, testCode, 0, &e); err != nil {
			b.Fatal(err)
		}
	}
}
