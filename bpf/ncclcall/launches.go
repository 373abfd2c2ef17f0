package ncclcall

// NCCL counts the launches of a communicator itself (struct ncclComm, opCount; from 2.18 to
// 2.30 one more for each plan that ncclProxyStart hands on, src/proxy.cc). So ranks whose
// calls were counted from some call on can be compared all the same. Where that counter
// stands, each release says differently and the library nowhere: it is the word that has
// grown by one with each call, time and again.

// agreements is how many times a word must have grown by as much as the calls, until it is
// the counter; a word that is something else does so once by chance.
const agreements = 4

// launches learns which word of a communicator counts its launches.
type launches struct {
	slot       uint32   // of its library
	number     uint64   // of the call at whose begin the last window was read
	window     []uint64 // the last
	candidates []int    // words that have grown with the calls so far
	agreed     int
}

// learn takes the window at the begin of a call, and returns how many launches there were
// before the first call that was counted; ok is false where no word is known to tell.
func (l *launches) learn(number uint64, window []uint64) (before uint64, ok bool) {
	switch {
	case l.window == nil || number < l.number:
		l.begin(number, window)
		return 0, false
	case number > l.number:
		l.compare(number, window)
	}
	if l.agreed < agreements {
		return 0, false
	}
	return l.window[l.candidates[0]] - l.number, true // of two the first: opCount stands in front
}

func (l *launches) begin(number uint64, window []uint64) {
	l.number, l.window, l.agreed, l.candidates = number, window, 0, l.candidates[:0]
	for i, word := range window {
		if word >= number && word < 1<<48 { // no pointer has so little, and none is at once a count
			l.candidates = append(l.candidates, i)
		}
	}
}

func (l *launches) compare(number uint64, window []uint64) {
	var left []int
	for _, i := range l.candidates {
		if window[i]-l.window[i] == number-l.number {
			left = append(left, i)
		}
	}
	if len(left) == 0 { // several calls in one launch, or launches without a call
		l.begin(number, window)
		return
	}
	l.candidates, l.number, l.window = left, number, window
	l.agreed++
}
