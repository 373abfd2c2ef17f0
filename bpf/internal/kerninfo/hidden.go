//go:build linux

package kerninfo

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// capSyslog lets a process see addresses of the kernel, include/uapi/linux/capability.h.
const capSyslog = 1 << 34

// Hidden says why a process finds no function at an address of the kernel, and what to
// do; empty where it finds them. Its files lie below root, which is "/".
//
// kallsyms_show_value (kernel/ksyms_common.c) decides: with kptr_restrict 0 a process
// with CAP_SYSLOG, or every one where perf_event_paranoid is at most 1; with 1 a
// process with CAP_SYSLOG; with more nobody. The addresses show what it decided.
func Hidden(root fs.FS) string {
	symbols, err := root.Open("proc/kallsyms")
	if errors.Is(err, fs.ErrNotExist) {
		return "this one has no list of symbols: use a kernel with CONFIG_KALLSYMS"
	}
	if err != nil {
		return fmt.Sprintf("its list of symbols cannot be read (%v): make /proc/kallsyms readable", err)
	}
	defer symbols.Close()
	for _, err := range Read(symbols) {
		if err != nil {
			return fmt.Sprintf("its list of symbols is damaged (%v): look at /proc/kallsyms", err)
		}
		return "" // Read leaves out symbols whose address is hidden
	}
	return "it hides its addresses: " + whoHides(root)
}

func whoHides(root fs.FS) string {
	if restrict, err := fs.ReadFile(root, "proc/sys/kernel/kptr_restrict"); err == nil {
		if value := strings.TrimSpace(string(restrict)); value != "0" && value != "1" {
			return "kernel.kptr_restrict is " + value + ", set it to 1 or 0"
		}
	}
	caps, err := Capabilities(root)
	switch {
	case err != nil:
		return fmt.Sprintf("give the process CAP_SYSLOG, if it lacks it (%v)", err)
	case caps&capSyslog == 0:
		return "give the process CAP_SYSLOG"
	}
	return "look for a security module that forbids /proc/kallsyms"
}
