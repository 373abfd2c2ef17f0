//go:build linux && (amd64 || arm64)

package identity

// A process that handles the signal by which it is asked to end lives on, and saves. What is said of its
// job meanwhile has to know that: its end, which tells of the signal, comes only later.

var _ Asks = (*Tracker)(nil)

// Asked implements Asks. Each is told once the others have had the time to be asked, too.
func (t *Tracker) Asked() []Asked { return t.askedBefore(bootNow()) }

func (t *Tracker) askedBefore(now uint64) []Asked {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var found []Asked
	byJob := map[jobKey][]*record{}
	t.table.queues[livingRank].Each(func(r *record) {
		if a, is := t.askedSince(r, now); is {
			found = append(found, a)
			byJob[r.job()] = nil
		}
	})
	if found == nil {
		return nil
	}
	t.gather(byJob)
	for i := range found {
		a := &found[i]
		a.Others = t.others(&Exit{Process: a.Process, Time: wall(now), Signalled: a.Signal}, byJob[a.job()])
	}
	return found
}

// askedSince is the signal by which others have asked a rank that lives to end, a while ago and not for too long.
func (t *Tracker) askedSince(r *record, now uint64) (Asked, bool) {
	if !r.Leads() {
		return Asked{}, false
	}
	s := t.source.signalsTo(r.PID, r.startNS)
	if s == nil {
		return Asked{}, false
	}
	switch s.asked.signal {
	case sigHUP, sigINT, sigQUIT, sigUSR1, sigUSR2, sigTERM:
	default: // it ends of that
		return Asked{}, false
	}
	if at := s.asked.timeNS; at+uint64(asking) > now || at+uint64(stopping) < now {
		return Asked{}, false
	}
	by, of := t.first(r, &s.asked.sent)
	signal := t.signalTo(by, of, false)
	signal.Number, signal.Code, signal.Time = int(s.asked.signal), int(s.asked.code), wall(s.asked.timeNS)
	return Asked{Process: r.Process, Signal: signal}, true
}
