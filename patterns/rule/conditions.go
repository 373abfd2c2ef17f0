package rule

import (
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// named is a condition that has a name: `$name` stands for it in others.
type named struct {
	name, text string
	doc        string // of one that is predefined
	broken     bool   // the file says it wrongly: its uses are not looked at
	at         position
}

// predefined returns the conditions that every rule can name.
func predefined() []named {
	return []named{
		{
			name: "of_rank", doc: "the end of a rank itself (`process.exit`): not of its child, nor of what a launch script runs beside it",
			text: `attributes["gen_ai.training.rank"] != nil and attributes["process.exit.inherited_identity"] != true and attributes["process.exit.helper"] != true`,
		},
		{
			name: "badly", doc: "a process ended by a signal, or with a status other than 0 (`process.exit`)",
			text: `attributes["process.exit.signal"] != 0 or attributes["process.exit.code"] != 0`,
		},
		{
			name: "asked", doc: "a process ended by SIGTERM or SIGINT, or with the status that a handler of these ends it with (`process.exit`)",
			text: `attributes["process.exit.signal"] == 15 or attributes["process.exit.signal"] == 2 or attributes["process.exit.code"] == 143 or attributes["process.exit.code"] == 130`,
		},
		{
			name: "aborted", doc: "a process ended by a SIGABRT that no other process sent (`process.exit`)",
			text: `attributes["process.exit.signal"] == 6 and (attributes["signal.sender.relation"] == nil or attributes["signal.sender.relation"] == "itself")`,
		},
		{
			name: "gpu_error", doc: "a process displayed an error of its GPU, which may be one of its program, too (`process.exception`)",
			text: `attributes["tracecore.exception.class"] == "cuda.illegal_access" or attributes["tracecore.exception.class"] == "cuda.ecc"` +
				` or attributes["tracecore.exception.class"] == "cuda.launch_failure" or attributes["tracecore.exception.class"] == "cuda.assert"` +
				` or attributes["tracecore.exception.class"] == "cuda.error" or attributes["tracecore.exception.class"] == "nccl.cuda"`,
		},
		// Of no known class, and of a type of Python's own that is an error of code: a library shows by its own
		// types, and some by these, what befell its machine.
		{
			name: "program_error", doc: "by the exception that it displayed last, its program is wrong (`process.exception`)",
			text: strings.Join(strings.Fields(`
			attributes["tracecore.exception.final"] != nil and attributes["tracecore.exception.class"] == nil
			and (IsMatch(Coalesce([attributes["exception.type"], attributes["tracecore.exception.summary"], ""]), "^(FileNotFoundError|FileExistsError|IsADirectoryError|NotADirectoryError)(:|$)")
			or not IsMatch(Coalesce([attributes["exception.type"], attributes["tracecore.exception.summary"], "RuntimeError"]), "^([A-Za-z_]+\\.)*(OSError|IOError|PermissionError|Connection[A-Za-z]*Error|BrokenPipeError|InterruptedError|TimeoutError|timeout|gaierror|herror|EOFError|BufferError|UnpicklingError|SafetensorError|SystemError|[A-Za-z]*(CUDA|Cuda|Accelerator|NCCL|Dist|Network|Runtime|Backend|Http|HTTP|Timeout|Retry|Connect|Endpoint)[A-Za-z]*|KeyboardInterrupt|SystemExit|Exception)(:|$)")
			and not IsMatch(Coalesce([attributes["exception.message"], attributes["tracecore.exception.summary"], ""]), "(?i)cuda.error|cuda driver|invalid device|device id|nccl|nvml|os error|errno|i/o error|input/output error|timed out|connection (reset|refused|closed|aborted)|broken pipe|no space left|stale file"))`), " "),
		},
	}
}

// conditions describes the named conditions of a pattern. They are read behind the parameters and
// before all other keys; each can use those above it.
func (d *decoder) conditions() value {
	return value{kind: "names, each with an OTTL condition", read: func(n *yaml.Node) {
		d.each(n, "conditions", func(key, value *yaml.Node) {
			c := named{name: key.Value, at: at(key)}
			before := d.failures
			if !isName(key.Value) {
				d.fail(key, "%q is no name of a condition: use lower-case letters, digits and _", key.Value)
			}
			if d.values.called(key.Value) != nil {
				d.fail(key, "%q is a parameter: give the condition another name", key.Value)
			}
			if known := d.conditionCalled(key.Value); known != nil && known.doc != "" {
				d.fail(key, "condition %s is predefined as %s: leave it out, or give yours another name", key.Value, known.text)
			}
			text, ok := d.scalar(value)
			if ok {
				d.mentionsIn(value, text)
				text, ok = d.fill(value, text, inCondition)
			}
			if ok {
				d.checkNamed(value, key.Value, text)
			}
			c.text, c.broken = text, !ok || d.failures > before
			d.named = append(d.named, c)
		})
	}}
}

// conditionCalled finds a named condition, nil for none.
func (d *decoder) conditionCalled(name string) *named {
	if i := slices.IndexFunc(d.named, func(c named) bool { return c.name == name }); i >= 0 {
		return &d.named[i]
	}
	return nil
}

// checkNamed fails unless text is a condition on log records or on data points: nothing says yet
// which of them it is used on.
func (d *decoder) checkNamed(n *yaml.Node, name, text string) {
	err := checkCondition(false, text)
	if err == nil || checkCondition(true, text) == nil {
		return
	}
	d.fail(n, "condition %s is not valid OTTL: %v: see the OTTL grammar, paths are attributes[\"…\"] and resource.attributes[\"…\"]", name, err)
}

// checkConditions fails for conditions that decide nothing.
func (d *decoder) checkConditions() {
	for _, c := range d.named {
		if !d.used[c.name] && c.doc == "" {
			d.failAt(c.at, "condition %s is used nowhere: write $%s where it decides, or leave it out", c.name, c.name)
		}
	}
}
