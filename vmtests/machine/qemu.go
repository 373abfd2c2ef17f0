package machine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"

	"github.com/tracecoreai/tracecore/vmtests/guest"
)

// kind is how a machine of one architecture is made: its console is the first
// serial line, its report leaves by the second.
type kind struct {
	program, debian string
	arguments       []string // machine, processor and second serial line
	console         string   // as the kernel calls it
	port            string   // as init opens it
}

// kinds by Debian's name of the architecture. Pointer authentication as QEMU's
// own invention costs a fraction of the real cipher under emulation
// (docs/system/arm/cpu-features.rst). The board virt has one serial line only,
// so its second is a PCI card. A PC's copies and fills go one byte at a time under emulation
// where the processor has ERMS and FSRM (rep movsb, which the kernel and Go then choose for
// all sizes), and five levels of pages are one more to walk: bpf/oomkill and bpf/taskstack
// took 72 s of CPU without them and 83 s with them, side by side (QEMU 7.2, Linux 7.3 on
// Linux 6.18, 2026-11-23).
var kinds = map[string]kind{
	"amd64": {
		"qemu-system-x86_64", "qemu-system-x86",
		[]string{
			"-M", "q35", "-cpu", "max,-erms,-fsrm,-la57", "-serial", "stdio", "-device", "pcie-root-port",
			"-object", "memory-backend-ram,id=registers,size=64K", "-device", "ivshmem-plain,memdev=registers",
		}, "ttyS0", "/dev/ttyS1",
	},
	"arm64": {
		"qemu-system-aarch64", "qemu-system-arm",
		[]string{"-M", "virt", "-cpu", "max,pauth-impdef=on", "-chardev", "stdio,id=port", "-device", "pci-serial,chardev=port", "-device", "pcie-root-port"}, "ttyAMA0", "/dev/ttyS0",
	},
}

// CPUs of a machine. It needs as many here: where one of them waits for its turn,
// the others wait for it, in locks of the kernel and whenever QEMU wants all of them
// to stand still. Beside other work on two CPUs (Linux 6.18, 2026-11-22) an agent
// started in 45 to 53 s in each of two machines, and in 15 s in one alone.
const CPUs = 2

// Port is the serial line that carries the report out of a machine.
func Port(arch string) string { return kinds[arch].port }

// Machine is one boot: a kernel, an initramfs, and where its console goes.
type Machine struct {
	Arch      string
	Image     string
	Initramfs string
	Console   string // file that receives kernel messages
	Emulate   bool   // leaves the processor's own virtualization unused
}

// accelerators are what QEMU shall run the machine on, in order. KVM opens on machines
// without virtualization in their processor too, where its guests do not get through their
// boot: the processor shows neither of the two flags there.
func (m Machine) accelerators(cpuinfo string) []string {
	tcg := []string{"-accel", "tcg"}
	if m.Emulate || m.Arch != "amd64" || runtime.GOARCH != "amd64" || !virtualizes.MatchString(cpuinfo) {
		return tcg
	}
	return append([]string{"-accel", "kvm"}, tcg...)
}

// virtualizes finds Intel's or AMD's virtualization in /proc/cpuinfo.
var virtualizes = regexp.MustCompile(`(?m)^flags\s*:.*\b(vmx|svm)\b`)

// memory in MiB: what the tests need, and the initramfs once as qemu hands it
// over and once unpacked.
func (m Machine) memory() (int, error) {
	info, err := os.Stat(m.Initramfs)
	if err != nil {
		return 0, err
	}
	return 1024 + 2*int(info.Size()>>20), nil
}

// arguments: only modules signed for this very kernel are let in. A serial line that reports
// much makes an interrupt for each few bytes, and the threaded handler of -rt finds most of
// them done: after 99,900 of 100,000 the kernel takes the line for broken and disables it
// (note_interrupt, kernel/irq/spurious.c), unless it is told noirqdebug.
func (m Machine) arguments() ([]string, error) {
	memory, err := m.memory()
	if err != nil {
		return nil, err
	}
	cpuinfo, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return nil, err
	}
	return slices.Concat(m.accelerators(string(cpuinfo)), []string{
		"-smp", strconv.Itoa(CPUs), "-m", strconv.Itoa(memory),
		"-display", "none", "-vga", "none", "-nic", "none", "-monitor", "none", "-no-reboot",
		"-kernel", m.Image, "-initrd", m.Initramfs,
		"-append", "console=" + kinds[m.Arch].console + " quiet panic=-1 module.sig_enforce=1 noirqdebug" + clockParameters(m.Arch),
		"-serial", "file:" + m.Console,
	}, kinds[m.Arch].arguments), nil
}

// Run boots the machine and hands each line of its report to see, until it
// powers off, dies, or the context ends. Only a report that came to its end
// returns no error.
func (m Machine) Run(ctx context.Context, see func(guest.Line)) error {
	arguments, err := m.arguments()
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, kinds[m.Arch].program, arguments...)
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return fmt.Errorf("%w: apt-get install %s", err, kinds[m.Arch].debian)
	}
	reportErr := readReport(output, see)
	waitErr := command.Wait()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("machine hangs: %w", context.Cause(ctx))
	case reportErr != nil:
		return errors.Join(reportErr, waitErr)
	default:
		return waitErr
	}
}

// readReport decodes lines until Done. A report that stops before is a machine
// that died: kernel panic, init killed, power lost. What comes behind Done is a sign of
// life that the machine's end may cut anywhere.
func readReport(r io.Reader, see func(guest.Line)) error {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var line guest.Line
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
			return errors.Join(fmt.Errorf("report line %q: %w", scanner.Text(), err), drain(r))
		}
		see(line)
		if line.Kind == guest.Done {
			return drain(r)
		}
	}
	if err := scanner.Err(); err != nil {
		return errors.Join(fmt.Errorf("read report: %w", err), drain(r))
	}
	return errors.New("machine died before its report was complete")
}

// drain lets a machine that we no longer understand run to its end.
func drain(r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}
