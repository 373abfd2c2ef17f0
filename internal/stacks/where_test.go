package stacks

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/taskstack"
	"github.com/tracecoreai/tracecore/internal/pystack"
	"github.com/tracecoreai/tracecore/internal/unwind"
)

func at(file string, line int, function string) pystack.Frame {
	return pystack.Frame{File: file, Line: line, Function: function}
}

func TestWhereIsTheUsersOwnLine(t *testing.T) {
	const site = "/opt/conda/lib/python3.11/site-packages/"
	for name, tc := range map[string]struct {
		frames []pystack.Frame
		want   string
	}{
		"own code":           {[]pystack.Frame{at("/a/train.py", 120, "save_checkpoint"), at("/a/train.py", 9, "main"), at("/a/train.py", 99, "<module>")}, "train.py:120 in save_checkpoint < main"},
		"below a library":    {[]pystack.Frame{at(site+"torch/serialization.py", 850, "save"), at("/a/train.py", 120, "save_checkpoint"), at(site+"lightning/fit.py", 1, "fit"), at("/a/train.py", 9, "main")}, "train.py:120 in save_checkpoint < main"},
		"a library alone":    {[]pystack.Frame{at("/usr/lib/python3.11/threading.py", 320, "Condition.wait"), at("/usr/lib/python3.11/threading.py", 629, "Event.wait")}, "threading.py:320 in Condition.wait < Event.wait"},
		"the module itself":  {[]pystack.Frame{at("/a/train.py", 12, "<module>")}, "train.py:12 in <module>"},
		"frozen":             {[]pystack.Frame{at("<frozen importlib._bootstrap>", 241, "_call_with_frames_removed"), at("/a/train.py", 3, "<module>")}, "train.py:3 in <module>"},
		"below an __init__":  {[]pystack.Frame{at("/usr/lib/python3/dist-packages/torch/serialization.py", 803, "_open_zipfile_writer_file.__init__"), at("__init__", 0, "__init__"), at("/a/train.py", 263, "run"), at("/a/train.py", 9, "main")}, "train.py:263 in run < main"},
		"many callers":       {[]pystack.Frame{at("/a/m.py", 1, "a"), at("/a/m.py", 2, "b"), at("/a/m.py", 3, "c"), at("/a/m.py", 4, "d"), at("/a/m.py", 5, "e")}, "m.py:1 in a < b < c < d"},
		"a name without end": {[]pystack.Frame{at("/a/"+strings.Repeat("ä", 1000), 1, strings.Repeat("f", 1000))}, strings.Repeat("ä", 30) + "…:1 in " + strings.Repeat("f", 61) + "…"},
		"a compiled step": {[]pystack.Frame{
			at("/tmp/torchinductor_root/7k/c7kq2xw5n3.py", 1423, "call"), at(site+"torch/_inductor/output_code.py", 466, "__call__"),
			at(site+"torch/_dynamo/eval_frame.py", 655, "_fn"), at("/app/train.py", 120, "step"), at("/app/train.py", 200, "main"),
		}, "train.py:120 in step < main"},
		"no Python": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			thread := Thread{Python: tc.frames}
			require.Equal(t, tc.want, thread.Where())
			_, ok := thread.Own()
			require.Equal(t, tc.want != "", ok)
		})
	}
}

