package pyexceptionreceiver

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/pyexception"
)

// What torch.multiprocessing.spawn displays (PyTorch 2.10, Python 3.14).
const quotedText = `

-- Process 0 terminated with the following error:
Traceback (most recent call last):
  File "/usr/lib/python3/dist-packages/torch/multiprocessing/spawn.py", line 95, in _wrap
    fn(i, *args)
    ~~^^^^^^^^^^
  File "/app/train.py", line 355, in spawned
    main()
    ~~~~^^
  File "/app/train.py", line 297, in run
    raise ValueError("bad batch 3")
ValueError: bad batch 3
`

const launcherPID = 40

// quotesOf has the launcher of ranks 0 and 1, and nothing else.
func quotesOf() *quotes {
	q := &quotes{}
	q.saw([]identity.Process{spawned(0), spawned(1)}, knows(launcher()))
	return q
}

// knows are the processes that have numbers.
func knows(all ...identity.Process) func(uint32) (identity.Process, bool) {
	return func(pid uint32) (identity.Process, bool) {
		i := slices.IndexFunc(all, func(p identity.Process) bool { return p.PID == pid })
		if i < 0 {
			return identity.Process{}, false
		}
		return all[i], true
	}
}

const startNS = 70_000_000_000

func spawned(local int) identity.Process {
	return identity.Process{
		PID: uint32(42 + local), ParentPID: launcherPID, Comm: "pt_spawn", Rank: 6 + local, LocalRank: local, StartTime: start, StartNS: startNS, Domain: "user 1000",
	}
}

// launcher is the process that has started them.
func launcher() identity.Process {
	return identity.Process{
		PID: launcherPID, ParentPID: 1, Comm: "python3", Rank: identity.Unknown, LocalRank: identity.Unknown, StartTime: start.Add(-time.Second), StartNS: startNS - 1e9, Domain: "user 1000",
	}
}

// says is that a launcher displays an exception.
func says(q *quotes, e *pyexception.Event) (*pyexception.Event, *identity.Process) {
	by := launcher()
	return q.displayed(e, &by)
}

func quotation(after time.Duration, text string) *pyexception.Event {
	return &pyexception.Event{Time: start.Add(after), PID: launcherPID, Thread: launcherPID, Comm: "python3", Minor: 14, Chain: []pyexception.Exception{{
		Type: quoting, Message: text, Frames: []pyexception.Frame{{File: "/usr/lib/python3/dist-packages/torch/multiprocessing/spawn.py", Line: 215, Function: "join"}}, Levels: 1,
	}}}
}

func ended(local, code int) *identity.Exit {
	return &identity.Exit{Process: spawned(local), Code: code, Time: start}
}

