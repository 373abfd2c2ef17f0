//go:build linux && (amd64 || arm64)

package kmsg

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// childVar names what this test binary does when it is started as a child.
const childVar = "KMSG_TEST_CHILD"

var children = map[string]func() int{"segfault": segfault, "powerless": powerless, "withoutBTF": withoutBTF, "withoutSyslog": withoutSyslog, "searching": searching, "searchingWithoutSyslog": searchingWithoutSyslog}

func runChild(t *testing.T, name string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hosttest.Patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), childVar+"="+name)
	return cmd
}

// segfault takes Go's handler away, since the kernel reports only faults that
// nobody handles, and reads where nothing is.
func segfault() int {
	var action [4]uint64 // struct sigaction: SIG_DFL, no flags
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGSEGV), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	if errno != 0 {
		fmt.Println(errno)
		return 1
	}
	address := uintptr(0x10)
	return int(**(**byte)(unsafe.Pointer(&address)))
}

// keepCapabilities gives all others up, and those that this process does not have.
func keepCapabilities(keep ...int) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var had, left [2]unix.CapUserData
	if err := unix.Capget(&header, &had[0]); err != nil {
		return err
	}
	for _, c := range keep {
		bit := uint32(1) << (c % 32) & had[c/32].Permitted
		left[c/32].Effective |= bit
		left[c/32].Permitted |= bit
	}
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET,
		uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&left[0])), 0)
	if errno != 0 {
		return fmt.Errorf("drop capabilities: %w", errno)
	}
	return nil
}

// reportFaults makes the kernel log unhandled faults (show_unhandled_signals).
func reportFaults(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/proc/sys/debug/exception-trace"); err != nil {
		t.Skipf("this kernel cannot log faults of processes: %v", err)
	}
	hosttest.SetSysctl(t, "debug/exception-trace", "1")
}

// A line that the kernel itself writes, in fragments: the fault, then where it
// was (KERN_CONT). Each fragment comes once, and together they are the record.
func TestKernelIsToldFromUserspace(t *testing.T) {
	privtest.Require(t)
	reportFaults(t)
	for _, rung := range Rungs() {
		t.Run(rung, func(t *testing.T) {
			// Every fragment of that message has a space or a bracket; an own line
			// with the same words shows the difference.
			p, report, err := Try(Options{Words: []string{" ", "["}, Rung: rung})
			if err != nil {
				t.Logf("not a rung of this kernel: %s", report.Attempts[0].Reason)
				return
			}
			defer p.Close()
			log := openLog(t)

			cmd := runChild(t, "segfault")
			require.Error(t, cmd.Run())
			pid := uint32(cmd.ProcessState.Pid())
			fence := uniqueWord(t) + " segfault at"
			write(t, fence+"\n") // without a newline no reader sees it yet

			fragments := fragmentsOf(t, p, pid, fence)
			require.NotEmpty(t, fragments)
			require.Contains(t, fragments[0], faultLine(pid))
			records, together := log.faultRecords(t, pid, fence), strings.Join(fragments, "")
			if runtime.GOARCH == "arm64" { // its registers follow, in records of their own
				require.NotEmpty(t, records)
				together = together[:min(len(together), len(records))]
			}
			require.Equal(t, records, together)
		})
	}
}

// A writer is known without /proc/kallsyms, where the kernel names its functions. Where
// it does not, the report says who hides them, and its faults are claims.
func TestWithoutAddressesOnlyTheKernelCanShowTheWriter(t *testing.T) {
	privtest.Require(t)
	trial, err := newTrial(Options{})
	require.NoError(t, err)
	const syslog = "give the process CAP_SYSLOG"
	for name, tt := range map[string]struct {
		child, restrict, unproven string
	}{
		"kernel names, no capability": {"withoutSyslog", "2", map[bool]string{true: "", false: "kernel.kptr_restrict is 2"}[trial.kernelNames]},
		"searched, kptr_restrict 2":   {"searching", "2", "kernel.kptr_restrict is 2"},
		"searched, no capability":     {"searchingWithoutSyslog", "1", syslog},
		"searched, shown":             {"searching", "1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			hosttest.SetSysctl(t, "kernel/kptr_restrict", tt.restrict)
			out, err := runChild(t, tt.child).Output()
			require.NoError(t, err, string(out))
			var told looked
			require.NoError(t, json.Unmarshal(out, &told), string(out))
			t.Logf("%+v", told)
			if tt.unproven == "" {
				require.Empty(t, told.Unproven)
				require.NotEmpty(t, told.Event.Origin.Name)
				require.Equal(t, WriterUserspace, told.Event.Writer)
				return
			}
			require.Contains(t, told.Unproven, "likely at most")
			require.Contains(t, told.Unproven, tt.unproven)
			require.Zero(t, told.Event.Origin, "no driver's line could be told from it")
		})
	}
}

// looked is what a child saw of a write of its own.
type looked struct {
	Event    Event
	Unproven string
}

func withoutSyslog() int { return look(false, withoutSyslogCapabilities...) }
func searching() int     { return look(true) }

func searchingWithoutSyslog() int { return look(true, withoutSyslogCapabilities...) }

// withoutSyslogCapabilities are what loads a program.
var withoutSyslogCapabilities = []int{unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYS_RESOURCE, unix.CAP_SYS_ADMIN}

