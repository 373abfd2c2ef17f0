//go:build linux && (amd64 || arm64)

package command

import (
	"errors"
	"fmt"

	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/stacks"
	"github.com/tracecoreai/tracecore/internal/unwind"
)

// lookAtStacks looks at each process. It returns those that could be read, also with an error.
func lookAtStacks(pids []uint32) (seen []stackProcess, err error) {
	fs := procfs.Open("")
	reader, err := stacks.Open(fs)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	var errs []error
	for _, pid := range pids {
		p, err := reader.Read(pid)
		if err != nil {
			errs = append(errs, fmt.Errorf("process %d: %w", pid, err))
			continue
		}
		seen = append(seen, shownProcess(p))
	}
	return seen, errors.Join(errs...)
}

func shownProcess(p *stacks.Process) stackProcess {
	shown := stackProcess{PID: p.PID, Name: p.Threads[0].Name, Runtime: p.Python, Cut: p.Cut, All: p.All, NotRead: texts(p.Errors)}
	for i := range p.Threads {
		shown.Threads = append(shown.Threads, shownThread(&p.Threads[i]))
	}
	return shown
}

func shownThread(t *stacks.Thread) stackThread {
	shown := stackThread{
		ID: t.TID, Name: t.Name, Main: t.Main, State: stateWords(t.State), GIL: t.GIL,
		Ending: t.Ending, Waits: string(t.Wait.Class), Why: t.Wait.Why, Function: t.Wait.Function, Owner: t.Wait.Owner, NotRead: texts(t.Errors), Frames: []stackFrame{},
	}
	for _, f := range t.Python {
		shown.Frames = append(shown.Frames, stackFrame{"python", f.Function, f.File, f.Line})
	}
	for _, f := range t.Native {
		shown.Frames = append(shown.Frames, nativeFrame(f))
	}
	for _, f := range t.Kernel {
		shown.Frames = append(shown.Frames, stackFrame{"kernel", f.Name, f.Module, 0})
	}
	return shown
}

// nativeFrame is one of compiled code. Where the file does not name the function, its offset
// in the file is what a debugger asks for.
func nativeFrame(f unwind.Frame) stackFrame {
	name := f.Symbol
	if name == "" {
		name = fmt.Sprintf("+%#x", f.Offset)
	}
	return stackFrame{"native", name, f.Object, 0}
}

func texts(errs []error) []string {
	var out []string
	for _, err := range errs {
		out = append(out, err.Error())
	}
	return out
}

// stateWords says what a state letter of /proc means (fs/proc/array.c, task_state_array).
func stateWords(letter byte) string {
	switch letter {
	case 'R':
		return "runs"
	case 'S':
		return "sleeps"
	case 'D':
		return "sleeps and takes no signal"
	case 'T':
		return "is stopped"
	case 't':
		return "is traced"
	case 'Z', 'X':
		return "has ended"
	case 'I':
		return "idles"
	}
	return "state " + string(rune(letter))
}
