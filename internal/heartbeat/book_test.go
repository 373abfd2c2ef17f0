package heartbeat_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/heartbeat"
)

var ten = time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC)

func minute(n float64) time.Time { return ten.Add(time.Duration(n * float64(time.Minute))) }

// agent makes the heartbeats of one start of one agent.
type agent struct {
	host, boot string
	started    time.Time
	clock      time.Duration // by how much its clock is ahead
	number     int64
	receivers  []heartbeat.Component
}

func begun(host string, at float64) *agent {
	return &agent{host: host, boot: "boot-" + host, started: minute(at), receivers: []heartbeat.Component{
		{Name: "kernelevents", State: heartbeat.Works, Since: minute(at)},
		{Name: "gpu/own", State: heartbeat.Fails, Since: minute(at), Error: "no driver"},
	}}
}

func (a *agent) beat(at float64) heartbeat.Beat {
	a.number++
	b := heartbeat.Beat{
		Host: a.host, Boot: a.boot, Version: "1", Instance: fmt.Sprint(a.host, a.boot, a.started), Started: a.started.Add(a.clock), At: minute(at).Add(a.clock), Number: a.number,
		Measured: true, Dropped: 1, Probes: []heartbeat.Probe{{Component: "receiver kernelevents", Hook: "tracepoint", Up: true}},
	}
	for _, r := range a.receivers {
		r.Since = r.Since.Add(a.clock)
		b.Receivers = append(b.Receivers, r)
	}
	return b
}

// tell has a book hear an agent each minute.
func (a *agent) tell(b *heartbeat.Book, from, to float64) {
	for at := from; at <= to; at++ {
		b.Hear(a.beat(at), minute(at))
	}
}

func one(t *testing.T, b *heartbeat.Book, at float64) heartbeat.Agent {
	t.Helper()
	agents, counts := b.Agents(minute(at))
	require.Len(t, agents, 1)
	require.Equal(t, 1, counts.All())
	return agents[0]
}

func looked(t *testing.T, b *heartbeat.Book, host, receiver string, from, to, at float64) (heartbeat.Watch, string) {
	t.Helper()
	return b.Looked(host, []string{receiver}, minute(from), minute(to), minute(at))
}

func TestAnAgentWatchesIsSilentOrStopsByOrder(t *testing.T) {
	b := heartbeat.NewBook(minute(0))
	a := begun("node-1", 0)
	a.tell(b, 0, 10)
	got := one(t, b, 10)
	require.Equal(t, heartbeat.Watching, got.State)
	require.Equal(t, minute(0), got.Since)
	require.EqualValues(t, 11, *got.Dropped)
	require.Equal(t, []string{"gpu/own"}, got.Failing())
	require.Equal(t, heartbeat.Watching, one(t, b, 13).State, "three are missed only then")

	got = one(t, b, 14)
	require.Equal(t, heartbeat.Silent, got.State)
	require.Equal(t, minute(10), got.Since)

	a.number++
	last := a.beat(15)
	last.Ending, last.Receivers = true, nil
	b.Hear(last, minute(15))
	got = one(t, b, 100)
	require.Equal(t, heartbeat.Gone, got.State)
	require.Equal(t, minute(15), got.Since)
	require.Len(t, got.Receivers, 2, "at the end others have stopped before it")
	watch, _ := looked(t, b, "node-1", "kernelevents", 1, 14, 100)
	require.Equal(t, heartbeat.Looked, watch, "one agent told before and after: it looked meanwhile")
	watch, why := looked(t, b, "node-1", "kernelevents", 14, 20, 100)
	require.Equal(t, heartbeat.LookedNot, watch)
	require.Equal(t, "not watched from 2026-11-25 10:15:00 to 2026-11-25 10:20:00 UTC", why)

	agents, _ := b.Agents(minute(15 + 8*24*60))
	require.Empty(t, agents, "after a week it is forgotten")
}

