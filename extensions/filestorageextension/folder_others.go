//go:build !unix

package filestorageextension

import (
	"errors"
	"os"
)

var errTaken = errors.New("another tracecore has it")

// folder is the folder of all state. This system has no flock(2): two processes on
// one folder are not told apart.
type folder struct{ path string }

func (f *folder) take() error { return os.MkdirAll(f.path, 0o700) }

func (f *folder) giveBack() {}
