package learned

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver/probereceivertest"
)

// fact is what is learned here.
type fact struct {
	Words  string        `json:"words"`
	Absent time.Duration `json:"absent,omitempty"`
}

func (f fact) After(absence time.Duration) fact {
	f.Absent += absence
	return f
}

// desk is a memory with all that surrounds it.
type desk struct {
	probereceivertest.Resolver
	*Memory[fact]
	t       *testing.T
	host    *probereceivertest.Host
	client  *countingClient
	facts   map[uint32]string
	logs    *observer.ObservedLogs
	storage *probereceivertest.Storage
	clock   time.Time
}

// countingClient counts writes of what is learned, and may refuse them.
type countingClient struct {
	storage.Client
	writes int
	refuse error
}

func (c *countingClient) Batch(ctx context.Context, all ...*storage.Operation) error {
	if slices.ContainsFunc(all, func(o *storage.Operation) bool { return o.Key == key }) {
		c.writes++
	}
	if c.refuse != nil {
		return c.refuse
	}
	return c.Client.Batch(ctx, all...)
}

func newDesk(t *testing.T) *desk {
	d := &desk{t: t, host: probereceivertest.NewHost(), storage: probereceivertest.NewStorage(), facts: map[uint32]string{}, clock: now}
	d.client = &countingClient{Client: d.storage.Client}
	d.storage.Client = d.client
	d.host.Extensions[probereceivertest.StorageID] = d.storage
	d.start()
	return d
}

// start begins with another memory on the same storage.
func (d *desk) start() {
	core, logs := observer.New(zapcore.DebugLevel)
	settings := receivertest.NewNopSettings(component.MustNewType("ncclsock"))
	settings.Logger = zap.New(core)
	d.logs, d.Memory = logs, New[fact](settings, &probereceivertest.StorageID)
	d.Memory.clock = func() time.Time { return d.clock }
	require.NoError(d.t, d.Open(d.t.Context(), d.host))
}

func (d *desk) of(p *identity.Process) (fact, bool) {
	words, is := d.facts[p.PID]
	return fact{Words: words}, is
}

func rank(pid uint32) identity.Process {
	return identity.Process{PID: pid, StartNS: 70, Rank: int(pid), Domain: "user 1"}
}

func (d *desk) know(pids ...uint32) {
	var all []identity.Process
	for _, pid := range pids {
		all = append(all, rank(pid))
	}
	d.Know(all...)
}

// kept is what is known of these after another start, "-" of one that is not.
func (d *desk) kept(pids ...uint32) (words []string) {
	d.start()
	for _, pid := range pids {
		p := rank(pid)
		one, is := d.Of(&p)
		if !is {
			one.Words = "-"
		}
		words = append(words, one.Words)
	}
	return words
}

var now = probereceivertest.Start

func TestWhatIsLearnedIsKnownAtTheNextStart(t *testing.T) {
	d := newDesk(t)
	d.know(1, 2, 3)
	d.facts = map[uint32]string{1: "one", 2: "two"}
	d.Save(d, d.of)
	require.Equal(t, []string{"one", "two", "-"}, d.kept(1, 2, 3))
	require.Len(t, d.All(), 2)
	other := rank(1)
	other.StartNS++
	_, is := d.Of(&other)
	require.False(t, is, "another process of that number")

	d.facts = map[uint32]string{2: "more"}
	d.know(1, 2)
	d.Save(d, d.of)
	require.Equal(t, []string{"one", "more"}, d.kept(1, 2), "of one that lives and was not looked at what was known stays")
	d.know(2)
	d.Save(d, d.of)
	require.Equal(t, []string{"-", "more"}, d.kept(1, 2), "it has ended")
}

// A process that begins anew, as one does that makes its communicators again, is not remembered twice.
func TestWhatIsKnownAgainIsRememberedNoMore(t *testing.T) {
	d := newDesk(t)
	d.know(1)
	d.facts[1] = "one"
	d.Save(d, d.of)
	require.Equal(t, []string{"one"}, d.kept(1))
	d.Save(d, d.of)
	p := rank(1)
	_, is := d.Of(&p)
	require.False(t, is)
	delete(d.facts, 1)
	d.Save(d, d.of)
	require.Equal(t, []string{"-"}, d.kept(1))
}

// An absence begins with the last look, also where that found nothing new. A process that is not known
// again between two absences keeps the sum of both, without the time between them.
func TestTimeInWhichNobodyLookedIsToldToWhatIsKept(t *testing.T) {
	d := newDesk(t)
	d.know(1)
	d.facts[1] = "one"
	absent := func() time.Duration {
		p := rank(1)
		one, is := d.Of(&p)
		require.True(t, is)
		return one.Absent
	}
	look := func(seconds int) {
		for range seconds {
			d.clock = d.clock.Add(time.Second)
			d.Note(d.clock, d, d.of)
		}
	}
	look(100)
	d.clock = d.clock.Add(time.Hour)
	d.start()
	require.InDelta(t, time.Hour, absent(), float64(every))
	require.Equal(t, 1, d.client.writes)
	d.start()
	require.InDelta(t, time.Hour, absent(), float64(every), "it was killed before its first look")

	delete(d.facts, 1)
	look(100)
	d.clock = d.clock.Add(time.Minute)
	d.start()
	require.InDelta(t, time.Hour+time.Minute, absent(), 2*float64(every))
	look(1)
	d.clock = d.clock.Add(-time.Hour)
	d.start()
	require.InDelta(t, time.Minute, absent(), 2*float64(every), "the clock was set back")
}

