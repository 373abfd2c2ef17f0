package command

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// stackFrame is one frame of a thread, of one layer.
type stackFrame struct {
	Layer    string `json:"layer"` // python, native or kernel
	Function string `json:"code.function.name"`
	File     string `json:"code.file.path,omitempty"` // the object, of compiled code; the module, in the kernel
	Line     int    `json:"code.line.number,omitempty"`
}

// stackThread is where one thread is, frames innermost first.
type stackThread struct {
	ID       uint32       `json:"thread.id"`
	Name     string       `json:"thread.name"`
	Main     bool         `json:"main,omitempty"`
	State    string       `json:"state"`
	GIL      bool         `json:"gil,omitempty"`
	Waits    string       `json:"waits"`             // the wait class
	Ending   bool         `json:"ending,omitempty"`  // the program of its process is over
	Why      string       `json:"why,omitempty"`     // the frame that says so
	Function string       `json:"kernel,omitempty"`  // in which it sleeps
	Owner    string       `json:"owner,omitempty"`   // whose that is
	Frames   []stackFrame `json:"frames"`            // Python, compiled code, kernel
	NotRead  []string     `json:"notRead,omitempty"` // and why
}

// stackProcess is one look at a process.
type stackProcess struct {
	PID     uint32        `json:"process.pid"`
	Name    string        `json:"process.executable.name"`
	Runtime string        `json:"process.runtime.description,omitempty"`
	Threads []stackThread `json:"threads"`
	Cut     bool          `json:"cut,omitempty"` // it has more threads
	All     int           `json:"all,omitempty"` // so many, where that is known
	NotRead []string      `json:"notRead,omitempty"`
}

func newStacks() *cobra.Command {
	var format string
	var onlyMain bool
	cmd := &cobra.Command{
		Use:   "stacks PID...",
		Short: "Says where the threads of a process stand, without stopping it",
		Long: "Prints where each thread of a process stands: its frames in Python (CPython 3.8 to 3.14), in compiled code and\n" +
			"in the kernel, innermost first, and what it waits for. Nothing in the process changes and nothing of it is\n" +
			"stopped; arguments and variables are not read. Needs root, or CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH, CAP_BPF and\n" +
			"CAP_PERFMON. Without the last two the kernel's part may be missing, and the output says so.\n\n" +
			"Exit codes: 0 every process was read, 1 one was not, 2 wrong usage.",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			print, known := map[string]func(io.Writer, []stackProcess) error{"text": printStacks, "json": printStacksJSON}[format]
			if !known {
				return usage(fmt.Errorf("-o %s: no such format: use text or json", format))
			}
			pids, err := parsePIDs(args)
			if err != nil {
				return usage(err)
			}
			seen, lookErr := lookAtStacks(pids)
			for i := range seen {
				if onlyMain {
					seen[i].Threads = seen[i].Threads[:min(1, len(seen[i].Threads))]
				}
			}
			return errors.Join(print(cmd.OutOrStdout(), seen), lookErr)
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "text", "text or json")
	cmd.Flags().BoolVar(&onlyMain, "main", false, "the main thread alone")
	return cmd
}

func parsePIDs(args []string) ([]uint32, error) {
	if len(args) == 0 {
		return nil, errors.New("which process? give its pid, as a verdict names it")
	}
	pids := make([]uint32, len(args))
	for i, arg := range args {
		pid, err := strconv.ParseUint(arg, 10, 31)
		if err != nil || pid == 0 {
			return nil, fmt.Errorf("%q is no pid: give a number from 1 on", arg)
		}
		pids[i] = uint32(pid)
	}
	return pids, nil
}

func printStacksJSON(w io.Writer, seen []stackProcess) error {
	for i := range seen {
		text, err := safetext.Marshal(seen[i])
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "%s\n", text); err != nil {
			return err
		}
	}
	return nil
}

// printStacks writes for a reader at a terminal. Names are the process's own words.
func printStacks(w io.Writer, seen []stackProcess) error {
	var b strings.Builder
	for i := range seen {
		p := &seen[i]
		fmt.Fprintf(&b, "process %d (%s)%s, %s%s\n", p.PID, safetext.Line(p.Name), listed(p.Runtime), counted(uint64(len(p.Threads)), "thread"), cutOff(p))
		writeNotRead(&b, p.NotRead)
		for j := range p.Threads {
			p.Threads[j].write(&b)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func listed(text string) string {
	if text == "" {
		return ""
	}
	return ", " + safetext.Line(text)
}

// cutOff says of how many threads these are a part.
func cutOff(p *stackProcess) string {
	switch {
	case p.Cut && p.All > len(p.Threads):
		return " of " + verdict.Number(p.All)
	case p.Cut:
		return " of more"
	}
	return ""
}

func writeNotRead(b *strings.Builder, notes []string) {
	for _, note := range notes {
		fmt.Fprintf(b, "    not read: %s\n", safetext.Line(note))
	}
}

func (t *stackThread) write(b *strings.Builder) {
	fmt.Fprintf(b, "\n  thread %d (%s)", t.ID, safetext.Line(t.Name))
	if t.Main {
		b.WriteString(", main")
	}
	fmt.Fprintf(b, ", %s, %s%s", t.State, strings.ReplaceAll(t.Waits, "_", " "), because(t.Why))
	if t.Ending {
		b.WriteString(", its program is over")
	}
	if t.GIL {
		b.WriteString(", holds Python's lock (GIL)")
	}
	if t.Function != "" {
		fmt.Fprintf(b, ", in %s%s", safetext.Line(t.Function), ownedBy(t.Owner))
	}
	b.WriteByte('\n')
	for _, f := range t.Frames {
		fmt.Fprintf(b, "    %-6s  %s%s\n", f.Layer, safetext.Line(cmp.Or(f.Function, "?")), f.place())
	}
	writeNotRead(b, t.NotRead)
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return " (" + safetext.Line(why) + ")"
}

func ownedBy(owner string) string {
	if owner == "" {
		return ""
	}
	return " of " + safetext.Line(owner)
}

// place is where the function is written, or which file has its code.
func (f *stackFrame) place() string {
	switch {
	case f.File == "":
		return ""
	case f.Layer != "python":
		return "  " + safetext.Line(path.Base(f.File))
	case f.Line == 0:
		return "  " + safetext.Line(f.File)
	}
	return fmt.Sprintf("  %s:%d", safetext.Line(f.File), f.Line)
}
