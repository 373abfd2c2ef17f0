package replay

import (
	"os"

	"github.com/tracecoreai/tracecore/patterns/engine"
)

const (
	// recordBytes is about how long a record is in a packed recording: what a file of that size
	// holds at most is asked for.
	recordBytes = 64
	// An agent's limits suit the records of minutes. A recording may hold those of a whole job at
	// one moment: it gets as many times that as it has records, up to so many.
	agentRecords = 10_000
	mostRoom     = 32
)

// roomFor is how much the engine may hold for these files.
func roomFor(files []string) engine.Options {
	bytes := int64(0)
	for _, path := range files {
		if path == Stdin {
			bytes += mostRoom * agentRecords * recordBytes // nobody knows
			continue
		}
		if info, err := os.Stat(path); err == nil {
			bytes += info.Size()
		}
	}
	times := int(min(mostRoom, max(1, bytes/recordBytes/agentRecords)))
	return engine.Options{Waiting: times * 10_000, OpenVerdicts: times * 5_000, Recent: times * 10_000, Series: times * 20_000, Queue: times * 20_000}
}
