package main

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/tracecoreai/tracecore/vmtests/archive"
)

//go:embed kernels.txt
var kernelsFile string

// Kernel is one row of the matrix.
type Kernel struct {
	Name    string
	Arch    string            // Debian's name: amd64
	Suites  []string          // the newest matching package of all of them is taken
	Package []string          // package names in order of preference; one * in each stands for the part that moves
	Beside  []archive.Package // split packages that the indexes list no more, with their digests
	Modules []string          // kernel modules that the machine loads, where the kernel has them
	Quick   bool              // one of the rows that CI runs; of a selected row: its tests are small
	Only    []string          // packages that the quick selection runs there, dir/... with all below; empty: all
	Later   []Later           // tests that the quick selection leaves out there
	Skips   []Skip            // skips that are right on this kernel
}

// Skip declares that one test cannot run on a kernel, and why.
type Skip struct {
	Package string // folder in the module: bpf/kmsg
	Test    string // full test name with its subtest: TestX/case
	Reason  string
}

// Later names tests of a package that a quick row leaves to make verify.
type Later struct {
	Package string
	Tests   []string // top-level
}

// parseKernels reads the matrix.
func parseKernels(text string) ([]Kernel, error) {
	var kernels []Kernel
	for number, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		var err error
		switch {
		case fields[0] == "kernel" && len(fields) == 5:
			kernels, err = addKernel(kernels, fields)
		case fields[0] == "skip" && len(fields) >= 5:
			skip := Skip{Package: fields[2], Test: fields[3], Reason: strings.Join(fields[4:], " ")}
			err = each(kernels, fields[1], func(k *Kernel) { k.Skips = append(k.Skips, skip) })
		case fields[0] == "modules" && len(fields) >= 3:
			err = each(kernels, fields[1], func(k *Kernel) { k.Modules = append(k.Modules, fields[2:]...) })
		case fields[0] == "beside" && len(fields) == 6 && len(fields[4]) == 64:
			beside := archive.Package{Name: fields[2], Version: fields[3], SHA256: fields[4], File: fields[5]}
			err = each(kernels, fields[1], func(k *Kernel) { k.Beside = append(k.Beside, beside) })
		case fields[0] == "later" && len(fields) >= 4:
			later := Later{Package: fields[2], Tests: fields[3:]}
			err = each(kernels, fields[1], func(k *Kernel) { k.Later = append(k.Later, later) })
		case fields[0] == "quick" && len(fields) >= 2:
			err = each(kernels, fields[1], func(k *Kernel) { k.Quick, k.Only = true, fields[2:] })
		default:
			err = fmt.Errorf("want 'kernel NAME ARCH SUITES PACKAGES', 'modules', 'beside', 'quick', 'later' or 'skip' as the head of the file says, this is %q", line)
		}
		if err != nil {
			return nil, fmt.Errorf("kernels.txt:%d: %w", number+1, err)
		}
	}
	return kernels, nil
}

func addKernel(kernels []Kernel, fields []string) ([]Kernel, error) {
	k := Kernel{Name: fields[1], Arch: fields[2], Suites: strings.Split(fields[3], ","), Package: strings.Split(fields[4], ",")}
	if k.Arch != "amd64" && k.Arch != "arm64" {
		return nil, fmt.Errorf("architecture %s: only amd64 and arm64 machines can be booted", k.Arch)
	}
	for _, name := range k.Package {
		if strings.Count(name, "*") > 1 {
			return nil, fmt.Errorf("package %s: at most one *", name)
		}
	}
	for _, other := range kernels {
		if other.Name == k.Name {
			return nil, fmt.Errorf("kernel %s stands here twice", k.Name)
		}
	}
	return append(kernels, k), nil
}

// each does something to the rows of these names, comma separated, or to all above for *.
func each(kernels []Kernel, names string, do func(*Kernel)) error {
	for name := range strings.SplitSeq(names, ",") {
		found := false
		for i := range kernels {
			if name == "*" || name == kernels[i].Name {
				found = true
				do(&kernels[i])
			}
		}
		if !found {
			return fmt.Errorf("line for kernel %s, which has no row above", name)
		}
	}
	return nil
}

// allows says whether a skip of this test is declared.
func (k Kernel) allows(pkg, test string) bool {
	for _, s := range k.Skips {
		if s.Package == pkg && s.Test == test {
			return true
		}
	}
	return false
}

// later are the tests of a package that the row leaves out.
func (k Kernel) later(pkg string) (tests []string) {
	for _, l := range k.Later {
		if l.Package == pkg {
			tests = append(tests, l.Tests...)
		}
	}
	return tests
}

// quickName selects the rows that CI runs.
const quickName = "quick"

// selectKernels picks rows by name; an empty list means all.
func selectKernels(kernels []Kernel, names []string) ([]Kernel, error) {
	if len(names) == 0 {
		return all(kernels), nil
	}
	var chosen []Kernel
	known := []string{quickName}
	for _, k := range kernels {
		known = append(known, k.Name)
	}
	for _, name := range names {
		before := len(chosen)
		for _, k := range kernels {
			switch name {
			case k.Name:
				chosen = append(chosen, all([]Kernel{k})...)
			case quickName:
				if k.Quick {
					chosen = append(chosen, k)
				}
			}
		}
		if len(chosen) == before {
			return nil, fmt.Errorf("kernel %s is not in kernels.txt; it has %s", name, strings.Join(known, ", "))
		}
	}
	return chosen, nil
}

// all takes the limits of the quick selection off: every package, every test, of full size.
func all(kernels []Kernel) []Kernel {
	whole := slices.Clone(kernels)
	for i := range whole {
		whole[i].Only, whole[i].Later, whole[i].Quick = nil, nil, false
	}
	return whole
}
