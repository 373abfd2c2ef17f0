package socketstall

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
)

var began = time.Date(2026, 11, 21, 5, 10, 0, 0, time.UTC).UnixNano()

const second = int64(time.Second)

// attributes are those of a stall of a rank that waits for its peer.
func attributes(rank int) pcommon.Map {
	a := pcommon.NewMap()
	a.PutStr("gen_ai.training.job_id", "llm")
	a.PutInt("gen_ai.training.rank", int64(rank))
	a.PutInt("process.pid", int64(100+rank))
	a.PutStr("nccl.socket.cause", "waiting")
	a.PutStr("nccl.socket.direction", "receive")
	a.PutStr("nccl.socket.stall.id", "one")
	a.PutInt("nccl.socket.stall.age_ns", 3*second)
	a.PutStr("nccl.rank.state", "sleeping")
	return a
}

func host(name string) pcommon.Map {
	m := pcommon.NewMap()
	m.PutStr("host.name", name)
	return m
}

// record is one at a time, with some attributes changed.
func record(t testing.TB, event string, rank int, at int64, changes map[string]any) *Record {
	a := attributes(rank)
	for key, v := range changes {
		require.NoError(t, a.PutEmpty(key).FromRaw(v))
	}
	r, ok := Parse(event, began+at, host("node"), a)
	require.True(t, ok)
	return &r
}

func TestARecordThatDoesNotSayWhoseOrWhenIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		key  string
		v    any
		time int64
	}{
		"no rank":                  {"gen_ai.training.rank", "three", began},
		"rank below zero":          {"gen_ai.training.rank", -1, began},
		"rank beyond all jobs":     {"gen_ai.training.rank", MaxRank + 1, began},
		"no process":               {"process.pid", 0, began},
		"no time":                  {"x", "", 0},
		"time beyond the calendar": {"x", "", math.MinInt64},
	} {
		t.Run(name, func(t *testing.T) {
			a := attributes(1)
			require.NoError(t, a.PutEmpty(tc.key).FromRaw(tc.v))
			_, ok := Parse(Event, tc.time, host("node"), a)
			require.False(t, ok)
		})
	}
}

// TestWhatCannotBeReadCountsAsUnknown: a hostile attribute says nothing, the others
// are read.
func TestWhatCannotBeReadCountsAsUnknown(t *testing.T) {
	long := strings.Repeat("é", 1<<16)
	r := record(t, Event, 1, 0, map[string]any{
		"nccl.socket.stall.age_ns": int64(math.MaxInt64), "nccl.rank.last_sent_age_ns": -5, "nccl.peer.rank": int64(1) << 40,
		"network.local.address": "over there", "network.local.port": 1, "network.peer.address": "10.0.0.1", "network.peer.port": 1_000_000,
		"nccl.rank.watched_ns": int64(math.MinInt64), "nccl.rank.tree": "1", "nccl.rank.child_pid": -4, "nccl.rank.activity": "dancing", "gen_ai.training.world_size": -1, "nccl.socket.receive_queue_bytes": -3,
		"nccl.socket.stall.id": long, "nccl.socket.error": "\xff", "nccl.socket.cause": "quantum", "gen_ai.training.job_id": 7,
	})
	require.Equal(t, began, r.Stall.Onset)
	require.Zero(t, r.Sent)
	require.Equal(t, Unknown, r.Stall.PeerRank)
	require.False(t, r.Stall.Local.IsValid())
	require.False(t, r.Stall.Peer.IsValid())
	require.Equal(t, Doing{At: began, Activity: "dancing"}, r.Doing)
	require.Zero(t, r.World)
	require.Zero(t, r.Stall.Unread)
	require.LessOrEqual(t, len(r.ID), MaxText)
	require.Empty(t, r.Stall.Error)
	require.Equal(t, Cause("quantum"), r.Stall.Cause, "of a later version")
	require.Equal(t, "host node", r.Job, "ranks without a job id belong to their host")
}

