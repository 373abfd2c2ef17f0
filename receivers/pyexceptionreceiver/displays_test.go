package pyexceptionreceiver

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/pyexception"
)

func of(pid uint32, domain string, after time.Duration) (*pyexception.Event, *identity.Process) {
	return &pyexception.Event{PID: pid, Thread: pid, Time: start.Add(after)}, &identity.Process{PID: pid, Domain: domain, StartTime: start, StartNS: startNS}
}

func told(d *displays, pid uint32, domain string, after time.Duration) bool {
	tell, _ := d.add(of(pid, domain, after))
	return tell
}

func exit(pid uint32, code, signal int, after time.Duration) *identity.Exit {
	return &identity.Exit{Process: identity.Process{PID: pid, StartTime: start, StartNS: startNS}, Code: code, Signal: signal, Time: start.Add(after)}
}

func TestAProcessThatDisplaysWithoutEndIsToldAFewTimes(t *testing.T) {
	d := newDisplays()
	for i := range mostOfProcess {
		require.True(t, told(d, 1, "a", time.Duration(i)))
	}
	for i := range 100 {
		require.False(t, told(d, 1, "a", time.Duration(i)*time.Millisecond))
	}
	require.True(t, told(d, 2, "a", time.Second), "of another process")
	require.True(t, told(d, 1, "a", window), "in the next window")
}

func TestADomainLeavesOthersTheirShare(t *testing.T) {
	d := newDisplays()
	count := 0
	for pid := range uint32(2 * mostOfDomain) {
		if told(d, pid+1, "flood", 0) {
			count++
		}
	}
	require.Equal(t, mostOfDomain, count)
	require.True(t, told(d, 1<<20, "other", 0))
	for i := range 2 * mostDomains {
		told(d, uint32(1<<21+i), fmt.Sprint(i), 0)
	}
	require.LessOrEqual(t, len(d.domains), mostDomains)
	require.True(t, told(d, 1<<20, "other", time.Second))
	for pid := range uint32(2 * mostProcesses) {
		told(d, 1<<22+pid, "flood", 0)
	}
	require.Equal(t, mostProcesses, d.list.Len())
	require.Len(t, d.processes, mostProcesses)
	require.Contains(t, d.processes, identity.Born{PID: 1 << 20, StartNS: startNS}, "the flood takes room from itself")
}

func TestOnlyTheLastBeforeAFailureIsItsEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		end    *identity.Exit
		thread uint32
		final  string
	}{
		"status of an exception": {exit(1, 1, 0, time.Second), 1, finalStatus},
		"another status":         {exit(1, 120, 0, time.Second), 1, finalBefore},
		"a signal as it ends":    {exit(1, 0, 6, time.Second), 1, finalBefore},
		"hangs as it ends":       {exit(1, 1, 0, lasting), 1, finalStatus},
		"goes on for long":       {exit(1, 1, 0, lasting+1), 1, ""},
		"ends well":              {exit(1, 0, 0, time.Second), 1, ""},
		"of a thread":            {exit(1, 1, 0, time.Second), 2, ""},
	} {
		for _, late := range []bool{false, true} { // the end is heard of first
			d := newDisplays()
			event, process := of(1, "a", 0)
			event.Thread = tc.thread
			if late {
				last, _ := d.exited(tc.end)
				require.Nil(t, last, name)
				tell, final := d.add(event, process)
				require.True(t, tell, name)
				require.Equal(t, tc.final, final, name)
				continue
			}
			if tc.thread == 1 {
				require.True(t, told(d, 1, "a", -time.Second))
			}
			tell, final := d.add(event, process)
			require.True(t, tell)
			require.Empty(t, final)
			last, final := d.exited(tc.end)
			require.Equal(t, tc.final, final, name)
			require.Equal(t, tc.final != "", last != nil, name)
			if last != nil {
				require.Same(t, event, last.event, "the last of them")
			}
			last, _ = d.exited(tc.end)
			require.Nil(t, last, "once")
		}
	}
}

// A child of a rank fails while the rank lives, as a probe that the program runs and tolerates. Its end is
// not the rank's, unless a wrapper passed it on.
func TestTheEndOfAChildIsNoEndOfItsRank(t *testing.T) {
	child, helper, passed := exit(1, 1, 0, time.Second), exit(1, 1, 0, time.Second), exit(1, 1, 0, time.Second)
	child.Inherited, helper.Helper = true, true
	passed.Wrapper = &identity.Wrapper{PID: 7}
	for name, tc := range map[string]struct {
		ends  []*identity.Exit
		final string
	}{
		"a child":                             {[]*identity.Exit{child}, ""},
		"a helper of a launch script":         {[]*identity.Exit{helper}, ""},
		"a child, whose wrapper passed it on": {[]*identity.Exit{child, passed}, finalStatus},
	} {
		for _, late := range []bool{false, true} { // the end is heard of first
			d := newDisplays()
			event, process := of(1, "a", 0)
			var final string
			if !late {
				_, final = d.add(event, process)
				require.Empty(t, final, name)
			}
			for _, end := range tc.ends {
				_, final = d.exited(end)
			}
			if late {
				_, final = d.add(event, process)
			}
			require.Equal(t, tc.final, final, name)
		}
	}
}

