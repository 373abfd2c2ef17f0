package pyexceptionreceiver

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/pyexception"
)

// A rank that torch.multiprocessing.spawn started raises again what a worker of its DataLoader raised
// (PyTorch 2.10, Python 3.14).
const spawnedLoader = `

-- Process 0 terminated with the following error:
Traceback (most recent call last):
  File "/usr/lib/python3/dist-packages/torch/multiprocessing/spawn.py", line 87, in _wrap
    fn(i, *args)
    ~~^^^^^^^^^^
  File "/app/train.py", line 9, in load
    for _ in DataLoader(Rows(), num_workers=1, multiprocessing_context="forkserver"):
             ~~~~~~~~~~^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/usr/lib/python3/dist-packages/torch/utils/data/dataloader.py", line 725, in __next__
    data = self._next_data()
  File "/usr/lib/python3/dist-packages/torch/utils/data/dataloader.py", line 1531, in _next_data
    return self._process_data(data, worker_id)
           ~~~~~~~~~~~~~~~~~~^^^^^^^^^^^^^^^^^
  File "/usr/lib/python3/dist-packages/torch/utils/data/dataloader.py", line 1569, in _process_data
    data.reraise()
    ~~~~~~~~~~~~^^
  File "/usr/lib/python3/dist-packages/torch/_utils.py", line 803, in reraise
    raise exception
ValueError: Caught ValueError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/usr/lib/python3/dist-packages/torch/utils/data/_utils/worker.py", line 375, in _worker_loop
    data = fetcher.fetch(index)  # type: ignore[possibly-undefined]
  File "/usr/lib/python3/dist-packages/torch/utils/data/_utils/fetch.py", line 54, in fetch
    data = [self.dataset[idx] for idx in possibly_batched_index]
            ~~~~~~~~~~~~^^^^^
  File "/app/train.py", line 7, in __getitem__
    raise ValueError("bad row 3")
ValueError: bad row 3

`

// And one that raised an exception from another.
const spawnedChain = `

-- Process 0 terminated with the following error:
Traceback (most recent call last):
  File "/app/train.py", line 12, in chain
    try: {}["weights"]
         ~~^^^^^^^^^^^
KeyError: 'weights'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/usr/lib/python3/dist-packages/torch/multiprocessing/spawn.py", line 87, in _wrap
    fn(i, *args)
    ~~^^^^^^^^^^
  File "/app/train.py", line 13, in chain
    except KeyError as e: raise RuntimeError("no weights\nat all") from e
                          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
RuntimeError: no weights
at all
`

// What concurrent.futures has as the cause of an exception of its worker (Python 3.14).
const remoteText = `
"""
Traceback (most recent call last):
  File "/usr/lib/python3.14/concurrent/futures/process.py", line 255, in _process_worker
    r = call_item.fn(*call_item.args, **call_item.kwargs)
  File "/app/train.py", line 15, in work
    raise ValueError("bad shard %d" % n)
ValueError: bad shard 7
"""`

// read is an exception of so long a message as the probe reads it: 1,024 characters, and the last 3,072.
func read(class, text string) pyexception.Exception {
	x := pyexception.Exception{Type: class, Message: text}
	if len(text) > 1024 {
		x.Message, x.Tail, x.Cut = text[:1024], text[max(1024, len(text)-3072):], true
		x.Gap = len(text) > 4096
	}
	return x
}

// ranks is what is told of a rank that a launcher displayed that of.
func ranks(text string) []pyexception.Exception {
	return ofRank(&pyexception.Event{Chain: []pyexception.Exception{read(quoting, text)}}, ended(0, 1)).Chain
}

