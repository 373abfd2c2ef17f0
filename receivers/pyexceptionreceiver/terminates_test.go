package pyexceptionreceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/pyexception"
)

// terminates is an exception of C++ that ends a process, in one of its threads.
func terminates(kind, message string) *pyexception.Event {
	return &pyexception.Event{Terminates: true, Time: start, PID: 42, Thread: 50, Comm: "pt_nccl_watchdg", Chain: []pyexception.Exception{{Type: kind, Message: message}}}
}

// The words are those of PyTorch 2.9 with gloo, and of the watchdog of ProcessGroupNCCL.cpp.
func TestWhatACPlusPlusExceptionSays(t *testing.T) {
	for name, tc := range map[string]struct {
		kind, message string
		class, said   string
	}{
		"tensors of different sizes": {
			"gloo::EnforceNotMet", "[enforce fail at ./gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 2668 vs 668. Received data size doesn't match expected size. Is there a distributed collective mismatch in your code?",
			"", "gloo::EnforceNotMet: op.preamble.length <= op.nbytes. 2668 vs 668. Received data size doesn't match expected size. Is there a distributed …",
		},
		"the watchdog of NCCL after a timeout": {
			"c10::DistBackendError", "[PG ID 0 PG GUID 0(default_pg) Rank 1] Process group watchdog thread terminated with exception: [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE) ran for 600000 milliseconds before timing out.\nException raised from checkTimeout",
			"nccl.timeout", "c10::DistBackendError: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE) ran for 600000 milliseconds before…",
		},
		"the watchdog of NCCL after a fault of its GPU": {
			"c10::DistBackendError", "[PG ID 0 PG GUID 0(default_pg) Rank 1] Process group watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously reported",
			"cuda.illegal_access", "c10::DistBackendError: CUDA error: an illegal memory access was encountered…",
		},
		"the store is gone":      {"c10::DistNetworkError", "failed to recv, got 0 bytes", "store.network", "c10::DistNetworkError: failed to recv, got 0 bytes"},
		"memory":                 {"std::bad_alloc", "", "", "std::bad_alloc"},
		"a preamble and no more": {"c10::Error", "[enforce fail at ./gloo/x.cc:1] ", "", "c10::Error"},
	} {
		t.Run(name, func(t *testing.T) {
			e, process := terminates(tc.kind, tc.message), rank()
			logs := newTestConverter().exception(e, &process, "", start)
			record := logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0)
			a := record.Attributes().AsRaw()
			require.Equal(t, tc.said, a["tracecore.exception.summary"])
			require.Equal(t, "python (pid 42, rank 3) terminates after throwing "+tc.said, record.Body().Str())
			require.Equal(t, tc.class != "", a["tracecore.exception.class"] != nil)
			if tc.class != "" {
				require.Equal(t, tc.class, a["tracecore.exception.class"])
			}
			require.Equal(t, true, a["tracecore.exception.of_program"])
			want := "terminate called after throwing an instance of '" + tc.kind + "'\n"
			if tc.message != "" {
				want += "  what():  " + tc.message + "\n"
			}
			require.Equal(t, want, a["exception.stacktrace"])
		})
	}
}

func TestAProcessEndsOfACPlusPlusException(t *testing.T) {
	process := &identity.Process{PID: 42, Domain: "a", StartTime: start, StartNS: startNS}
	python := func(after time.Duration) *pyexception.Event {
		e := raised()
		e.Time = start.Add(after)
		return &e
	}
	cxx := func(after time.Duration) *pyexception.Event {
		e := terminates("c10::Error", "CUDA error: unspecified launch failure")
		e.Time = start.Add(after)
		return e
	}
	for name, tc := range map[string]struct {
		events []*pyexception.Event
		signal int
		code   int
		last   int // of them, -1: none
		final  string
	}{
		"it ends by abort":                         {[]*pyexception.Event{cxx(0)}, 6, 0, 0, finalStatus},
		"somebody kills it while it writes a core": {[]*pyexception.Event{cxx(0)}, 9, 0, 0, finalBefore},
		"a handler of its own exits":               {[]*pyexception.Event{cxx(0)}, 0, 1, 0, finalStatus},
		"it ends well after all":                   {[]*pyexception.Event{cxx(0)}, 0, 0, -1, ""},
		"its program had ended before":             {[]*pyexception.Event{python(0), cxx(time.Second)}, 6, 0, 0, finalBefore},
		"a hand displayed one long before":         {[]*pyexception.Event{python(0), cxx(time.Hour)}, 6, 0, 1, finalStatus},
		"two threads at once":                      {[]*pyexception.Event{cxx(0), cxx(time.Millisecond)}, 6, 0, 1, finalStatus},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisplays()
			for _, e := range tc.events {
				d.add(e, process)
			}
			last, final := d.exited(exit(42, tc.code, tc.signal, tc.events[len(tc.events)-1].Time.Sub(start)+time.Second))
			if tc.last < 0 {
				require.Nil(t, last)
				return
			}
			require.Same(t, tc.events[tc.last], last.event)
			require.Equal(t, tc.final, final)
		})
	}
}
