package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
)

// hostDescription says where the machines were emulated: what a delay depends on.
func hostDescription() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		release = []byte("unknown")
	}
	qemu, err := exec.Command("qemu-system-x86_64", "--version").Output()
	if err != nil {
		qemu = []byte("unknown QEMU")
	}
	version, _, _ := strings.Cut(string(qemu), "(")
	number, _, _ := strings.Cut(strings.TrimSpace(string(release)), "-")
	return fmt.Sprintf("%d CPUs %s, Linux %s, %s", runtime.NumCPU(), runtime.GOARCH, number, strings.TrimSpace(strings.Split(version, "\n")[0]))
}

// commit is what was tested; none where git does not know.
func commit() string {
	out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// resultsTable is RESULTS.md: what each probe did on each kernel.
func resultsTable(rows []row) string {
	probes := probesOf(rows)
	var out strings.Builder
	fmt.Fprintf(&out, "# What was found on real kernels\n\nMade by `make vmtest`; not edited. Each row is the last run of its kernel: the hook that each probe took, and the delay "+
		"from a fault made in\nthe machine to its verdict, under software emulation where there is no KVM. A dash: nothing was measured there. Packages: how many test packages were run in it\nand passed; a row can be run for those alone that measure.\n\n")
	fmt.Fprintf(&out, "| kernel | package | %s | packages | time | date, commit |\n|%s\n", strings.Join(probes, " | "), strings.Repeat(" --- |", len(probes)+5))
	for _, r := range rows {
		fmt.Fprintf(&out, "| %s | %s %s |", r.Kernel, r.Package, r.Version)
		for _, probe := range probes {
			fmt.Fprintf(&out, " %s |", r.cell(probe))
		}
		fmt.Fprintf(&out, " %d of %d | %.0f s | %s |\n", r.Passed, r.Given, r.Seconds, strings.TrimSpace(r.Date+" "+r.Commit))
	}
	hosts := map[string]bool{}
	for _, r := range rows {
		hosts[r.Host] = true
	}
	fmt.Fprintf(&out, "\nEmulated on: %s.\n", strings.Join(slices.Sorted(maps.Keys(hosts)), "; "))
	return out.String()
}

func probesOf(rows []row) []string {
	names := map[string]bool{}
	for _, r := range rows {
		for _, m := range r.Measured {
			names[m.Probe] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// cell says what one probe did on one kernel: its rung, then each fault.
func (r row) cell(probe string) string {
	var parts []string
	for _, m := range r.Measured {
		switch {
		case m.Probe != probe:
		case m.Rung != "":
			parts = append([]string{"`" + m.Rung + "`"}, parts...)
		case m.Result == "named":
			parts = append(parts, fmt.Sprintf("%s named, %.0f ms", m.Fault, m.DelayMS))
		case m.Result != "":
			parts = append(parts, fmt.Sprintf("**%s %s**", m.Fault, m.Result))
		}
	}
	if len(parts) == 0 {
		return "–"
	}
	return strings.Join(parts, "; ")
}

// summary is all cells in one line.
func (r row) summary() string {
	parts := []string{}
	for _, probe := range probesOf([]row{r}) {
		parts = append(parts, probe+" "+r.cell(probe))
	}
	if len(parts) == 0 {
		return "no test measured anything"
	}
	return strings.Join(parts, ", ")
}

// programs are the verifier's counts by probe and program.
func (r row) programs() map[string]int {
	counts := map[string]int{}
	for _, m := range r.Measured {
		if m.Program != "" {
			counts[m.Probe+" "+m.Program] = m.Instructions
		}
	}
	return counts
}

// instructionsTable is INSTRUCTIONS.md: programs by kernels.
func instructionsTable(rows []row) string {
	names := map[string]bool{}
	heads := make([]string, len(rows))
	for i, r := range rows {
		heads[i] = r.Kernel
		for name := range r.programs() {
			names[name] = true
		}
	}
	var out strings.Builder
	fmt.Fprintf(&out, "# What the verifier goes through\n\nMade by `make vmtest`; not edited. Instructions that the kernel's verifier processed for each program as the probes load it, "+
		"on the hook they took\nthere. The limit is a million. Kernels before 5.16 do not tell.\n\n")
	fmt.Fprintf(&out, "| probe, program | %s |\n|%s\n", strings.Join(heads, " | "), strings.Repeat(" --- |", len(heads)+1))
	for _, name := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprintf(&out, "| %s |", name)
		for _, r := range rows {
			if n, known := r.programs()[name]; known {
				fmt.Fprintf(&out, " %d |", n)
			} else {
				fmt.Fprint(&out, " – |")
			}
		}
		fmt.Fprintln(&out)
	}
	return out.String()
}

// How much dearer than before a program may get without a word: so many percent, or so many
// instructions. The verifier takes a million (BPF_COMPLEXITY_LIMIT_INSNS, include/linux/bpf.h).
const (
	jumpPercent      = 20
	jumpInstructions = 1000
)

// jumps names the programs that cost the verifier much more than in the last
// recorded run on the same row.
func jumps(before map[string]row, rows []row) []string {
	var found []string
	for _, r := range rows {
		recorded := before[r.Kernel]
		old, now := recorded.programs(), r.programs()
		for _, name := range slices.Sorted(maps.Keys(now)) {
			was := old[name]
			if more := now[name] - was; was > 0 && more*100 > was*jumpPercent && more > jumpInstructions {
				found = append(found, fmt.Sprintf("%s: %s costs the verifier %d instructions, %d when %s was recorded (%s, +%d %%)",
					r.Kernel, name, now[name], was, r.Kernel, recorded.Date, more*100/was))
			}
		}
	}
	return found
}
