package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/vmtests/archive"
	"github.com/tracecoreai/tracecore/vmtests/guest"
	"github.com/tracecoreai/tracecore/vmtests/interpreters"
	"github.com/tracecoreai/tracecore/vmtests/machine"
)

// testLimit ends one test binary: its own timeout prints every goroutine first.
const testLimit = 20 * time.Minute

func arguments(o options, later []string) []string {
	args := []string{"-test.v=test2json", "-test.paniconexit0", "-test.timeout=" + (testLimit - 15*time.Second).String()}
	if o.run != "" {
		args = append(args, "-test.run="+o.run)
	}
	if len(later) > 0 {
		args = append(args, "-test.skip=^("+strings.Join(later, "|")+")$")
	}
	return args
}

// silenceLimit ends a machine from which nothing was heard for so long: it boots
// in seconds, on a busy host too, and says every ten that it is alive.
const silenceLimit = 4 * time.Minute

var errSilent = fmt.Errorf("nothing heard for %s", silenceLimit)

// runMachine boots one kernel with all binaries, and says which it was. A machine that the
// emulator broke gets one more boot for what had not passed by then, and that is said.
func runMachine(ctx context.Context, o options, k Kernel, s suite, see func(guest.Line), out *printer) (archive.Package, error) {
	cache, err := archive.NewCache(o.cache)
	if err != nil {
		return archive.Package{}, err
	}
	kernel, err := cache.Kernel(ctx, archive.Query{Suites: k.Suites, Arch: k.Arch, Patterns: k.Package, Beside: k.Beside}, k.Modules)
	if err != nil {
		return archive.Package{}, err
	}
	for _, warning := range kernel.Warnings {
		out.warn(k.Name, warning)
	}
	out.step("kernel %s: %s %s", k.Name, kernel.Package.Name, kernel.Package.Version)
	work, err := os.MkdirTemp("", "vmtests-"+k.Name+"-")
	if err != nil {
		return kernel.Package, err
	}
	defer os.RemoveAll(work)
	m := machine.Machine{Arch: k.Arch, Image: kernel.Image, Initramfs: filepath.Join(work, "initramfs"), Console: filepath.Join(work, "console")}
	busybox, err := findBusybox(ctx, cache, k)
	if err != nil {
		return kernel.Package, err
	}
	payload, err := pack(o, k, kernel, busybox, s)
	if err != nil {
		return kernel.Package, err
	}
	if o.pythons {
		if err := addInterpreters(ctx, &payload, cache, k.Arch, filepath.Join(work, "interpreters"), out); err != nil {
			return kernel.Package, err
		}
	}
	passes := newKept(o.kept, kernel.Package.Name+" "+kernel.Package.Version)
	again, err := passes.take(&payload)
	if err != nil {
		return kernel.Package, err
	}
	if len(payload.Manifest.Tests) > 0 {
		err = bootTwice(ctx, m, k, payload, passes, see, out)
	}
	for _, line := range again {
		see(line)
	}
	return kernel.Package, err
}

// bootTwice boots a machine, and once more if the emulator broke it: for what had not passed by then.
func bootTwice(ctx context.Context, m machine.Machine, k Kernel, payload machine.Payload, passes *kept, see func(guest.Line), out *printer) error {
	if err := machine.WriteInitramfs(m.Initramfs, payload); err != nil {
		return err
	}
	watch := passes.watch(see)
	ran, err := boot(ctx, m, watch)
	if err != nil && ctx.Err() == nil && (!ran || errors.Is(err, errSilent) || emulatorBroke(m.Console)) {
		out.warn(k.Name, fmt.Errorf("the emulator broke it, booting it once more: %w", err))
		m.Emulate = true
		passed := passes.passed()
		if err := machine.WriteInitramfs(m.Initramfs, without(payload, passed)); err != nil {
			return err
		}
		_, err = boot(ctx, m, watch)
		for _, lines := range passed {
			for _, line := range lines {
				see(line)
			}
		}
	}
	return err
}

