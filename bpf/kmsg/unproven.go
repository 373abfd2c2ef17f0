//go:build linux && (amd64 || arm64)

package kmsg

import (
	"os"

	"github.com/tracecoreai/tracecore/bpf/internal/kerninfo"
)

// whyUnproven says why a record does not show who wrote it, and what to do. Shown is
// whether our own write showed it. Empty where the call stack can name a writer.
func (t *trial) whyUnproven(shown bool) string {
	const so = "nothing shows which driver wrote a line of the kernel log, so its faults are claims and verdicts that rest on them likely at most: "
	if !t.kernelNames {
		if hidden := kerninfo.Hidden(os.DirFS("/")); hidden != "" {
			return so + "before Linux 5.13 the kernel names no functions to programs, and " + hidden
		}
	}
	if shown {
		return ""
	}
	return so + "the call stack of a write has no vprintk_emit with a caller: use a kernel with an unwinder (CONFIG_UNWINDER_ORC or CONFIG_FRAME_POINTER)"
}
