package ncclsocketstall

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// twoHosts are the records of a job of four ranks, of which the first two are on one host and rank 2, which is
// stopped, and rank 3 on another.
func twoHosts() (here, there []*rule.Record) {
	for _, r := range hung(map[string]any{"nccl.rank.state": "stopped"}) {
		rank, _ := r.Attributes.Get(rule.AttributeRank)
		r.Resource.PutStr("host.name", fmt.Sprintf("host-%d", rank.Int()/2))
		for _, end := range []string{"local", "peer"} { // the same host in all of them
			r.Attributes.PutStr("network."+end+".address", fmt.Sprintf("10.0.0.%d", rank.Int()/2))
		}
		peer := (rank.Int() + 3) % 4
		if rule.Text(r.Attributes, "nccl.socket.direction") == "send" {
			peer = (rank.Int() + 1) % 4
		}
		r.Attributes.PutStr("network.peer.address", fmt.Sprintf("10.0.0.%d", peer/2))
		if rank.Int() < 2 {
			here = append(here, r)
		} else {
			there = append(there, r)
		}
	}
	return here, there
}

// arrive shows d records that happened at one time and come at another.
func arrive(d *detector, all []*rule.Record, name string, happened, now int64) {
	for _, r := range all {
		attributes := pcommon.NewMap()
		r.Attributes.CopyTo(attributes)
		if name == socketstall.EventEnd {
			attributes.PutStr("nccl.rank.state", "sleeping")
		}
		d.Observe(&rule.Record{Name: name, Time: happened, Now: now, Resource: r.Resource, Attributes: attributes})
	}
}

// TestRecordsThatComeLateAreNotAllThere: after a gateway was away, the agents of the hosts are heard one after the
// other, in seconds. The ranks of the first are not accused.
func TestRecordsThatComeLateAreNotAllThere(t *testing.T) {
	for name, tc := range map[string]struct{ late, waits time.Duration }{
		"in time":   {0, 1500 * time.Millisecond},
		"soon":      {900 * time.Millisecond, 1500 * time.Millisecond},
		"late":      {7 * time.Second, 14 * time.Second},
		"very late": {14 * time.Second, 26500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			d := fresh()
			here, there := twoHosts()
			now, until := began+int64(tc.late), began+int64(tc.waits)
			arrive(d, here, socketstall.Event, began, now)
			require.Empty(t, d.Decide(now))
			require.Equal(t, until, d.Due())
			require.Empty(t, d.Decide(until-1))

			alone := fresh()
			arrive(alone, here, socketstall.Event, began, now)
			findings := alone.Decide(until)
			require.Len(t, findings, 1, "nobody else speaks")
			require.Equal(t, heldUnseen, findings[0].Attributes[attrHeld])

			arrive(d, there, socketstall.Event, began, until-1)
			findings = d.Decide(until - 1)
			require.Len(t, findings, 1)
			require.Equal(t, heldStopped, findings[0].Attributes[attrHeld])
			require.EqualValues(t, 2, findings[0].Attributes["gen_ai.training.rank"])
		})
	}
}

// TestEndsThatComeLateAreNotAllThere: the rank went on while a gateway was away. Its own host says so first;
// what the other host has not said yet accuses nobody.
func TestEndsThatComeLateAreNotAllThere(t *testing.T) {
	d := fresh()
	here, there := twoHosts()
	arrive(d, append(here, there...), socketstall.Event, began, began)
	require.Len(t, d.Decide(began), 1)

	arrive(d, there, socketstall.EventEnd, began+5*second, began+14*second)
	for now := began + 14*second; now < began+25*second; now += second / 4 {
		require.Empty(t, d.Decide(now))
	}
	arrive(d, here, socketstall.EventEnd, began+5*second, began+25*second)
	findings := d.Decide(began + 25*second)
	require.Len(t, findings, 1)
	require.Equal(t, eventEnd, findings[0].Event)
}

// TestARankIsNotJudgedByWhatItDidBefore: the ranks of a host stood still before, and went on. Their agent ends, and the
// job stands still again: nothing is known of them.
func TestARankIsNotJudgedByWhatItDidBefore(t *testing.T) {
	for name, ended := range map[string]int64{"ended long ago": 40 * second, "ended shortly before": 65 * second} {
		t.Run(name, func(t *testing.T) {
			d := fresh()
			here, there := twoHosts()
			arrive(d, append(here, there...), socketstall.Event, began, began)
			require.Len(t, d.Decide(began), 1)
			at := began + ended
			arrive(d, append(here, there...), socketstall.EventEnd, at, at)
			require.Len(t, d.Decide(at), 1)

			at = began + 72*second
			for _, r := range here {
				r.Attributes.PutStr("nccl.socket.stall.id", "again "+rule.Text(r.Attributes, "nccl.socket.stall.id"))
			}
			arrive(d, here, socketstall.Event, at, at)
			require.Empty(t, d.Decide(at), "those of the other host may come")
			findings := d.Decide(at + 3*second/2)
			require.Len(t, findings, 1)
			require.Equal(t, heldUnseen, findings[0].Attributes[attrHeld])
		})
	}
}
