package stall

import "time"

// phases learns how long the silences of a job are that end by themselves. The
// longest before the job is in its stride is its start (compilation, loading)
// and does not count.
type phases struct {
	traffic int // snapshots in which data moved

	// While learning: the longest two silences, and the one being told now. All
	// ranks tell of the same silence, so what overlaps is one.
	longest, second, latest time.Duration
	latestEnd               time.Duration

	// Afterwards: the longest of this hour and of the one before.
	current, previous time.Duration
	turned            time.Duration
}

// known reports whether the phases of the job are learned.
func (p *phases) known(o *Options) bool { return p.traffic >= o.PhaseLearning }

// usual is the phase to expect.
func (p *phases) usual(o *Options) time.Duration {
	if !p.known(o) {
		return o.PhaseUnlearned
	}
	return max(p.current, p.previous)
}

// moved notes a snapshot in which data of the job moved.
func (p *phases) moved(now time.Duration, o *Options) {
	if p.traffic++; p.traffic == o.PhaseLearning {
		p.settle()
		p.current, p.turned = p.second, now
	}
	if now-p.turned > o.PhaseMemory {
		p.previous, p.current, p.turned = p.current, 0, now
	}
}

// silence notes a silence that ended by itself.
func (p *phases) silence(from, to time.Duration, o *Options) {
	if p.known(o) {
		p.current = max(p.current, to-from)
		return
	}
	if from >= p.latestEnd {
		p.settle()
	}
	p.latest, p.latestEnd = max(p.latest, to-from), max(p.latestEnd, to)
}

// settle sorts the silence told last among the longest two.
func (p *phases) settle() {
	switch {
	case p.latest > p.longest:
		p.longest, p.second = p.latest, p.longest
	case p.latest > p.second:
		p.second = p.latest
	}
	p.latest = 0
}
