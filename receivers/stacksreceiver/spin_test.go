package stacksreceiver

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/pystack"
	"github.com/tracecoreai/tracecore/internal/stacks"
	"github.com/tracecoreai/tracecore/internal/unwind"
	"github.com/tracecoreai/tracecore/internal/waitclass"
)

// moment is what a look finds of a main thread.
type moment struct {
	state  byte
	sleeps uint64
	place  pystack.Place
	line   int
	object string
	symbol string
	errors []error
	usage  usage

	counter, registers uint64 // of a look at its compiled code
	class              waitclass.Class
}

// runs looks at a thread once a second and returns after how many looks it is told to spin, -1 for
// never in 60.
func runs(at func(look int) moment) int {
	var s spin
	now := start
	for look := range 60 {
		now = now.Add(time.Second)
		m := at(look)
		if !s.look(now, procfs.ThreadStatus{State: m.state, Sleeps: m.sleeps}, m.place) {
			continue
		}
		seen := &stacks.Process{Threads: []stacks.Thread{{
			Python: []pystack.Frame{{File: "train.py", Line: m.line, Function: "wait"}}, Native: []unwind.Frame{{Object: m.object, Symbol: m.symbol}}, Errors: m.errors,
			Counter: m.counter, Registers: m.registers, Wait: waitclass.Wait{Class: cmp.Or(m.class, waitclass.OwnCode)},
		}}}
		if m.object == "" {
			seen.Threads[0].Native = nil
		}
		if s.take(now, seen, m.usage) {
			return look
		}
	}
	return -1
}

// loop is a thread that goes round in line 98: while time.monotonic() < end: pass.
func loop(look int) moment {
	m := moment{state: 'R', sleeps: 7, place: pystack.Place{Chain: uint64(1 + look%3), Calls: 5}, line: 98, object: "/usr/bin/python3.14", symbol: "_PyEval_EvalFrameDefault"}
	if look%3 == 1 {
		m.object, m.symbol = "[vdso]", "__vdso_clock_gettime"
	}
	return m
}

// inC puts a thread into a loop of compiled code that waits.
func inC(m *moment, look int) {
	m.place.Chain, m.object, m.symbol = 1, "/opt/venv/lib/ext.so", "wait_for_flag"
	m.counter, m.registers = 0x7f0000001000+uint64(look%4)*3, 77
	m.usage.main = time.Duration(look) * time.Second
}

func TestWhoSpins(t *testing.T) {
	with := func(change func(look int, m *moment)) func(int) moment {
		return func(look int) moment {
			m := loop(look)
			change(look, &m)
			return m
		}
	}
	for name, tc := range map[string]struct {
		at    func(int) moment
		spins bool
	}{
		"while time.monotonic() < end: pass": {loop, true},
		"while not flag: pass": {with(func(look int, m *moment) {
			m.place.Chain, m.object, m.symbol = uint64(1+look%3), "/usr/bin/python3.14", "_PyEval_EvalFrameDefault"
		}), true},
		"while True: pass, one instruction": {with(func(_ int, m *moment) {
			m.place.Chain, m.object, m.symbol = 1, "/usr/lib/libpython3.12.so.1.0", "_PyEval_EvalFrameDefault"
		}), true},
		"two lines": {with(func(look int, m *moment) { m.line += look % 2 }), true},
		"on a host that gives it little CPU: half of the looks at its compiled code fail": {with(func(look int, m *moment) {
			if look%2 == 0 {
				m.errors = []error{fmt.Errorf("compiled code: %w", stacks.ErrMoves)}
			}
		}), true},
		"it is moving in some looks at its Python": {with(func(look int, m *moment) {
			if look%4 == 0 {
				m.place = nowhere
			}
		}), true},

		"a long evaluation in one function: tensors": {with(func(look int, m *moment) {
			if look%3 == 0 {
				m.object, m.symbol = "/usr/lib/x86_64-linux-gnu/libtorch_cpu.so.2.14", "at::native::cpublas::gemm"
			}
		}), false},
		"a loop of numpy": {with(func(_ int, m *moment) {
			m.place.Chain, m.object, m.symbol = 1, "/usr/lib/python3/dist-packages/numpy/_core/_multiarray_umath.cpython-314-x86_64-linux-gnu.so", ""
		}), false},
		"an extension calls back into Python now and then": {with(func(look int, m *moment) {
			if look == 25 {
				m.object = "/opt/venv/lib/python3.12/site-packages/tokenizers/tokenizers.abi3.so"
			}
		}), false},
		"compilation: other functions at each look":        {with(func(look int, m *moment) { m.place.Calls = uint64(look) }), false},
		"preprocessing: a function is called now and then": {with(func(look int, m *moment) { m.place.Calls += uint64(look / 9 % 2) }), false},
		"preprocessing: a loop of many lines":              {with(func(look int, m *moment) { m.line += look % 5 }), false},
		"words are counted: functions of the interpreter": {with(func(look int, m *moment) {
			m.object, m.symbol = "/usr/bin/python3.14", []string{"_PyEval_EvalFrameDefault", "PyUnicode_Split", "PyDict_SetItem"}[look%3]
		}), false},
		"a maximum is looked for in a list: bytecode alone": {with(func(look int, m *moment) {
			m.place.Chain, m.object, m.symbol = uint64(1+look%7), "/usr/bin/python3.14", "_PyEval_EvalFrameDefault"
		}), false},
		"a list that grows":                    {with(func(look int, m *moment) { m.usage.faults = uint64(look) * 400 }), false},
		"a checkpoint is written line by line": {with(func(look int, m *moment) { m.usage.bytes = uint64(look) << 20 }), false},
		"serialisation in C: pickle.dumps": {with(func(_ int, m *moment) {
			m.place.Chain, m.object, m.symbol = 1, "/usr/bin/python3.14", "PyObject_GetAttr"
		}), false},
		"tokenizers in threads: it sleeps":           {with(func(_ int, m *moment) { m.state = 'S' }), false},
		"it polls: it sleeps between two looks":      {with(func(look int, m *moment) { m.sleeps = uint64(look) }), false},
		"it runs code that nobody can unwind":        {with(func(_ int, m *moment) { m.object = "" }), false},
		"many instructions: a long body of one line": {with(func(look int, m *moment) { m.place.Chain = uint64(1 + look%40) }), false},
		"its Python cannot be read":                  {with(func(_ int, m *moment) { m.place = nowhere }), false},
		"a spin lock with a pause, 20 s at a time":   {with(func(look int, m *moment) { m.sleeps = uint64(look / 20) }), false},
		"a lock in memory that nobody opens: pthread_spin_lock": {with(func(look int, m *moment) {
			inC(m, look)
			m.object, m.symbol = "/usr/lib/x86_64-linux-gnu/libc.so.6", "pthread_spin_lock"
		}), true},
		"a flag in memory, in an extension":  {with(func(look int, m *moment) { inC(m, look) }), true},
		"a loop of an extension that counts": {with(func(look int, m *moment) { inC(m, look); m.registers = uint64(look) }), false},
		"an extension that goes on at last":  {with(func(look int, m *moment) { inC(m, look); m.registers += uint64(look / 25) }), false},
		"the same values at two places":      {with(func(look int, m *moment) { inC(m, look); m.counter += uint64(look%2) * 4096 }), false},
		"it computes, and has no CPU":        {with(func(look int, m *moment) { inC(m, look); m.usage.main = time.Second }), false},
		"its registers are not known":        {with(func(look int, m *moment) { inC(m, look); m.registers = 0 }), false},
		"it polls its GPU": {with(func(look int, m *moment) {
			inC(m, look)
			m.class = waitclass.GPU
		}), false},
		"it polls a file system in user space":       {with(func(look int, m *moment) { inC(m, look); m.class = waitclass.Storage }), false},
		"other threads of it compute while it waits": {with(func(look int, m *moment) { inC(m, look); m.usage.others = m.usage.main }), false},
		"a flag of Python that another thread sets after its work": {with(func(look int, m *moment) {
			m.usage.main = time.Duration(look) * time.Second
			m.usage.others = m.usage.main * 3 / 4
		}), false},
		"a flag of Python, and a thread that logs": {with(func(look int, m *moment) {
			m.usage.main = time.Duration(look) * time.Second
			m.usage.others = m.usage.main / 10
		}), true},

		"it comes to the next line of its work at last": {with(func(look int, m *moment) { m.line += look / 25 * 3 }), false},
	} {
		t.Run(name, func(t *testing.T) {
			look := runs(tc.at)
			require.Equal(t, tc.spins, look >= 0, "told at look %d", look)
			if tc.spins {
				require.GreaterOrEqual(t, look, 29)
				require.LessOrEqual(t, look, 45)
			}
		})
	}
}