// What a launcher displays is told as if the rank had displayed it itself.
func TestAQuoteSaysWhatItsRankWouldHaveDisplayed(t *testing.T) {
	frame := "  File \"/usr/lib/python3/dist-packages/torch/nn/modules/module.py\", line 1776, in _wrapped_call_impl\n    return self._call_impl(*args, **kwargs)\n           ~~~~~~~~~~~~~~~^^^^^^^^^^^^^^^^^\n"
	deep := func(levels int) string {
		return strings.Replace(quotedText, "ValueError: bad batch 3\n", strings.Repeat(frame, levels)+"torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"+
			"CUDA kernel errors might be asynchronously reported at some other API call.\n", 1)
	}
	for name, tc := range map[string]struct{ text, summary, class string }{
		"short":    {quotedText, "ValueError: bad batch 3 at train.py:297 in run", ""},
		"a loader": {spawnedLoader, "ValueError: Caught ValueError in DataLoader worker process 0: ValueError: bad row 3 at train.py:9 in load", ""},
		"a loader out of memory": {
			strings.ReplaceAll(spawnedLoader, "ValueError: bad row 3", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
			"ValueError: Caught ValueError in DataLoader worker process 0: OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. at train.py:9 in load", "cuda.out_of_memory",
		},
		"a chain":                  {spawnedChain, "RuntimeError: no weights… at train.py:13 in chain, from KeyError: 'weights' at train.py:12 in chain", ""},
		"deep in a library":        {deep(10), "AcceleratorError: CUDA error: an illegal memory access was encountered… at train.py:297 in run", "cuda.illegal_access"},
		"deeper than what is read": {deep(100), "AcceleratorError: CUDA error: an illegal memory access was encountered… at module.py:1776 in _wrapped_call_impl", "cuda.illegal_access"},
		"a peer that was lost while it cleaned up": {
			strings.Replace(strings.Replace(quotedText, "line 95, in _wrap", "line 12, in step", 1), "/torch/multiprocessing/spawn.py", "/x.py", 1) + "\n" + between[pyexception.Context] + "\n\n" +
				strings.Replace(quotedText[strings.Index(quotedText, "Traceback"):], "ValueError: bad batch 3", "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:3321", 1),
			"RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:3321 at train.py:297 in run, after ValueError: bad batch 3 at train.py:297 in run", "gloo.network",
		},
		"a chain of a worker": {
			strings.Replace(spawnedLoader, "ValueError: bad row 3\n", "KeyError: 3\n\n"+between[pyexception.Cause]+"\n\nTraceback (most recent call last):\n"+
				"  File \"/usr/lib/python3/dist-packages/torch/utils/data/_utils/worker.py\", line 375, in _worker_loop\n    x\nValueError: bad row 3\n", 1),
			"ValueError: Caught ValueError in DataLoader worker process 0: ValueError: bad row 3 at train.py:9 in load", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			chain := ranks(tc.text)
			require.Equal(t, tc.summary, summarize(chain))
			require.Equal(t, tc.class, classOf(chain))
			for _, x := range chain {
				require.LessOrEqual(t, len(x.Message), mostQuoted)
			}
		})
	}
}

// Who starts the ranks may raise another exception from the quote, as accelerate's notebook_launcher does.
func TestAQuoteIsFoundInAChain(t *testing.T) {
	q, e := quotesOf(), quotation(time.Second, quotedText)
	e.Chain[0].Relation = pyexception.Cause
	e.Chain = append([]pyexception.Exception{{Type: "RuntimeError", Message: "An issue was found when launching the training."}}, e.Chain...)
	q.exited(ended(0, 1))
	inner, rank := says(q, e)
	require.NotNil(t, inner)
	require.EqualValues(t, 42, rank.PID)
	require.Equal(t, "ValueError: bad batch 3 at train.py:297 in run", summarize(inner.Chain))
}

// What carries the traceback of a worker of a pool is told as what the worker raised.
func TestARemoteTracebackIsWhatTheWorkerRaised(t *testing.T) {
	frames := []pyexception.Frame{{File: "/app/train.py", Line: 40, Function: "main"}}
	for name, tc := range map[string]struct{ text, message, want string }{
		"the same":                       {remoteText, "bad shard 7", "ValueError: bad shard 7 at train.py:40 in main"},
		"a class that says it otherwise": {remoteText, "shard", "ValueError: shard at train.py:40 in main, from ValueError: bad shard 7 at train.py:15 in work"},
		"nothing in it":                  {"\n\"\"\"\n\"\"\"", "bad shard 7", "ValueError: bad shard 7 at train.py:40 in main, from _RemoteTraceback: \"\"\"…"},
	} {
		t.Run(name, func(t *testing.T) {
			cause := read("_RemoteTraceback", tc.text)
			cause.Relation = pyexception.Cause
			e, of := raised(), rank()
			e.Chain = []pyexception.Exception{{Type: "ValueError", Message: tc.message, Frames: frames, Levels: 1}, cause}
			logs := newTestConverter().exception(&e, &of, "", start)
			a := logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Attributes().AsRaw()
			require.Equal(t, tc.want, a["tracecore.exception.summary"])
			require.Contains(t, a["exception.stacktrace"], "_RemoteTraceback", "as Python displays it")
			require.EqualValues(t, 40, a["code.line.number"])
		})
	}
}

