package ncclsocketstall

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

// A rank that the kernel holds is named though others fell silent with it. That it was the first is
// said where the clocks can tell.
func TestNobodyIsSaidToBeFirstWhereTheClocksCannotTell(t *testing.T) {
	for name, tc := range map[string]struct {
		earlier int64
		words   string
	}{
		"at once":        {0, "rank 2 (python, pid 1002 on node-0) fell silent together with rank 1 (clocks agree to 4 ms)"},
		"well before":    {40e6, "rank 2 (python, pid 1002 on node-0) fell silent first, 40 ms before rank 1 (clocks agree to 4 ms)"},
		"a little after": {-1e6, "rank 2 (python, pid 1002 on node-0) fell silent together with rank 1 (clocks agree to 4 ms)"},
	} {
		t.Run(name, func(t *testing.T) {
			all := hung(itself("fsync", "rpc_wait_bit_killable", "disk_sleep"))
			for _, r := range all {
				silence := 4 * second
				if rule.Text(r.Attributes, "gen_ai.training.rank") == "2" {
					silence += tc.earlier
				}
				for _, key := range []string{"nccl.socket.stall.age_ns", "nccl.rank.last_sent_age_ns", "nccl.socket.last_sent_age_ns"} {
					r.Attributes.PutInt(key, silence)
				}
			}
			d := fresh()
			observe(d, all)
			findings := d.Decide(began + second)
			require.Len(t, findings, 1)
			require.Contains(t, findings[0].Attributes[attrShows], tc.words)
		})
	}
}

// ages is how long ago a rank last sent data and last received any, in milliseconds.
type ages struct{ sent, received int64 }

// stages are ranks that wait for each other: each for the one before and the one after, in a ring for the
// one before alone. So many of them are on one host, and the clock of the last host is ahead.
type stages struct {
	ages   []ages
	onHost int // 0: all
	ring   bool
	ahead  int64
	tick   int64 // of the kernels' clocks, 0 not known
	takes  []int // ranks that only receive
}

func (s *stages) records() []*rule.Record {
	var all []*rule.Record
	n, onHost := len(s.ages), cmp.Or(s.onHost, len(s.ages))
	for rank, is := range s.ages {
		wait := func(peer int, receive bool) {
			if !s.ring && (peer < 0 || peer >= n) {
				return
			}
			peer = (peer + n) % n
			r := idle(rank, peer, n, receive, is.sent*1e6)
			if rank/onHost == (n-1)/onHost {
				r.Time += s.ahead
			}
			r.Resource.PutStr("host.name", fmt.Sprintf("node-%d", rank/onHost))
			put(r, map[string]any{
				"nccl.rank.last_received_age_ns":   is.received * 1e6,
				"nccl.socket.last_received_age_ns": s.ages[peer].sent * 1e6,
				"network.local.address":            fmt.Sprintf("10.0.%d.1", rank/onHost),
				"network.peer.address":             fmt.Sprintf("10.0.%d.1", peer/onHost),
			})
			if s.tick != 0 {
				r.Attributes.PutInt("nccl.rank.tick_ns", s.tick)
			}
			if slices.Contains(s.takes, rank) {
				r.Attributes.Remove("nccl.rank.last_sent_age_ns")
			}
			all = append(all, r)
		}
		wait(rank-1, true)
		wait(rank+1, false)
		if !s.ring {
			wait(rank-1, false)
			wait(rank+1, true)
		}
	}
	return all
}

