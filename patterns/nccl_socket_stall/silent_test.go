package ncclsocketstall

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

// A rank that the kernel holds is named though others fell silent with it. That it was the first is
// said where the clocks can tell.
func TestNobodyIsSaidToBeFirstWhereTheClocksCannotTell(t *testing.T) {
	for name, tc := range map[string]struct {
		earlier int64
		words   string
	}{
		"at once":        {0, "rank 2 (python, pid 1002 on node-0) fell silent together with rank 1 (clocks agree to 4 ms)"},
		"well before":    {40e6, "rank 2 (python, pid 1002 on node-0) fell silent first, 40 ms before rank 1 (clocks agree to 4 ms)"},
		"a little after": {-1e6, "rank 2 (python, pid 1002 on node-0) fell silent together with rank 1 (clocks agree to 4 ms)"},
	} {
		t.Run(name, func(t *testing.T) {
			all := hung(itself("fsync", "rpc_wait_bit_killable", "disk_sleep"))
			for _, r := range all {
				silence := 4 * second
				if rule.Text(r.Attributes, "gen_ai.training.rank") == "2" {
					silence += tc.earlier
				}
				for _, key := range []string{"nccl.socket.stall.age_ns", "nccl.rank.last_sent_age_ns", "nccl.socket.last_sent_age_ns"} {
					r.Attributes.PutInt(key, silence)
				}
			}
			d := fresh()
			observe(d, all)
			findings := d.Decide(began + second)
			require.Len(t, findings, 1)
			require.Contains(t, findings[0].Attributes[attrShows], tc.words)
		})
	}
}
