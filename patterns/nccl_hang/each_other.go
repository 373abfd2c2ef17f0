package ncclhang

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// mostOfDetail is how long the text of all places is: the engine keeps as much of a field.
const mostOfDetail = 256

// mostPlaces is how many places a text names: ranks may claim as many as there are ranks.
const mostPlaces = 8

// callPlace is where some ranks wait for others: in the same call, at the same line as far as that is known.
type callPlace struct {
	ranks []int
	*stackPlace
}

// places are where the ranks wait, by the first rank of each.
func (s *ranksByStack) places(ranks []int) (all []callPlace) {
	type same struct{ call, where string }
	at := map[same]int{}
	for _, rank := range ranks {
		p := &s.of[rank].stack
		key := same{call: p.Call, where: p.Where}
		if _, known := at[key]; !known {
			at[key] = len(all)
			all = append(all, callPlace{stackPlace: p})
		}
		all[at[key]].ranks = append(all[at[key]].ranks, rank)
	}
	return all
}

// sendsOrReceives reports whether the thread is in a call between two ranks: send, irecv, recv_forward.
func (p *stackPlace) sendsOrReceives() bool {
	return strings.Contains(p.Call, "send") || strings.Contains(p.Call, "recv")
}

// eachOther are the ranks that wait for each other, where all wait in collectives and not for the same: the calls in which they wait are
// no common one, or sends and receives, in which each waits for another. Nil where that is not known, or calls show that a rank lacks one. The others wait for
// them: in a collective for those that are between two ranks. Where connections lead to a circle, for those in it.
// Of them those are odd that are in another call than most.
func (s *ranksByStack) eachOther(now int64) (circle, odd []int) {
	if !s.inCollectives() || s.run.lack() != "" {
		return nil, nil
	}
	var all, pairs []int
	in := map[string][]int{} // by call
	for rank, c := range s.of {
		all = append(all, rank)
		in[c.stack.Call] = append(in[c.stack.Call], rank)
		if c.stack.sendsOrReceives() {
			pairs = append(pairs, rank)
		}
	}
	untold := in[""]
	delete(in, "")
	switch {
	case len(in) < 2 && len(pairs) < len(all):
		return nil, nil
	case len(pairs) < 2 && untold != nil:
		return all, nil
	case len(pairs) < 2:
		return all, outvoted(in, all)
	}
	if circle := s.circle(now); len(circle) > 1 && !slices.ContainsFunc(circle, func(rank int) bool { return !among(pairs, rank) }) {
		return circle, nil
	}
	return pairs, nil
}

// patience is how long all ranks wait until that is told, counted from the last one that came. Who waits for each other is
// told soon, also in the first step of a job: no rank of it starts up, computes or loads any more.
func (s *ranksByStack) patience(eachOther bool) int64 {
	minute, hosts := int64(s.run.options.StuckWait), map[string]bool{}
	if !eachOther {
		return minute
	}
	for _, c := range s.of {
		if c.stack.connects() || !c.stack.sleepsForPeers() {
			return minute
		}
		hosts[c.host.Host] = true
	}
	if len(hosts) > 1 {
		return min(minute, movingSpeaksAfar)
	}
	return min(minute, movingSpeaks)
}

// connects reports whether the thread may be in a call that makes or ends a group: its ranks connect there, and a packet
// that is lost costs seconds (SYN comes again after 1, 3 and 7 s).
func (p *stackPlace) connects() bool {
	return p.Call == "" || slices.ContainsFunc([]string{"init", "group", "rendezvous", "shutdown"}, func(part string) bool { return strings.Contains(p.Call, part) })
}

// sleepsForPeers reports whether it sleeps in a lock of its own program or for a socket, as far as is known, and in no driver
// and no file system: those may answer late.
func (p *stackPlace) sleepsForPeers() bool {
	return p.Owner == "" || p.Owner == "futex" || p.Owner == "tcp"
}

// outvoted are the ranks in another call than most, as where dumps or calls tell of it: the others wait for them, and which
// of them is right is not known. Nil where no call has a majority, or where one may have left that of most already.
func outvoted(in map[string][]int, all []int) []int {
	for call, most := range in {
		if 2*len(most) > len(all) && !rooted(call) {
			return besides(all, most)
		}
	}
	return nil
}

// rooted reports whether a call is about one rank, the root. A rank leaves such a call as soon as its own part is done, and
// may wait in the next one for those that are still in it. No rank leaves another collective before all have entered it.
func rooted(call string) bool {
	switch name := call[strings.LastIndexByte(call, '.')+1:]; name {
	case "broadcast", "broadcast_object_list", "reduce", "gather", "gather_object", "scatter", "scatter_object_list":
		return true
	default:
		return false
	}
}

