// Command vmtests runs the tests that need a kernel on the kernels of
// kernels.txt: it fetches each from Debian's archive, boots it in qemu under
// software emulation and runs the same static test binaries there as on the host.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tracecoreai/tracecore/vmtests/archive"
	"github.com/tracecoreai/tracecore/vmtests/interpreters"
	"github.com/tracecoreai/tracecore/vmtests/machine"
)

// hostName is the row that is not in kernels.txt: the machine we run on.
const hostName = "host"

type options struct {
	kernels  []string
	packages []string
	run      string
	binary   string
	pythons  bool
	json     string
	results  string
	cache    string
	kept     string
	limit    time.Duration
	parallel int
	verbose  bool
	list     bool
}

func main() {
	opts, err := parseFlags(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "vmtests:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := runAll(ctx, opts); err != nil {
		fmt.Fprintln(os.Stderr, "vmtests:", err)
		os.Exit(1)
	}
}

func parseFlags(args []string) (options, error) {
	var o options
	var kernels, packages string
	f := flag.NewFlagSet("vmtests", flag.ContinueOnError)
	f.StringVar(&kernels, "kernel", "", "rows of kernels.txt, comma separated; `host` is this machine, quick what CI runs; default: all of kernels.txt")
	f.StringVar(&packages, "pkg", "", "packages, comma separated (./bpf/kmsg); default: all whose tests need a kernel")
	f.StringVar(&o.run, "run", "", "run only tests that match, as go test -run")
	f.StringVar(&o.binary, "binary", "", "a static bin/tracecore to put into the machine; tests find it as $TRACECORE_BINARY")
	f.BoolVar(&o.pythons, "interpreters", false, "put CPython of Debian's suites into the machine, each in a root of its own; tests find them as $"+interpreters.Variable)
	f.StringVar(&o.json, "json", "", "append results to this file in the form of go test -json")
	f.StringVar(&o.results, "results", "", "folder whose results.json, RESULTS.md and INSTRUCTIONS.md get the rows of this run")
	f.StringVar(&o.cache, "cache", ".cache/kernels", "where kernels are kept")
	f.StringVar(&o.kept, "kept", "", "folder of what passed before; what has the same kernel, binary and files is told again, not run")
	f.DurationVar(&o.limit, "limit", 45*time.Minute, "a machine is stopped after this")
	f.IntVar(&o.parallel, "parallel", max(1, runtime.NumCPU()/machine.CPUs), "machines that run at the same time; more than fit on the CPUs hold each other up")
	f.BoolVar(&o.verbose, "v", false, "show the output of tests that pass too")
	f.BoolVar(&o.list, "list", false, "print the packages whose tests need a kernel, and stop")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if o.parallel < 1 {
		return o, fmt.Errorf("-parallel %d: at least one machine must run", o.parallel)
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unknown argument %s: packages are named by -pkg, kernels by -kernel", f.Arg(0))
	}
	o.kernels, o.packages = split(kernels), split(packages)
	if o.results != "" && (o.run != "" || slices.Contains(o.kernels, quickName) || packages != "" && !measures(o.packages)) {
		return o, fmt.Errorf("-results keeps what whole packages found: leave out -run and -kernel quick, and name in -pkg, if at all, those that measure: %s", strings.Join(measuring, ","))
	}
	if o.pythons && (len(o.kernels) == 0 || slices.Contains(o.kernels, hostName)) {
		return o, errors.New("-interpreters is for machines that -kernel names: here, make stacks")
	}
	if o.results != "" && o.kept != "" {
		return o, errors.New("-results is of what runs now: leave out -kept")
	}
	return o, nil
}

// binariesDir keeps what was compiled: the host and the machines run the same files,
// and the go command links none again that has not changed.
const binariesDir = ".cache/vmtests"

// measuring are the packages that a row of the tables cannot do without.
var measuring = []string{"./bpf/check", "./distro/internal/acceptance"}

