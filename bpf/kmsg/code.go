package kmsg

import (
	"bufio"
	"bytes"
	"io"
	"slices"
	"strconv"
	"strings"
)

// What a kernel function says about the stack it is found on.
type role uint8

const (
	printsText  role = iota + 1 // vprintk_emit: its caller is who writes
	fromDevKmsg                 // a write to /dev/kmsg
	interrupts                  // the task below did not do this
)

// roles lists the functions by name. vprintk_emit and the devkmsg functions are
// kernel/printk/printk.c. Interrupts all pass one of the others on their way to
// a driver: handle_irq_event (kernel/irq/handle.c), handle_softirqs or, before
// 6.11, __do_softirq (kernel/softirq.c), hrtimer_interrupt, the inter-processor
// calls (kernel/smp.c, kernel/irq_work.c) and the NMI handlers of x86 and arm64.
var roles = map[string]role{
	"vprintk_emit":                    printsText,
	"devkmsg_emit":                    fromDevKmsg,
	"devkmsg_write":                   fromDevKmsg,
	"handle_irq_event":                interrupts,
	"handle_irq_event_percpu":         interrupts,
	"__handle_irq_event_percpu":       interrupts,
	"handle_percpu_devid_irq":         interrupts,
	"handle_softirqs":                 interrupts,
	"__do_softirq":                    interrupts,
	"hrtimer_interrupt":               interrupts,
	"flush_smp_call_function_queue":   interrupts,
	"__flush_smp_call_function_queue": interrupts,
	"irq_work_run":                    interrupts,
	"exc_nmi":                         interrupts,
	"default_do_nmi":                  interrupts,
}

// span is the code of one kernel function.
type span struct {
	start, end uint64
	role       role
}

// kernelCode is where the functions of roles lie in the running kernel, in
// order of address. Empty when the kernel hides its addresses.
type kernelCode []span

// parseSymbols finds the functions of roles in the text of /proc/kallsyms:
// lines of "address type name [module]". A function ends where the next symbol
// begins. Compiler clones (devkmsg_emit.constprop.0) count as the function.
func parseSymbols(r io.Reader) (kernelCode, error) {
	var starts []uint64
	var code kernelCode
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		address, name, ok := textSymbol(lines.Bytes())
		if !ok {
			continue
		}
		starts = append(starts, address)
		base, _, _ := strings.Cut(string(name), ".")
		if role, wanted := roles[base]; wanted {
			code = append(code, span{start: address, role: role})
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	slices.Sort(starts)
	for i := range code {
		next, _ := slices.BinarySearch(starts, code[i].start+1)
		if next < len(starts) {
			code[i].end = starts[next]
		}
	}
	slices.SortFunc(code, func(a, b span) int {
		if a.start < b.start {
			return -1
		}
		return 1
	})
	return code, nil
}

// textSymbol splits one line of /proc/kallsyms. Symbols of data and of modules,
// and hidden (zero) addresses, are not ok.
func textSymbol(line []byte) (address uint64, name []byte, ok bool) {
	hex, rest, _ := bytes.Cut(line, []byte(" "))
	kind, name, _ := bytes.Cut(rest, []byte(" "))
	if len(kind) != 1 || (kind[0] != 't' && kind[0] != 'T') || bytes.IndexByte(name, '\t') >= 0 {
		return 0, nil, false
	}
	address, err := strconv.ParseUint(string(hex), 16, 64)
	return address, name, err == nil && address != 0
}

// roleAt is the role of the function that a return address lies in, 0 when it
// has none. A call can be a function's last instruction, so its return address
// can be its end.
func (c kernelCode) roleAt(returnAddress uint64) role {
	for _, s := range c {
		if s.start < returnAddress && returnAddress <= s.end {
			return s.role
		}
	}
	return 0
}

// writer reads a stack, innermost frame first. The caller of vprintk_emit
// decides: deeper frames can belong to a task that was only interrupted. A stack
// on which vprintk_emit and its caller are not found tells nothing.
func (c kernelCode) writer(frames []uint64) (w Writer, interrupted bool) {
	caller := 1 + slices.IndexFunc(frames, func(a uint64) bool { return c.roleAt(a) == printsText })
	if caller == 0 || caller == len(frames) {
		return WriterUnknown, false
	}
	if c.roleAt(frames[caller]) == fromDevKmsg {
		return WriterUserspace, false
	}
	interrupted = slices.ContainsFunc(frames[caller:], func(a uint64) bool { return c.roleAt(a) == interrupts })
	return WriterKernel, interrupted
}