// look keeps these capabilities, or all, and prints what the probe tells of a write.
// With search it takes this kernel for one that names no functions.
func look(search bool, keep ...int) int {
	told, err := lookAtOwnWrite(search, keep)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(told)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func lookAtOwnWrite(search bool, keep []int) (told looked, err error) {
	if keep != nil {
		if err := keepCapabilities(keep...); err != nil {
			return told, err
		}
	}
	trial, err := newTrial(Options{Words: []string{"without syslog"}})
	if err != nil {
		return told, err
	}
	trial.kernelNames = trial.kernelNames && !search
	p, report, err := trial.open("")
	if err != nil {
		return told, err
	}
	defer p.Close()
	told.Unproven = report.Unproven
	f, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0)
	if err != nil {
		return told, err
	}
	defer f.Close()
	if _, err := f.WriteString("<7>NVRM: without syslog"); err != nil {
		return told, err
	}
	return told, p.Read(&told.Event)
}

// faultLine is how the kernel reports a fault of a process: arch/x86/mm/fault.c,
// show_signal_msg; arch/arm64/kernel/traps.c, arm64_show_signal, with the thread.
func faultLine(pid uint32) string {
	if runtime.GOARCH == "arm64" {
		return "]: unhandled exception: "
	}
	return fmt.Sprintf("[%d]: segfault at 10 ip ", pid)
}

// fragmentsOf reads until the fence and returns the texts that the process wrote.
func fragmentsOf(t *testing.T, p *Probe, pid uint32, fence string) []string {
	t.Helper()
	var texts []string
	for {
		e := read(t, p)
		switch {
		case e.Text == fence:
			require.Equal(t, WriterUserspace, e.Writer)
			require.Contains(t, []Function{{Name: "devkmsg_emit"}, {Name: "devkmsg_write"}}, e.Origin)
			return texts
		case e.PID == pid:
			require.Equal(t, WriterKernel, e.Writer, e.Text)
			require.NotEmpty(t, e.Origin.Name, e.Text)
			require.Empty(t, e.Origin.Module, e.Text)
			t.Logf("%s wrote %q", e.Origin.Name, e.Text)
			texts = append(texts, e.Text)
		}
	}
}

// kernelLog reads whole records from /dev/kmsg, to compare with.
type kernelLog struct{ fd int }

func openLog(t *testing.T) kernelLog {
	t.Helper()
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	_, err = unix.Seek(fd, 0, 2)
	require.NoError(t, err)
	return kernelLog{fd}
}

// faultRecords returns the texts, up to the fence, of the two records that x86
// writes about a fault of a process, or the one of others.
func (l kernelLog) faultRecords(t *testing.T, pid uint32, fence string) string {
	t.Helper()
	var found strings.Builder
	buf := make([]byte, 8192)
	for {
		n, err := unix.Read(l.fd, buf)
		if err == unix.EPIPE { // overwritten meanwhile
			continue
		}
		require.NoError(t, err, "the log ended before the fence")
		_, text, _ := strings.Cut(string(buf[:n]), ";")
		text, _, _ = strings.Cut(text, "\n")
		switch {
		case text == fence:
			return found.String()
		case strings.Contains(text, faultLine(pid)), strings.HasPrefix(text, "Code: ") && runtime.GOARCH != "arm64":
			found.WriteString(text)
		}
	}
}

// The kernel asks the other CPUs for a backtrace; they print it in an NMI, or
// before 5.15 in the interrupt that follows. The task that runs there did not
// write it.
func TestInterruptedTaskIsNotTheWriter(t *testing.T) {
	privtest.Require(t)
	const trigger = "/proc/sysrq-trigger"
	// arm64 has such backtraces since 6.7 (331a1b3a836c).
	if _, err := os.Stat(trigger); err != nil || runtime.NumCPU() < 2 || !hasSymbol(t, "arch_trigger_cpumask_backtrace") {
		t.Logf("cannot make another CPU print in an interrupt here: %v, %d CPUs", err, runtime.NumCPU())
		return
	}
	for _, rung := range Rungs() {
		t.Run(rung, func(t *testing.T) {
			p, report, err := Try(Options{Words: []string{"NMI backtrace for cpu "}, Rung: rung})
			if err != nil {
				t.Logf("not a rung of this kernel: %s", report.Attempts[0].Reason)
				return
			}
			defer p.Close()
			require.NoError(t, os.WriteFile(trigger, []byte("l"), 0))
			seen := map[bool]int{}
			for range runtime.NumCPU() {
				e := read(t, p)
				require.Equal(t, WriterKernel, e.Writer)
				if e.PID == 0 {
					require.Empty(t, e.Comm)
				} else {
					require.EqualValues(t, os.Getpid(), e.PID)
				}
				seen[e.PID == 0]++
			}
			// The CPU that asks prints for itself, without an interrupt. Before
			// 5.15 (93d102f094be) it also flushes what the others left in their
			// buffers, if their own interrupt was not quicker.
			if !hasSymbol(t, "printk_safe_flush") {
				require.Equal(t, map[bool]int{false: 1, true: runtime.NumCPU() - 1}, seen)
			}
			require.Positive(t, seen[false])
		})
	}
}

// hasSymbol says whether the running kernel has a function of that name.
func hasSymbol(t *testing.T, name string) bool {
	symbols, err := os.ReadFile("/proc/kallsyms")
	require.NoError(t, err)
	return strings.Contains(string(symbols), " "+name+"\n")
}