func measures(packages []string) bool {
	return !slices.ContainsFunc(measuring, func(p string) bool { return !slices.Contains(packages, p) })
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// runAll is the whole job: build once, run on each kernel, compare counts.
func runAll(ctx context.Context, o options) error {
	kernels, err := chooseKernels(o.kernels)
	if err != nil {
		return err
	}
	if len(o.packages) > 0 {
		kernels = all(kernels)
	}
	if err := goToModuleRoot(); err != nil {
		return err
	}
	if o.packages, err = packagePatterns(o.packages); err != nil {
		return err
	}
	packages, err := findPackages(o.packages)
	if err != nil {
		return err
	}
	if o.list {
		for _, p := range packages {
			fmt.Println(module + "/" + p.Name)
		}
		return nil
	}
	out := newPrinter(os.Stdout, o.verbose)
	out.step("building %d test binaries", len(packages))
	suites, err := buildSuites(kernels, packages, binariesDir)
	if err != nil {
		return err
	}
	before, err := readMatrix("vmtests")
	if err != nil {
		return err
	}
	rows, failed := runKernels(ctx, o, kernels, suites, out)
	for _, jump := range jumps(before, rows) {
		out.warn("verifier", errors.New(jump))
	}
	if o.results != "" {
		err = writeMatrix(o.results, rows)
	}
	if failed > 0 {
		err = errors.Join(fmt.Errorf("%d runs failed", failed), err)
	}
	return err
}

// runKernels runs the kernels, a few at a time, and returns what each did and
// how many runs did not pass.
func runKernels(ctx context.Context, o options, kernels []Kernel, suites map[string]suite, out *printer) ([]row, int) {
	var group sync.WaitGroup
	var failed atomic.Int64
	rows := make([]row, len(kernels))
	slots := make(chan struct{}, o.parallel)
	for _, i := range longestFirst(kernels, suites) {
		slots <- struct{}{}
		group.Go(func() {
			var problems int
			k := kernels[i]
			rows[i], problems = runKernel(ctx, o, k, suites[k.Arch], out)
			failed.Add(int64(problems))
			<-slots
		})
	}
	group.Wait()
	return rows, int(failed.Load())
}

// longestFirst puts those with the most to run in front, so that no long one runs
// alone in the end.
func longestFirst(kernels []Kernel, suites map[string]suite) []int {
	order := make([]int, len(kernels))
	for i := range order {
		order[i] = i
	}
	length := func(i int) int { return len(suites[kernels[i].Arch].of(kernels[i])) }
	slices.SortStableFunc(order, func(a, b int) int { return length(b) - length(a) })
	return order
}

// runKernel runs the binaries of one kernel and returns how many did not pass.
func runKernel(whole context.Context, o options, k Kernel, s suite, out *printer) (row, int) {
	ctx, cancel := context.WithTimeoutCause(whole, o.limit, fmt.Errorf("no end within %s", o.limit))
	defer cancel()
	began := time.Now()
	s.binaries = s.of(k)
	seen := newCollector(k, s.binaries)
	var pkg archive.Package
	var problem error
	if k.Name == hostName {
		problem = runHost(o, k, s.binaries, seen.see)
	} else {
		pkg, problem = runMachine(ctx, o, k, s, seen.see, out)
	}
	results, err := seen.results(problem)
	failed := out.kernel(k, seen.Release, results, time.Since(began))
	if err == nil {
		err = out.appendJSON(o.json, k.Name, results)
	}
	if err != nil {
		out.warn(k.Name, err)
		failed++
	}
	found := newRow(k, pkg, seen, results, began)
	if whole.Err() != nil { // somebody stopped it: what it found is of no whole run
		found.Release = ""
	}
	out.step("kernel %s: %s", k.Name, found.summary())
	return found, failed
}

func chooseKernels(names []string) ([]Kernel, error) {
	kernels, err := parseKernels(kernelsFile)
	if err != nil {
		return nil, err
	}
	if len(names) == 1 && names[0] == hostName {
		return []Kernel{{Name: hostName, Arch: runtime.GOARCH}}, nil
	}
	return selectKernels(kernels, names)
}

// packagePatterns makes folders such as bpf/kmsg acceptable to the go command.
func packagePatterns(names []string) ([]string, error) {
	var patterns []string
	for _, name := range names {
		if strings.HasPrefix(name, module) || strings.HasPrefix(name, "./") {
			patterns = append(patterns, name)
			continue
		}
		if filepath.IsAbs(name) {
			return nil, fmt.Errorf("package %s: name it from the module's root: ./bpf/kmsg", name)
		}
		patterns = append(patterns, "./"+name)
	}
	return patterns, nil
}

func goToModuleRoot() error {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("go env GOMOD: %w", err)
	}
	file := strings.TrimSpace(string(out))
	if filepath.Base(file) != "go.mod" {
		return errors.New("not inside the module: run it in the repository")
	}
	return os.Chdir(filepath.Dir(file))
}