func TestHashIsOfThePlace(t *testing.T) {
	here := Thread{TID: 1, Python: []pystack.Frame{at("/a/train.py", 120, "save")}, Native: []unwind.Frame{{PC: 1, Object: "/x/libc.so.6", Symbol: "write"}}, Kernel: []taskstack.Function{{Name: "fuse_flush"}}}
	same := here
	same.TID, same.State, same.GIL = 2, 'D', true
	same.Native, same.Kernel = nil, nil // of the same line at another moment
	require.Equal(t, here.Hash(), same.Hash())
	compiled := func(file string) uint64 {
		t := Thread{Python: []pystack.Frame{at("/tmp/torchinductor_root/"+file, 1423, "call"), at("/a/train.py", 120, "save")}}
		return t.Hash()
	}
	require.Equal(t, compiled("7k/c7kq2xw5n3.py"), compiled("ab/cabq2xw5n3.py"), "the number of its GPU is in the code of each rank")
	seen := map[uint64]string{here.Hash(): "here"}
	for name, change := range map[string]func(*Thread){
		"another line":     func(t *Thread) { t.Python = []pystack.Frame{at("/a/train.py", 121, "save")} },
		"another file":     func(t *Thread) { t.Python = []pystack.Frame{at("/b/train.py", 120, "save")} },
		"another function": func(t *Thread) { t.Python = []pystack.Frame{at("/a/train.py", 120, "load")} },
		"one more frame":   func(t *Thread) { t.Python = append(t.Python[:1:1], t.Python[0]) },
		"names that join":  func(t *Thread) { t.Python = []pystack.Frame{at("/a/train.pys", 120, "ave")} },
		"compiled code":    func(t *Thread) { t.Python = nil },
		"the kernel alone": func(t *Thread) { t.Python, t.Native = nil, nil },
		"nothing":          func(t *Thread) { t.Python, t.Native, t.Kernel = nil, nil, nil },
	} {
		other := here
		change(&other)
		require.NotContains(t, seen, other.Hash(), name)
		seen[other.Hash()] = name
	}
	elsewhere := Thread{Native: []unwind.Frame{{PC: 77, Object: "/proc/1/root/x/libc.so.6", Symbol: "write"}}}
	here.Python = nil
	require.Equal(t, here.Hash(), elsewhere.Hash(), "libraries lie at other addresses in each process, and in other folders of each container")
}

func TestSharedFrames(t *testing.T) {
	frame := func(function string, line int) pystack.Frame {
		return pystack.Frame{File: "/home/ann/train.py", Function: function, Line: line}
	}
	lines := func(function string, first, last int) pystack.Frame {
		f := frame(function, first)
		f.LastLine = last
		return f
	}
	main := frame("main", 40)
	for name, tc := range map[string]struct{ a, b, want []pystack.Frame }{
		"the same":                  {[]pystack.Frame{frame("load", 7), main}, []pystack.Frame{frame("load", 7), main}, []pystack.Frame{frame("load", 7), main}},
		"one is deeper":             {[]pystack.Frame{frame("load", 7), main}, []pystack.Frame{frame("get", 1), frame("load", 7), main}, []pystack.Frame{frame("load", 7), main}},
		"two functions of one line": {[]pystack.Frame{frame("ping", 1), main}, []pystack.Frame{frame("pong", 2), main}, []pystack.Frame{main}},
		"another line":              {[]pystack.Frame{frame("load", 7), main}, []pystack.Frame{frame("load", 5), main}, []pystack.Frame{lines("load", 5, 7), main}},
		"a line between":            {[]pystack.Frame{lines("load", 5, 7), main}, []pystack.Frame{frame("get", 1), frame("load", 6), main}, []pystack.Frame{lines("load", 5, 7), main}},
		"a line after":              {[]pystack.Frame{lines("load", 5, 7), main}, []pystack.Frame{frame("load", 9), main}, []pystack.Frame{lines("load", 5, 9), main}},
		"a line farther out":        {[]pystack.Frame{frame("load", 7), main}, []pystack.Frame{frame("load", 7), frame("main", 41)}, []pystack.Frame{lines("main", 40, 41)}},
		"one has no line":           {[]pystack.Frame{frame("load", 0), main}, []pystack.Frame{frame("load", 7), main}, []pystack.Frame{main}},
		"two programs":              {[]pystack.Frame{main}, []pystack.Frame{frame("other", 40)}, []pystack.Frame{}},
		"nothing is known of one":   {[]pystack.Frame{main}, nil, []pystack.Frame{}},
		"it is in itself once more": {[]pystack.Frame{frame("walk", 3), frame("walk", 3), main}, []pystack.Frame{frame("walk", 3), main}, []pystack.Frame{frame("walk", 3), main}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, Shared(tc.a, tc.b))
			if len(tc.b) > 0 && len(tc.want) > 0 {
				require.Equal(t, tc.want, Shared(tc.b, tc.a))
			}
			require.True(t, Within(tc.a, tc.want))
			require.True(t, Within(tc.b, tc.want))
		})
	}
	two := &Thread{Python: []pystack.Frame{lines("load", 5, 7), main}}
	require.Equal(t, "train.py:5-7 in load < main", two.Where())
	require.NotEqual(t, two.Hash(), (&Thread{Python: []pystack.Frame{frame("load", 5), main}}).Hash())
}