// What is told twice, or comes late, changes nothing.
func TestRepeatedAndLateRecords(t *testing.T) {
	b := heartbeat.NewBook(minute(0))
	a := begun("node-1", 0)
	first, second := a.beat(0), a.beat(1)
	for _, beat := range []heartbeat.Beat{first, second, second, first} {
		b.Hear(beat, minute(1))
	}
	require.EqualValues(t, 2, *one(t, b, 1).Dropped)
	require.Zero(t, one(t, b, 1).Late)
}

func TestAnAgentThatStartsAgainWasAwayMeanwhile(t *testing.T) {
	b := heartbeat.NewBook(minute(0))
	begun("node-1", 0).tell(b, 0, 5)
	begun("node-1", 8).tell(b, 8, 10)
	got := one(t, b, 10)
	require.Equal(t, heartbeat.Watching, got.State)
	require.Nil(t, got.Claims)
	for _, c := range []struct {
		from, to float64
		watch    heartbeat.Watch
		why      string
	}{
		{1, 4, heartbeat.Looked, ""},
		{9, 30, heartbeat.Looked, ""}, // its next record is yet to come
		{4, 9, heartbeat.LookedNot, "not watched from 2026-11-25 10:05:00 to 2026-11-25 10:08:00 UTC"},
		{6, 7, heartbeat.LookedNot, "not watched from 2026-11-25 10:06:00 to 2026-11-25 10:07:00 UTC"},
		{-5, -1, heartbeat.LookedNot, "not watched from 2026-11-25 09:55:00 to 2026-11-25 09:59:00 UTC"},
	} {
		watch, why := looked(t, b, "node-1", "kernelevents", c.from, c.to, 10)
		require.Equal(t, c.watch, watch, c)
		require.Equal(t, c.why, why, c)
	}
	watch, why := looked(t, b, "node-1", "gpu", 9, 10, 10)
	require.Equal(t, heartbeat.LookedNot, watch)
	require.Equal(t, "gpu/own does not work there: no driver", why)
	watch, why = looked(t, b, "node-1", "oomkill", 9, 10, 10)
	require.Equal(t, heartbeat.LookedNot, watch)
	require.Equal(t, "its agent does not run oomkill", why)
	watch, why = looked(t, b, "node-2", "kernelevents", 9, 10, 10)
	require.Equal(t, heartbeat.Unknown, watch)
	require.Equal(t, "no agent tells of it", why)
}

// An agent that is killed and started again over and over takes no more room.
func TestManyStarts(t *testing.T) {
	b := heartbeat.NewBook(minute(0))
	for n := range 1000 {
		begun("node-1", float64(n)).tell(b, float64(n), float64(n))
	}
	require.Nil(t, one(t, b, 1000).Claims)
	require.EqualValues(t, 1000, *one(t, b, 1000).Dropped)
}

func TestTwoAgentsOfOneMachine(t *testing.T) {
	for name, c := range map[string]struct {
		boot  string
		clock time.Duration // of the second
	}{
		"same machine":                      {boot: "boot-node-1"},
		"same name":                         {boot: "another"},
		"same name, another clock ahead":    {"another", 2 * time.Hour},
		"same name, another clock behind":   {"another", -2 * time.Hour},
		"same name, its clock far too late": {"another", -400 * 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			b := heartbeat.NewBook(minute(0))
			first, second := begun("node-1", 0), begun("node-1", 5.5)
			second.boot, second.clock = c.boot, c.clock
			first.tell(b, 0, 5)
			for at := 6.0; at <= 10; at++ {
				b.Hear(first.beat(at), minute(at))
				b.Hear(second.beat(at+0.5), minute(at+0.5))
			}
			require.NotNil(t, one(t, b, 10.5).Claims)
			require.Equal(t, "watching, claimed twice", one(t, b, 10.5).Words()[:len("watching, claimed twice")])
			watch, why := looked(t, b, "node-1", "kernelevents", 1, 2, 10.5)
			require.Equal(t, heartbeat.Unknown, watch)
			require.Equal(t, "two agents tell for it", why)
			for at := 11.5; at <= 20; at++ { // the first has ended
				b.Hear(second.beat(at), minute(at))
			}
			require.Nil(t, one(t, b, 20).Claims)
			require.Equal(t, heartbeat.Watching, one(t, b, 20).State)
			require.Equal(t, c.boot, one(t, b, 20).Boot)
		})
	}
}