// TestTheOrderOfArrivalChangesNothing: the life of two stalls of one process, in
// many orders.
func TestTheOrderOfArrivalChangesNothing(t *testing.T) {
	other := map[string]any{"nccl.socket.stall.id": "two", "nccl.rank.last_sent_age_ns": second}
	with := func(more map[string]any, key string, v any) map[string]any {
		all := map[string]any{key: v}
		for k, one := range more {
			all[k] = one
		}
		return all
	}
	records := []*Record{
		record(t, Event, 1, 0, nil),
		record(t, Event, 1, 5*second, with(nil, "nccl.socket.cause", "not_reading")),
		record(t, Event, 1, 15*second, with(nil, "nccl.socket.cause", "not_reading")),
		record(t, EventEnd, 1, 20*second, with(nil, "nccl.socket.stall.end_reason", "exited")),
		record(t, Event, 1, 2*second, with(other, "nccl.rank.state", "stopped")),
		record(t, Event, 1, 12*second, with(other, "gen_ai.training.world_size", 8)),
		record(t, Event, 1, 22*second, with(with(other, "nccl.rank.state", "stopped"), "gen_ai.training.world_size", 4)),
	}
	want := ""
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		b := NewBook(DefaultLimits)
		for _, i := range random.Perm(len(records)) {
			b.Take(records[i], began)
		}
		text, err := json.Marshal(b)
		require.NoError(t, err)
		if want == "" {
			want = string(text)
		}
		require.Equal(t, want, string(text))
		requireLife(t, b)
	}
}

func requireLife(t *testing.T, b *Book) {
	j := b.Job("llm")
	require.Equal(t, 2, b.Len())
	require.Equal(t, 4, j.World, "as the newest record has it")
	p := j.Processes[ProcessKey("node", 101)]
	one := p.Stalls["one"]
	require.Equal(t, began-3*second, one.Onset)
	require.Equal(t, began+20*second, one.Ended)
	require.Equal(t, NotReading, one.CauseAt(began+6*second))
	require.Equal(t, Waiting, one.CauseAt(began+4*second))
	require.True(t, one.OpenAt(began+19*second))
	require.False(t, one.OpenAt(began+20*second))
	require.True(t, p.ExitedAt(began+20*second))
	require.Equal(t, Stopped, p.State)
	two := p.Stalls["two"]
	require.True(t, two.OpenAt(began+22*second+int64(Fading)))
	require.False(t, two.OpenAt(began+23*second+int64(Fading)), "it faded")
}

func TestABookIsBounded(t *testing.T) {
	b := NewBook(Limits{Jobs: 2, Stalls: 6})
	take := func(job string, stalls int, heard int64) {
		for i := range stalls {
			b.Take(record(t, Event, i, 0, map[string]any{"gen_ai.training.job_id": job}), heard)
		}
	}
	take("b", 2, 1)
	take("a", 2, 2)
	take("c", 2, 3)
	require.Nil(t, b.Job("b"), "it was quiet for longest")
	require.EqualValues(t, 2, b.Evicted())
	require.Nil(t, b.Take(record(t, EventEnd, 1, 0, map[string]any{"gen_ai.training.job_id": "d"}), 4), "an end makes no room for itself")

	take("c", 9, 5)
	require.Equal(t, 2, b.Job("a").Len())
	require.Equal(t, 6, b.Len())
	require.EqualValues(t, 2+5, b.Evicted(), "the job that holds most loses its oldest")
	require.True(t, b.Job("c").On("node"))

	b.Expire(5)
	require.Equal(t, 4, b.Len())
	require.Nil(t, b.Job("a"))
	b.Expire(6)
	require.Zero(t, b.Len())
	require.Nil(t, b.Job("c"))
}

// TestAFloodOfStallsTakesRoomFromItself: a user floods in as many ways as he has; the job
// of another user on the same host, and that of another host, stay whole.
func TestAFloodOfStallsTakesRoomFromItself(t *testing.T) {
	const room = 200
	for name, flood := range map[string]func(i int) (rank int, changes map[string]any){
		"one process": func(i int) (int, map[string]any) { return 1, map[string]any{"nccl.socket.stall.id": fmt.Sprint(i)} },
		"processes":   func(i int) (int, map[string]any) { return i, nil },
		"jobs": func(i int) (int, map[string]any) {
			return 1, map[string]any{"gen_ai.training.job_id": fmt.Sprint("j", i)}
		},
		"a job of the same name": func(i int) (int, map[string]any) {
			return i, map[string]any{"gen_ai.training.job_id": "quiet"}
		},
	} {
		for _, restored := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", restored ", restored), func(t *testing.T) {
				b := NewBook(Limits{Jobs: 20, Stalls: room})
				quiet := func(domain, at string, heard int64) {
					for rank := range 20 {
						a := attributes(rank)
						a.PutStr("gen_ai.training.job_id", "quiet")
						a.PutStr("gen_ai.training.job_domain", domain)
						r, ok := Parse(Event, began, host(at), a)
						require.True(t, ok)
						b.Take(&r, heard)
					}
				}
				quiet("user 1", "node", 1)
				quiet("user 3", "other", 2)
				if restored {
					text, err := json.Marshal(b)
					require.NoError(t, err)
					b = NewBook(Limits{Jobs: 20, Stalls: room})
					require.NoError(t, json.Unmarshal(text, b))
				}
				for i := range 10 * room {
					rank, changes := flood(i)
					all := map[string]any{"gen_ai.training.job_domain": "user 2", "process.pid": 1000 + rank}
					for key, v := range changes {
						all[key] = v
					}
					b.Take(record(t, Event, rank, int64(i), all), int64(3+i))
				}
				require.Positive(t, b.Evicted())
				require.LessOrEqual(t, b.Len(), room)
				require.Equal(t, 20, b.Job("quiet of user 1").Len())
				require.Equal(t, 20, b.Job("quiet of user 3").Len())
			})
		}
	}
}

