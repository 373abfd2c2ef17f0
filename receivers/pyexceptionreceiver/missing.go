package pyexceptionreceiver

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/pyexception"
)

// mostMissing bounds the ranks that one message names.
const mostMissing = 64

// barrier is how rank 0 says who did not come: torch/csrc/distributed/c10d/ProcessGroupGloo.cpp, monitoredBarrier.
var barrier = regexp.MustCompile(`^\[Rank 0\]: Ranks? (\d+(?:, ?\d+)*) failed to pass monitoredBarrier in \d+ ms`)

// missing are the ranks that did not come to a barrier, by what ended rank 0 of the job; nil for none. Where one of them is no rank of
// the job, the words are of something else. Where something else failed before, that says more.
func missing(chain []pyexception.Exception, who *identity.Process) (ranks []int) {
	if who.Rank != 0 || before(chain) != nil {
		return nil
	}
	named := slices.IndexFunc(chain, func(x pyexception.Exception) bool { return nameOf(&x) != "" })
	if named < 0 {
		return nil
	}
	words := barrier.FindStringSubmatch(chain[named].Message)
	if words == nil {
		return nil
	}
	for text := range strings.SplitSeq(words[1], ",") {
		rank, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || rank <= 0 || rank >= who.WorldSize || len(ranks) == mostMissing || slices.Contains(ranks, rank) {
			return nil
		}
		ranks = append(ranks, rank)
	}
	return ranks
}