// What is displayed after the program has ended, as CPython 3.8 and 3.9 do for functions of atexit, is not
// what ended it. What comes out of the program after it had displayed something by hand is.
func TestWhatComesAfterTheProgramIsNotItsEnd(t *testing.T) {
	type shown struct {
		frames []string // outermost first
		levels int
		thread uint32
	}
	program := shown{frames: []string{"<module>", "main"}}
	atexit := shown{frames: []string{"close"}}
	for name, tc := range map[string]struct {
		first, second shown
		ends          int // which of them
	}{
		"atexit, after the program":        {program, atexit, 0},
		"atexit, after python -m":          {shown{frames: []string{"_run_module_as_main", "_run_code", "<module>"}}, atexit, 0},
		"atexit, after a deep one":         {shown{frames: []string{"f7", "f8", "f9"}, levels: 12}, atexit, 0},
		"atexit, after a SyntaxError":      {shown{}, atexit, 0},
		"a thread, by hand":                {program, shown{frames: []string{"<module>"}, thread: 7}, 0},
		"by hand before it":                {shown{frames: []string{"step"}}, program, 1},
		"by hand, where it was caught":     {shown{frames: []string{"<module>"}}, program, 1},
		"by hand twice, then a status":     {shown{frames: []string{"step"}}, shown{frames: []string{"step"}}, 1},
		"nothing is known of the last":     {program, shown{}, 1},
		"the last is deep":                 {program, shown{frames: []string{"f7", "f8"}, levels: 12}, 1},
		"atexit alone, and another atexit": {atexit, atexit, 1},
	} {
		for _, late := range []bool{false, true} { // the end is heard of first
			d := newDisplays()
			end := exit(1, 1, 0, time.Second)
			if late {
				d.exited(end)
			}
			var events []*pyexception.Event
			var finals []string
			for i, one := range []shown{tc.first, tc.second} {
				e, p := of(1, "a", time.Duration(i)*time.Millisecond)
				e.Thread = cmp.Or(one.thread, e.PID)
				x := pyexception.Exception{Type: "ValueError", Levels: max(one.levels, len(one.frames))}
				for _, function := range one.frames {
					x.Frames = append(x.Frames, pyexception.Frame{Function: function})
				}
				e.Chain = []pyexception.Exception{x}
				tell, final := d.add(e, p)
				require.True(t, tell, "both are told")
				events, finals = append(events, e), append(finals, final)
			}
			if late {
				require.Equal(t, tc.ends == 1, finals[1] == finalStatus, name)
				continue
			}
			last, final := d.exited(end)
			require.Equal(t, finalStatus, final, name)
			require.Same(t, events[tc.ends], last.event, name)
		}
	}
}

// TestOfTheProgramIsOnlyWhatSurelyIs: by it a rank is told to have failed while its process lives.
func TestOfTheProgramIsOnlyWhatSurelyIs(t *testing.T) {
	for name, tc := range map[string]struct {
		frames []string
		levels int
		thread uint32
		want   bool
	}{
		"of the script":                    {frames: []string{"<module>", "main"}, want: true},
		"of python -m":                     {frames: []string{"_run_module_as_main", "_run_code", "<module>"}, want: true},
		"deep, and its outermost is shown": {frames: []string{"<module>", "f8", "f9"}, levels: 300, want: true},
		"deep":                             {frames: []string{"f7", "f8"}, levels: 300},
		"by hand, in a step":               {frames: []string{"step"}},
		"of a function of atexit":          {frames: []string{"close"}},
		"no line is known":                 {},
		"of a thread":                      {frames: []string{"<module>"}, thread: 7},
	} {
		e, _ := of(1, "a", 0)
		e.Thread = cmp.Or(tc.thread, e.PID)
		x := pyexception.Exception{Type: "ValueError", Levels: max(tc.levels, len(tc.frames))}
		for _, function := range tc.frames {
			x.Frames = append(x.Frames, pyexception.Frame{Function: function})
		}
		e.Chain = []pyexception.Exception{x}
		require.Equal(t, tc.want, endsProgram(e), name)
	}
	require.False(t, endsProgram(&pyexception.Event{}))
}

