//go:build linux && (amd64 || arm64)

package oomkill

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"

	"github.com/tracecoreai/tracecore/bpf/internal/kerninfo"
)

// codeRange is the machine code of one symbol.
type codeRange struct{ start, end uint64 }

// codeRanges are the pieces of one kernel function: the compiler may have split
// it (.cold, .isra.0, .part.0).
type codeRanges []codeRange

// on reports whether one of the return addresses on a stack lies in the function.
func (ranges codeRanges) on(stack []uint64) bool {
	for _, address := range stack {
		for _, r := range ranges {
			// A call at the very end of a function returns to its end.
			if address > r.start && address <= r.end {
				return true
			}
		}
	}
	return false
}

// kernelCode is where the functions that tell kinds of OOM kills apart lie in
// this boot of this kernel. A nil function was not found: nothing can be said.
type kernelCode struct {
	kill      codeRanges // __oom_kill_process: a process is killed, not only marked
	cgroupOOM codeRanges // mem_cgroup_out_of_memory: for a cgroup's limit
}

// loadKernelCode asks the kernel. With kernel.kptr_restrict=2 or without
// CAP_SYSLOG the addresses read as zero and nothing is found.
func loadKernelCode() (kernelCode, error) {
	symbols, err := kerninfo.Symbols()
	if err != nil {
		return kernelCode{}, fmt.Errorf("look up kernel functions: %w", err)
	}
	return parseKernelCode(symbols)
}

// parseKernelCode reads lines of "address type name [module]". The kernel prints
// its own symbols in the order of their addresses, so the next greater address
// ends a function.
func parseKernelCode(kallsyms io.Reader) (kernelCode, error) {
	var code kernelCode
	var open *codeRanges
	var start uint64
	lines := bufio.NewScanner(kallsyms)
	for lines.Scan() {
		fields := bytes.Fields(lines.Bytes())
		if len(fields) < 3 {
			continue
		}
		address, err := strconv.ParseUint(string(fields[0]), 16, 64)
		if err != nil {
			return kernelCode{}, fmt.Errorf("read kernel symbols: %w", err)
		}
		if open != nil && address > start {
			*open = append(*open, codeRange{start, address})
			open = nil
		}
		if ranges := code.find(fields[2]); ranges != nil && address != 0 {
			open, start = ranges, address
		}
	}
	if err := lines.Err(); err != nil {
		return kernelCode{}, fmt.Errorf("read kernel symbols: %w", err)
	}
	return code, nil
}

// find returns where the pieces of a wanted function are kept.
func (c *kernelCode) find(symbol []byte) *codeRanges {
	name, _, _ := bytes.Cut(symbol, []byte("."))
	switch string(name) {
	case "__oom_kill_process":
		return &c.kill
	case "mem_cgroup_out_of_memory":
		return &c.cgroupOOM
	default:
		return nil
	}
}
