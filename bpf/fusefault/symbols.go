//go:build linux && (amd64 || arm64)

package fusefault

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/tracecoreai/tracecore/bpf/internal/kerninfo"
)

// codeRange is the machine code of one symbol.
type codeRange struct{ start, end uint64 }

// codeRanges are pieces of kernel functions.
type codeRanges []codeRange

// on reports whether one of the return addresses on a stack lies in them.
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

// kernelCode is where the functions that tell a waiting thread's business lie in
// this boot of this kernel. With nothing known of fault, stacks say nothing.
type kernelCode struct {
	fault  codeRanges // a page fault
	answer codeRanges // the wait for the answer to a request
	read   codeRanges // read(2) through the page cache, of any file system: FUSE leaves no frame of its own
	write  codeRanges // write(2) of a FUSE file
	sync   codeRanges // fsync(2), and the flush of close(2)
	// FUSE hands the file operation on to another file system.
	beyond codeRanges
}

// find returns where the pieces of a wanted function are kept.
func (c *kernelCode) find(symbol []byte) *codeRanges {
	name, _, _ := bytes.Cut(symbol, []byte(".")) // .cold, .isra.0, .constprop.0
	switch string(name) {
	case "handle_mm_fault":
		return &c.fault
	case "request_wait_answer", "fuse_simple_request", "__fuse_simple_request":
		return &c.answer
	case "filemap_read", "filemap_splice_read", // since 5.12 (87fa0f3eb267) and 6.3 (07073eb01c5f)
		"generic_file_buffered_read", "fuse_file_read_iter":
		return &c.read
	case "fuse_file_write_iter":
		return &c.write
	case "fuse_fsync", "fuse_flush":
		return &c.sync
	case "fuse_passthrough_read_iter", "fuse_passthrough_write_iter", "fuse_passthrough_splice_read":
		return &c.beyond
	default:
		return nil
	}
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

// parseKernelCode reads lines of "address type name [module]". A module's symbols
// come in no order, so the end of a function is the next greater address of all.
func parseKernelCode(kallsyms io.Reader) (kernelCode, error) {
	type found struct {
		ranges *codeRanges
		start  uint64
	}
	var code kernelCode
	var wanted []found
	var addresses []uint64
	lines := bufio.NewScanner(kallsyms)
	for lines.Scan() {
		text, rest, _ := bytes.Cut(lines.Bytes(), []byte(" "))
		_, name, ok := bytes.Cut(rest, []byte(" "))
		if !ok {
			continue
		}
		address, err := strconv.ParseUint(string(text), 16, 64)
		if err != nil {
			return kernelCode{}, fmt.Errorf("read kernel symbols: %w", err)
		}
		if address == 0 {
			continue
		}
		addresses = append(addresses, address)
		name, _, _ = bytes.Cut(name, []byte("\t"))
		if ranges := code.find(name); ranges != nil {
			wanted = append(wanted, found{ranges, address})
		}
	}
	if err := lines.Err(); err != nil {
		return kernelCode{}, fmt.Errorf("read kernel symbols: %w", err)
	}
	slices.Sort(addresses)
	for _, w := range wanted {
		next, _ := slices.BinarySearch(addresses, w.start+1)
		if next < len(addresses) {
			*w.ranges = append(*w.ranges, codeRange{w.start, addresses[next]})
		}
	}
	return code, nil
}
