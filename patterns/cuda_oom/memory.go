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

// last returns the newest reading in a stretch of time, both ends included.
func last(all []reading, from, to int64) (reading, bool) {
	for _, r := range slices.Backward(all) {
		if r.Time <= to {
			return r, r.Time >= from
		}
	}
	return reading{}, false
}

// figures are what the GPU of a refusal had free before it, and who held as much as
// was asked; nil where that is not known.
func (h *host) figures(f *refusal, l limits) map[string]any {
	if h == nil {
		return nil
	}
	name := h.gpuOf(f, l)
	if name == "" {
		return nil
	}
	g := h.GPUs[name]
	free, known := last(g.Free, f.Time-l.oldest, f.Time)
	if !known || g.Divided != 0 {
		return nil // what is free of a whole GPU says nothing of a part of it
	}
	figures := map[string]any{"gpu.id": name, "cuda_oom.free_bytes": free.Bytes}
	if own, ok := last(g.Held[f.PID], free.Time-together, min(free.Time+together, f.Time)); ok {
		figures["cuda_oom.own_bytes"] = own.Bytes
	}
	if pid, held := g.holder(f, free.Time); free.Bytes < f.Tried && held >= f.Tried {
		figures["cuda_oom.holder_pid"], figures["cuda_oom.holder_bytes"] = pid, held
	}
	return figures
}

// gpuOf is the GPU on which the process holds its memory, or "": a process can use
// several, and which of them refused is not said.
func (h *host) gpuOf(f *refusal, l limits) string {
	var name string
	var most, next int64
	for _, gpu := range slices.Sorted(maps.Keys(h.GPUs)) {
		held, known := last(h.GPUs[gpu].Held[f.PID], f.Time-l.oldest, f.Time)
		switch {
		case !known:
		case name == "" || held.Bytes > most:
			name, most, next = gpu, held.Bytes, most
		default:
			next = max(next, held.Bytes)
		}
	}
	if next > 0 && most/l.mostly < next {
		return ""
	}
	return name
}

// holder is the other process that held the most at a reading.
func (g *gpuMemory) holder(f *refusal, at int64) (pid, bytes int64) {
	for _, other := range slices.Sorted(maps.Keys(g.Held)) {
		held, known := last(g.Held[other], at-together, min(at+together, f.Time))
		if known && other != f.PID && held.Bytes > bytes {
			pid, bytes = other, held.Bytes
		}
	}
	return pid, bytes
}