func TestOnlyChangesAreWrittenAndNotOften(t *testing.T) {
	d := newDesk(t)
	d.know(1, 2)
	d.facts = map[uint32]string{1: "one", 2: "two"}
	for second := range 20 {
		d.Note(now.Add(time.Duration(second)*time.Second), d, d.of)
	}
	require.Equal(t, 1, d.client.writes)
	for second := range 20 {
		d.facts[1] = fmt.Sprint(second)
		d.Note(now.Add(time.Duration(20+second)*time.Second), d, d.of)
	}
	require.Equal(t, 5, d.client.writes)
	d.Note(now.Add(-time.Hour), d, d.of)
	require.Equal(t, 6, d.client.writes, "a clock that was set back")
}

func TestWhatCannotBeReadIsNone(t *testing.T) {
	good := `{"boot":"BOOT","processes":[{"pid":1,"start_ns":70,"learned":{"words":"x"}}]}`
	for name, tc := range map[string]struct {
		text, looked string
		said         int
	}{
		"damaged":            {`{"boot":"BOOT","processes":[{"pid":`, "", 1},
		"of another kind":    {`{"boot":"BOOT","processes":[{"pid":1,"start_ns":70,"learned":[1,2]}]}`, "", 1},
		"a list":             {`[1]`, "", 1},
		"empty":              {``, "", 1},
		"too large":          {`{"boot":"BOOT","processes":[{"pid":1,"start_ns":70,"learned":{"words":"` + strings.Repeat("x", mostText) + `"}}]}`, "", 1},
		"of another boot":    {strings.ReplaceAll(good, "BOOT", "another"), "", 0},
		"of no processes":    {`{"boot":"BOOT"}`, "", 0},
		"of an unknown time": {good, "today", 1},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			require.NoError(t, d.client.Set(t.Context(), key, []byte(strings.ReplaceAll(tc.text, "BOOT", d.boot))))
			require.NoError(t, d.client.Set(t.Context(), lookedKey, []byte(cmp.Or(tc.looked, "1700000000000"))))
			require.Equal(t, []string{"-"}, d.kept(1))
			require.Equal(t, tc.said, d.logs.Len())
			d.know(1)
			d.facts[1] = "one"
			d.Save(d, d.of)
			require.Equal(t, []string{"one"}, d.kept(1))
		})
	}
}

// Thousands of processes of one user, each with much that is learned, take no room from another.
func TestWhatIsKeptIsBounded(t *testing.T) {
	d := newDesk(t)
	var flood []identity.Process
	for pid := range uint32(3 * mostProcesses) {
		d.facts[pid+1] = strings.Repeat("x", mostBytes-20)
		flood = append(flood, rank(pid+1))
	}
	mine, large := rank(50_000), rank(50_001)
	mine.Domain, large.Domain = "user 2", "user 2"
	d.facts[50_000], d.facts[50_001] = "mine", strings.Repeat("x", mostBytes)
	d.Know(append(flood, mine, large)...)
	d.Save(d, d.of)
	text, err := d.client.Get(t.Context(), key)
	require.NoError(t, err)
	require.Less(t, len(text), mostText)
	require.Equal(t, []string{"mine", "-"}, d.kept(50_000, 50_001))
	require.Less(t, len(d.All()), mostProcesses)
	require.Zero(t, d.logs.Len())
}

func TestAProcessWhoseStartIsNotKnownIsNotKept(t *testing.T) {
	d := newDesk(t)
	p := rank(1)
	p.StartNS = 0
	d.Know(p)
	d.facts[1] = "one"
	d.Save(d, d.of)
	d.start()
	require.Empty(t, d.All())
}

func TestAStorageThatRefusesIsTriedAgain(t *testing.T) {
	d := newDesk(t)
	d.know(1)
	d.facts[1] = "one"
	d.client.refuse = errors.New("it is full")
	d.Save(d, d.of)
	require.Equal(t, 1, d.logs.FilterLevelExact(zapcore.DebugLevel).Len())
	require.Equal(t, 1, d.logs.Len())
	d.client.refuse = nil
	d.Save(d, d.of)
	require.Equal(t, []string{"one"}, d.kept(1))
}

func TestWithoutAStorageNothingIsKept(t *testing.T) {
	d := newDesk(t)
	d.know(1)
	d.facts[1] = "one"
	d.Memory = New[fact](receivertest.NewNopSettings(component.MustNewType("ncclsock")), nil)
	require.NoError(t, d.Open(t.Context(), d.host))
	d.Save(d, d.of)
	d.Close()
	require.Zero(t, d.client.writes)
	require.Empty(t, d.All())
}

func TestAClosedMemoryWritesNothing(t *testing.T) {
	d := newDesk(t)
	d.know(1)
	d.facts[1] = "one"
	d.Close()
	d.Save(d, d.of)
	d.Close()
	require.Zero(t, d.client.writes)
}
