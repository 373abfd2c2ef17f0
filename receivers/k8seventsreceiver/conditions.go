package k8seventsreceiver

import (
	"sync"

	"github.com/tracecoreai/tracecore/receivers/k8seventsreceiver/internal/hint"
)

// mostConditions caps the memory of conditions: five of each of 20,000 nodes.
const mostConditions = 100_000

// conditions remembers which conditions of which nodes are bad, so that each is
// reported when it turns bad, or good again, and not with every heartbeat.
type conditions struct {
	mu  sync.Mutex
	bad map[[2]string]struct{}
}

func newConditions() *conditions { return &conditions{bad: map[[2]string]struct{}{}} }

// turned reports whether the condition is bad, or good, and was not when last seen. What is
// good again means that.
func (c *conditions) turned(o *occurrence) bool {
	key := [2]string{o.node, o.reason}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, was := c.bad[key]
	if o.meaning.Hint == hint.None {
		delete(c.bad, key)
		o.meaning = hint.Recovered(o.reason)
		return was
	}
	if len(c.bad) < mostConditions {
		c.bad[key] = struct{}{}
	}
	return !was
}
