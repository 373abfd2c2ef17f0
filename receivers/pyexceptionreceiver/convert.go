package pyexceptionreceiver

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/pyexception"
	"github.com/tracecoreai/tracecore/internal/pystack"
	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/pyexceptionreceiver/internal/metadata"
)

// converter turns exceptions into log records. It is pure but for the builder's buffer,
// and not safe for concurrent use.
type converter struct{ builder *metadata.LogsBuilder }

func newConverter(builder *metadata.LogsBuilder, host record.Host) *converter {
	builder.SetHost(host)
	return &converter{builder: builder}
}

// exception makes a record. What is in it is the job's own word.
func (c *converter) exception(e *pyexception.Event, known *identity.Process, final string, observed time.Time) plog.Logs {
	process := *known
	process.PID = e.PID
	if process.Comm == "" && e.Thread == e.PID {
		process.Comm = e.Comm
	}
	x, chain := &e.Chain[0], withoutRemote(e.Chain)
	summary := summarize(chain)
	a := c.builder.ProcessException(record.Head{
		Trust: record.Claimed, Time: e.Time, Observed: observed, Severity: record.Error, Text: describe(e, summary, &process),
	})
	a.Stamp(process)
	a.ExceptionType(x.Type)
	a.ExceptionMessage(x.Message)
	a.ExceptionStacktrace(stacktrace(e))
	a.ThreadID(int64(e.Thread))
	a.TracecoreExceptionClass(classOf(chain))
	if own := before(chain); own != nil {
		a.TracecoreExceptionAfter(say(own[:1], own[:1]))
	}
	a.TracecoreExceptionFinal(final)
	if ranks := missing(chain, &process); len(ranks) > 0 {
		all := a.TracecoreExceptionMissingRanks()
		for _, rank := range ranks {
			all.AppendEmpty().SetInt(int64(rank))
		}
	}
	if endsProgram(e) {
		a.TracecoreExceptionOfProgram(true)
	}
	a.TracecoreExceptionSummary(summary)
	if at := where(chain); at != nil {
		a.CodeFilePath(at.File)
		a.CodeFunctionName(at.Function)
		record.NotZero(a.CodeLineNumber, at.Line)
	}
	return c.builder.Emit()
}

// where is the innermost line of the exception that was displayed that is no library's, or
// else its innermost, or that of one that it came from.
func where(chain []pyexception.Exception) *pyexception.Frame {
	var innermost *pyexception.Frame
	for i := range chain {
		frames := chain[i].Frames
		for n := len(frames) - 1; n >= 0; n-- {
			if !pystack.Library(frames[n].File) {
				return &frames[n]
			}
		}
		if n := len(frames); n > 0 && innermost == nil {
			innermost = &frames[n-1]
		}
	}
	return innermost
}

// Bounds of the summary, in bytes.
const (
	mostType    = 64
	mostMessage = 120
	mostName    = 64
)

// summarize says it in one line: ValueError: bad batch 3 at train.py:5 in collate. Of what came from another it
// says both, and of a lost peer what failed before.
func summarize(chain []pyexception.Exception) string {
	if own := before(chain); own != nil {
		return say(chain, chain[:1]) + ", after " + say(own, own[:1])
	}
	if root := cause(chain); root != nil {
		return say(chain, chain[:1]) + ", from " + say(root, root[:1])
	}
	return say(chain, chain)
}

// cause is the exception that others were raised from, or the first of a group; nil where it is said already.
func cause(chain []pyexception.Exception) []pyexception.Exception {
	last := 0
	for last+1 < len(chain) && (chain[last+1].Relation == pyexception.Cause || chain[last+1].Relation == pyexception.Member) {
		last++
	}
	root := &chain[last]
	if last == 0 || root.Message == chain[0].Message || strings.HasPrefix(root.Type, "JaxStackTrace") {
		return nil
	}
	return chain[last:]
}

