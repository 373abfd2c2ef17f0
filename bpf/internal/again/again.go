//go:build linux

// Package again attaches a program several times where the kernel may preempt it, so that
// no event is missed meanwhile. bpf/include/again.h says why, and what the programs do.
package again

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/internal/counter"
)

// preempts is the first kernel that preempts within tracepoints: 7.0. On 7.3 sixteen
// processes of a hundred threads that ended together had 20 runs of a program missed, and
// with them two of their ends (2 emulated CPUs, 2026-11-23). Within the entry of a function
// PREEMPT_RT does: on 6.1-rt four of a hundred faults that began together were missed (the
// same). So may other kernels with full preemption; there the misses are counted.
const preempts = 7 << 16

// Copies is how often a program is attached there. With two, such crowds still lost an end
// within twenty rounds; with four none (7.3, 2 emulated CPUs, 2026-11-23).
const Copies = 4

const variable = "copies" // of again.h

// Programs narrows spec to the named programs. Where the kernel may preempt them it
// adds copies of those that are certain, and returns the copies' names:
// they are to be attached as well.
func Programs(spec *ebpf.CollectionSpec, wanted []string, certain ...string) (copies []string, err error) {
	preempted, err := preempted()
	if err != nil {
		return nil, err
	}
	all := spec.Programs
	spec.Programs = make(map[string]*ebpf.ProgramSpec, Copies*len(wanted))
	for _, name := range wanted {
		spec.Programs[name] = all[name]
	}
	for _, name := range certain {
		program := spec.Programs[name]
		if program == nil || !preempted(program.AttachType) {
			continue
		}
		for i := 2; i <= Copies; i++ {
			spec.Programs[copyOf(name, i)] = program.Copy()
			copies = append(copies, copyOf(name, i))
		}
	}
	if len(copies) == 0 {
		return nil, nil
	}
	return copies, spec.Variables[variable].Set(uint32(Copies))
}

// preempted tells whether this kernel may preempt a program that is attached so.
func preempted() (func(ebpf.AttachType) bool, error) {
	version, err := features.LinuxVersionCode()
	if err != nil {
		return nil, fmt.Errorf("ask for the version of the kernel: %w", err)
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return nil, fmt.Errorf("ask for the name of the kernel: %w", err)
	}
	realtime := strings.Contains(unix.ByteSliceToString(name.Version[:]), "PREEMPT_RT")
	return func(how ebpf.AttachType) bool {
		return version >= preempts || realtime && how == ebpf.AttachTraceFEntry
	}, nil
}

const mark = "#" // no name in C has one

func copyOf(name string, i int) string { return name + mark + strconv.Itoa(i) }

// Missed is how many events programs and their copies may all have missed.
func Missed(running map[string]*ebpf.Program) uint64 {
	var sum uint64
	for name, program := range running {
		if strings.Contains(name, mark) {
			continue
		}
		missed := counter.Misses(program)
		for i := 2; running[copyOf(name, i)] != nil; i++ {
			missed = min(missed, counter.Misses(running[copyOf(name, i)]))
		}
		sum += missed
	}
	return sum
}