func TestAnotherProcessWithThePidHadNoException(t *testing.T) {
	d := newDisplays()
	require.True(t, told(d, 1, "a", 0))
	later := exit(1, 1, 0, time.Second)
	later.StartNS += 500e6
	last, _ := d.exited(later)
	require.Nil(t, last)
	for pid := range uint32(2 * ends) {
		d.exited(exit(pid+10, 1, 0, 0))
	}
	require.Len(t, d.ended, ends)
}

// A domain is bounded on each way on which an exception is told, and ends have a part of their own.
func TestADomainIsBoundedOnEachWay(t *testing.T) {
	const flood = 8 * mostOfDomain
	quotation, launched := quotation(time.Millisecond, quotedText), launcher()
	for name, tell := range map[string]func(d *displays, q *quotes, pid uint32) (told, final int){
		"displayed, then its end": func(d *displays, _ *quotes, pid uint32) (n, final int) {
			if told(d, pid, "flood", 0) {
				n++
			}
			if last, _ := d.exited(exit(pid, 1, 0, time.Millisecond)); last != nil {
				n, final = n+1, 1
			}
			return n, final
		},
		"its end is heard of first": func(d *displays, _ *quotes, pid uint32) (n, final int) {
			d.exited(exit(pid, 1, 0, time.Millisecond))
			for i := range 2 {
				if told(d, pid, "flood", time.Duration(i)) {
					n, final = n+1, final+1
				}
			}
			return n, final
		},
		"quoted by its launcher": func(d *displays, q *quotes, pid uint32) (n, final int) {
			end := ended(0, 1)
			end.PID, end.Domain = pid, launched.Domain
			q.exited(end)
			if inner, rank := q.displayed(quotation, &launched); inner != nil && d.quoted(rank, start) {
				n, final = 1, 1
			}
			return n, final
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, q, all, finals := newDisplays(), quotesOf(), 0, 0
			for pid := range uint32(flood) {
				n, final := tell(d, q, pid+1)
				all, finals = all+n, finals+final
			}
			require.Equal(t, 2*mostOfDomain, all)
			require.GreaterOrEqual(t, finals, mostOfDomain)
			require.True(t, told(d, 1<<20, "other", 0))
			require.True(t, told(d, 1<<21, "flood", window), "in the next window")
			d.admit(new(int), "other", start.Add(-time.Hour), true)
			require.Equal(t, 1, d.domains["flood"], "an end that is heard of late begins no window")
		})
	}
}

// An exception is untold once: not where its end tells it.
func TestWhatIsToldWithItsEndIsNotUntold(t *testing.T) {
	d := newDisplays()
	for i := range mostOfProcess + 3 {
		told(d, 1, "a", time.Duration(i))
	}
	require.EqualValues(t, 2, d.untold, "the last may be told with its end")
	last, _ := d.exited(exit(1, 1, 0, time.Second))
	require.NotNil(t, last)
	require.EqualValues(t, 2, d.untold)

	for i := range mostOfProcess + 1 {
		told(d, 2, "a", time.Duration(i))
	}
	d.exited(exit(2, 0, 0, time.Second))
	require.EqualValues(t, 3, d.untold, "it ended well")

	d.exited(exit(3, 1, 0, time.Second))
	for i := range 3 * mostOfProcess {
		told(d, 3, "a", time.Duration(i))
	}
	require.EqualValues(t, 3+mostOfProcess, d.untold, "its end was heard of first")
}

// A program that is started until what it needs answers is no rank that fails.
func TestWhatWaitsForSomethingIsTold(t *testing.T) {
	for words, want := range map[string]bool{
		"ConnectionRefusedError: [Errno 111] Connection refused": true, "TimeoutError: timed out": true, "gaierror: [Errno -2] Name or service not known": true,
		"URLError: <urlopen error [Errno 111] Connection refused>": true, "HTTPError: 503": true, "DistStoreError: ": true, "DistNetworkError: x": true,
		"RuntimeError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store": true, "KeyboardInterrupt: ": true,
		"ModuleNotFoundError: No module named 'flash_attn'": false, "RuntimeError: No CUDA GPUs are available": false, "YAMLError: x": false,
		"FileNotFoundError: [Errno 2] No such file or directory: 'conf.yaml'": false, "RuntimeError: CUDA error: out of memory": false,
	} {
		kind, message, _ := strings.Cut(words, ": ")
		one := pyexception.Exception{Type: kind, Message: message}
		require.Equal(t, want, awaits(&pyexception.Event{Chain: []pyexception.Exception{one}}), words)
		require.Equal(t, want, awaits(&pyexception.Event{Chain: []pyexception.Exception{{Type: "RuntimeError", Message: "x"}, one}}), "%s, which led to another", words)
	}
}