// The stage after the one that holds a pipeline up has often been silent for longer: it has asked for its
// data, and waits. The ages are those of real jobs of PyTorch with Gloo, unless the name says otherwise.
func TestTheStageThatOwesHoldsThePipelineUp(t *testing.T) {
	const (
		clocks = "a clear order: others fell silent within the error of the clocks"
		owed   = "data that it received and did not answer"
		tie    = "a clear order: the stacks of these ranks tell which of them is in no collective"
	)
	before := func(rank int) string { return fmt.Sprintf("a clear order: rank %d fell silent before it", rank) }
	for name, tc := range map[string]struct {
		stages
		culprit int    // -N: one of the last N+1, and nobody is named
		missing string // "": it is certain
	}{
		"send and receive, second stage":                                             {stages{ages: []ages{{1604, 1668}, {1668, 1604}, {1688, 1688}, {1708, 1708}}}, 1, before(3)},
		"send and receive, third stage":                                              {stages{ages: []ages{{1576, 1576}, {1480, 1480}, {1760, 1480}, {1780, 1780}}}, 2, before(3)},
		"send and receive, last stage":                                               {stages{ages: []ages{{1604, 1604}, {1604, 1604}, {1604, 1604}, {1760, 1604}}}, 3, ""},
		"receive posted ahead, first stage":                                          {stages{ages: []ages{{1748, 1620}, {1620, 1620}, {1636, 1636}, {1756, 1756}}}, 0, before(3)},
		"receive posted ahead, second stage":                                         {stages{ages: []ages{{1784, 1784}, {1896, 1784}, {1908, 1908}, {1928, 1928}}}, 1, before(3)},
		"receive posted ahead, last stage":                                           {stages{ages: []ages{{1896, 1896}, {1668, 1668}, {1320, 1320}, {1748, 1320}}}, 3, before(0)},
		"eight in flight, third stage":                                               {stages{ages: []ages{{2624, 2624}, {1680, 1680}, {1656, 1540}, {1548, 1548}}}, 2, before(0)},
		"GPipe, second stage":                                                        {stages{ages: []ages{{1648, 1648}, {1640, 1604}, {1704, 1700}, {1656, 1656}}}, 1, before(2)},
		"GPipe, first stage, three owe":                                              {stages{ages: []ages{{1764, 1752}, {1744, 1728}, {1728, 1720}, {1720, 1720}}}, 0, ""},
		"1F1B, third stage":                                                          {stages{ages: []ages{{1628, 1628}, {1644, 1628}, {1680, 1644}, {1684, 1684}}}, 2, clocks},
		"1F1B, second stage, two owe":                                                {stages{ages: []ages{{1656, 1656}, {1656, 1648}, {1648, 1636}, {1636, 1636}}}, 1, clocks},
		"two groups of two, three owe":                                               {stages{ages: []ages{{1760, 1004}, {1768, 1000}, {1004, 1004}, {1000, 1000}}}, 1, ""},
		"two groups of two, at once":                                                 {stages{ages: []ages{{1560, 1560}, {1544, 1544}, {1620, 1552}, {1624, 1552}}}, -1, tie},
		"sharded, all in one collective":                                             {stages{ages: []ages{{1676, 1676}, {1700, 1676}, {1676, 1676}}, ring: true}, 1, ""},
		"nobody owes":                                                                {stages{ages: []ages{{1972, 1972}, {1832, 1832}, {2276, 2276}, {1832, 1832}}}, 2, owed},
		"made up: a tick is no debt":                                                 {stages{ages: []ages{{1648, 1648}, {1640, 1604}, {1704, 1704}, {1696, 1696}, {1720, 1716}}}, 1, before(4)},
		"made up: a tick, and fell silent first":                                     {stages{ages: []ages{{1648, 1648}, {1640, 1640}, {1704, 1700}, {1656, 1656}}}, 2, owed},
		"made up: five stages, the fourth":                                           {stages{ages: []ages{{1500, 1500}, {1520, 1520}, {1540, 1540}, {1700, 1540}, {1800, 1800}}}, 3, before(4)},
		"made up: five stages, the first":                                            {stages{ages: []ages{{1800, 1500}, {1500, 1500}, {1520, 1520}, {1540, 1540}, {2100, 2100}}}, 0, before(4)},
		"made up: two hosts, the last of one":                                        {stages{ages: []ages{{1500, 1500}, {1700, 1500}, {1800, 1800}, {1820, 1820}}, onHost: 2}, 1, before(2)},
		"made up: two hosts, the first of one":                                       {stages{ages: []ages{{1500, 1500}, {1480, 1480}, {1700, 1480}, {1900, 1900}}, onHost: 2}, 2, before(3)},
		"made up: two hosts, their clocks cannot tell":                               {stages{ages: []ages{{1500, 1500}, {1514, 1514}, {1520, 1480}, {1500, 1500}}, onHost: 2}, 2, clocks},
		"made up: two hosts, nobody owes, and their clocks cannot tell":              {stages{ages: []ages{{1500, 1500}, {1560, 1560}, {1566, 1566}, {1568, 1568}}, onHost: 2}, -2, tie},
		"made up: two hosts, nobody owes, and their clocks tell":                     {stages{ages: []ages{{1500, 1500}, {1560, 1560}, {1500, 1500}, {1500, 1500}}, onHost: 2}, 1, owed},
		"made up: a tick of 10 ms is no debt":                                        {stages{ages: []ages{{1640, 1640}, {1680, 1680}, {1660, 1650}, {1640, 1640}}, tick: 10e6}, 1, owed},
		"made up: the same, and a tick of 4 ms":                                      {stages{ages: []ages{{1640, 1640}, {1680, 1680}, {1660, 1650}, {1640, 1640}}, tick: 4e6}, 2, before(1)},
		"made up: a tick of 10 ms, and who is first":                                 {stages{ages: []ages{{1600, 1600}, {1600, 1600}, {1640, 1640}, {1648, 1648}}, tick: 10e6}, -1, tie},
		"made up: two hosts, two ticks of 10 ms and the way":                         {stages{ages: []ages{{1600, 1600}, {1680, 1640}, {1664, 1664}, {1600, 1600}}, onHost: 2, tick: 10e6}, 1, clocks},
		"made up: the last stage sent once and only receives":                        {stages{ages: []ages{{1500, 1500}, {1700, 1500}, {1600, 1600}, {900000, 1520}}, takes: []int{3}}, 1, ""},
		"made up: two hosts, one clock 900 ms ahead":                                 {stages{ages: []ages{{1500, 1500}, {1540, 1500}, {1700, 1540}, {1720, 1720}}, onHost: 2, ahead: 900e6}, 2, before(3)},
		"made up: a ring on two hosts, and a debt at the end of the last collective": {stages{ages: []ages{{5000, 4980}, {4992, 4990}, {4984, 4980}, {4976, 4972}, {4968, 4964}, {5084, 5024}, {5016, 5012}, {5008, 5004}}, onHost: 4, ring: true, ahead: 900e6}, 5, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := fresh()
			observe(d, tc.records())
			findings := d.Decide(began + second)
			require.Len(t, findings, 1)
			a := findings[0].Attributes
			if tc.culprit < 0 {
				require.Equal(t, heldTied, a[attrHeld])
				require.Equal(t, numbers([]int{0, 1, 2, 3}[3+tc.culprit:]), a[attrTied])
			} else {
				require.EqualValues(t, tc.culprit, a["gen_ai.training.rank"], a[attrShows])
			}
			require.Equal(t, tc.missing == "", a[attrCertain], a[attrShows])
			missing, _ := a[attrMissing].(string)
			require.Equal(t, tc.missing, missing, a[attrShows])
		})
	}
}

