// Package silence tells, within one process, which ranks exchange nothing with the others of their job for longer
// than is usual. The receivers that see sockets and calls tell it, and the receiver of stacks hears it: ranks on other nodes
// may wait for such a rank, and nobody sees those here. These receivers are components of one collector
// that know nothing of each other, so what they say is one of the process.
package silence

import (
	"sync/atomic"
	"time"
)

// Witness is what shows it.
type Witness int

// The witnesses.
const (
	Sockets Witness = iota
	Calls
	witnesses
)

var told [witnesses]atomic.Pointer[map[uint32]time.Time]

// Tell says which processes of ranks are silent now, and since when, in place of what this witness said before. The map is
// not changed afterwards.
func Tell(by Witness, ranks map[uint32]time.Time) { told[by].Store(&ranks) }

// Any reports whether there is one.
func Any() bool {
	for i := range told {
		if ranks := told[i].Load(); ranks != nil && len(*ranks) > 0 {
			return true
		}
	}
	return false
}

// Since is since when a process is silent, by the witness that says so for longest. Each may see a part alone.
func Since(pid uint32) (since time.Time, silent bool) {
	for i := range told {
		ranks := told[i].Load()
		if ranks == nil {
			continue
		}
		if at, is := (*ranks)[pid]; is && (!silent || at.Before(since)) {
			since, silent = at, true
		}
	}
	return since, silent
}
