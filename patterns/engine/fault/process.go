package fault

import (
	"github.com/tracecoreai/tracecore/patterns/engine/incident"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// process is the process that values are about, as far as they say.
func (r *Rule) process(values []string) incident.Process {
	return incident.Process{
		Host: r.get(values, "host"), PID: r.get(values, "pid"), Boot: r.get(values, "boot"), Started: r.get(values, "started"),
		Job: incident.Job{ID: r.get(values, "job"), Domain: r.domain(values)},
	}
}

// processes are those that a mark is about: its own, and those in its list of them, of which only host and
// pid are known.
func (r *Rule) processes(m *Mark) []incident.Process {
	all := []incident.Process{r.process(m.Values)}
	if at, ok := r.at[rule.FieldPIDs]; ok {
		for _, pid := range m.Members[at] {
			if pid != all[0].PID {
				all = append(all, incident.Process{Host: all[0].Host, PID: pid, Boot: all[0].Boot})
			}
		}
	}
	return all
}

// outlasts reports whether m, of another process, is no word that the process of f has ended: something
// that is trusted more begins f, or it is of an earlier process.
func (f *Fault) outlasts(m *Mark) bool {
	for i, w := range f.rule.Watches {
		for j := range f.marks[i] {
			if led := &f.marks[i][j]; w.join < 0 && (led.Trust > m.Trust || led.Trust == m.Trust && led.Last > m.Time) {
				return true
			}
		}
	}
	return false
}

// gone forgets f: by then its process had ended, for its pid is that of another.
func (f *Fault) gone(at int64) {
	if v := f.verdict; v != nil && v.resolved == 0 {
		f.resolve(max(at, f.touched), closed("ended", at, "its process had ended: its pid is that of another"))
	}
	f.drop()
}

// ofOneProcess reports whether a mark of w, which joins by the pid, can be about the process of
// f that has it: pids are used again.
func (w *Evidence) ofOneProcess(f *Fault, values []string) bool {
	if !w.OfProcess {
		return true
	}
	mine, _ := Tuple(values, w.Match)
	process, met := w.Rule.process(values), false
	for i, other := range f.rule.Watches {
		for j := range f.marks[i] {
			led := f.marks[i][j].Values
			if theirs, ok := Tuple(led, w.Match); !ok || other.join >= 0 || theirs != mine {
				continue
			}
			if met = true; process.Is(w.Rule.process(led)) {
				return true
			}
		}
	}
	return !met
}
