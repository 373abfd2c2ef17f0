package ncclcallreceiver

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/bpf/ncclcall"
)

// Bounds of what is told of arrivals.
const (
	// leastRanks is how many ranks a communicator has at least: of two nobody can say
	// which one is late.
	leastRanks = 3
	// mostComms are told of one process in one window, those of most ranks first: all
	// ranks choose alike.
	mostComms = 4
	// mostArrivals is how many one record has. Of a large communicator it has fewer, so
	// that its ranks together tell about mostOfAll.
	mostArrivals, leastArrivals, mostOfAll = 12, 2, 65_536
	// mostPeers are the communicators that are named in which a process sends and receives.
	mostPeers = 16
)

// arrivals collects when processes made the calls that every rank of a communicator
// samples. A window ends for all hosts at the same time of the clock.
type arrivals struct {
	every  time.Duration
	window int64
	known  map[key]*arrived
}

// arrived is what one rank of a communicator has sampled in this window.
type arrived struct {
	next    uint64 // number from which on samples are new
	level   int    // rarer than that are those that are kept
	samples []ncclcall.Sample
}

func newArrivals(every time.Duration) *arrivals {
	return &arrivals{every: every, known: map[key]*arrived{}}
}

// look takes the samples of a scan, and tells of the window that has ended.
func (a *arrivals) look(scan *ncclcall.Scan, twins map[*ncclcall.Communicator]bool) []change {
	window := scan.Time.UnixNano() / int64(a.every)
	over := a.window != 0 && window != a.window
	a.window = window
	there := make(map[key]bool, len(scan.Communicators))
	ended := map[uint32][]*ncclcall.Communicator{}
	for i := range scan.Communicators {
		c := &scan.Communicators[i]
		if !c.Exact || c.Identity != ncclcall.Known || c.Hash == 0 || c.Size < leastRanks || twins[c] {
			continue
		}
		k := key{c.PID, c.Address}
		there[k] = true
		if a.take(k, c); over && len(a.known[k].samples) > 0 {
			ended[c.PID] = append(ended[c.PID], c)
		}
	}
	maps.DeleteFunc(a.known, func(k key, _ *arrived) bool { return !there[k] })
	if !over {
		return nil
	}
	told := a.tell(scan, ended)
	for _, one := range a.known {
		one.samples, one.level = nil, 0
	}
	return told
}

// take adds the samples that are new.
func (a *arrivals) take(k key, c *ncclcall.Communicator) {
	one := a.known[k]
	if one == nil || one.next > c.Collectives { // another one at the same address
		one = &arrived{}
		a.known[k] = one
	}
	for _, s := range c.Samples {
		if s.Number < one.next {
			continue
		}
		one.next = s.Number + 1
		if s.Level() >= one.level {
			one.samples = append(one.samples, s)
		}
	}
	one.thin(arrivalsOf(c.Size))
}

// tell makes a record of each of the communicators that a process shares with most ranks.
func (a *arrivals) tell(scan *ncclcall.Scan, ended map[uint32][]*ncclcall.Communicator) (changes []change) {
	peers := peersOf(scan)
	for _, pid := range slices.Sorted(maps.Keys(ended)) {
		list := ended[pid]
		slices.SortFunc(list, func(x, y *ncclcall.Communicator) int {
			return cmp.Or(cmp.Compare(y.Size, x.Size), cmp.Compare(x.Hash, y.Hash))
		})
		for _, c := range list[:min(len(list), mostComms)] {
			changes = append(changes, change{
				Communicator: c, what: arrival, pid: pid, at: scan.Time, samples: a.known[key{pid, c.Address}].samples, peers: peers[pid],
			})
		}
	}
	return changes
}

// peersOf are the communicators on which each process sends and receives: their ranks need
// not do the same.
func peersOf(scan *ncclcall.Scan) map[uint32][]uint64 {
	peers := map[uint32][]uint64{}
	for i := range scan.Communicators {
		c := &scan.Communicators[i]
		if c.Hash != 0 && c.PointToPoint() > 0 {
			peers[c.PID] = append(peers[c.PID], c.Hash)
		}
	}
	for pid, list := range peers {
		slices.Sort(list)
		peers[pid] = list[:min(len(list), mostPeers)]
	}
	return peers
}

// arrivalsOf is how many a record has of a communicator of that size.
func arrivalsOf(size int32) int {
	return min(max(mostOfAll/int(max(size, 1)), leastArrivals), mostArrivals)
}

// thin leaves at most so many samples: the rarer ones by their numbers, so that each rank
// leaves the same.
func (a *arrived) thin(most int) {
	for len(a.samples) > most && a.level < 32 {
		a.level++
		a.samples = slices.DeleteFunc(a.samples, func(s ncclcall.Sample) bool { return s.Level() < a.level })
	}
}

// rhythm is the pause in which most of the time goes by: half of it is in pauses at least
// as long. Of bursts of calls it is the time between the bursts.
func rhythm(samples []ncclcall.Sample) time.Duration {
	pauses, all := make([]time.Duration, 0, len(samples)), time.Duration(0)
	for i := range samples {
		pauses, all = append(pauses, samples[i].Pause), all+samples[i].Pause
	}
	slices.SortFunc(pauses, func(x, y time.Duration) int { return cmp.Compare(y, x) })
	sum := time.Duration(0)
	for _, pause := range pauses {
		if sum += pause; 2*sum >= all {
			return pause
		}
	}
	return 0
}