// Records that waited on the disk of their node come at once, also after those of the next start.
func TestWhatWaitedIsNoSecondAgent(t *testing.T) {
	for _, known := range []bool{true, false} {
		b := heartbeat.NewBook(minute(0))
		old, next := begun("node-1", -60), begun("node-1", 30)
		if known {
			b.Hear(old.beat(-59), minute(0))
		}
		b.Hear(next.beat(30), minute(30))
		for n := range 60 {
			b.Hear(old.beat(-30+float64(n)), minute(31).Add(time.Duration(n)*50*time.Millisecond))
		}
		next.tell(b, 31, 33)
		got := one(t, b, 33)
		require.Nil(t, got.Claims, known)
		require.Equal(t, minute(30), got.Started)
		watch, _ := looked(t, b, "node-1", "kernelevents", 5, 20, 33)
		require.Equal(t, heartbeat.Looked, watch)
	}
}

// The clock of a machine was set back while it was started again.
func TestAClockThatIsSetBack(t *testing.T) {
	b := heartbeat.NewBook(minute(0))
	begun("node-1", 0).tell(b, 0, 5)
	again := begun("node-1", 10)
	again.boot, again.clock = "second", -3*time.Hour
	again.tell(b, 10, 20)
	got := one(t, b, 20)
	require.Equal(t, heartbeat.Watching, got.State)
	require.Equal(t, "second", got.Boot)
	require.Nil(t, got.Claims)
	require.InDelta(t, 3*3600, got.Late, 1)
}

func TestAClockThatIsAhead(t *testing.T) {
	b := heartbeat.NewBook(minute(0))
	a := begun("node-1", 0)
	a.clock = time.Hour
	a.tell(b, 0, 5)
	require.Equal(t, "watching, clock ahead", one(t, b, 5).Words())
	require.Equal(t, heartbeat.Silent, one(t, b, 10).State, "silence goes by the clock of the book")
}

func TestAClockThatIsBehind(t *testing.T) {
	b := heartbeat.NewBook(minute(0))
	a := begun("node-1", 0)
	a.clock = -10 * time.Second
	a.tell(b, 0, 5)
	require.Equal(t, "watching", one(t, b, 5).Words(), "its records count")
	a = begun("node-1", 6)
	a.clock = -30 * time.Second
	a.tell(b, 6, 9)
	require.Equal(t, "watching, clock behind or records late", one(t, b, 9).Words())
}

// A gateway corrects the times of an agent whose clock it knows, and its records are in time.
func TestAClockThatIsCorrected(t *testing.T) {
	for seconds, want := range map[float64]string{30: "watching, clock 30 s behind, corrected", -31: "watching, clock 31 s ahead, corrected", 0: "watching"} {
		resource, record := told()
		if seconds != 0 {
			resource.PutDouble("tracecore.clock.corrected", seconds)
		}
		beat, ok := heartbeat.Read(resource, record)
		require.True(t, ok)
		b := heartbeat.NewBook(ten)
		b.Hear(beat, ten)
		agents, _ := b.Agents(ten)
		require.Equal(t, want, agents[0].Words())
		require.InDelta(t, seconds, agents[0].Corrected, 0)
	}
}

// While nobody kept the book, nobody was silent.
func TestABookThatBeginsLater(t *testing.T) {
	a := begun("node-1", 0)
	a.tell(heartbeat.NewBook(minute(0)), 0, 9)
	b := heartbeat.NewBook(minute(60))
	a.number = 10
	a.tell(b, 60, 60)
	require.Equal(t, heartbeat.Watching, one(t, b, 63).State)
	watch, _ := looked(t, b, "node-1", "kernelevents", 30, 40, 61)
	require.Equal(t, heartbeat.Looked, watch, "the agent has looked since its start")
}

