//go:build linux && (amd64 || arm64)

package ncclsock

import (
	"bufio"
	"bytes"
	"io"
	"runtime"
	"strconv"

	"github.com/tracecoreai/tracecore/bpf/internal/kerninfo"
)

// pageVariables are the addresses of the two kernel variables that turn a page into
// its address on x86-64; zero where they are not known: then the bytes that a
// packet holds in pages cannot be shown.
type pageVariables struct{ vmemmapBase, pageOffsetBase uint64 }

// learnPageVariables asks the kernel's symbol table. Not every kernel has its data
// in it (CONFIG_KALLSYMS_ALL), and addresses read as zero without CAP_SYSLOG or
// with kernel.kptr_restrict=2.
func learnPageVariables() *pageVariables {
	if runtime.GOARCH != "amd64" {
		return &pageVariables{}
	}
	symbols, err := kerninfo.Symbols()
	if err != nil {
		return &pageVariables{}
	}
	return parsePageVariables(symbols)
}

// parsePageVariables reads lines of "address type name [module]".
func parsePageVariables(kallsyms io.Reader) *pageVariables {
	var v pageVariables
	lines := bufio.NewScanner(kallsyms)
	for lines.Scan() && (v.vmemmapBase == 0 || v.pageOffsetBase == 0) {
		into := &v.vmemmapBase
		switch {
		case bytes.HasSuffix(lines.Bytes(), []byte(" vmemmap_base")):
		case bytes.HasSuffix(lines.Bytes(), []byte(" page_offset_base")):
			into = &v.pageOffsetBase
		default:
			continue
		}
		address, _, _ := bytes.Cut(lines.Bytes(), []byte(" "))
		if n, err := strconv.ParseUint(string(address), 16, 64); err == nil {
			*into = n
		}
	}
	if v.vmemmapBase == 0 || v.pageOffsetBase == 0 {
		return &pageVariables{}
	}
	return &v
}
