//go:build linux && (amd64 || arm64)

package kmsg

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf/btf"
	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/internal/kerninfo"
	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// storesAtTracepoint: since 5.19 printk:console fires when a text is stored.
func storesAtTracepoint(t *testing.T) bool {
	t.Helper()
	var major, minor int
	_, err := fmt.Sscanf(kerninfo.Release(), "%d.%d", &major, &minor)
	require.NoError(t, err)
	return major > 5 || major == 5 && minor >= 19
}

// hasKprobes: without CONFIG_KPROBES there is no list of what cannot be probed.
func hasKprobes(t *testing.T) bool {
	t.Helper()
	symbols, err := os.ReadFile("/proc/kallsyms")
	require.NoError(t, err)
	return strings.Contains(string(symbols), " register_kprobe\n")
}

// What each rung must be on this kernel: the facts are asked in another way than
// the probe asks them.
func TestEachRungIsWhatThisKernelAllows(t *testing.T) {
	privtest.Require(t)
	tracepoint := probe.Silent
	if storesAtTracepoint(t) {
		tracepoint = probe.OK
	}
	commit := probe.Unsupported
	if hasKprobes(t) {
		commit = probe.OK
	}
	for rung, want := range map[string]probe.Outcome{RungBTF: tracepoint, RungRaw: tracepoint, RungCommit: commit} {
		t.Run(rung, func(t *testing.T) {
			word := uniqueWord(t)
			p, report, err := Try(Options{Words: []string{word}, Rung: rung})
			require.Len(t, report.Attempts, 1)
			got := report.Attempts[0]
			t.Logf("%+v", got)
			require.Equal(t, rung, got.Rung)
			require.Equal(t, want, got.Outcome, got.Reason)
			if want != probe.OK {
				require.Error(t, err)
				require.NotEmpty(t, got.Reason)
				require.Empty(t, report.Rung)
				return
			}
			require.NoError(t, err)
			defer p.Close()
			require.True(t, got.Fired)
			require.Empty(t, got.Hint)
			require.Empty(t, report.Unproven)
			require.Equal(t, report, p.Report())
			write(t, "<3>hello "+word)
			e := read(t, p)
			require.Equal(t, "hello "+word, e.Text)
			require.Equal(t, WriterUserspace, e.Writer)
			require.EqualValues(t, os.Getpid(), e.PID)
		})
	}
}

func TestBestRungIsTakenAndTheBetterOnesExplained(t *testing.T) {
	privtest.Require(t)
	p, err := Open(Options{})
	require.NoError(t, err)
	defer p.Close()
	report := p.Report()
	t.Logf("%+v", report)
	require.Equal(t, Name, report.Probe)
	if storesAtTracepoint(t) {
		require.Equal(t, RungBTF, report.Rung)
		require.Len(t, report.Attempts, 1)
		return
	}
	require.Equal(t, RungCommit, report.Rung)
	require.Len(t, report.Attempts, 3)
	for _, a := range report.Attempts[:2] {
		require.Equal(t, probe.Silent, a.Outcome)
		require.Contains(t, a.Reason, "before Linux 5.19")
	}
}

func TestUnknownRungIsAnError(t *testing.T) {
	_, err := Open(Options{Rung: "fentry/printk"})
	require.ErrorContains(t, err, `unknown rung "fentry/printk": use one of tp_btf/console`)
}

