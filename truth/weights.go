//go:build linux

package main

import (
	"fmt"
	"io"
	"strings"
)

// class is a kind of failure as studies of real clusters count them.
type class string

// The classes that a machine without a GPU can try.
const (
	software class = "exceptions and bugs of the job"
	cudaText class = "CUDA errors that the job displays"
	hang     class = "hangs"
	network  class = "switches, cables, links"
	storage  class = "mounts and file systems"
	diskFull class = "disks that are full"
	memory   class = "host memory"
	operator class = "ended or held by somebody"
)

// weight is the share of the failures that a class has, in percent: of pre-training, where
// hardware decides, and of a platform with many users, where code and hosts decide. They are
// never one figure.
type weight struct {
	class                 class
	preTraining, platform float64
	of                    string
}

// weights are means of two studies each: Llama 3 and FT-HSDP; ByteRobust and Acme, by count
// (ByteRobust has no exceptions of Python, Acme no other class of these). A class without a
// share is tried and weighs nothing.
func weights() []weight {
	return []weight{
		{software, 10.0, 44.0, "Llama 3 12.9, FT-HSDP 7.1; Acme 88"},
		{cudaText, 0, 18.05, "ByteRobust 36.1"},
		{hang, 4.5, 4.95, "FT-HSDP 9.0 (NCCL watchdog); ByteRobust 9.9"},
		{network, 6.85, 1.45, "Llama 3 8.4, FT-HSDP 5.3; ByteRobust 2.9 (InfiniBand)"},
		{storage, 2.2, 2.05, "FT-HSDP 4.4 (SSD); ByteRobust 2.1 (mounts) and 2.0 (HDFS)"},
		{diskFull, 0, 2.5, "ByteRobust 5.0"},
		{memory, 0, 0, ""},
		{operator, 0, 0, ""},
	}
}

// weigh writes how much of what breaks real jobs was tried, and how much of that was told
// right: each class counts by its share, however many kinds and trials it has.
func (a *account) weigh(w io.Writer) {
	sums := map[class]*tally{}
	for _, r := range a.Results {
		if r.Kind.healthy || r.Kind.late > 0 {
			continue
		}
		if sums[r.Kind.class] == nil {
			sums[r.Kind.class] = &tally{}
		}
		sums[r.Kind.class].add(&r)
	}
	var rows strings.Builder
	var tried, right [2]float64
	for _, one := range weights() {
		t := sums[one.class]
		if t == nil || t.trials == 0 {
			fmt.Fprintf(&rows, "| %s | %.1f %% | %.1f %% | not tried | %s |\n", one.class, one.preTraining, one.platform, one.of)
			continue
		}
		fmt.Fprintf(&rows, "| %s | %.1f %% | %.1f %% | %s | %s |\n", one.class, one.preTraining, one.platform, share(t.cause, t.trials), one.of)
		for i, weight := range [...]float64{one.preTraining, one.platform} {
			tried[i] += weight
			right[i] += weight * float64(t.cause) / float64(t.trials)
		}
	}
	fmt.Fprintf(w, `
## By what breaks real jobs

The share of each class comes from studies of real clusters, a column for each kind of cluster. What is not listed takes a GPU, a driver or a host that dies: it cannot be tried here.

| class | pre-training | platform | culprit and cause right | share as in |
| --- | --- | --- | --- | --- |
%s| all that was tried | %.1f %% | %.1f %% | %s and %s of it | |
`, rows.String(), tried[0], tried[1], part(right[0], tried[0]), part(right[1], tried[1]))
}

// part is how much of a share was right.
func part(right, tried float64) string {
	if tried == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%.1f %%", 100*right/tried)
}
