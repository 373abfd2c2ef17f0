package pyexceptionreceiver

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/pyexception"
)

func of(pid uint32, domain string, after time.Duration) (*pyexception.Event, *identity.Process) {
	return &pyexception.Event{PID: pid, Thread: pid, Time: start.Add(after)}, &identity.Process{PID: pid, Domain: domain, StartTime: start}
}

func told(d *displays, pid uint32, domain string, after time.Duration) bool {
	tell, _ := d.add(of(pid, domain, after))
	return tell
}

func exit(pid uint32, code, signal int, after time.Duration) *identity.Exit {
	return &identity.Exit{Process: identity.Process{PID: pid, StartTime: start}, Code: code, Signal: signal, Time: start.Add(after)}
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
	require.Contains(t, d.processes, uint32(1<<20), "the flood takes room from itself")
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
			require.True(t, told(d, 1, "a", -time.Second))
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

func TestAnotherProcessWithThePidHadNoException(t *testing.T) {
	d := newDisplays()
	require.True(t, told(d, 1, "a", 0))
	later := exit(1, 1, 0, time.Second)
	later.StartTime = start.Add(500 * time.Millisecond)
	last, _ := d.exited(later)
	require.Nil(t, last)
	for pid := range uint32(2 * ends) {
		d.exited(exit(pid+10, 1, 0, 0))
	}
	require.Len(t, d.ended, ends)
}
