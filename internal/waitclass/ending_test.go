package waitclass

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Stacks as they were read of CPython 3.11.7 (shared library) and of Debian's 3.14, whose Py_FinalizeEx is hidden (Linux 6.18, 2026-11-29).
func TestAStackShowsThatItsProgramIsOver(t *testing.T) {
	const (
		sleep  = "libc.so.6:clock_nanosleep "
		shared = " libpython3.11.so.1.0:Py_RunMain libpython3.11.so.1.0:Py_BytesMain libc.so.6:__libc_start_main"
		static = " python3.14:Py_RunMain python3.14:Py_BytesMain libc.so.6:__libc_start_main"
		spawn  = " /usr/lib/python3.14/multiprocessing/process.py:BaseProcess._bootstrap /usr/lib/python3.14/multiprocessing/spawn.py:_main <string>:<module>"
	)
	for name, tc := range map[string]struct {
		stack Stack
		left  bool
		want  bool
	}{
		"atexit sleeps":                     {stack("", sleep+"libpython3.11.so.1.0: libpython3.11.so.1.0:Py_FinalizeEx"+shared, ""), true, true},
		"a function of atexit":              {stack("", sleep+"libpython3.11.so.1.0: libpython3.11.so.1.0:Py_FinalizeEx"+shared, "/app/train.py:flush"), false, true},
		"sys.exit in multiprocessing":       {stack("", sleep+"libpython3.11.so.1.0:Py_FinalizeEx libpython3.11.so.1.0:Py_Exit"+shared, ""), true, true},
		"its functions are hidden":          {stack("", sleep+"python3.14:"+static, ""), true, true},
		"and its Python was not read":       {stack("", sleep+"python3.14:"+static, ""), false, false},
		"a thread that stays":               {stack("", "python3.14:_PySemaphore_Wait"+static, "/usr/lib/python3.14/threading.py:_shutdown"+spawn), false, true},
		"finalizers of multiprocessing":     {stack("", "", "/app/pool.py:join /usr/lib/python3.14/multiprocessing/util.py:_exit_function"+spawn), false, true},
		"it trains":                         {stack("", sleep+static, "/app/train.py:main"+spawn), false, false},
		"it joins a thread":                 {stack("", "python3.14:PyEvent_WaitTimed"+static, "/usr/lib/python3.14/threading.py:Thread.join /app/train.py:main"), false, false},
		"a function of that name elsewhere": {stack("", static, "/app/threading.py:_shutdown /app/train.py:main"), false, false},
		"a folder of that name":             {stack("", static, "/app/multiprocessing/util.py:_exit_function /app/train.py:main"), false, false},
		"a library with that symbol":        {stack("", "libmine.so:Py_FinalizeEx"+static, "/app/train.py:main"), false, false},
		"compiled code that embeds Python":  {stack("", "libc.so.6:clock_nanosleep trainer:main libc.so.6:__libc_start_main", ""), true, false},
		"nothing":                           {Stack{}, true, false},
	} {
		require.Equal(t, tc.want, Ending(tc.stack, tc.left), name)
	}
}