func TestABookSurvivesASnapshot(t *testing.T) {
	b := NewBook(DefaultLimits)
	for rank := range 4 {
		b.Take(record(t, Event, rank, 0, map[string]any{"network.peer.address": "::1", "network.peer.port": 70 + rank}), began)
	}
	good, err := json.Marshal(b)
	require.NoError(t, err)
	again := NewBook(DefaultLimits)
	require.NoError(t, json.Unmarshal(good, again))
	copied, err := json.Marshal(again)
	require.NoError(t, err)
	require.Equal(t, string(good), string(copied))
	require.Equal(t, b.Len(), again.Len())
	require.True(t, again.Job("llm").On("node"))
	for name, text := range map[string]string{
		"no object":       "[]",
		"no job":          `{"llm":null}`,
		"another name":    strings.Replace(string(good), `"name":"llm"`, `"name":"other"`, 1),
		"no process":      `{"llm":{"name":"llm","processes":{"node/1":null}}}`,
		"another process": strings.Replace(string(good), `"node/101":`, `"node/7":`, 1),
		"no stall":        `{"llm":{"name":"llm","processes":{"node/1":{"h":"node","p":1,"stalls":{"one":null}}}}}`,
		"no stalls":       `{"llm":{"name":"llm","processes":{"node/1":{"h":"node","p":1}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			require.NotEqual(t, string(good), text)
			require.Error(t, json.Unmarshal([]byte(text), NewBook(DefaultLimits)))
		})
	}
	require.Error(t, json.Unmarshal(good, NewBook(Limits{Jobs: 1, Stalls: 3})), "beyond the limits")
}

func FuzzParse(f *testing.F) {
	f.Add(uint64(began), "waiting", "10.0.0.1", int64(40000), int64(9e9), int64(3), "stopped", "llm")
	f.Add(uint64(math.MaxUint64), "\xff", "::1%eth0", int64(-1), int64(-1), int64(1)<<40, "", "")
	f.Fuzz(func(t *testing.T, at uint64, cause, address string, port, age, peer int64, state, job string) {
		a := attributes(1)
		for key, text := range map[string]string{
			"nccl.socket.cause": cause, "network.local.address": address, "nccl.rank.state": state, "gen_ai.training.job_id": job, "nccl.socket.stall.id": cause,
		} {
			a.PutStr(key, text)
		}
		for key, n := range map[string]int64{"network.local.port": port, "nccl.socket.stall.age_ns": age, "nccl.peer.rank": peer} {
			a.PutInt(key, n)
		}
		b := NewBook(DefaultLimits)
		for i, event := range []string{Event, EventEnd, Event} {
			r, ok := Parse(event, int64(at)+int64(i), host(address), a) //nolint:gosec // hostile times are what this is about
			if ok {
				b.Take(&r, began)
			}
		}
		text, err := json.Marshal(b)
		require.NoError(t, err)
		again := NewBook(DefaultLimits)
		require.NoError(t, json.Unmarshal(text, again), fmt.Sprint(string(text)))
		copied, err := json.Marshal(again)
		require.NoError(t, err)
		require.Equal(t, string(text), string(copied))
	})
}

// A job of which stalls are given up says so until what was left has been told anew.
func TestAJobSaysThatItIsHeldInPart(t *testing.T) {
	b := NewBook(Limits{Jobs: 4, Stalls: 2})
	take := func(id string, at int64) *Job {
		r := Record{Job: "llm", ID: id, Identity: Identity{Host: "node-a", PID: 7}, Time: at, Stall: Stall{Last: at}}
		return b.Take(&r, at)
	}
	require.False(t, take("1", began).Cut())
	require.False(t, take("2", began).Cut())
	require.True(t, take("3", began).Cut())
	data, err := json.Marshal(b)
	require.NoError(t, err)
	restored := NewBook(Limits{Jobs: 4, Stalls: 2})
	require.NoError(t, json.Unmarshal(data, restored))
	require.True(t, restored.Job("llm").Cut())
	require.True(t, take("3", began+int64(Fading)).Cut())
	require.False(t, take("3", began+int64(Fading)+1).Cut(), "each that lasts has been told again")
}

// Two starts that are one job are counted as one, and what each knew of a process stays.
func TestTwoStartsThatAreOneJobAreOne(t *testing.T) {
	b := NewBook(Limits{Jobs: 9, Stalls: 99})
	take := func(run string, rank int, stall string) *Job {
		r := record(t, Event, rank, int64(rank)*second, map[string]any{"nccl.socket.stall.id": stall})
		r.OfRun(run, "")
		return b.Take(r, r.Time)
	}
	earlier := take("one", 0, "a")
	take("one", 1, "a")
	later := take("two", 1, "b")
	take("two", 2, "a")
	b.Join(later, earlier)
	require.Nil(t, b.Job(later.Name))
	require.Equal(t, earlier, b.Job(earlier.Name))
	require.Equal(t, 4, earlier.Len())
	require.Equal(t, 4, b.Len(), "each process is as large as its stalls")
	require.Len(t, earlier.Processes, 3)
	require.Equal(t, began+2*second, earlier.Last)
	b.Drop(earlier, func(*Stall) bool { return true })
	require.Zero(t, b.Len())
	require.False(t, earlier.On("node"))
	b.Forget(earlier)
}

// TestWhoStoppedAProcessIsKeptOverARestart: the next agent of its host has not seen the signal.
func TestWhoStoppedAProcessIsKeptOverARestart(t *testing.T) {
	signal := map[string]any{"signal.name": "SIGSTOP", "signal.sender.name": "bash", "signal.sender.pid": 812, "signal.sender.user_id": 1000}
	own := map[string]any{"nccl.rank.state": "stopped", "nccl.rank.last_sent_age_ns": 4 * second}
	child := map[string]any{"nccl.rank.child_pid": 7, "nccl.rank.child_name": "worker", "nccl.rank.child_state": "stopped", "nccl.rank.last_sent_age_ns": 4 * second}
	with := func(all ...map[string]any) map[string]any {
		both := map[string]any{}
		for _, one := range all {
			maps.Copy(both, one)
		}
		return both
	}
	silent := map[string]any{"nccl.rank.last_sent_age_ns": 14 * second}
	debugger := map[string]any{"signal.name": "SIGSTOP", "signal.sender.name": "gdb", "signal.sender.pid": 9, "signal.sender.relation": "debugger"}
	for name, tc := range map[string]struct {
		before, after map[string]any
		between       map[string]any
		kept          bool
	}{
		"stopped yet":            {with(own, signal), with(own, silent), nil, true},
		"its child is":           {with(child, signal), with(child, silent), nil, true},
		"it has sent since":      {with(own, signal), own, nil, false},
		"it has received since":  {with(own, signal), with(own, silent, map[string]any{"nccl.rank.last_received_age_ns": second}), nil, false},
		"it sleeps":              {with(own, signal), with(own, silent, map[string]any{"nccl.rank.state": "sleeping"}), nil, false},
		"it was seen to go on":   {with(own, signal), with(own, silent), with(silent, map[string]any{"nccl.rank.state": "sleeping", "nccl.rank.last_sent_age_ns": 9 * second}), false},
		"another child is":       {with(child, signal), with(child, silent, map[string]any{"nccl.rank.child_pid": 8}), nil, false},
		"a debugger held it":     {with(own, debugger), with(own, silent), nil, false},
		"another stopped it now": {with(own, signal), with(own, silent, signal, map[string]any{"signal.sender.name": "zsh"}), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := NewBook(DefaultLimits)
			first := record(t, Event, 1, 5*second, tc.before)
			b.Take(first, began+5*second)
			if tc.between != nil {
				b.Take(record(t, Event, 1, 10*second, tc.between), began+10*second)
			}
			r := record(t, Event, 1, 15*second, tc.after)
			b.Take(r, began+15*second)
			is := b.Job(r.Job).Processes[ProcessKey("node", 101)].Doing.Stopper
			require.Equal(t, tc.kept, is == first.Doing.Stopper && is != "", is)
		})
	}
}

// TestWhoWaitsForAProcessOfNoRank: that process alone is at the other end of the connection over which a rank asked last.
func TestWhoWaitsForAProcessOfNoRank(t *testing.T) {
	type asks struct { // over one connection, so many ms ago
		rank        int
		local, peer string
		of          int // rank at the other end, as the record says; -1 not known
		age         int64
		change      map[string]any
	}
	ring := []asks{
		{0, "10.0.0.1:40000", "10.0.0.2:50000", -1, 4100, nil}, {1, "10.0.0.2:50000", "10.0.0.1:40000", -1, 4100, nil},
		{1, "127.0.0.1:40001", "127.0.0.1:50001", 0, 4100, nil},
	}
	for name, tc := range map[string]struct {
		asks []asks
		who  []string
	}{
		"nobody does":                           {ring, nil},
		"at an address of its own":              {append(ring, asks{0, "10.0.0.1:41000", "10.0.0.9:42000", -1, 4050, nil}), []string{"0"}},
		"on the same host":                      {append(ring, asks{0, "127.0.0.1:41000", "127.0.0.1:42000", -1, 4050, nil}), []string{"0"}},
		"both":                                  {append(ring, asks{0, "10.0.0.1:41000", "10.0.0.9:42000", -1, 4050, nil}, asks{1, "10.0.0.2:41000", "10.0.0.9:42001", -1, 4050, nil}), []string{"0", "1"}},
		"it asked a rank as late":               {append(ring, asks{0, "10.0.0.1:41000", "10.0.0.9:42000", -1, 4104, nil}), []string{"0"}},
		"it asked a rank later":                 {append(ring, asks{0, "10.0.0.1:41000", "10.0.0.9:42000", -1, 9000, nil}), nil},
		"a rank is there":                       {append(ring, asks{0, "10.0.0.1:41000", "10.0.0.9:42000", 1, 4050, nil}), nil},
		"not by Gloo":                           {append(ring, asks{0, "10.0.0.1:41000", "10.0.0.9:42000", -1, 4050, map[string]any{"nccl.socket.kind": "nccl"}}), nil},
		"the path to it is cut":                 {append(ring, asks{0, "10.0.0.1:41000", "10.0.0.9:42000", -1, 4050, map[string]any{"nccl.socket.cause": "network"}}), nil},
		"of one rank nothing is known":          {append(ring[:1:1], asks{0, "10.0.0.1:41000", "10.0.0.9:42000", -1, 4050, nil}), nil},
		"a job of one rank":                     {[]asks{{0, "10.0.0.1:41000", "10.0.0.9:42000", -1, 4050, map[string]any{"gen_ai.training.world_size": 1}}}, nil},
		"how many ranks there are is not known": {append(ring, asks{0, "10.0.0.1:41000", "10.0.0.9:42000", -1, 4050, map[string]any{"gen_ai.training.world_size": 0}}), nil},
		"another port of a rank elsewhere":      {append(ring, asks{0, "10.0.0.1:41000", "10.0.0.3:42000", -1, 4050, nil}, asks{1, "10.0.0.3:43000", "10.0.0.1:44000", 0, 4100, map[string]any{"host.name": "other"}}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := NewBook(DefaultLimits)
			world := 2
			for i, one := range tc.asks {
				if one.change["gen_ai.training.world_size"] == 0 {
					world = 0
				}
				local, peer := netip.MustParseAddrPort(one.local), netip.MustParseAddrPort(one.peer)
				a := attributes(one.rank)
				for key, v := range map[string]any{
					"nccl.socket.kind": "gloo", "nccl.socket.stall.id": strconv.Itoa(i), "nccl.socket.last_sent_age_ns": one.age * 1_000_000, "nccl.rank.tick_ns": 4_000_000,
					"network.local.address": local.Addr().String(), "network.local.port": int(local.Port()), "network.peer.address": peer.Addr().String(), "network.peer.port": int(peer.Port()),
					"gen_ai.training.world_size": 2,
				} {
					require.NoError(t, a.PutEmpty(key).FromRaw(v))
				}
				if one.of >= 0 {
					a.PutInt("nccl.peer.rank", int64(one.of))
				}
				at := "node"
				for key, v := range one.change {
					if key == "host.name" {
						at = v.(string)
						continue
					}
					require.NoError(t, a.PutEmpty(key).FromRaw(v))
				}
				r, ok := Parse(Event, began, host(at), a)
				require.True(t, ok)
				b.Take(&r, began)
			}
			for j := range b.Jobs() {
				if world == 0 {
					j.World = 0
				}
				var who []string
				for key := range j.Outside(began) {
					who = append(who, strconv.Itoa(j.Processes[key].Rank))
				}
				slices.Sort(who)
				require.Equal(t, tc.who, who)
			}
		})
	}
}
