package k8seventsreceiver

import (
	"slices"
	"sync"
	"time"

	"github.com/tracecoreai/tracecore/receivers/k8seventsreceiver/internal/hint"
)

// mostConditions caps the memory of conditions: four of each of 25,000 nodes.
const mostConditions = 100_000

// longestAgo is how long ago a condition may have turned to be told as of then: patterndetector takes what
// is up to 15 minutes old (its max_delay), and it has to come there. What turned earlier stands still.
const longestAgo = 10 * time.Minute

// standing has a condition that turned too long ago told as of then, with since when it is so: what it caused
// comes later.
func (o *occurrence) standing(now time.Time) {
	if !o.time.IsZero() && now.Sub(o.time) > longestAgo {
		o.message += " (since " + o.time.UTC().Format(time.RFC3339) + ")"
		o.time = now.Add(-longestAgo)
	}
}

// conditions remembers which conditions of which nodes are bad, so that each is
// reported when it turns bad, or good again, and not with every heartbeat.
type conditions struct {
	// since is until when an earlier process has watched. What has turned good since then may have
	// been bad, and that process was told so. Zero: there was none, or all that it knew was listed.
	since time.Time

	mu sync.Mutex
	// before is what an earlier process knew to be bad, until the first list says what is left of it.
	before map[string][]string
	bad    map[string]map[string]bool // by node and condition; false is good
	len    int
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
		return bad || slices.Contains(c.before[o.node], o.reason) || !c.since.IsZero() && !o.time.Before(c.since)
	}
	return was != bad
}

// listed takes in which nodes there are, and returns those that are gone: they were removed while nobody
// watched. What an earlier process knew was listed, too: a node that joins from now on was never bad.
func (c *conditions) listed(nodes map[string]bool) (gone []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for node, conditions := range c.before {
		for _, condition := range conditions {
			if _, known := c.bad[node][condition]; !known { // its node was removed, or is silent
				c.set(node, condition, true, false)
			}
		}
	}
	c.since, c.before = time.Time{}, nil
	for node := range c.bad {
		if !nodes[node] {
			gone = append(gone, node)
		}
	}
	slices.Sort(gone)
	return gone
}

// known returns the conditions that are bad, by node.
func (c *conditions) known() map[string][]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string][]string{}
	for node, conditions := range c.before {
		all[node] = slices.Clone(conditions)
	}
	for node, conditions := range c.bad {
		for condition, bad := range conditions {
			if bad && !slices.Contains(all[node], condition) {
				all[node] = append(all[node], condition)
			}
		}
		slices.Sort(all[node])
	}
	return all
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