// A gateway that hears of a machine for a job alone hears no more of it when that is over.
func TestAnAgentThatTellsOthers(t *testing.T) {
	b := heartbeat.NewBook(minute(0))
	a := begun("node-1", 0)
	for at := range 5 {
		beat := a.beat(float64(at))
		beat.Job = "llm"
		b.Hear(beat, minute(float64(at)))
	}
	require.Equal(t, heartbeat.Silent, one(t, b, 10).State, "the job goes on")
	over := a.beat(11)
	over.Job, over.JobOver = "llm", true
	b.Hear(over, minute(11))
	agents, counts := b.Agents(minute(20))
	require.Empty(t, agents)
	require.Zero(t, counts.All())
	watch, _ := looked(t, b, "node-1", "kernelevents", 1, 5, 20)
	require.Equal(t, heartbeat.Looked, watch)
	watch, why := looked(t, b, "node-1", "kernelevents", 12, 15, 20)
	require.Equal(t, heartbeat.Unknown, watch)
	require.Equal(t, "its agent tells another gateway", why)
}

// Who may speak for every machine makes some up: those that were there before stay, and the
// book is bounded.
func TestInventedAgentsTakeNoRoomFromOthers(t *testing.T) {
	b := heartbeat.NewBook(minute(0))
	var real []*agent
	for n := range 1000 {
		a := begun(fmt.Sprintf("node-%d", n), 0)
		real = append(real, a)
		a.tell(b, 0, 0)
	}
	long := make([]heartbeat.Component, heartbeat.MostComponents)
	for n := range long {
		long[n] = heartbeat.Component{Name: fmt.Sprintf("%096d", n), State: heartbeat.Fails, Error: fmt.Sprintf("%0160d", n)}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for n := range 100_000 {
		a := begun(fmt.Sprintf("invented-%d", n), 0.5)
		a.receivers = make([]heartbeat.Component, len(long))
		copy(a.receivers, long)
		a.tell(b, 1, 1)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.Less(t, after.HeapAlloc-before.HeapAlloc, uint64(128<<20))
	for _, a := range real {
		a.tell(b, 2, 2)
	}
	agents, counts := b.Agents(minute(3))
	require.LessOrEqual(t, len(agents), heartbeat.MostAgents)
	require.Positive(t, counts.Evicted)
	known := map[string]heartbeat.Agent{}
	for _, a := range agents {
		known[a.Host] = a
	}
	for _, a := range real {
		require.Equal(t, heartbeat.Watching, known[a.host].State, a.host)
		require.Equal(t, minute(2), known[a.host].Last)
	}
	_, counts = b.Agents(minute(3 + 8*24*60))
	require.Zero(t, counts.All())
}

func TestThoseThatNeedALookComeFirst(t *testing.T) {
	b := heartbeat.NewBook(minute(0))
	for n, host := range []string{"e-well", "d-gone", "c-fails", "b-silent", "a-twice"} {
		a := begun(host, 0)
		if n != 2 {
			a.receivers = a.receivers[:1]
		}
		a.tell(b, 0, 1)
		switch host {
		case "d-gone":
			last := a.beat(2)
			last.Ending = true
			b.Hear(last, minute(2))
		case "b-silent":
		default:
			a.tell(b, 9, 10)
		}
		if host == "a-twice" {
			other := begun(host, 8.5)
			other.receivers = other.receivers[:1]
			other.tell(b, 9, 10)
			a.tell(b, 11, 12)
			other.tell(b, 11, 12)
		}
	}
	agents, counts := b.Agents(minute(12))
	var order []string
	for _, a := range agents {
		order = append(order, a.Host)
	}
	require.Equal(t, []string{"a-twice", "b-silent", "c-fails", "d-gone", "e-well"}, order)
	require.Equal(t, heartbeat.Counts{Watching: 3, Silent: 1, Gone: 1}, counts)
}
