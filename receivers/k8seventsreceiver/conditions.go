package k8seventsreceiver

import (
	"slices"
	"sync"
	"time"

	"github.com/tracecoreai/tracecore/receivers/k8seventsreceiver/internal/hint"
)

// mostConditions caps the memory of conditions: four of each of 25,000 nodes.
const mostConditions = 100_000

// conditions remembers which conditions of which nodes are bad, so that each is
// reported when it turns bad, or good again, and not with every heartbeat.
type conditions struct {
	// since is until when an earlier process has watched. What has turned good since then may have
	// been bad, and that process was told so. Zero: there was none, or all that it knew was listed.
	since time.Time

	mu  sync.Mutex
	bad map[string]map[string]bool // by node and condition; false is good
	len int
}

func newConditions() *conditions { return &conditions{bad: map[string]map[string]bool{}} }

// turned reports whether the condition is bad, or good, and was not when last seen. A condition
// that nobody knows, since its node is silent, is what it was.
func (c *conditions) turned(o *occurrence) bool {
	if o.meaning.Hint == hint.None {
		return false
	}
	bad := o.meaning.Hint != hint.NodeRecovered
	c.mu.Lock()
	defer c.mu.Unlock()
	was, known := c.bad[o.node][o.reason]
	c.set(o.node, o.reason, bad, known)
	if !known {
		return bad || !c.since.IsZero() && !o.time.Before(c.since)
	}
	return was != bad
}

// listed says that each node which an earlier process can have known was seen. One that joins from
// now on was never bad.
func (c *conditions) listed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since = time.Time{}
}

func (c *conditions) set(node, condition string, bad, known bool) {
	if !known && c.len >= mostConditions {
		return
	}
	if c.bad[node] == nil {
		c.bad[node] = map[string]bool{}
	}
	c.bad[node][condition] = bad
	if !known {
		c.len++
	}
}

// forget returns the bad conditions of a node that is gone. Another of its name begins anew.
func (c *conditions) forget(node string) (bad []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for condition, is := range c.bad[node] {
		if is {
			bad = append(bad, condition)
		}
	}
	c.len -= len(c.bad[node])
	delete(c.bad, node)
	slices.Sort(bad)
	return bad
}