// without is a payload that lacks the tests of some packages.
func without(payload machine.Payload, passed map[string][]guest.Line) machine.Payload {
	payload.Manifest.Tests = slices.DeleteFunc(slices.Clone(payload.Manifest.Tests), func(t guest.Test) bool { return passed[t.Package] != nil })
	return payload
}

// emulatorBroke recognises what QEMU's emulation on several threads does to a
// kernel that patches its own code while another CPU runs it: that CPU finds the
// breakpoint of the patch after the kernel has forgotten it (smp_text_poke_int3_handler,
// arch/x86/kernel/alternative.c). One thread for both CPUs takes three times as long.
func emulatorBroke(console string) bool {
	text, err := os.ReadFile(console)
	return err == nil && bytes.Contains(text, []byte("int3: 0000 [#1]"))
}

// findBusybox returns one for machines of another architecture than this one's.
func findBusybox(ctx context.Context, cache archive.Cache, k Kernel) (string, error) {
	if k.Arch == runtime.GOARCH {
		return "", nil
	}
	return cache.File(ctx, archive.Query{Suites: k.Suites, Arch: k.Arch, Patterns: []string{"busybox-static"}}, "bin/busybox")
}

// boot runs a machine to its end and reports whether a test began in it.
func boot(ctx context.Context, m machine.Machine, see func(guest.Line)) (bool, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(silenceLimit, func() { cancel(errSilent) })
	defer timer.Stop()
	ran := false
	err := m.Run(ctx, func(line guest.Line) {
		timer.Reset(silenceLimit)
		ran = ran || line.Kind == guest.Begin
		see(line)
	})
	if err != nil {
		return ran, errors.Join(err, errors.New("console, last lines:\n"+tail(m.Console, 60)))
	}
	return ran, nil
}

// agentPath is where a machine has the agent.
const agentPath = "/bin/tracecore"

// pack gathers the machine's root: each binary lies in its package's folder, with
// the files that its tests read there.
func pack(o options, row Kernel, kernel archive.Kernel, busybox string, s suite) (machine.Payload, error) {
	payload := machine.Payload{Busybox: busybox, Init: filepath.Join(s.dir, initName), Files: map[string]string{guest.ModulesDir: kernel.Modules}}
	payload.Manifest.Port = machine.Port(s.arch)
	payload.Manifest.Env = []string{"PATH=/bin", "HOME=/tmp", "TMPDIR=/tmp", "CI=true", "GOTRACEBACK=all", "VMTESTS_KERNEL=" + kernel.Package.Name}
	if row.Quick {
		payload.Manifest.Env = append(payload.Manifest.Env, hosttest.SmallVariable+"=true")
	}
	if o.binary != "" && s.arch == runtime.GOARCH {
		payload.Files[agentPath] = o.binary
		payload.Manifest.Env = append(payload.Manifest.Env, binaryVariable+"="+agentPath)
	}
	return payload, addTests(&payload, o, row, s.binaries)
}

// interpretersPath is where a machine has the roots of interpreters.
const interpretersPath = "/interpreters"

// addInterpreters unpacks CPython of Debian's suites for the machine into a folder of this one.
func addInterpreters(ctx context.Context, payload *machine.Payload, cache archive.Cache, arch, folder string, out *printer) error {
	for _, one := range interpreters.All {
		root := filepath.Join(folder, one.Suite)
		taken, err := one.Unpack(ctx, cache, arch, root)
		if err != nil {
			return err
		}
		var names []string
		for _, pkg := range taken {
			names = append(names, pkg.Name+" "+pkg.Version)
		}
		out.step("%s: %s", one.Suite, strings.Join(names, ", "))
	}
	payload.Files[interpretersPath] = folder
	payload.Manifest.Env = append(payload.Manifest.Env, interpreters.Variable+"="+interpretersPath)
	return nil
}

