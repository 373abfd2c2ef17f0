// Package uprobe puts breakpoints on functions of the libraries that processes have
// mapped: it finds the files, reads their symbols, attaches programs and detaches them
// when nobody uses a file any more.
package uprobe

import "github.com/tracecoreai/tracecore/bpf/probe"

// Process is one whose libraries are to be watched.
type Process = probe.Process

// Watched says what came out of one Watch.
type Watched = probe.Watched
