package ncclhang

import (
	"cmp"
	"fmt"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// callText says in one line what calls tell.
func (f *Finding) callText() string {
	op := f.call()
	text := ""
	switch f.Kind {
	case NotInitialized:
		text = fmt.Sprintf("%s %s not called %s for %s, which %s called", f.who(), plural(f.Culprits, "has", "have"), f.Operation, f.Desc, f.CalledBy)
	case AllCalled:
		return fmt.Sprintf("%s called %s, and all wait: the fault is below the program", verdict.All(f.Members, "ranks"), op) + f.gpuText()
	case Halted:
		text = f.CalledBy + plural(f.Waiting, " waits", " wait") + " for " + f.who() + " in " + f.Desc
	case NoCall:
		return fmt.Sprintf("%s called %s and stand; of %s no record came", f.calledBy(), op, f.named(f.NoDump))
	case Works:
		text = fmt.Sprintf("%s %s not yet %s %s, which %s called", f.who(), plural(f.Culprits, "has", "have"), f.lacks(), op, f.CalledBy)
	default:
		text = fmt.Sprintf("%s %s not %s %s, which %s called", f.who(), plural(f.Culprits, "has", "have"), f.lacks(), op, f.CalledBy)
	}
	if f.Does != "" {
		text += ": " + f.Does
	}
	if f.Detail != "" {
		text += "; " + f.Detail
	}
	return text
}

// lacks is what the ranks to blame have not done with the collective.
func (f *Finding) lacks() string {
	if f.Grouped {
		return "launched"
	}
	return "called"
}

// stackText says in one line what stacks tell.
func (f *Finding) stackText() string {
	wait := f.CalledBy + plural(f.Waiting, " waits", " wait")
	switch f.Kind {
	case AllWait, Apart:
		text := verdict.All(f.Members, "ranks") + " wait in " + cmp.Or(f.In, "a collective or for their GPUs")
		if f.Kind == AllWait {
			text += ": the fault is below the program"
		}
		text += f.gpuText()
		if f.Detail != "" {
			text += "; " + f.Detail
		}
		return text
	case OneMount, NameServer:
		text := f.who() + plural(f.Culprits, " waits", " wait") + " for " + cmp.Or(f.Mount, "an answer of the name server")
		if len(f.Waiting) > 0 {
			text += "; " + wait + " for " + plural(f.Culprits, "it", "them")
		}
		return text
	case Gathers, Absent:
		if len(f.Culprits) == 0 {
			return wait + " in " + f.Operation + ", and do not meet; " + f.Detail
		}
		return wait + " in " + f.Operation + " for " + f.who() + ": nothing is seen of " + plural(f.Culprits, "it", "them") + "; " + f.Detail
	}
	text := fmt.Sprintf("%s in %s for %s", wait, cmp.Or(f.In, "a collective"), f.who())
	if f.Does != "" {
		text += ": " + f.Does
	}
	return text
}

// gpuText is where the GPUs say the fault is.
func (f *Finding) gpuText() string {
	if f.GPU == "" {
		return ""
	}
	return "; " + f.GPU
}

// call is the collective as people write it.
func (f *Finding) call() string {
	text := f.Operation
	if text == "" && f.Seq == 0 {
		return "a collective"
	}
	text = cmp.Or(text, "collective")
	if f.Seq > 0 {
		text += fmt.Sprintf(" #%d", f.Seq)
	}
	if f.Elements != "" {
		text += " (" + f.Elements + ")"
	}
	return text
}

// who are the ranks to blame, in words.
func (f *Finding) who() string { return f.named(f.Culprits) }

func (f *Finding) named(ranks []int) string {
	if len(ranks) == 0 {
		return "some ranks"
	}
	if f.Local {
		return subject(ranks) + " of " + f.Desc
	}
	return subject(ranks)
}

// calledBy is how many have called it, in words.
func (f *Finding) calledBy() string {
	if len(f.Waiting) == 1 {
		return f.named(f.Waiting) + " has"
	}
	return verdict.Number(len(f.Waiting)) + " ranks have"
}
