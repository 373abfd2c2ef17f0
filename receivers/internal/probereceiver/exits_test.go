package probereceiver

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/identity"
)

// ending is a resolver that tells of ends.
type ending struct {
	identity.Resolver
	tell func(identity.Exit)
}

func (e *ending) Exits(fn func(identity.Exit)) func() {
	e.tell = fn
	return func() { e.tell = nil }
}

func endOf(pid uint32, domain string) identity.Exit {
	return identity.Exit{Process: identity.Process{PID: pid, Domain: domain}, Code: 1}
}

func TestEndsOfOneUserHideNoneOfAnother(t *testing.T) {
	resolver, dropped := &ending{}, 0
	exits, cancel := WatchExits(resolver, 16, func(e *identity.Exit) bool { return e.Failed() }, func() { dropped++ })
	for pid := range uint32(1000) {
		switch pid {
		case 10, 500, 990:
			resolver.tell(endOf(pid, "user another"))
		default:
			resolver.tell(endOf(pid, "user mine"))
		}
	}
	resolver.tell(identity.Exit{})
	<-exits.Some()
	var others []uint32
	all := exits.Take()
	for i := range all {
		require.True(t, i == 0 || all[i-1].PID < all[i].PID, "in the order in which they came")
		if all[i].Domain == "user another" {
			others = append(others, all[i].PID)
		}
	}
	require.Equal(t, []uint32{10, 500, 990}, others)
	require.Len(t, all, 16)
	require.Equal(t, 1000-16, dropped)
	require.Empty(t, exits.Take())
	require.Empty(t, exits.Some())
	resolver.tell(endOf(7, "user mine"))
	<-exits.Some()
	require.Len(t, exits.Take(), 1)
	cancel()
	require.Nil(t, resolver.tell)
}