// goesOn tells all of it again 8 s later. By then this rank is silent as usual, and rests for so long.
func (s *stages) goesOn(d *detector, who int, activity string, rest int64) {
	for _, r := range s.records() {
		r.Time += 8 * second
		for _, age := range []string{"nccl.socket.stall.age_ns", "nccl.rank.last_sent_age_ns", "nccl.rank.last_received_age_ns", "nccl.socket.last_sent_age_ns", "nccl.socket.last_received_age_ns"} {
			if v, has := r.Attributes.Get(age); has {
				v.SetInt(v.Int() + 8*second)
			}
		}
		if rule.Text(r.Attributes, "gen_ai.training.rank") == fmt.Sprint(who) {
			put(r, map[string]any{"nccl.rank.silence": "usual", "nccl.rank.activity": activity, "nccl.rank.rest_ns": rest})
		}
		d.Observe(r)
	}
}

// What was told of a rank that rested was so, and is over once it rests no more, though nothing has moved yet. One that its receiver
// judges otherwise by now, and that has done nothing since, was not what the others waited for.
func TestWhatWasToldOfARankIsOverOnceItRestsNoMore(t *testing.T) {
	for name, tc := range map[string]struct {
		activity string
		rest     int64
		event    string
		says     string
	}{
		"it works":                     {"computing", 0, eventEnd, " goes on: "},
		"it has acted since":           {"", second / 2, eventEnd, " goes on: it rests no more"},
		"it rests as long as it stood": {"idle", 9 * second, eventCulprit, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := stages{ages: []ages{{1676, 1676}, {1700, 1676}, {1676, 1676}}, ring: true}
			d := fresh()
			observe(d, s.records())
			findings := d.Decide(began + second)
			require.Len(t, findings, 1)
			require.EqualValues(t, 1, findings[0].Attributes["gen_ai.training.rank"])
			s.goesOn(d, 1, tc.activity, tc.rest)
			findings = d.Decide(began + 10*second)
			require.Len(t, findings, 1)
			require.Equal(t, tc.event, findings[0].Event)
			require.Equal(t, tc.event == eventCulprit, findings[0].Gone)
			if tc.says != "" {
				require.Contains(t, findings[0].Attributes[attrGoesOn], tc.says)
			}
		})
	}
}

// Of ranks that fell silent at once the others wait for one. Once one of them works again, what was told was so, and
// is over: it may be the one, or it gives up waiting.
func TestWhatWasToldOfTiedRanksIsOverOnceOneWorksAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		who      int
		activity string
		rest     int64
		over     bool
	}{
		"the first works":             {2, "computing", 0, true},
		"the second works":            {3, "computing", 0, true},
		"the first rests, as usual":   {2, "idle", 9 * second, false},
		"another, which waits, works": {1, "computing", 0, false},
		"another, which waits, acted": {1, "idle", 2 * second, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := stages{ages: []ages{{1560, 1560}, {1544, 1544}, {1620, 1552}, {1624, 1552}}}
			d := fresh()
			observe(d, s.records())
			findings := d.Decide(began + second)
			require.Len(t, findings, 1)
			require.Equal(t, heldTied, findings[0].Attributes[attrHeld])
			s.goesOn(d, tc.who, tc.activity, tc.rest)
			findings = d.Decide(began + 10*second)
			if !tc.over {
				require.Empty(t, findings)
				return
			}
			require.Len(t, findings, 1)
			require.Equal(t, eventEnd, findings[0].Event)
			require.Contains(t, findings[0].Attributes[attrGoesOn], fmt.Sprintf("rank %d (python, pid 100%d on node-0) goes on: ", tc.who, tc.who))
		})
	}
}