func TestBadOptionsSayWhatToDo(t *testing.T) {
	for name, tc := range map[string]struct {
		opts Options
		want string
	}{
		"ring is no power of two":     {Options{RingBytes: 12288}, "use a power of two"},
		"ring is smaller than a page": {Options{RingBytes: 64}, "use a power of two"},
		"negative ring":               {Options{RingBytes: -4096}, "use a power of two"},
		"empty word":                  {Options{Words: []string{""}}, "use 1 to 256"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(tc.opts)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// The ring rung computes where a text lies, which is different where the text
// ring ends. Texts of one size in blocks of 64 bytes (an id of 8 bytes and the
// text) come to end exactly there once the first has wrapped; texts of many
// sizes cross it.
func TestTextsAreWholeAcrossTheEndOfThePrintkRing(t *testing.T) {
	privtest.Require(t)
	word := uniqueWord(t)
	p, report, err := Try(Options{Words: []string{word}, Rung: RungCommit, RingBytes: 16 << 20})
	if err != nil {
		t.Logf("not a rung of this kernel: %s", report.Attempts[0].Reason)
		return
	}
	defer p.Close()
	hosttest.UnlimitKmsg(t)
	log, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer log.Close()

	// At least two rounds of the largest ring in use, 2^18 bytes
	// (CONFIG_LOG_BUF_SHIFT), for each kind.
	const lines = 2 * (2 << 18) / 64
	text := func(i int) string {
		size := 52
		if i > lines/2 {
			size = 40 + i%97
		}
		return fmt.Sprintf("%-*s.", size-1, fmt.Sprintf("%s %d", word, i))
	}
	for i := range lines {
		_, err := log.WriteString("<7>" + text(i))
		require.NoError(t, err)
	}
	require.Zero(t, p.Stats().Dropped)
	for i := range lines {
		require.Equal(t, text(i), read(t, p).Text)
	}
}

// Where the kernel log cannot be written, the rung is taken on the strength of
// what is known of the kernel, and the report says that it was not fired.
func TestRungThatCannotBeFired(t *testing.T) {
	privtest.Require(t)
	word := uniqueWord(t)
	trial, err := newTrial(Options{Words: []string{word}})
	require.NoError(t, err)
	trial.device = t.TempDir() + "/absent"
	p, report, err := trial.open("")
	require.NoError(t, err)
	defer p.Close()
	last := report.Attempts[len(report.Attempts)-1]
	require.Equal(t, probe.OK, last.Outcome)
	require.False(t, last.Fired)
	require.Contains(t, last.Hint, "could not fire it")
	if storesAtTracepoint(t) {
		require.Equal(t, RungBTF, report.Rung)
	} else {
		require.Equal(t, RungCommit, report.Rung)
	}
	write(t, word)
	require.Equal(t, word, read(t, p).Text)
}

func TestWhatIsKnownOfAKernelThatCannotBeFired(t *testing.T) {
	require.NoError(t, storesTextAt(RungBTF, "5.19.0-1-cloud-amd64"))
	require.NoError(t, storesTextAt(RungRaw, "6.1.0"))
	require.NoError(t, storesTextAt(RungCommit, "5.10.0"))
	var problem *ladder.Problem
	require.ErrorAs(t, storesTextAt(RungBTF, "5.18.19"), &problem)
	require.Equal(t, probe.Silent, problem.Outcome)
	require.ErrorAs(t, storesTextAt(RungRaw, "unknown"), &problem)
	require.Equal(t, probe.Broken, problem.Outcome)
}

func TestWithoutCapabilitiesEveryRungIsDenied(t *testing.T) {
	privtest.Require(t)
	out, err := runChild(t, "powerless").CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "CAP_BPF and CAP_PERFMON")
}

// powerless gives up all capabilities and opens the probe.
func powerless() int {
	if err := keepCapabilities(); err != nil {
		fmt.Println(err)
		return 1
	}
	_, report, err := Try(Options{})
	var none *ladder.NoRung
	if !errors.As(err, &none) || len(report.Attempts) != len(Rungs()) {
		fmt.Printf("err %v, report %+v\n", err, report)
		return 1
	}
	for _, a := range report.Attempts {
		if a.Outcome != probe.Denied {
			fmt.Printf("%+v\n", a)
			return 1
		}
	}
	fmt.Println(err)
	return 0
}

func TestWithoutBTFTheRawTracepointIsTaken(t *testing.T) {
	privtest.Require(t)
	cmd := runChild(t, "withoutBTF")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.Output()
	require.NoError(t, err, string(out))
	var report probe.Report
	require.NoError(t, json.Unmarshal(out, &report))
	t.Logf("%+v", report)

	first := report.Attempts[0]
	require.Equal(t, probe.Unsupported, first.Outcome, first.Reason)
	require.Contains(t, first.Hint, "CONFIG_DEBUG_INFO_BTF")
	if storesAtTracepoint(t) {
		require.Equal(t, RungRaw, report.Rung)
		return
	}
	// The ring cannot be read without knowing its layout.
	require.Empty(t, report.Rung)
	require.Equal(t, probe.Unsupported, report.Attempts[2].Outcome, report.Attempts[2].Reason)
}

// withoutBTF hides the kernel's BTF from itself and prints the report. It runs
// in a mount namespace of its own.
func withoutBTF() int {
	if err := syscall.Mount("none", "/sys/kernel/btf", "tmpfs", 0, ""); err != nil {
		fmt.Println(err)
		return 1
	}
	p, report, err := Try(Options{})
	if err == nil {
		defer p.Close()
	}
	if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
		return 1
	}
	return 0
}

// The decoder's offsets are those of the object's struct event.
func TestLayoutIsThatOfTheObject(t *testing.T) {
	spec, err := loadBpf()
	require.NoError(t, err)
	var event, names, name *btf.Struct
	require.NoError(t, spec.Types.TypeByName("event", &event))
	require.NoError(t, spec.Types.TypeByName("names", &names))
	require.NoError(t, spec.Types.TypeByName("name", &name))
	require.EqualValues(t, []any{offKind, offCount, offNames}, []any{
		int(names.Members[0].Offset.Bytes()), int(names.Members[1].Offset.Bytes()), int(names.Members[2].Offset.Bytes()),
	})
	require.EqualValues(t, nameStride, name.Size)
	require.EqualValues(t, []any{0, offNameSize, offName}, []any{
		int(name.Members[0].Offset.Bytes()), int(name.Members[1].Offset.Bytes()), int(name.Members[2].Offset.Bytes()),
	})
	require.EqualValues(t, nameBytes, name.Members[2].Type.(*btf.Array).Nelems)
	require.EqualValues(t, offNames+maxFrames*nameStride, names.Size)
	want := map[string]uint32{
		"kind": offKind, "time_ns": offTime, "cpu": offCPU, "pid": offPID, "text_bytes": offTextBytes,
		"stack_bytes": offStackBytes, "writer": offWriter, "comm": offComm, "stack": offStack, "text": offText,
	}
	got := map[string]uint32{}
	for _, m := range event.Members {
		if !strings.HasPrefix(m.Name, "pad") {
			got[m.Name] = m.Offset.Bytes()
		}
	}
	require.Equal(t, want, got)
	require.EqualValues(t, offText+MaxText, event.Size)
	require.EqualValues(t, commBytes, event.Members[8].Type.(*btf.Array).Nelems)
}

func TestTableIsAsLargeAsTheMap(t *testing.T) {
	spec, err := loadBpf()
	require.NoError(t, err)
	require.EqualValues(t, spec.Maps[bpfMapWords].ValueSize, 256+2*maxStates*maxClasses)
}
