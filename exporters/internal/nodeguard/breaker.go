package nodeguard

import (
	"errors"
	"fmt"
	"time"
)

// Breaker bounds how many nodes are taken out of service without an operator.
type Breaker struct {
	// Nodes is how many nodes may be within Window.
	Nodes int `mapstructure:"nodes"`
	// Percent is how much of the cluster may be at a time; one node always may.
	Percent int `mapstructure:"percent"`
	// Window is how long a node counts toward Nodes.
	Window time.Duration `mapstructure:"window"`
}

// DefaultBreaker is careful.
func DefaultBreaker() Breaker { return Breaker{Nodes: 5, Percent: 5, Window: time.Hour} }

// Problems are the settings that cannot work.
func (b *Breaker) Problems() (problems []error) {
	refuse := func(wrong bool, text string) {
		if wrong {
			problems = append(problems, errors.New(text))
		}
	}
	refuse(b.Nodes < 1, "breaker: nodes: must be 1 or more")
	refuse(b.Percent < 1 || b.Percent > 100, "breaker: percent: must be 1 to 100")
	refuse(b.Window < time.Minute, "breaker: window: must be 1m or more")
	return problems
}

// Recent are the nodes of a ledger (when each was taken out of service, in RFC 3339) that
// still count.
func (b *Breaker) Recent(ledger map[string]string, now time.Time) []string {
	var nodes []string
	for node, text := range ledger {
		// What is no time counts: somebody wrote it who may write here.
		if at, err := time.Parse(time.RFC3339, text); err != nil || now.Sub(at) < b.Window {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// Spent says why no more nodes may be within the window, "" where they may. Done is what
// happened to them: "got a condition".
func (b *Breaker) Spent(began int, done string) string {
	if began < b.Nodes {
		return ""
	}
	return fmt.Sprintf("%d nodes %s within %s, breaker.nodes allows no more", began, done, b.Window)
}

// Cluster is what stands in a cluster, but for the node that is asked about.
type Cluster struct {
	All   int             // its nodes
	Began map[string]bool // nodes that count toward Nodes
	Have  map[string]bool // nodes that are out of service, or about to be
}

// NewCluster counts the nodes of a ledger. What began within the window counts though the
// ledger was lost: see Out.
func NewCluster(recent []string) *Cluster {
	c := &Cluster{Began: map[string]bool{}, Have: map[string]bool{}}
	for _, node := range recent {
		c.Began[node], c.Have[node] = true, true
	}
	return c
}

// Out counts a node that is out of service, since a moment.
func (b *Breaker) Out(c *Cluster, node string, since, now time.Time) {
	c.Have[node] = true
	if now.Sub(since) < b.Window {
		c.Began[node] = true
	}
}

// Crowded says why one more is too many, "" where it is not. Is is what they are: "have a
// condition".
func (b *Breaker) Crowded(c *Cluster, done, is string) string {
	most := max(c.All*b.Percent/100, 1)
	if why := b.Spent(len(c.Began), done); why != "" {
		return why
	}
	if len(c.Have) >= most {
		return fmt.Sprintf("%d of %d nodes %s, breaker.percent allows %d", len(c.Have), c.All, is, most)
	}
	return ""
}
