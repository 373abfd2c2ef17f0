package flightrecorder

import "fmt"

// fromPickle reads the object of a pickle as a dump. It follows the shape of a
// dump and nothing else: an object that contains itself costs nothing.
func fromPickle(root value, limits Limits) (*Dump, error) {
	if root.kind != dict {
		return nil, fmt.Errorf("%w: its object is no dictionary", ErrNotADump)
	}
	d := &Dump{Rank: Unknown}
	var entries value
	root.each(func(key string, v value) {
		switch key {
		case "version":
			d.Version = v.text
		case "nccl_version", "comm_lib_version":
			d.Library = v.text
		case "host_name":
			d.Host = v.text
		case "rank":
			d.Rank = v.rank()
		case "pg_config":
			d.Groups = v.configs()
		case "pg_status":
			d.Status = v.statuses()
		case "entries":
			entries = v
		}
	})
	// A dump made with includeCollectives=false has none.
	return d, d.takeEntries(newest(entries.elements(), limits.Entries), limits.Values)
}

// newest leaves out the oldest entries beyond a limit; a dump has them in the
// order of their making.
func newest[T any](entries []T, limit int) []T {
	return entries[max(0, len(entries)-limit):]
}

func (d *Dump) takeEntries(entries []value, budget int) error {
	d.Entries = make([]Entry, len(entries))
	for i, v := range entries {
		if v.kind != dict {
			return fmt.Errorf("%w: entry %d is no dictionary", ErrNotADump, i)
		}
		if budget -= v.entry(&d.Entries[i]); budget < 0 {
			return fmt.Errorf("%w: sizes and stacks beyond max_values", ErrTooLarge)
		}
	}
	return nil
}

// each gives the text keys of a dictionary in order.
func (v value) each(fn func(key string, v value)) {
	if v.kind != dict {
		return
	}
	items := *v.items
	for i := 0; i+1 < len(items); i += 2 {
		if items[i].kind == text {
			fn(items[i].text, items[i+1])
		}
	}
}

// int returns an integer, and 0 for None and anything else.
func (v value) int() int64 {
	if v.kind == integer {
		return v.number
	}
	return 0
}

func (v value) rank() int {
	if v.kind != integer || v.number < 0 || v.number > MaxRank {
		return Unknown
	}
	return int(v.number)
}

func (v value) elements() []value {
	if v.kind != list {
		return nil
	}
	return *v.items
}

func (v value) configs() map[string]GroupConfig {
	groups := map[string]GroupConfig{}
	v.each(func(name string, v value) {
		var g GroupConfig
		v.each(func(key string, v value) {
			switch key {
			case "name":
				g.Name = v.text
			case "desc":
				g.Desc = v.text
			case "ranks":
				g.Ranks = ParseRanks(v.text)
			}
		})
		groups[name] = g
	})
	return groups
}

func (v value) statuses() map[string]GroupStatus {
	statuses := map[string]GroupStatus{}
	v.each(func(name string, v value) {
		s := GroupStatus{Unknown, Unknown, Unknown}
		v.each(func(key string, v value) {
			switch key {
			case "last_enqueued_collective":
				s.LastEnqueued = v.int()
			case "last_started_collective":
				s.LastStarted = v.int()
			case "last_completed_collective":
				s.LastCompleted = v.int()
			}
		})
		statuses[name] = s
	})
	return statuses
}

// entry fills e and returns how many values its lists took: the same list can
// stand in a pickle any number of times.
func (v value) entry(e *Entry) (cost int) {
	v.each(func(key string, v value) {
		switch key {
		case "record_id":
			e.RecordID = v.int()
		case "pg_id":
			e.PGID = v.int()
		case "process_group":
			e.Group, e.Desc = v.group()
		case "collective_seq_id", "seq_id": // seq_id: 2.0
			e.CollectiveSeq = v.int()
		case "p2p_seq_id":
			e.P2PSeq = v.int()
		case "op_id":
			e.OpID = v.int()
		case "profiling_name":
			e.Name = v.text
		case "state":
			e.State = v.text
		case "retired":
			e.Retired = v.kind == boolean && v.number != 0
		case "is_p2p":
			e.IsP2P = v.kind == boolean && v.number != 0
		case "timeout_ms":
			e.TimeoutMS = v.int()
		case "time_created_ns":
			e.CreatedNS = v.int()
		case "time_discovered_started_ns":
			e.StartedNS = v.int()
		case "time_discovered_completed_ns":
			e.CompletedNS = v.int()
		default:
			cost += v.lists(key, e)
		}
	})
	return cost
}

func (v value) lists(key string, e *Entry) (cost int) {
	switch key {
	case "input_sizes":
		e.InputSizes, cost = v.sizes()
	case "output_sizes":
		e.OutputSizes, cost = v.sizes()
	case "input_dtypes":
		e.InputDtypes = v.texts()
		cost = len(e.InputDtypes)
	case "output_dtypes":
		e.OutputDtypes = v.texts()
		cost = len(e.OutputDtypes)
	case "frames":
		e.Frames = v.frames()
		cost = len(e.Frames)
	}
	return cost
}

// group reads (name, desc); 2.0 had the description alone as a text.
func (v value) group() (name, desc string) {
	if v.kind == text {
		return v.text, ""
	}
	parts := v.elements()
	if len(parts) > 0 {
		name = parts[0].text
	}
	if len(parts) > 1 {
		desc = parts[1].text
	}
	return name, desc
}

func (v value) sizes() (sizes [][]int64, cost int) {
	tensors := v.elements()
	if len(tensors) > maxTensors {
		tensors = tensors[:maxTensors]
	}
	sizes = make([][]int64, len(tensors))
	for i, t := range tensors {
		dims := t.elements()
		if len(dims) > maxDims {
			dims = dims[:maxDims]
		}
		sizes[i] = make([]int64, len(dims))
		for j, d := range dims {
			sizes[i][j] = d.int()
		}
		cost += 1 + len(dims)
	}
	return sizes, cost
}

func (v value) texts() []string {
	items := v.elements()
	if len(items) > maxTensors {
		items = items[:maxTensors]
	}
	texts := make([]string, len(items))
	for i, item := range items {
		texts[i] = item.text
	}
	return texts
}

func (v value) frames() []Frame {
	items := v.elements()
	if len(items) > maxStack {
		items = items[:maxStack]
	}
	frames := make([]Frame, len(items))
	for i, item := range items {
		item.each(func(key string, v value) {
			switch key {
			case "name":
				frames[i].Name = v.text
			case "filename":
				frames[i].File = v.text
			case "line":
				frames[i].Line = v.int()
			}
		})
	}
	return frames
}

// What is kept of one entry. A coalesced operation has a tensor per parameter of
// a bucket, a stack as many frames as the program is deep.
const (
	maxTensors = 4096
	maxDims    = 32
	maxStack   = 64
)
