package engine

import (
	"container/list"
	"slices"
	"strconv"
)

// joinKey names the faults of s whose fields of one join set have these values.
func joinKey(s *ruleState, set int, tuple string) string {
	return strconv.Itoa(s.no) + "/" + strconv.Itoa(set) + "/" + tuple
}

// maxKeys bounds the entries of one fault in joins, and in linked.
const maxKeys = 256

// register makes inst findable by the join sets whose fields values has, and
// returns the recent marks that waited for it.
func (e *Engine) register(inst *instance, values []string) []*recentMark {
	var waiting []*recentMark
	for _, key := range e.index(inst, values) {
		marks := e.recent.by[key]
		for _, r := range marks[max(0, len(marks)-e.opts.FanOut):] {
			if r.until >= e.now { // others are only there because an older one stays longer
				waiting = append(waiting, r)
			}
		}
	}
	return waiting
}

// index enters inst into joins and returns the keys that are new.
func (e *Engine) index(inst *instance, values []string) []string {
	var fresh []string
	for set, positions := range inst.state.joins {
		t, ok := tuple(values, positions)
		if !ok {
			continue
		}
		key := joinKey(inst.state, set, t)
		if slices.Contains(inst.joinKeys, key) || len(inst.joinKeys) >= maxKeys {
			continue
		}
		inst.joinKeys = append(inst.joinKeys, key)
		e.joins[key] = e.limited(append(e.joins[key], inst))
		fresh = append(fresh, key)
	}
	return fresh
}

// limited keeps the newest of the faults that one record can join.
func (e *Engine) limited(faults []*instance) []*instance {
	if len(faults) <= e.opts.FanOut {
		return faults
	}
	e.stats.FanOutLimited++
	return slices.Delete(faults, 0, 1)
}

func (e *Engine) unjoin(inst *instance) {
	for _, key := range inst.joinKeys {
		left := slices.DeleteFunc(e.joins[key], func(o *instance) bool { return o == inst })
		if len(left) == 0 {
			delete(e.joins, key)
		} else {
			e.joins[key] = left
		}
	}
	inst.joinKeys = nil
}

// recents are marks of evidence that joins faults, kept while a fault that they
// belong to may still begin: its record may be late, or come after them.
type recents struct {
	by    map[string][]*recentMark // join key → marks, oldest first
	order list.List                // of *recentMark, in order of arrival
}

type recentMark struct {
	key   string
	w     *watch
	mark  mark
	until int64
}

func (r *recents) len() int { return r.order.Len() }

func (r *recents) add(e *Engine, key string, w *watch, m mark) {
	keep := int64(e.opts.Lateness)
	if !w.resolves && w.Follows == nil {
		keep += int64(w.state.rule.Within)
	}
	r.put(&recentMark{key: key, w: w, mark: m, until: max(m.Last, m.Heard) + keep})
	r.limit(e)
}

// giveBack keeps a mark that left its fault for as long as a record may be late:
// the finding that led to it may return.
func (r *recents) giveBack(e *Engine, w *watch, m mark) {
	t, ok := tuple(m.Values, w.match)
	key := joinKey(w.state, w.join, t)
	there := func(o *recentMark) bool { return o.until >= e.now && o.w == w && o.mark.same(&m) }
	if !ok || slices.ContainsFunc(r.by[key], there) {
		return
	}
	r.put(&recentMark{key: key, w: w, mark: m, until: e.now + int64(e.opts.Lateness)})
	r.limit(e)
}

// limit keeps the newest.
func (r *recents) limit(e *Engine) {
	if r.len() > e.opts.Recent {
		e.stats.EvictedRecent++
		r.removeOldest()
	}
}

func (r *recents) put(one *recentMark) {
	r.by[one.key] = append(r.by[one.key], one)
	r.order.PushBack(one)
}

func (r *recents) removeOldest() {
	front := r.order.Front()
	one := r.order.Remove(front).(*recentMark)
	left := r.by[one.key][1:] // of a key too, the oldest is the first
	if len(left) == 0 {
		delete(r.by, one.key)
	} else {
		r.by[one.key] = left
	}
}

// expire removes what no fault can need any more.
func (r *recents) expire(now int64) bool {
	removed := false
	for r.len() > 0 && r.order.Front().Value.(*recentMark).until < now {
		r.removeOldest()
		removed = true
	}
	return removed
}
