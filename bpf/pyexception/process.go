package pyexception

import "github.com/tracecoreai/tracecore/bpf/internal/uprobe"

// Process is one whose interpreter is to be watched.
type Process = uprobe.Process

// Watched says what came out of one Watch.
type Watched = uprobe.Watched
