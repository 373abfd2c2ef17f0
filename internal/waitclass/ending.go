package waitclass

import (
	"path"
	"slices"
	"strings"
)

// endings are functions of Python that run once the program is over: threads that are no daemons are waited for
// (Lib/threading.py, called by Py_FinalizeEx and by BaseProcess._bootstrap), and what a process of multiprocessing
// does at its end (Lib/multiprocessing/util.py).
var endings = []struct{ file, function string }{{"threading.py", "_shutdown"}, {"util.py", "_exit_function"}}

// endingSymbols are the same of compiled code (Python/pylifecycle.c): it calls the functions of atexit.
var endingSymbols = []string{"Py_FinalizeEx", "Py_Finalize", "Py_Exit"}

// runs is below all that a Python program does (Modules/main.c).
const runs = "Py_RunMain"

// Ending reports whether the stack of a main thread shows that its program is over, and the interpreter ends: it
// waits for threads, or runs functions of atexit. left: the interpreter was read, and this thread has no frame of Python in it. Then
// it has returned from the program to what runs that; an interpreter whose functions are hidden shows no more.
func Ending(s Stack, left bool) bool {
	for _, f := range s.Python {
		for _, e := range endings {
			if f.Function == e.function && path.Base(f.File) == e.file && ofPython(f.File) {
				return true
			}
		}
	}
	return slices.ContainsFunc(s.Native, func(f Native) bool {
		return interpreter(path.Base(f.Object)) && (slices.Contains(endingSymbols, f.Symbol) || left && f.Symbol == runs)
	})
}

// ofPython reports whether a file is one of Python's own modules, or of its multiprocessing.
func ofPython(file string) bool {
	return standard.MatchString(strings.Replace(file, "/multiprocessing/", "/", 1))
}
