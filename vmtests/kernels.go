package main

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed kernels.txt
var kernelsFile string

// Kernel is one row of the matrix.
type Kernel struct {
	Name    string
	Arch    string   // Debian's name: amd64
	Suites  []string // the newest matching package of all of them is taken
	Package string   // package name; one * stands for the part that moves
	Skips   []Skip   // skips that are right on this kernel
}

// Skip declares that one test cannot run on a kernel, and why.
type Skip struct {
	Package string // folder in the module: bpf/kmsg
	Test    string // full test name with its subtest: TestX/case
	Reason  string
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
			err = addSkip(kernels, fields)
		default:
			err = fmt.Errorf("want 'kernel NAME ARCH SUITES PACKAGE' or 'skip NAME PACKAGE TEST REASON', this is %q", line)
		}
		if err != nil {
			return nil, fmt.Errorf("kernels.txt:%d: %w", number+1, err)
		}
	}
	return kernels, nil
}

func addKernel(kernels []Kernel, fields []string) ([]Kernel, error) {
	k := Kernel{Name: fields[1], Arch: fields[2], Suites: strings.Split(fields[3], ","), Package: fields[4]}
	if k.Arch != "amd64" {
		return nil, fmt.Errorf("architecture %s: only amd64 machines can be booted so far", k.Arch)
	}
	if strings.Count(k.Package, "*") > 1 {
		return nil, fmt.Errorf("package %s: at most one *", k.Package)
	}
	for _, other := range kernels {
		if other.Name == k.Name && other.Arch == k.Arch {
			return nil, fmt.Errorf("kernel %s %s stands here twice", k.Name, k.Arch)
		}
	}
	return append(kernels, k), nil
}

func addSkip(kernels []Kernel, fields []string) error {
	found := false
	for i := range kernels {
		if fields[1] != "*" && fields[1] != kernels[i].Name {
			continue
		}
		found = true
		kernels[i].Skips = append(kernels[i].Skips, Skip{Package: fields[2], Test: fields[3], Reason: strings.Join(fields[4:], " ")})
	}
	if !found {
		return fmt.Errorf("skip for kernel %s, which has no row above", fields[1])
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

// selectKernels picks rows by name; an empty list means all.
func selectKernels(kernels []Kernel, names []string) ([]Kernel, error) {
	if len(names) == 0 {
		return kernels, nil
	}
	var chosen []Kernel
	var known []string
	for _, k := range kernels {
		known = append(known, k.Name)
	}
	for _, name := range names {
		before := len(chosen)
		for _, k := range kernels {
			if k.Name == name {
				chosen = append(chosen, k)
			}
		}
		if len(chosen) == before {
			return nil, fmt.Errorf("kernel %s is not in kernels.txt; it has %s", name, strings.Join(known, ", "))
		}
	}
	return chosen, nil
}
