package kmsg

import (
	"slices"

	"github.com/tracecoreai/tracecore/bpf/internal/kerninfo"
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

// kernelCode is where the functions of roles lie in the running kernel. Empty when
// the kernel hides its addresses.
type kernelCode map[role]*kerninfo.Code

func newKernelCode() kernelCode {
	return kernelCode{printsText: {}, fromDevKmsg: {}, interrupts: {}}
}

// find returns where the code of a function is kept. A module's function that has
// the name of one of the kernel's is another one.
func (c kernelCode) find(s kerninfo.Symbol) *kerninfo.Code {
	if len(s.Module) > 0 || s.Kind != 't' && s.Kind != 'T' {
		return nil
	}
	return c[roles[string(s.Name)]]
}

// is reports whether a return address lies in a function of the role.
func (c kernelCode) is(r role, returnAddress uint64) bool {
	code := c[r]
	return code != nil && code.Has(returnAddress)
}

// writer reads a stack, innermost frame first. The caller of vprintk_emit
// decides: deeper frames can belong to a task that was only interrupted. A stack
// on which vprintk_emit and its caller are not found tells nothing.
func (c kernelCode) writer(frames []uint64) (w Writer, interrupted bool) {
	caller := 1 + slices.IndexFunc(frames, func(a uint64) bool { return c.is(printsText, a) })
	if caller == 0 || caller == len(frames) {
		return WriterUnknown, false
	}
	if c.is(fromDevKmsg, frames[caller]) {
		return WriterUserspace, false
	}
	interrupted = slices.ContainsFunc(frames[caller:], func(a uint64) bool { return c.is(interrupts, a) })
	return WriterKernel, interrupted
}
