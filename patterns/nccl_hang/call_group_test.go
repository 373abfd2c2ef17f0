package ncclhang

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
)

// grouped says that ranks stopped after so many collectives, the last of them in a group that has not
// ended.
func (c *calls) grouped(in comm, number int, operation string, ranks ...int) *calls {
	for _, rank := range ranks {
		c.record(eventCallStopped, in, rank, func(a pcommon.Map) {
			stoodAt(number, c.at.Add(-3*time.Second), "overdue")(a)
			a.PutStr("nccl.call.last_operation", operation)
			a.PutInt("nccl.call.last_root", 1)
			a.PutInt("nccl.call.group_depth", 1)
		})
	}
	return c
}

// NCCL launches what is called in a group when that ends: who never ends it is waited for, though it has
// called all that the others have.
func TestACallInAnOpenGroup(t *testing.T) {
	for name, tc := range map[string]struct {
		calls    func(*calls)
		culprits []int
		seq      int64
		grouped  bool
		says     string
	}{
		"the last call of one": {func(c *calls) { c.stands(c.all(), 10, "overdue", but(8, 5)...).grouped(c.all(), 10, "AllReduce", 5) }, []int{5}, 10, true,
			"rank 5 has not launched AllReduce #10 (4,096 x bf16), which 7 ranks have called: its main thread is asleep, at 0 % CPU; it has called it in a group that has not ended (ncclGroupEnd)"},
		"a broadcast, whose root is no peer": {func(c *calls) { c.stands(c.all(), 10, "overdue", but(8, 5)...).grouped(c.all(), 10, "Broadcast", 5) }, []int{5}, 10, true,
			"rank 5 has not launched AllReduce #10"},
		"of two": {func(c *calls) {
			c.stands(c.all(), 10, "overdue", but(8, 2, 5)...).grouped(c.all(), 10, "AllReduce", 2, 5)
		}, []int{2, 5}, 10, true,
			"they have called it in a group that has not ended"},
		"it lacks calls, too": {func(c *calls) { c.stands(c.all(), 10, "overdue", but(8, 5)...).grouped(c.all(), 8, "AllReduce", 5) }, []int{5}, 8, true,
			"rank 5 has not launched AllReduce #8"},
		"another rank lacks one": {func(c *calls) {
			c.stands(c.all(), 10, "overdue", but(8, 3, 5)...).stands(c.all(), 9, "overdue", 3).grouped(c.all(), 10, "AllReduce", 5)
		}, []int{3, 5}, 10, false, "ranks 3, 5 have not called AllReduce #10"},
		"of all": {func(c *calls) { c.grouped(c.all(), 10, "AllReduce", but(8)...) }, nil, 0, false, ""},
		"a send, of which each rank has its own number": {func(c *calls) {
			c.stands(c.all(), 10, "overdue", but(8, 5)...).grouped(c.all(), 10, "Send", 5)
		}, nil, 0, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCalls(8)
			tc.calls(c)
			found := c.found(t)
			if tc.culprits == nil {
				require.Empty(t, found)
				return
			}
			f := found[0]
			require.Equal(t, tc.culprits, f.Culprits)
			require.Equal(t, []any{NotCalled, tc.seq, tc.grouped}, []any{f.Kind, f.Seq, f.Grouped})
			require.Contains(t, f.String(), tc.says)
			require.Equal(t, Certain, f.Sure)
		})
	}
}
