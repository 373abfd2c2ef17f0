package ncclhang

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// TestAHangKeepsItsHosts: what is wrong below the program of several hosts is on one of them, or
// between them.
func TestAHangKeepsItsHosts(t *testing.T) {
	for name, records := range map[string]func(*calls){
		"by calls": func(c *calls) {
			c.stands(c.all(), 10, "overdue", but(24)...).stacks("collective", but(24)...)
		},
		"by calls, in communicators of one host each": func(c *calls) {
			for host := range 3 {
				in := comm{name: fmt.Sprintf("0x%d", host)}
				for rank := range 8 {
					in.ranks = append(in.ranks, 8*host+rank)
				}
				c.stands(in, 10, "overdue", in.ranks...)
			}
			c.stacks("collective", but(24)...)
		},
		"by stacks": func(c *calls) {
			s := inCollective
			s.reason = reasonAsleep
			c.stand(s, but(24)...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCalls(24)
			records(c)
			j := newJoin(DefaultOptions)
			j.Add(c.list, c.at)
			j.Advance(c.at.Add(settled))
			found := findings(j.Advance(c.at.Add(DefaultOptions.StuckWait)))
			require.Len(t, found, 1)
			require.Equal(t, []string{"node-0", "node-1", "node-2"}, found[0].Hosts)
			require.Empty(t, found[0].Host.Host, "it is not one of them alone")
			require.Equal(t, []any{"node-0", "node-1", "node-2"}, found[0].record(1).Attributes["nccl.collective.hosts"])
		})
	}
}

// Where a rank is to blame, its host is named, and no other.
func TestAHangForARankHasNoHosts(t *testing.T) {
	c := newCalls(16)
	found := c.stands(c.all(), 10, "overdue", but(16, 5)...).stands(c.all(), 9, "overdue", 5).found(t)
	require.Len(t, found, 1)
	require.Empty(t, found[0].Hosts)
	require.Equal(t, "node-0", found[0].Host.Host)
}

func TestTheHostsOfAHangAreBounded(t *testing.T) {
	hosts := map[int]*socketstall.Identity{}
	for i := range maxHosts + 9 {
		hosts[i] = &socketstall.Identity{Host: fmt.Sprintf("node-%05d", i)}
	}
	var f Finding
	between(&f, maps.Values(hosts), func(host *socketstall.Identity) socketstall.Identity { return *host })
	require.Len(t, f.Hosts, maxHosts)
	require.True(t, slices.IsSorted(f.Hosts))
	require.Equal(t, "node-00000", f.Hosts[0])
}

func TestAHangByDumpsKeepsItsHosts(t *testing.T) {
	j := newJoin(DefaultOptions)
	f := j.dumped(t, newJob(4).does(1, steps(reduce, reduce), but(4)...))
	require.Equal(t, Stuck, f.Kind)
	require.Equal(t, []string{"node-0", "node-1", "node-2", "node-3"}, f.Hosts)
}
