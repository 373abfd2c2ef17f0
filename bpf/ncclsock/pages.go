//go:build linux && (amd64 || arm64)

package ncclsock

import (
	"runtime"

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
	return pageVariablesIn(symbols)
}

func pageVariablesIn(symbols *kerninfo.Table) *pageVariables {
	var v pageVariables
	for s := range symbols.All() {
		switch string(s.Name) {
		case "vmemmap_base":
			v.vmemmapBase = s.Address
		case "page_offset_base":
			v.pageOffsetBase = s.Address
		}
		if v.vmemmapBase != 0 && v.pageOffsetBase != 0 {
			return &v
		}
	}
	return &pageVariables{}
}
