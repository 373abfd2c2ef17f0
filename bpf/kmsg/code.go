package kmsg

import "slices"

// Function is a kernel function. Its zero value is one whose name is not known.
type Function struct {
	Name   string // without what the compiler adds to pieces and clones: .cold, .isra.0
	Module string // empty for the kernel's own
}

// String is how the kernel prints it: "function", or "function [module]".
func (f Function) String() string {
	if f.Module == "" {
		return f.Name
	}
	return f.Name + " [" + f.Module + "]"
}

// What a kernel function says about the stack it is found on.
type role uint8

const (
	printsText  role = iota + 1 // vprintk_emit: the functions above it brought it the text
	carriesText                 // hands the text of its caller on, and adds the name of a device
	fromDevKmsg                 // a write to /dev/kmsg
	interrupts                  // the task below did not do this
)

// roles lists the kernel's own functions by name. vprintk_emit and the devkmsg
// functions are kernel/printk/printk.c. Interrupts all pass one of the others on
// their way to a driver: handle_irq_event (kernel/irq/handle.c), handle_softirqs or,
// before 6.11, __do_softirq (kernel/softirq.c), hrtimer_interrupt, the
// inter-processor calls (kernel/smp.c, kernel/irq_work.c) and the NMI handlers of
// x86 and arm64.
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

// carriers hand the text of their caller on. The first list is the kernel's own:
// kernel/printk, drivers/base/core.c, lib/dynamic_debug.c, net/core/dev.c. The
// others can be modules: drivers/gpu/drm/drm_print.c, drivers/infiniband/core/device.c.
var carriers = map[string][]string{
	"": {
		"vprintk", "vprintk_default", "vprintk_deferred", "vprintk_func", "_printk", "printk", "_printk_deferred", "printk_deferred",
		"dev_vprintk_emit", "dev_printk_emit", "__dev_printk", "_dev_printk", "dev_printk",
		"_dev_emerg", "_dev_alert", "_dev_crit", "_dev_err", "_dev_warn", "_dev_notice", "_dev_info", "dev_err_probe", "dev_warn_probe", "__dev_probe_failed",
		"__dynamic_pr_debug", "__dynamic_dev_dbg", "__dynamic_netdev_dbg", "__netdev_printk", "netdev_printk",
		"netdev_emerg", "netdev_alert", "netdev_crit", "netdev_err", "netdev_warn", "netdev_notice", "netdev_info",
	},
	"drm": {
		"drm_dev_printk", "__drm_err", "drm_err", "__drm_dev_dbg", "drm_dev_dbg", "__drm_dbg", "drm_printf", "__drm_printfn_err",
		"__drm_printfn_info", "__drm_printfn_dbg", "__drm_dev_vprintk", "drm_dev_vprintk",
	},
	"ib_core": {
		"__ibdev_printk", "ibdev_printk", "ibdev_emerg", "ibdev_alert", "ibdev_crit", "ibdev_err", "ibdev_warn", "ibdev_notice", "ibdev_info",
	},
}

// frame is a function on a stack, with its role.
type frame struct {
	Function
	role role
}

func newFrame(f Function) frame { return frame{f, f.role()} }

// role of a function. One of a module that has the name of one of the kernel's is
// another function.
func (f Function) role() role {
	for module, names := range carriers {
		if (f.Module == "" || f.Module == module) && slices.Contains(names, f.Name) {
			return carriesText
		}
	}
	if f.Module != "" {
		return 0
	}
	return roles[f.Name]
}

// attribution is what a stack tells about a record.
type attribution struct {
	writer      Writer
	origin      Function // the function that wrote the text
	interrupted bool     // the current task did not write
}

// attribute reads a stack, innermost frame first. The caller of vprintk_emit
// decides: deeper frames can belong to a task that was only interrupted. A stack
// on which vprintk_emit and its caller are not found tells nothing.
func attribute(stack []frame) attribution {
	caller := 1 + slices.IndexFunc(stack, func(f frame) bool { return f.role == printsText })
	if caller == 0 || caller == len(stack) || stack[caller] == (frame{}) {
		return attribution{}
	}
	above := stack[caller:]
	if above[0].role == fromDevKmsg {
		return attribution{writer: WriterUserspace, origin: above[0].Function}
	}
	told := attribution{writer: WriterKernel}
	if i := slices.IndexFunc(above, func(f frame) bool { return f.role != carriesText }); i >= 0 {
		told.origin = above[i].Function
	}
	told.interrupted = slices.ContainsFunc(above, func(f frame) bool { return f.role == interrupts })
	return told
}