// Ray puts a line of its own in the place of Python's (ray/exceptions.py, RayTaskError).
func TestAQuoteOfRay(t *testing.T) {
	x := read("RayTaskError(ValueError)", "\x1b[36mray::train()\x1b[39m (pid=77, ip=10.0.0.1)\n  File \"/app/train.py\", line 12, in train\n    step()\nValueError: bad batch 3")
	require.Equal(t, "ValueError: bad batch 3", quoted(&x))
	require.Equal(t, 12, unquoted(&x).Frames[0].Line)
}

// A message may be of any length, and say anything. What comes of it is bounded, and it is of no other process.
func TestHostileQuotes(t *testing.T) {
	const header = "\n\n-- Process 0 terminated with the following error:\n"
	const trace = "Traceback (most recent call last):\n  File \"x.py\", line 1, in f\n"
	for name, text := range map[string]string{
		"no newline":                 header + strings.Repeat("x", 1<<20),
		"no UTF-8":                   header + trace + "ValueError: " + strings.Repeat("\xff", 5000),
		"headers without end":        header + strings.Repeat("Traceback (most recent call last):\n", 1<<16),
		"lines without end":          header + trace + strings.Repeat("  File \"x.py\", line 1, in f\n", 1<<15),
		"quotes without end":         header + strings.Repeat(trace+"ValueError: a\nOriginal ", 1<<12),
		"chains without end":         header + strings.Repeat(trace+"ValueError: a\n\n"+between[pyexception.Cause]+"\n\n", 1<<12),
		"a class of a megabyte":      header + trace + strings.Repeat("E", 1<<20) + ": x",
		"a message of a megabyte":    header + trace + "ValueError: " + strings.Repeat("ö\n", 1<<18),
		"characters of four bytes":   header + trace + "ValueError: " + strings.Repeat("😀", 1<<12),
		"a line of 2^64":             header + "Traceback (most recent call last):\n  File \"x\", line 18446744073709551616, in f\nE: x\n",
		"another process at its end": header + strings.Repeat("x", 5000) + "\n-- Process 1 terminated with the following error:\n" + trace + "ValueError: a lie\n",
		"escapes":                    header + trace + "Value\x1b[31mError: x\x1b]0;y\x07\n",
	} {
		t.Run(name, func(t *testing.T) {
			q, e := quotesOf(), quotation(time.Second, "")
			x := read(quoting, strings.ToValidUTF8(text, "�"))
			x.Message, x.Tail = strings.ToValidUTF8(x.Message, ""), strings.ToValidUTF8(x.Tail, "") // as the probe makes them
			e.Chain[0] = x
			inner, _ := q.exited(ended(1, 1))
			require.Nil(t, inner)
			inner, _ = says(q, e)
			require.Nil(t, inner, "it is of no other")
			inner, rank := q.exited(ended(0, 1))
			require.NotNil(t, inner)
			require.EqualValues(t, 42, rank.PID)
			require.LessOrEqual(t, len(inner.Chain), mostOfChain)
			size := 0
			for _, x := range inner.Chain {
				size += len(x.Type) + len(x.Message) + len(x.Tail)
				require.LessOrEqual(t, len(x.Message), mostQuoted)
				for _, f := range x.Frames {
					size += len(f.File) + len(f.Function)
				}
			}
			require.LessOrEqual(t, size, 1024+3072+len(quoting))
			summary := summarize(inner.Chain)
			require.Less(t, len(summary), 1500)
			require.NotContains(t, summary, "\n")
			require.NotContains(t, summary, "\x1b")
		})
	}
}

func FuzzUnquoted(f *testing.F) {
	for _, text := range []string{quotedText, spawnedLoader, spawnedChain, remoteText, ""} {
		f.Add(text, true)
		f.Add(text, false)
	}
	f.Fuzz(func(t *testing.T, text string, gap bool) {
		x := read(quoting, text)
		x.Gap = x.Gap || gap && x.Tail != ""
		chain, _ := unquotedChain(&x)
		require.LessOrEqual(t, len(chain), mostOfChain)
		for i := range chain {
			require.NotEmpty(t, chain[i].Type)
			require.NotEmpty(t, chain[i].Frames)
			require.Equal(t, i == 0, chain[i].Relation == pyexception.Displayed)
			require.LessOrEqual(t, len(chain[i].Message), mostQuoted)
			require.LessOrEqual(t, len(chain[i].Type), mostQuotedType)
		}
		_, _ = quoted(&x), classOf(append([]pyexception.Exception{x}, chain...))
	})
}