func TestAQuoteIsTheExceptionOfItsRank(t *testing.T) {
	for name, order := range map[string]func(*quotes) (*pyexception.Event, *identity.Process){
		"the end is heard of first": func(q *quotes) (*pyexception.Event, *identity.Process) {
			inner, _ := q.exited(ended(0, 1))
			require.Nil(t, inner)
			inner, _ = q.exited(ended(1, 1)) // it was told to end
			require.Nil(t, inner)
			return says(q, quotation(time.Second, quotedText))
		},
		"the quote is": func(q *quotes) (*pyexception.Event, *identity.Process) {
			inner, _ := says(q, quotation(time.Second, quotedText))
			require.Nil(t, inner)
			inner, _ = q.exited(ended(1, 1))
			require.Nil(t, inner)
			return q.exited(ended(0, 1))
		},
		"the ranks are gone since the last look": func(q *quotes) (*pyexception.Event, *identity.Process) {
			q.exited(ended(0, 1))
			q.saw(nil, knows())
			return says(q, quotation(time.Second, quotedText))
		},
		"it was no rank until its end": func(q *quotes) (*pyexception.Event, *identity.Process) {
			*q = quotes{}
			unknown := spawned(0)
			unknown.Rank, unknown.LocalRank = identity.Unknown, identity.Unknown
			q.saw([]identity.Process{unknown}, knows(launcher()))
			inner, _ := says(q, quotation(100*time.Millisecond, quotedText))
			require.Nil(t, inner)
			for range 2 { // both have ended
				q.saw(nil, knows())
			}
			return q.exited(ended(0, 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := quotesOf()
			inner, rank := order(q)
			require.NotNil(t, inner)
			require.Equal(t, 6, rank.Rank)
			require.EqualValues(t, 42, inner.PID)
			require.EqualValues(t, 42, inner.Thread)
			require.Equal(t, "ValueError: bad batch 3 at train.py:297 in run", summarize(inner.Chain))
			require.Len(t, inner.Chain[0].Frames, 3)
			q.list.Each(func(*quote) { require.Equal(t, 1, q.list.Len(), "at most the end of the other one waits") })
			inner, _ = says(q, quotation(time.Second, quotedText))
			require.Nil(t, inner, "it was told")
		})
	}
}

func TestWhatIsNoQuoteOfAnEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		end   *identity.Exit
		event *pyexception.Event
		edit  func(end *identity.Exit, e *pyexception.Event)
	}{
		"another process of it": {event: quotation(0, strings.Replace(quotedText, "Process 0", "Process 1", 1))},
		"it ended otherwise":    {end: ended(0, 3)},
		"long after":            {event: quotation(quotingWithin+time.Second, quotedText)},
		"long before":           {event: quotation(-2*time.Second, quotedText)},
		"another exception":     {edit: func(_ *identity.Exit, e *pyexception.Event) { e.Chain[0].Type = "ProcessExitedException" }},
		"other words":           {event: quotation(0, "bad batch 3")},
		"a child of the rank":   {edit: func(end *identity.Exit, _ *pyexception.Event) { end.Inherited = true }},
	} {
		t.Run(name, func(t *testing.T) {
			end, e := tc.end, tc.event
			if end == nil {
				end = ended(0, 1)
			}
			if e == nil {
				e = quotation(0, quotedText)
			}
			if tc.edit != nil {
				tc.edit(end, e)
			}
			q := quotesOf()
			inner, _ := q.exited(end)
			require.Nil(t, inner)
			inner, _ = says(q, e)
			require.Nil(t, inner)
		})
	}
	q, by := quotesOf(), launcher()
	require.True(t, q.launcher(&by))
	q.saw(nil, knows())
	q.saw(nil, knows())
	require.False(t, q.launcher(&by), "its ranks are gone for long")
}

// Ranks outlive their launcher, and anybody's process may have its number then.
func TestALauncherIsMoreThanItsNumber(t *testing.T) {
	late, ended, stranger, unknown := launcher(), launcher(), launcher(), launcher()
	late.StartNS = startNS + 1e9
	ended.Ended = true
	stranger.Domain = "user 6666"
	unknown.StartNS = 0
	adopted, init := spawned(0), launcher()
	adopted.ParentPID, init.PID, init.Domain = 1, 1, adopted.Domain
	for name, tc := range map[string]struct{ rank, parent identity.Process }{
		"it began after its ranks":       {spawned(0), late},
		"it has ended":                   {spawned(0), ended},
		"it is of another domain":        {spawned(0), stranger},
		"nobody knows since when it is":  {spawned(0), unknown},
		"it has taken in what was alone": {adopted, init},
	} {
		t.Run(name, func(t *testing.T) {
			q := &quotes{}
			q.saw([]identity.Process{tc.rank}, knows(tc.parent))
			require.Empty(t, q.launched())
		})
	}
	for name, by := range map[string]identity.Process{"a later one": late, "after its end": ended} {
		t.Run(name, func(t *testing.T) {
			q := quotesOf()
			inner, _ := q.exited(&identity.Exit{Process: spawned(0), Code: exceptionStatus, Time: start})
			require.Nil(t, inner)
			inner, _ = q.displayed(quotation(time.Second, quotedText), &by)
			require.Nil(t, inner)
		})
	}
	q, both := &quotes{}, []identity.Process{spawned(0), spawned(1)}
	both[1].Domain = "user 6666"
	q.saw(both, knows(launcher()))
	require.Equal(t, map[identity.Born]string{{PID: launcherPID, StartNS: startNS - 1e9}: "user 1000"}, q.launched())
	inner, _ := q.exited(&identity.Exit{Process: both[1], Code: exceptionStatus, Time: start})
	require.Nil(t, inner)
	inner, _ = says(q, quotation(time.Second, strings.Replace(quotedText, "Process 0", "Process 1", 1)))
	require.Nil(t, inner, "of the rank of another domain")
}