// TestALoopIsToldAfterTheSameCall: same_call comes after 20 s, spinning after 30, and it is taken
// back when it was work after all.
func TestALoopIsToldAfterTheSameCall(t *testing.T) {
	b := newBench(t)
	b.config.Patience = 8 * time.Second // it is young: 20 s
	b.Resolver.Know(rank(42, 3))
	b.at(42, func(p *fake) {
		p.status = procfs.ThreadStatus{State: 'R', Switches: 9, Sleeps: 7}
		p.stack = saving(42)
		p.stack.Threads[0].State = 'R'
		p.stack.Threads[0].Native = []unwind.Frame{{Object: "/usr/bin/python3.12", Symbol: "_PyEval_EvalFrameDefault"}}
	})
	b.start(t)
	b.looks(t, 34)
	first := b.Next(t).Attributes().AsRaw()
	require.Equal(t, "same_call", first["process.stack.reason"])
	second := b.Next(t)
	require.Equal(t, "spinning", second.Attributes().AsRaw()["process.stack.reason"])
	require.Contains(t, second.Body().AsString(), "has executed nothing but one loop for 3")
	b.at(42, func(p *fake) {
		p.stack = saving(42)
		p.stack.Threads[0].Native = []unwind.Frame{{Object: "/usr/lib/libtorch_cpu.so.2", Symbol: "at::add"}}
	})
	b.looks(t, 8)
	require.Equal(t, "process.stack.moving", b.Next(t).EventName())
}

// TestARankThatPollsIsToldAfterPatience: its compiled code tells that it waits for its GPU, where its
// Python, which says x.item(), does not. So it is told as soon in a young job as later.
func TestARankThatPollsIsToldAfterPatience(t *testing.T) {
	b := newBench(t)
	b.Resolver.Know(rank(42, 3))
	b.at(42, func(p *fake) {
		p.status, p.class = procfs.ThreadStatus{State: 'R', Switches: 9, Sleeps: 7}, waitclass.OwnCode
		p.stack = waiting(42)
		p.stack.Threads[0].State = 'R'
		p.stack.Threads[0].Native = []unwind.Frame{{Object: "/usr/lib/libcuda.so.1"}}
		p.stack.Threads[0].Wait = waitclass.Wait{Class: waitclass.GPU}
	})
	b.start(t)
	b.looks(t, 22)
	a := b.Next(t).Attributes().AsRaw()
	require.Equal(t, []any{"same_call", "gpu"}, []any{a["process.stack.reason"], a["process.stack.wait_class"]})
}