// say is one line on the first of chain, with the line of code of one of places.
func say(chain, places []pyexception.Exception) string {
	text := words(&chain[0], mostNested)
	if at := where(places); at != nil && at.File != "" {
		text += " at " + safetext.Clip(safetext.Line(path.Base(at.File)), mostName)
		if at.Line > 0 {
			text += fmt.Sprintf(":%d", at.Line)
		}
		if at.Function != "" {
			text += " in " + safetext.Clip(safetext.Line(at.Function), mostName)
		}
	}
	return text
}

// preamble is what stands before the words of an exception that say what failed. Of the watchdog of NCCL: torch/csrc/distributed/c10d/
// ProcessGroupNCCL.cpp, logPrefix and Watchdog::run. Of gloo: gloo/common/error.h and logging.h.
var preamble = regexp.MustCompile(`^(\[PG [^\]]*\] ?)?Process group watchdog thread terminated with exception: (\[Rank \d+\] ?)?|^\[enforce fail at [^\]]*\bgloo/[^\]]*\] ?`)

// words are the type and the beginning of the message, with what it quotes: so many quotes in each other at most.
func words(x *pyexception.Exception, most int) string {
	text := safetext.Clip(safetext.Line(x.Type), mostType)
	first, _, more := strings.Cut(preamble.ReplaceAllString(strings.TrimSpace(x.Message), ""), "\n")
	if first == "" {
		return text
	}
	said := safetext.Clip(safetext.Line(first), mostMessage)
	if inner := quotedWithin(x, most); inner != "" {
		said = strings.TrimRight(said, ".:") + ": " + inner
	} else if more && most == mostNested && !strings.HasSuffix(said, "…") {
		said += "…"
	}
	return text + ": " + said
}

// describe says it in one line for a person who reads the log.
func describe(e *pyexception.Event, summary string, process *identity.Process) string {
	name, does := process.Comm, "displayed"
	if name == "" {
		name = "a process"
	}
	if e.Terminates {
		does = "terminates after throwing"
	}
	return fmt.Sprintf("%s (pid %d, rank %d) %s %s", name, process.PID, process.Rank, does, summary)
}

// between is what Python writes between an exception and what it came from.
var between = map[pyexception.Relation]string{
	pyexception.Cause:   "The above exception was the direct cause of the following exception:",
	pyexception.Context: "During handling of the above exception, another exception occurred:",
	pyexception.Member:  "The above exception is the first of the group of the following exception:",
}

// stacktrace is as Python displays it, the exception that was raised first at the top; of C++, as its runtime does.
func stacktrace(e *pyexception.Event) string {
	var b strings.Builder
	if x := &e.Chain[0]; e.Terminates {
		fmt.Fprintf(&b, "terminate called after throwing an instance of '%s'\n", x.Type)
		if x.Message != "" {
			b.WriteString("  what():  " + x.Message)
			if x.Cut {
				b.WriteString("…")
			}
			b.WriteString("\n")
		}
		return b.String()
	}
	if e.More {
		b.WriteString("[exceptions that this came from are left out]\n\n")
	}
	for i := len(e.Chain) - 1; i >= 0; i-- {
		x := &e.Chain[i]
		traceback(&b, x)
		b.WriteString(x.Type)
		if x.Message != "" {
			b.WriteString(": " + x.Message)
			if x.Cut {
				b.WriteString("…")
			}
		}
		b.WriteString("\n")
		if i > 0 {
			b.WriteString("\n" + between[x.Relation] + "\n\n")
		}
	}
	return b.String()
}

func traceback(b *strings.Builder, x *pyexception.Exception) {
	if len(x.Frames) == 0 {
		return
	}
	b.WriteString("Traceback (most recent call last):\n")
	for _, f := range x.Frames {
		if f.Skipped > 0 {
			fmt.Fprintf(b, "  [%d lines are left out]\n", f.Skipped)
		}
		fmt.Fprintf(b, "  File \"%s\", line %d, in %s\n", f.File, f.Line, f.Function)
	}
	if x.Broken {
		b.WriteString("  [lines farther in were not in memory]\n")
	}
}
