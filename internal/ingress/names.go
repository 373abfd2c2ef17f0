package ingress

import (
	_ "embed"
	"strings"
)

// maker is what in tracecore makes an event.
type maker int

const (
	nobody maker = iota // of tracecore: anybody may send it
	sensor              // a receiver that reads a kernel, a GPU, dumps or an API server
	judge               // a pattern, a detector or a join: it makes a statement of records
)

// eventsText has a line for each event of tracecore: its name and its maker. It is made of
// what emitters declare: go test ./distro/internal/attributes -update
//
//go:embed events.txt
var eventsText string

// Events is the file of the events, from the repository's root.
const Events = "internal/ingress/events.txt"

// makers of events, by their name in the file.
var makers = map[string]maker{"receiver": sensor, "judge": judge}

// readEvents returns who makes each event. A line that names no known maker is a judge's,
// which fewest may send.
func readEvents() map[string]maker {
	all := map[string]maker{}
	for line := range strings.Lines(eventsText) {
		event, by, _ := strings.Cut(strings.TrimSpace(line), " ")
		if all[event] = makers[by]; all[event] == nobody {
			all[event] = judge
		}
	}
	return all
}

// kernelTells are the attributes that tell two jobs, runs or processes of one name apart.
// tracecore takes them from the kernel. In another's word they would join his records to a
// job that is not his, or end what is told of its run.
var kernelTells = map[string]bool{
	"gen_ai.training.job_domain":           true,
	"gen_ai.training.rank_pid":             true,
	"gen_ai.training.rank_start_unix_nano": true,
	"process.start_ns":                     true,
}

// reservedAttribute reports whether an attribute speaks for tracecore itself.
func reservedAttribute(key string) bool {
	return kernelTells[key] || strings.HasPrefix(key, "tracecore.") || strings.HasPrefix(key, "pattern.")
}

// prefix of a name that its sender may not use.
const prefix = "foreign."
