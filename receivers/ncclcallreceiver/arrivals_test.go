package ncclcallreceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/ncclcall"
)

// sampled is a communicator whose collectives up to that number were made one each 100 ms,
// and of which those from that number on are still kept.
func sampled(hash uint64, size int32, from, to uint64) ncclcall.Communicator {
	c := calling(to, float64(to)/10)
	c.Hash, c.Size, c.Exact = hash, size, true
	c.Address = hash
	for n := from; n < to; n++ {
		c.Samples = append(c.Samples, ncclcall.Sample{Number: n, Time: seconds(float64(n) / 10), Pause: 100 * time.Millisecond})
	}
	return c
}

func numbers(samples []ncclcall.Sample) (list []uint64) {
	for _, s := range samples {
		list = append(list, s.Number)
	}
	return list
}

func lookAt(a *arrivals, at float64, list ...ncclcall.Communicator) []change {
	return a.look(scanAt(at, list...), nil)
}

// A window ends at the same time on all hosts, whenever they scan, and each sample is told
// once.
func TestArrivalsAreToldOnceInAWindow(t *testing.T) {
	a := newArrivals(10 * time.Second)
	began := float64(10 - start.Unix()%10)
	require.Empty(t, lookAt(a, began+0.2, sampled(7, 8, 0, 3)), "nobody knows of what is before")
	require.Empty(t, lookAt(a, began+9.9, sampled(7, 8, 1, 5)))
	told := lookAt(a, began+10.1, sampled(7, 8, 4, 7))
	require.Len(t, told, 1)
	require.Equal(t, []uint64{0, 1, 2, 3, 4, 5, 6}, numbers(told[0].samples))
	require.Equal(t, arrival, told[0].what)
	require.Equal(t, uint32(42), told[0].pid)
	require.Empty(t, lookAt(a, began+20.1, sampled(7, 8, 4, 7)), "nothing new")
	told = lookAt(a, began+30.1, sampled(7, 8, 4, 9))
	require.Equal(t, []uint64{7, 8}, numbers(told[0].samples))
}

func TestRanksTellOfTheSameCalls(t *testing.T) {
	// One rank is scanned often and the other rarely; both keep what is rare.
	one, other := newArrivals(100*time.Second), newArrivals(100*time.Second)
	began := float64(100 - start.Unix()%100)
	lookAt(one, began+0.1)
	lookAt(other, began+0.1)
	for n := uint64(10); n < 400; n += 10 {
		lookAt(one, began+1, sampled(7, 8, n-10, n))
		if n%30 == 0 {
			lookAt(other, began+2, sampled(7, 8, n-30, n))
		}
	}
	x, y := lookAt(one, began+101, sampled(7, 8, 389, 390)), lookAt(other, began+101, sampled(7, 8, 360, 390))
	require.Len(t, x, 1)
	require.Equal(t, numbers(x[0].samples), numbers(y[0].samples))
	require.LessOrEqual(t, len(x[0].samples), mostArrivals)
	require.NotEmpty(t, x[0].samples)
}

func TestArrivalsOfWhichNobodyCouldCompareAnythingAreNotTold(t *testing.T) {
	began := float64(10 - start.Unix()%10)
	for name, edit := range map[string]func(*ncclcall.Communicator){
		"counted from some call on": func(c *ncclcall.Communicator) { c.Exact = false },
		"two ranks":                 func(c *ncclcall.Communicator) { c.Size = 2 },
		"of no hash":                func(c *ncclcall.Communicator) { c.Hash = 0 },
		"of no layout":              func(c *ncclcall.Communicator) { c.Identity = ncclcall.NoLayout },
	} {
		t.Run(name, func(t *testing.T) {
			a := newArrivals(10 * time.Second)
			c := sampled(7, 8, 0, 5)
			edit(&c)
			lookAt(a, began, c)
			require.Empty(t, lookAt(a, began+10.1, c))
		})
	}
	a := newArrivals(10 * time.Second)
	c := sampled(7, 8, 0, 5)
	lookAt(a, began)
	scan := scanAt(began+10.1, c)
	require.Empty(t, a.look(scan, map[*ncclcall.Communicator]bool{&scan.Communicators[0]: true}), "two of one hash")
}

// Of one process the communicators with most ranks are told, and on which it sends to
// single ranks.
func TestArrivalsOfAProcessAreBounded(t *testing.T) {
	a := newArrivals(10 * time.Second)
	began := float64(10 - start.Unix()%10)
	var list []ncclcall.Communicator
	for n := range uint64(20) {
		c := sampled(1+n, int32(4+n), 0, 5)
		c.Calls[ncclcall.Send] = 1
		list = append(list, c)
	}
	lookAt(a, began, list...)
	told := lookAt(a, began+10.1, list...)
	require.Len(t, told, mostComms)
	require.EqualValues(t, 23, told[0].Size)
	require.Len(t, told[0].peers, mostPeers)
	require.Empty(t, lookAt(a, began+11))
	require.Empty(t, a.known, "they are gone")
}

func TestLargeCommunicatorsTellLess(t *testing.T) {
	require.Equal(t, []int{12, 12, 8, 2}, []int{arrivalsOf(0), arrivalsOf(8), arrivalsOf(8192), arrivalsOf(1 << 20)})
}

func TestRhythmIsThePauseBetweenBursts(t *testing.T) {
	of := func(pauses ...int) time.Duration {
		var list []ncclcall.Sample
		for _, ms := range pauses {
			list = append(list, ncclcall.Sample{Pause: time.Duration(ms) * time.Millisecond})
		}
		return rhythm(list)
	}
	require.Zero(t, of())
	require.Equal(t, 900*time.Millisecond, of(900, 10, 10, 10, 10, 900, 10, 10, 10, 10))
	require.Equal(t, time.Second, of(1000, 1000, 1000, 1000, 2500), "one checkpoint")
	require.Equal(t, 100*time.Millisecond, of(100, 100, 100))
}