// The launcher of a rank is gone, and a process of another user has its number.
func TestWhatAnotherProcessWithTheNumberOfALauncherDisplaysIsToldOfNoRank(t *testing.T) {
	b := newBench(t)
	other := launcher()
	other.Domain, other.StartTime, other.StartNS = "user 6666", start.Add(time.Hour), startNS+3600e9
	b.Resolver.Know(spawned(0), other)
	b.start(t)
	<-b.source.watches
	require.False(t, b.wanted(launcherPID))
	b.Resolver.Exit(t, *ended(0, 1))
	lie := strings.ReplaceAll(quotedText, "ValueError: bad batch 3", "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered")
	b.source.Events <- *quotation(time.Second, lie)
	own := raised()
	own.PID, own.Thread, own.Time = 42, 42, start.Add(2*time.Second)
	b.source.Events <- own
	require.NotContains(t, b.Next(t).Attributes().AsRaw()["exception.message"], "ECC")
	require.Empty(t, b.Records)
}

// Of a message that was cut off, or that lies, no more is believed than stands there.
func TestQuotesThatAreCutOff(t *testing.T) {
	for name, text := range map[string]string{
		"no traceback":       "\n\n-- Process 0 terminated with the following error:\nValueError",
		"nothing behind it":  "\n\n-- Process 0 terminated with the following error:\nTraceback (most recent call last):\n",
		"a line number 2^64": "\n\n-- Process 0 terminated with the following error:\nTraceback (most recent call last):\n  File \"x\", line 18446744073709551616, in f\nE: x\n",
		"cut":                quotedText[:300],
	} {
		t.Run(name, func(t *testing.T) {
			q, e := quotesOf(), quotation(0, text)
			e.Chain[0].Cut = name == "cut"
			q.exited(ended(0, 1))
			inner, _ := says(q, e)
			require.NotNil(t, inner)
			require.NotEmpty(t, summarize(inner.Chain))
		})
	}
}

// Two ranks that nobody numbers ended at once: the quote does not say of which it is.
func TestAQuoteOfOneOfTwoIsToldOfNeither(t *testing.T) {
	q := quotesOf()
	for _, local := range []int{0, 1} {
		end := ended(local, 1)
		end.LocalRank = identity.Unknown
		inner, _ := q.exited(end)
		require.Nil(t, inner)
	}
	inner, _ := says(q, quotation(time.Second, quotedText))
	require.Nil(t, inner)

	q = quotesOf()
	end := ended(0, 1)
	end.LocalRank = identity.Unknown
	q.exited(end)
	inner, rank := says(q, quotation(time.Second, quotedText))
	require.NotNil(t, inner, "there is one")
	require.Equal(t, 6, rank.Rank)
}

// Ends of which nobody displayed anything count for a minute, not for the life of a launcher.
func TestOldEndsAreForgotten(t *testing.T) {
	q := quotesOf()
	for _, local := range []int{0, 1} {
		end := ended(local, 1)
		end.LocalRank = identity.Unknown
		q.exited(end)
	}
	end := ended(0, 1)
	end.LocalRank, end.Time = identity.Unknown, end.Time.Add(time.Hour)
	q.exited(end)
	inner, rank := says(q, quotation(time.Hour+time.Second, quotedText))
	require.NotNil(t, inner, "of the one end of that hour")
	require.Equal(t, 6, rank.Rank)
	require.Zero(t, q.list.Len())
}

// Who displays quotes without end takes no room from the ranks of others.
func TestQuotesAreShared(t *testing.T) {
	q, other, by := &quotes{}, spawned(0), launcher()
	other.ParentPID, other.Domain = 7, "user 1"
	by.PID, by.Domain = 7, "user 1"
	q.saw([]identity.Process{spawned(0), other}, knows(launcher(), by))
	q.exited(ended(0, 1))
	for i := range 2 * mostQuotes {
		e := quotation(time.Duration(i), quotedText)
		e.PID = 7
		q.displayed(e, &by)
	}
	require.Equal(t, mostQuotes, q.list.Len())
	inner, _ := says(q, quotation(time.Second, quotedText))
	require.NotNil(t, inner)
}

func TestWhatALauncherDisplaysOfItsRankIsToldOfTheRank(t *testing.T) {
	b := newBench(t)
	b.Resolver.Know(spawned(0), launcher())
	b.start(t)
	<-b.source.watches // and so the launchers are known
	require.True(t, b.wanted(launcherPID))
	b.Resolver.Exit(t, *ended(0, 1))
	b.source.Events <- *quotation(time.Second, quotedText)
	a := b.Next(t).Attributes().AsRaw()
	require.Equal(t, "ValueError", a["exception.type"])
	require.EqualValues(t, 42, a["process.pid"])
	require.EqualValues(t, 6, a["gen_ai.training.rank"])
	require.Equal(t, "status", a["tracecore.exception.final"])
	require.Equal(t, "claimed", a["tracecore.trust"])
}
