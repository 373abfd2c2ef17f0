package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const module = "github.com/tracecoreai/tracecore"

// testPackage is a package whose tests run on the matrix.
type testPackage struct {
	Name string // folder in the module: bpf/kmsg
	Dir  string
}

// goPackage is what `go list -json` says.
type goPackage struct {
	ImportPath, Dir           string
	TestGoFiles, XTestGoFiles []string
	TestImports, XTestImports []string
}

// findPackages is the one place that decides which tests need a kernel: every
// test below bpf/, and every test elsewhere that asks for privileges.
func findPackages(patterns []string) ([]testPackage, error) {
	all := len(patterns) == 0
	if all {
		patterns = []string{"./..."}
	}
	args := append([]string{"list", "-e", "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles,TestImports,XTestImports"}, patterns...)
	command := exec.Command("go", args...)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	return choosePackages(out, all)
}

func choosePackages(list []byte, onlyKernel bool) ([]testPackage, error) {
	var chosen []testPackage
	decoder := json.NewDecoder(bytes.NewReader(list))
	for {
		var p goPackage
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read the list of packages: %w", err)
		}
		hasTests := len(p.TestGoFiles)+len(p.XTestGoFiles) > 0
		if hasTests && (!onlyKernel || needsKernel(p)) {
			chosen = append(chosen, testPackage{Name: strings.TrimPrefix(p.ImportPath, module+"/"), Dir: p.Dir})
		}
	}
	if len(chosen) == 0 {
		return nil, errors.New("no tests to run on a kernel: name a package that has tests with -pkg ./bpf/kmsg")
	}
	return chosen, nil
}

// needsKernel: tests on the real probes are in bpf/, or import internal/privtest.
func needsKernel(p goPackage) bool {
	if strings.HasPrefix(p.ImportPath, module+"/bpf/") {
		return true
	}
	return slices.Contains(append(p.TestImports, p.XTestImports...), module+"/internal/privtest")
}

// binary is a compiled test: the same file runs on the host and in every machine
// of its architecture.
type binary struct {
	testPackage
	Path string
	Err  error // why it could not be built
}

// initName is the file of the machines' init in the folder of the binaries.
const initName = "init"

// build compiles init and each package's tests for one architecture. A test
// that does not compile is kept with its error and counts as a failure.
func build(packages []testPackage, dir, arch string) ([]binary, error) {
	if err := goBuild(arch, "build", "-o", filepath.Join(dir, initName), "./vmtests/init"); err != nil {
		return nil, err
	}
	var built []binary
	for _, p := range packages {
		path := filepath.Join(dir, strings.ReplaceAll(p.Name, "/", "_")+".test")
		built = append(built, binary{testPackage: p, Path: path, Err: goBuild(arch, "test", "-c", "-o", path, "./"+p.Name)})
	}
	return built, nil
}

// suite is what runs on the machines of one architecture.
type suite struct {
	arch     string
	dir      string
	binaries []binary
}

// buildSuites compiles once for each architecture what its kernels run.
func buildSuites(kernels []Kernel, packages []testPackage, into string) (map[string]suite, error) {
	into, err := filepath.Abs(into) // a test runs in the folder of its package
	if err != nil {
		return nil, err
	}
	suites := map[string]suite{}
	for _, k := range kernels {
		if _, built := suites[k.Arch]; built {
			continue
		}
		dir := filepath.Join(into, k.Arch)
		wanted := slices.DeleteFunc(slices.Clone(packages), func(p testPackage) bool { return !wantedBy(kernels, k.Arch, p) })
		binaries, err := build(wanted, dir, k.Arch)
		if err != nil {
			return nil, err
		}
		suites[k.Arch] = suite{arch: k.Arch, dir: dir, binaries: binaries}
	}
	return suites, nil
}

func wantedBy(kernels []Kernel, arch string, p testPackage) bool {
	return slices.ContainsFunc(kernels, func(k Kernel) bool { return k.Arch == arch && k.runs(p) })
}

// of returns the binaries that a kernel runs.
func (s suite) of(k Kernel) []binary {
	return slices.DeleteFunc(slices.Clone(s.binaries), func(b binary) bool { return !k.runs(b.testPackage) })
}

func (k Kernel) runs(p testPackage) bool {
	return len(k.Only) == 0 || slices.ContainsFunc(k.Only, func(pattern string) bool {
		below, whole := strings.CutSuffix(pattern, "/...")
		return p.Name == pattern || whole && strings.HasPrefix(p.Name+"/", below+"/")
	})
}

// goBuild runs the go command with the flags that GOFLAGS has, those of the Makefile: static.
func goBuild(arch string, args ...string) error {
	command := exec.Command("go", args...)
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+arch)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}
