//go:build linux && (amd64 || arm64)

package oomkill

import "github.com/tracecoreai/tracecore/bpf/internal/kerninfo"

// kernelCode is where the functions that tell kinds of OOM kills apart lie in
// this boot of this kernel. Nil Code was not found: nothing can be said.
type kernelCode struct {
	kill      kerninfo.Code // __oom_kill_process: a process is killed, not only marked
	cgroupOOM kerninfo.Code // mem_cgroup_out_of_memory: for a cgroup's limit
}

// loadKernelCode asks the kernel. With kernel.kptr_restrict=2 or without
// CAP_SYSLOG nothing is found.
func loadKernelCode() (code kernelCode, err error) {
	err = kerninfo.LoadCode(code.find)
	return code, err
}

// find returns where the pieces of a wanted function are kept.
func (c *kernelCode) find(s kerninfo.Symbol) *kerninfo.Code {
	switch string(s.Name) {
	case "__oom_kill_process":
		return &c.kill
	case "mem_cgroup_out_of_memory":
		return &c.cgroupOOM
	default:
		return nil
	}
}