// among reports whether a rank is one of these, which are in order: there may be a hundred thousand of them.
func among(ranks []int, rank int) bool {
	_, found := slices.BinarySearch(ranks, rank)
	return found
}

// besides are these ranks, but for some.
func besides(ranks, some []int) []int {
	return slices.DeleteFunc(slices.Clone(ranks), func(rank int) bool { return among(some, rank) })
}

// circle are the ranks that wait for each other by their connections, nil where these do not tell of one alone. Gloo asks
// a rank before it sends or receives: whom a rank asked last it waits for (gloo/transport/tcp/unbound_buffer.cc).
func (s *ranksByStack) circle(now int64) (circle []int) {
	next := s.asked(now)
	walked := make([]int, len(next)) // in which walk, 0: in none
	for start := range next {
		at := start
		for at >= 0 && walked[at] == 0 {
			walked[at] = start + 1
			at = next[at]
		}
		if at < 0 || walked[at] != start+1 {
			continue
		}
		if circle != nil {
			return nil
		}
		circle = []int{at}
		for to := next[at]; to != at; to = next[to] {
			circle = append(circle, to)
		}
	}
	slices.Sort(circle)
	return circle
}

// asked is by rank to which other one it sent data last, -1 where that is not known.
func (s *ranksByStack) asked(now int64) []int {
	next, where := make([]int, len(s.of)), make(addresses)
	process := func(rank int) *socketstall.Process {
		if s.run.stalls == nil {
			return nil
		}
		return s.run.stalls.Processes[socketstall.ProcessKey(s.of[rank].host.Host, s.of[rank].host.PID)]
	}
	for rank := range next {
		if p := process(rank); p != nil {
			for _, one := range p.Stalls {
				where.enter(one.Local, rank)
			}
		}
	}
	for rank := range next {
		next[rank] = -1
		p := process(rank)
		if p == nil {
			continue
		}
		sent := map[int]int64{}
		for _, one := range p.Stalls {
			if to := where.peerOf(one); one.Kind == socketstall.Gloo && one.OpenAt(now) && one.Sent != 0 && to >= 0 && to < len(next) {
				sent[to] = max(sent[to], one.Sent)
			}
		}
		next[rank] = newest(sent, int64(socketstall.Tick(time.Duration(p.Tick))))
	}
	return next
}

// newest is the key of the newest time, -1 where another is not older by more than a tick.
func newest(times map[int]int64, tick int64) int {
	last := -1
	for key, at := range times {
		if last < 0 || at > times[last] {
			last = key
		}
	}
	for key, at := range times {
		if key != last && times[last]-at <= tick {
			return -1
		}
	}
	return last
}

// eachOtherText says who waits for whom, in which call and at which line. Those that are odd are not in the call of most.
func (s *ranksByStack) eachOtherText(circle, odd []int) string {
	first := circle
	if odd != nil {
		first = odd
	}
	others := besides(s.waits, first)
	say := func(callers int) string {
		switch {
		case odd != nil:
			return placesText(s.places(odd), plural(odd, " itself", " themselves"), callers) + "; " + placesText(s.places(others), plural(odd, " for it", " for them"), callers)
		case len(others) == 0:
			return verdict.All(len(circle), "ranks") + " wait for each other: " + placesText(s.places(circle), "", callers)
		}
		return subject(circle) + " wait for each other: " + placesText(s.places(circle), "", callers) + "; " + placesText(s.places(others), " for them", callers)
	}
	for callers := 3; callers > 0; callers-- {
		if text := say(callers); len(text) <= mostOfDetail {
			return text
		}
	}
	return say(0)
}

// placesText says which ranks wait where, with so many functions that called the one at the line.
func placesText(places []callPlace, whom string, callers int) string {
	var texts []string
	for _, p := range places[:min(len(places), mostPlaces)] {
		stack := strings.Split(p.Where, " < ")
		where := strings.Join(stack[:min(len(stack), 1+callers)], " < ")
		text := subject(p.ranks)
		if whom != "" {
			text += plural(p.ranks, " waits", " wait") + whom
		}
		if text += " in " + cmp.Or(p.Call, "a collective"); where != "" {
			text += " at " + where
		}
		texts = append(texts, text)
	}
	if more := len(places) - len(texts); more > 0 {
		texts = append(texts, "others at "+verdict.Number(more)+" more places")
	}
	return strings.Join(texts, ", ")
}
