package cudaoom

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

// host is what was read of the GPUs of one host lately.
type host struct {
	GPUs  map[string]*gpuMemory `json:"gpus"`
	Last  int64                 `json:"last"`
	Since int64                 `json:"since"` // time of the oldest reading since the last decision, 0 none

	held int // readings
}

// gpuMemory is the memory of one GPU: what was free and what processes held, each
// in order of time.
type gpuMemory struct {
	Free    []reading           `json:"free,omitempty"`
	Held    map[int64][]reading `json:"held,omitempty"` // by pid
	Divided int64               `json:"divided"`        // when it was last seen divided (MIG), 0 never
}

type reading struct {
	Time  int64 `json:"time"`
	Bytes int64 `json:"bytes"`
}

func (h *host) size() int {
	n := 0
	for _, g := range h.GPUs {
		n += 1 + len(g.Free)
		for _, held := range g.Held {
			n += len(held)
		}
	}
	return n
}

// read notes a data point, forgets what is older than keep, and returns how many
// readings there are more.
func (h *host) read(gpu string, r *rule.Record, keep int64) (more int, matters bool) {
	pid, ok := rule.Integer(r.Attributes, "process.pid")
	if r.Name == metricProcess && !ok {
		return 0, false
	}
	g := h.GPUs[gpu]
	if g == nil {
		g, more = &gpuMemory{Held: map[int64][]reading{}}, 1
		h.GPUs[gpu] = g
	}
	h.Last = max(h.Last, r.Time)
	if h.Since == 0 || r.Time < h.Since {
		h.Since = r.Time
	}
	one, before := reading{Time: r.Time, Bytes: int64(r.Number)}, r.Time-keep
	switch r.Name {
	case metricMIG:
		g.Divided = max(g.Divided, r.Time)
	case metricFree:
		more -= len(g.Free)
		g.Free = put(g.Free, one, before)
		more += len(g.Free) - g.forget(before)
	case metricProcess:
		more -= len(g.Held[pid])
		g.Held[pid] = put(g.Held[pid], one, before)
		more += len(g.Held[pid])
	}
	return more, true
}

// put notes a reading and drops those before a time; of two of one time the larger
// one counts.
func put(all []reading, one reading, before int64) []reading {
	at, there := slices.BinarySearchFunc(all, one, func(a, b reading) int { return cmp.Compare(a.Time, b.Time) })
	if there {
		all[at].Bytes = max(all[at].Bytes, one.Bytes)
	} else {
		all = slices.Insert(all, at, one)
	}
	return slices.DeleteFunc(all, func(r reading) bool { return r.Time < before })
}

// forget drops processes that were last seen before a time, and returns how many
// readings those were.
func (g *gpuMemory) forget(before int64) int {
	n := 0
	for pid, held := range g.Held {
		if held[len(held)-1].Time < before {
			n += len(held)
			delete(g.Held, pid)
		}
	}
	return n
}

// stretch is a stretch of time, both ends included, beside a refusal.
type stretch struct {
	from, to int64
	after    bool // the refusal is before it, else behind it
}

// nearest returns the reading in s that is nearest to the refusal.
func (s stretch) nearest(all []reading) (reading, bool) {
	if !s.after {
		for _, r := range slices.Backward(all) {
			if r.Time <= s.to {
				return r, r.Time >= s.from
			}
		}
		return reading{}, false
	}
	for _, r := range all {
		if r.Time >= s.from {
			return r, r.Time <= s.to
		}
	}
	return reading{}, false
}

// around is the part of s in which points of one reading are.
func (s stretch) around(at int64) stretch {
	if s.after {
		return stretch{max(at-together, s.from), min(at+together, s.to), true}
	}
	return stretch{at - together, min(at+together, s.to), false}
}

// figures are what the GPU of a refusal had free, and who held as much as was asked; nil
// where that is not known. A process that still holds its memory just after it was refused
// shows how it was; what was read before tells only of a GPU that was full already.
func (h *host) figures(f *refusal, l limits) map[string]any {
	if h == nil {
		return nil
	}
	after, before := stretch{f.Time + 1, f.Time + soon, true}, stretch{f.Time - l.oldest, f.Time, false}
	if name, holds := h.gpuOf(f, l, after); holds {
		figures := h.figuresOf(name, f, after)
		if !f.room(figures) || !h.gaveBack(f.PID, name, before, after) {
			return figures
		}
	}
	name, _ := h.gpuOf(f, l, before)
	if figures := h.figuresOf(name, f, before); !f.room(figures) {
		return figures
	}
	return nil // it has grown since
}

// room reports whether more was free than was asked.
func (f *refusal) room(figures map[string]any) bool {
	free, known := figures["cuda_oom.free_bytes"].(int64)
	return known && free >= f.Tried
}

// gaveBack reports whether a process held less of a GPU in one stretch of time than before.
func (h *host) gaveBack(pid int64, gpu string, before, after stretch) bool {
	held := h.GPUs[gpu].Held[pid]
	was, known := before.nearest(held)
	is, _ := after.nearest(held)
	return known && is.Bytes < was.Bytes
}

// figuresOf are those of a GPU, "" for none.
func (h *host) figuresOf(name string, f *refusal, s stretch) map[string]any {
	g := h.GPUs[name]
	if g == nil || g.Divided != 0 {
		return nil // what is free of a whole GPU says nothing of a part of it
	}
	free, known := s.nearest(g.Free)
	if !known {
		return nil
	}
	figures := map[string]any{"gpu.id": name, "cuda_oom.free_bytes": free.Bytes}
	if s.after {
		figures["cuda_oom.read_after_ms"] = (free.Time - f.Time) / millisecond
	} else {
		figures["cuda_oom.read_before_ms"] = (f.Time - free.Time) / millisecond
	}
	if own, ok := s.around(free.Time).nearest(g.Held[f.PID]); ok {
		figures["cuda_oom.own_bytes"] = own.Bytes
	}
	if pid, held := g.holder(f, s.around(free.Time)); free.Bytes < f.Tried && held >= f.Tried {
		figures["cuda_oom.holder_pid"], figures["cuda_oom.holder_bytes"] = pid, held
	}
	return figures
}

// gpuOf is the GPU on which the process holds its memory, and whether it holds any. It is ""
// where it holds memory of several: which of them refused is not said.
func (h *host) gpuOf(f *refusal, l limits, s stretch) (name string, holds bool) {
	var most, next int64
	for _, gpu := range slices.Sorted(maps.Keys(h.GPUs)) {
		held, known := s.nearest(h.GPUs[gpu].Held[f.PID])
		switch {
		case !known:
		case !holds || held.Bytes > most:
			name, holds, most, next = gpu, true, held.Bytes, most
		default:
			next = max(next, held.Bytes)
		}
	}
	if next > 0 && most/l.mostly < next {
		return "", holds
	}
	return name, holds
}

// holder is the other process that held the most at a reading.
func (g *gpuMemory) holder(f *refusal, s stretch) (pid, bytes int64) {
	for _, other := range slices.Sorted(maps.Keys(g.Held)) {
		held, known := s.nearest(g.Held[other])
		if known && other != f.PID && held.Bytes > bytes {
			pid, bytes = other, held.Bytes
		}
	}
	return pid, bytes
}