// addTests adds test binaries with the files that they read.
func addTests(payload *machine.Payload, o options, row Kernel, binaries []binary) error {
	for _, b := range binaries {
		if b.Err != nil {
			continue
		}
		dir := "/src/" + b.Name
		path := dir + "/" + filepath.Base(b.Path)
		payload.Files[path] = b.Path
		if err := addDataFiles(payload.Files, dir, b.Dir); err != nil {
			return err
		}
		payload.Manifest.Tests = append(payload.Manifest.Tests, guest.Test{Package: b.Name, Path: path, Dir: dir, Args: arguments(o, row.later(b.Name)), Limit: testLimit})
	}
	return nil
}

// addDataFiles adds all below the package's folder that is not Go: testdata,
// metadata.yaml, schemas. Other tests may run meanwhile: a file that has gone was theirs.
func addDataFiles(files map[string]string, inside, here string) error {
	return filepath.WalkDir(here, func(name string, entry fs.DirEntry, err error) error {
		if err != nil && name != here && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(here, name)
		if err != nil {
			return err
		}
		extension := filepath.Ext(name)
		if entry.Type().IsRegular() && extension != ".go" && extension != ".o" {
			files[inside+"/"+filepath.ToSlash(relative)] = name
		}
		return nil
	})
}

// waiting is how many tests of a binary that may run side by side do so on the host: those
// wait most of their time, and there are more of them than there are CPUs.
var waiting = fmt.Sprintf("-test.parallel=%d", max(3, runtime.NumCPU()))

// runHost runs the same binaries here, in their packages' folders, but those that passed
// on this boot with the same programs, binaries and files.
func runHost(o options, row Kernel, binaries []binary, see func(guest.Line)) error {
	payload, err := packHost(o, row, binaries)
	if err != nil {
		return err
	}
	passes := newKept(o.kept, thisHost())
	again, err := passes.take(&payload)
	if err != nil {
		return err
	}
	see = passes.watch(see)
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return err
	}
	see(guest.Line{Kind: guest.Boot, Text: string(release)})
	env := append(os.Environ(), payload.Manifest.Env...)
	for _, test := range payload.Manifest.Tests {
		// What it reads lies here where it lay before it was packed.
		b := binaries[slices.IndexFunc(binaries, func(b binary) bool { return b.Name == test.Package })]
		test.Path, test.Dir = b.Path, b.Dir
		if err := guest.Run(test, env, func(line guest.Line) error { see(line); return nil }); err != nil {
			return err
		}
	}
	for _, line := range again {
		see(line)
	}
	return nil
}

// packHost gathers what tests find on this machine, as pack does for another.
func packHost(o options, row Kernel, binaries []binary) (machine.Payload, error) {
	payload := machine.Payload{Files: map[string]string{}}
	var err error
	if payload.Init, err = os.Executable(); err != nil { // it starts them
		return payload, err
	}
	payload.Manifest.Env = []string{"CI=true", "PATH=" + os.Getenv("PATH")}
	if o.binary != "" {
		path, err := filepath.Abs(o.binary)
		if err != nil {
			return payload, err
		}
		payload.Files[agentPath] = path
		payload.Manifest.Env = append(payload.Manifest.Env, binaryVariable+"="+path)
	}
	err = addTests(&payload, o, row, binaries)
	for i := range payload.Manifest.Tests {
		payload.Manifest.Tests[i].Args = append(payload.Manifest.Tests[i].Args, waiting)
	}
	return payload, err
}

// thisHost says which kernel runs here, since when, and which programs of Debian are
// installed: tests start interpreters, shells and compilers.
func thisHost() string {
	var says strings.Builder
	for _, name := range []string{"/proc/sys/kernel/osrelease", "/proc/sys/kernel/version", "/proc/sys/kernel/random/boot_id", "/var/lib/dpkg/status"} {
		text, err := os.ReadFile(name)
		fmt.Fprintln(&says, name, err, string(text))
	}
	return says.String()
}

// tail returns the last lines of a file for a person to read.
func tail(name string, lines int) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(strings.ReplaceAll(string(text), "\r", ""), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
