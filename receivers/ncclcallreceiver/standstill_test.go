package ncclcallreceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/ncclcall"
)

// seconds is a moment so many seconds after start.
func seconds(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }

// calling is a communicator that made so many collectives, the last then.
func calling(collectives uint64, last float64) ncclcall.Communicator {
	c := ncclcall.Communicator{
		PID: 42, Address: 1, Identity: ncclcall.Known, Hash: 7, Rank: 5, Size: 8, Collectives: collectives,
		Last: ncclcall.Call{Time: seconds(last), Operation: ncclcall.AllReduce, Root: -1},
	}
	c.Calls[ncclcall.AllReduce] = collectives
	return c
}

func scanAt(at float64, list ...ncclcall.Communicator) *ncclcall.Scan {
	return &ncclcall.Scan{Time: seconds(at), Communicators: list}
}

func TestStandstillIsToldOnceAndTakenBack(t *testing.T) {
	s := newStandstill(10*time.Second, time.Minute)
	require.Empty(t, s.look(scanAt(1, calling(5, 0.5))).changes)
	require.Empty(t, s.look(scanAt(10, calling(5, 0.5))).changes)
	l := s.look(scanAt(10.5, calling(5, 0.5)))
	require.Len(t, l.changes, 1)
	require.Equal(t, stopped, l.changes[0].what)
	require.Equal(t, 10*time.Second, l.changes[0].idle)
	require.Equal(t, seconds(10.5), l.changes[0].at)
	require.Empty(t, s.look(scanAt(60, calling(5, 0.5))).changes, "once")

	again := calling(7, 61.9)
	again.Recent = []ncclcall.Numbered{
		{Number: 4, Call: ncclcall.Call{Time: seconds(0.5).Add(20)}}, // the clocks are read anew by each scan
		{Number: 5, Call: ncclcall.Call{Time: seconds(61.5)}},
		{Number: 6, Call: ncclcall.Call{Time: seconds(61.9)}},
	}
	l = s.look(scanAt(62, again))
	require.Len(t, l.changes, 1)
	require.Equal(t, moving, l.changes[0].what)
	require.Equal(t, seconds(61.5), l.changes[0].at)
	require.Equal(t, 61*time.Second, l.changes[0].idle)
	require.Empty(t, s.look(scanAt(63, again)).changes)
}

// A process is silent once it uses none of its communicators. One that was never used does not count.
func TestWhoUsesNoCommunicatorIsSilent(t *testing.T) {
	s := newStandstill(10*time.Second, time.Minute)
	second := func(collectives uint64, last float64) ncclcall.Communicator {
		c := calling(collectives, last)
		c.Address = 2
		return c
	}
	unused := calling(0, 0)
	unused.Address = 3
	s.look(scanAt(1, calling(5, 0.5), second(3, 0.7), unused))
	require.Empty(t, s.silent())
	s.look(scanAt(12, calling(5, 0.5), second(9, 11.5), unused))
	require.Empty(t, s.silent(), "it uses the second")
	s.look(scanAt(22, calling(5, 0.5), second(9, 11.5), unused))
	require.Equal(t, map[uint32]time.Time{42: seconds(11.5)}, s.silent())
	s.look(scanAt(23, calling(6, 22.5), second(9, 11.5), unused))
	require.Empty(t, s.silent())
}

func TestCommunicatorThatStandsWhenFirstSeenIsTold(t *testing.T) {
	s := newStandstill(10*time.Second, time.Minute)
	require.Empty(t, s.look(scanAt(100, calling(5, 0))).changes, "it may be about to call")
	require.Len(t, s.look(scanAt(101, calling(5, 0))).changes, 1)
}

// What is traced no more stands, and means nothing.
func TestStandstillOfCallsThatAreNotTracedIsNotTold(t *testing.T) {
	for limit, told := range map[ncclcall.Limit][2]int{
		ncclcall.Unlimited: {1, 1}, ncclcall.NoPointToPoint: {1, 0}, ncclcall.NoCalls: {0, 0},
	} {
		sends := calling(0, 0)
		sends.Calls[ncclcall.Send] = 9
		for i, c := range []ncclcall.Communicator{calling(5, 0), sends} {
			s := newStandstill(time.Second, time.Minute)
			changes := 0
			for at := range 5 {
				scan := scanAt(float64(at), c)
				if limit > ncclcall.Unlimited {
					scan.Limited = map[uint32]ncclcall.Limit{c.PID: limit, 7: ncclcall.NoCalls}
				}
				l := s.look(scan)
				changes += len(l.changes)
				if at == 0 && limit > ncclcall.Unlimited {
					require.Equal(t, []limited{{7, ncclcall.NoCalls}, {c.PID, limit}}, l.limited)
				} else {
					require.Empty(t, l.limited)
				}
			}
			require.Equal(t, told[i], changes, "%s %d", limit, i)
		}
	}
}

