package pystack

import (
	"regexp"
	"strings"
)

// installed are the folders of Python itself and of packages, as sysconfig calls them (stdlib,
// platstdlib, purelib; Fedora's are below lib64, those of an embedded Python in python311.zip), and
// as Debian does.
var installed = regexp.MustCompile(`/(site-packages|dist-packages)/|/lib(32|64)?/python\d`)

// Library reports whether a file, as code.File says it, is of Python itself or of a package that was
// installed. "<frozen importlib._bootstrap>" is; what is run as "<string>" (python -c) or "<stdin>" is
// not. So is "__init__", which CPython calls the frame that it puts below an __init__ of a class
// (_Py_InitCleanup, Python/specialize.c).
func Library(file string) bool {
	switch {
	case file == "<string>", file == "<stdin>":
		return false
	case file == "__init__", strings.HasPrefix(file, "<"):
		return true
	}
	return installed.MatchString(file) || Generated(file)
}

// caches are where compilers write what they make of a program, unless they are told another place.
var caches = regexp.MustCompile(`/torchinductor_[^/]*/|/\.triton/cache/`)

// cached is a file of TorchInductor in whichever folder: "c" and 51 letters of base 32, in a folder
// whose name is the first two of these (torch/_inductor/cache_key.py, and get_path of codecache.py).
var cached = regexp.MustCompile(`/([a-z2-7]{2})/c([a-z2-7]{2})[a-z2-7]{49}\.py$`)

// Generated reports whether a compiler wrote a file: nobody knows its lines, and its name may be
// another one on each rank.
func Generated(file string) bool {
	if caches.MatchString(file) {
		return true
	}
	name := cached.FindStringSubmatch(file)
	return name != nil && name[1] == name[2]
}
