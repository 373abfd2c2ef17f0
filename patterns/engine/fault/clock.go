package fault

import (
	"fmt"
	"slices"
	"time"
)

// mostClocks bounds the machines with a wrong clock that are known.
const mostClocks = 1 << 14

// Corrected notes what was added to the times of a machine, since its clock is behind; below zero it is
// ahead, and 0 says that it is right.
func (s *Set) Corrected(host string, by time.Duration) {
	switch _, known := s.clocks[host]; {
	case by == 0:
		delete(s.clocks, host)
	case known || len(s.clocks) < mostClocks:
		s.clocks[host] = by
	}
}

// Corrects reports whether the times of any machine are corrected.
func (s *Set) Corrects() bool { return len(s.clocks) > 0 }

// corrected says of which machines of the fault the times are corrected, and by how much.
func (f *Fault) corrected() (texts []string) {
	for host, by := range f.set.clocks {
		if f.on(host) {
			way := "behind"
			if by < 0 {
				way = "ahead"
			}
			texts = append(texts, fmt.Sprintf("the exact times of %s: its clock is %s %s, and they are corrected by that", host, by.Abs(), way))
		}
	}
	slices.Sort(texts)
	return texts
}