// A process that calls too often hides itself: others are told.
func TestStandstillBesideALimitedProcessIsTold(t *testing.T) {
	s := newStandstill(time.Second, time.Minute)
	for at := range 3 {
		scan := scanAt(float64(at), calling(5, 0))
		scan.Limited = map[uint32]ncclcall.Limit{7: ncclcall.NoCalls}
		if l := s.look(scan); at == 2 {
			require.Empty(t, l.changes)
		} else if at == 1 {
			require.Len(t, l.changes, 1)
		}
	}
	l := s.look(scanAt(3, calling(5, 0)))
	require.Equal(t, []limited{{7, ncclcall.Unlimited}}, l.limited)
}

func TestLaunchesOfGraphsSinceTheLastCallAreTold(t *testing.T) {
	s := newStandstill(time.Second, time.Minute)
	scan := func(at float64, launches uint64) look {
		sc := scanAt(at, calling(5, 0))
		sc.Graphs = map[uint32]ncclcall.Launches{42: {Count: launches, Last: start.Add(-time.Second)}}
		return s.look(sc)
	}
	scan(0, 100)
	l := scan(5, 107)
	require.Len(t, l.changes, 1)
	require.EqualValues(t, 7, l.changes[0].launches)
}

// A group that ends launches what is in it, without another call: others may wait below the program now.
func TestTheEndOfAGroupIsTold(t *testing.T) {
	s := newStandstill(time.Second, time.Minute)
	scan := func(at float64, depth uint32) (depths []uint32) {
		c := calling(5, 0)
		c.GroupDepth = depth
		l := s.look(scanAt(at, c))
		for i := range l.changes {
			require.Equal(t, stopped, l.changes[i].what)
			depths = append(depths, l.changes[i].GroupDepth)
		}
		return depths
	}
	require.Empty(t, scan(0, 2))
	require.Equal(t, []uint32{2}, scan(5, 2))
	require.Empty(t, scan(6, 2))
	require.Empty(t, scan(7, 1), "nothing is launched yet")
	require.Equal(t, []uint32{0}, scan(8, 0))
	require.Empty(t, scan(9, 0))
}

// A step makes its calls and launches its graph between two scans, in this order or the other. Where the
// graph came last, the rank waits for it, and its collectives make no call.
func TestAGraphLaunchedInTheSecondOfTheLastCall(t *testing.T) {
	for name, tc := range map[string]struct {
		graph, launches []float64 // seconds of the last graph at each look; launches that are told
	}{
		"after the call":         {[]float64{0.8, 1.8, 1.8, 1.8}, []float64{1}},
		"before the call":        {[]float64{0.6, 1.6, 1.6, 1.6}, []float64{0}},
		"in the second after":    {[]float64{0.6, 1.6, 5, 5}, []float64{1}},
		"after it was told":      {[]float64{0.6, 1.6, 1.6, 15}, []float64{0, 1}},
		"and on, after that":     {[]float64{0.8, 1.8, 5, 15}, []float64{2}},
		"none was ever launched": {nil, []float64{0}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStandstill(time.Second, time.Minute)
			var told []float64
			count := uint64(100)
			before := 0.0
			for i, at := range []float64{1, 2, 10, 20} {
				sc := scanAt(at, calling([]uint64{6, 7, 7, 7}[i], []float64{0.7, 1.7, 1.7, 1.7}[i]))
				if tc.graph != nil {
					if tc.graph[i] != before {
						count++
					}
					before = tc.graph[i]
					sc.Graphs = map[uint32]ncclcall.Launches{42: {Count: count, Last: start.Add(time.Duration(before * float64(time.Second)))}}
				}
				for _, c := range s.look(sc).changes {
					if c.what == stopped {
						told = append(told, float64(c.launches))
					}
				}
			}
			require.Equal(t, tc.launches, told)
		})
	}
}

func TestCallsAreCountedOnce(t *testing.T) {
	s := newStandstill(time.Minute, time.Minute)
	sum := uint64(0)
	count := func(l look) { sum += l.calls[ncclcall.AllReduce] }
	count(s.look(scanAt(1, calling(5, 0))))
	count(s.look(scanAt(2, calling(8, 0))))
	require.EqualValues(t, 8, sum)
	end := ncclcall.Event{Kind: ncclcall.Destroy, PID: 42, Address: 1}
	end.Calls[ncclcall.AllReduce] = 10
	count(s.ended(&end))
	count(s.ended(&ncclcall.Event{Kind: ncclcall.Finalize, PID: 42, Address: 1, Calls: end.Calls}))
	require.EqualValues(t, 10, sum)
	count(s.look(scanAt(3, calling(1, 3))))
	require.EqualValues(t, 11, sum, "another communicator at its address")
	end.Address = 2
	count(s.ended(&end))
	require.EqualValues(t, 21, sum, "one that no scan saw")
	s.look(scanAt(4))
	require.Empty(t, s.known)
}

func TestCommunicatorsWithoutRankAreCounted(t *testing.T) {
	unread := calling(1, 0)
	unread.Identity, unread.Address = ncclcall.Unread, 2
	require.Equal(t, 1, newStandstill(time.Minute, time.Minute).look(scanAt(0, calling(1, 0), unread)).unknown)
}
