//go:build linux && (amd64 || arm64)

package fusefault

import "github.com/tracecoreai/tracecore/bpf/internal/kerninfo"

// kernelCode is where the functions that tell a waiting thread's business lie in
// this boot of this kernel. With nothing known of fault, stacks say nothing.
type kernelCode struct {
	fault  kerninfo.Code // a page fault
	answer kerninfo.Code // the wait for the answer to a request
	read   kerninfo.Code // read(2) through the page cache, of any file system: FUSE leaves no frame of its own
	write  kerninfo.Code // write(2) of a FUSE file
	sync   kerninfo.Code // fsync(2), and the flush of close(2)
	// FUSE hands the file operation on to another file system.
	beyond kerninfo.Code
}

// find returns where the pieces of a wanted function are kept.
func (c *kernelCode) find(s kerninfo.Symbol) *kerninfo.Code {
	switch string(s.Name) {
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
// CAP_SYSLOG nothing is found.
func loadKernelCode() (code kernelCode, err error) {
	err = kerninfo.LoadCode(code.find)
	return code, err
}
