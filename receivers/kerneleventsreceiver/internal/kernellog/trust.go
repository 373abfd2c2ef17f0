package kernellog

import (
	"slices"
	"strings"

	"github.com/tracecoreai/tracecore/bpf/kmsg"
)

// writers are the parts of the kernel that print the text of a parser. The same text
// from any other writer is a claim: the name of a process, an option of a mount, a label.
type writers struct {
	modules   []string // drivers that are modules
	functions []string // how the names of functions begin, where the driver is built in
}

// include reports whether the call stack of a record shows one of them.
func (w writers) include(origin kmsg.Function) bool {
	if origin.Module != "" {
		return slices.Contains(w.modules, origin.Module)
	}
	return origin.Name != "" && slices.ContainsFunc(w.functions, func(begin string) bool {
		return strings.HasPrefix(origin.Name, begin)
	})
}

// family is a parser of the lines of one driver or one part of the kernel.
type family struct {
	writers writers
	parse   func(*assembler, []Fault, line) ([]Fault, Outcome)
}

// families are asked in this order; the first that knows a line has it.
func families() []family {
	return []family{
		{nvidiaWriters, (*assembler).parseSXid},
		{nvidiaWriters, (*assembler).parseXid},
		{nvidiaWriters, (*assembler).parseUUID},
		{nvidiaWriters, (*assembler).parseHardwareError},
		{nvidiaWriters, (*assembler).parseLost},
		{amdWriters, (*assembler).parseAMD},
		{networkWriters, (*assembler).parseNetwork},
		{pcieWriters, (*assembler).parsePCIe},
		{edacWriters, (*assembler).parseEDAC},
		{memoryFailureWriters, (*assembler).parseMemoryFailure},
		{nfsWriters, (*assembler).parseNFS},
		{watchdogWriters, (*assembler).parseLockup},
		{crashWriters, (*assembler).parseCrash},
	}
}
