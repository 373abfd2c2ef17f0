package incidentview

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// mostHashes bounds the stacks whose frames are kept.
const mostHashes = 256

// StackKey names a stack: a hash is the word of a process, so it is told apart by the job and its
// domain. Nobody names the frames of another's stack.
type StackKey struct {
	Domain string `json:"domain,omitempty"`
	Job    string `json:"job,omitempty"`
	Hash   string `json:"hash,omitempty"`
}

// StackKeyOf is that of a record of a stack.
func StackKeyOf(attributes pcommon.Map) StackKey {
	return StackKey{
		Domain: text(word(attributes, "gen_ai.training.job_domain"), verdict.MaxTextBytes),
		Job:    text(JobOf(attributes), verdict.MaxTextBytes),
		Hash:   text(word(attributes, "process.stack.hash"), verdict.MaxNameBytes),
	}
}

func (k StackKey) compare(o StackKey) int {
	return cmp.Or(cmp.Compare(k.Hash, o.Hash), cmp.Compare(k.Job, o.Job), cmp.Compare(k.Domain, o.Domain))
}

// rankStack is where a rank stood, as it was last read while the incident lasted.
type rankStack struct {
	key          StackKey
	at           int64
	wait, thread string
	unread       string
}

// stack learns where a rank stands.
func (r *Records) stack(at int64, attributes pcommon.Map) {
	rank, err := strconv.Atoi(word(attributes, "gen_ai.training.rank"))
	key := StackKeyOf(attributes)
	if err != nil || rank < 0 || rank > verdict.MaxRank || at > r.about.to {
		return
	}
	if known, ok := r.stacks[rank]; ok && known.at > at || !ok && len(r.stacks) == mostRanks {
		return
	}
	r.frame(key, attributes)
	one := rankStack{key: key, at: at, wait: strings.ReplaceAll(word(attributes, "process.stack.wait_class"), "_", " ")}
	if state := word(attributes, "process.stack.state"); state != "" {
		one.thread = "main thread " + state
	}
	if key.Hash == "" {
		var why []string
		for _, unread := range members(attributes, "process.stack.unread") {
			why = append(why, text(unread.AsString(), verdict.MaxTextBytes))
		}
		one.unread = text(strings.Join(why, "; "), verdict.MaxTextBytes)
	}
	r.stacks[rank] = one
}

// frame learns the frames of a stack: they are told once for each hash of a job on its node.
func (r *Records) frame(key StackKey, attributes pcommon.Map) {
	frames, more := FramesOf(attributes)
	if _, known := r.frames[key]; len(frames) > 0 && (known || len(r.frames) < mostHashes) && len(frames) >= len(r.frames[key].list) {
		r.frames[key] = stackFrames{frames, more, hereOf(frames, attributes)}
	}
}

// Frames takes the frames of stacks that this incident has from records of any time.
func (r *Records) Frames(ld plog.Logs) {
	unnamed := r.Unnamed()
	for _, resource := range ld.ResourceLogs().All() {
		for _, scope := range resource.ScopeLogs().All() {
			for _, record := range scope.LogRecords().All() {
				key := StackKeyOf(record.Attributes())
				if record.EventName() == rule.EventStack && slices.Contains(unnamed, key) {
					r.frame(key, record.Attributes())
				}
			}
		}
	}
}

// stackFrames are the frames of all stacks with one hash.
type stackFrames struct {
	list []Frame
	more int // left out
	here int // as Stack.Here
}

// FramesOf are the frames of a record, innermost first: kernel, compiled code, Python; more
// is how many are left out.
func FramesOf(attributes pcommon.Map) (frames []Frame, more int) {
	add := func(f Frame) {
		if f.Function == "" {
			return
		}
		if len(frames) == mostFrames {
			more++
			return
		}
		frames = append(frames, f)
	}
	add(Frame{Kind: "kernel", Function: word(attributes, "process.stack.kernel_function"), Place: word(attributes, "process.stack.kernel_owner")})
	for _, native := range members(attributes, "process.stack.native") {
		function, place := text(native.AsString(), verdict.MaxTextBytes), ""
		if at := strings.LastIndex(function, " in "); at >= 0 {
			function, place = function[:at], function[at+len(" in "):]
		}
		add(Frame{Kind: "native", Function: function, Place: place})
	}
	for _, python := range members(attributes, "process.stack.frames") {
		if python.Type() != pcommon.ValueTypeMap {
			continue
		}
		file, line := word(python.Map(), "code.file.path"), word(python.Map(), "code.line.number")
		add(Frame{Kind: "python", Function: word(python.Map(), "code.function.name"), Place: strings.TrimSuffix(file[strings.LastIndexByte(file, '/')+1:]+":"+line, ":")})
	}
	return frames, more
}

func members(attributes pcommon.Map, key string) []pcommon.Value {
	value, ok := attributes.Get(key)
	if !ok || value.Type() != pcommon.ValueTypeSlice {
		return nil
	}
	var list []pcommon.Value
	for _, one := range value.Slice().All() {
		list = append(list, one)
	}
	return list
}

// hereOf finds the frame that is of no library, as the record names it.
func hereOf(frames []Frame, attributes pcommon.Map) int {
	function, line := word(attributes, "code.function.name"), word(attributes, "code.line.number")
	return 1 + slices.IndexFunc(frames, func(f Frame) bool {
		return function != "" && f.Function == function && strings.HasSuffix(f.Place, ":"+line)
	})
}

// groups are the ranks by where they stand: the smallest group first, since who differs is
// who is waited for, and next to it the largest.
func (r *Records) groups() (list []Stack, left int) {
	type key struct {
		StackKey
		unread string
	}
	ranks, first := map[key][]int{}, map[key]rankStack{}
	for _, rank := range slices.Sorted(maps.Keys(r.stacks)) {
		s := r.stacks[rank]
		k := key{s.key, s.unread}
		if known, ok := first[k]; !ok || s.at < known.at {
			first[k] = s
		}
		ranks[k] = append(ranks[k], rank)
	}
	for k, members := range ranks {
		s := first[k]
		frames := r.frames[k.StackKey]
		one := Stack{
			Ranks: RanksOf(members), At: time.Unix(0, s.at).UTC(), Wait: s.wait, Thread: s.thread,
			Frames: frames.list, More: frames.more, Here: frames.here, Unread: s.unread,
		}
		if len(one.Frames) == 0 && one.Unread == "" {
			one.Unread = "no frames came"
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b Stack) int {
		return cmp.Or(cmp.Compare(a.Unread, b.Unread), a.Ranks.Count-b.Ranks.Count, cmp.Compare(a.Ranks.Ranges, b.Ranks.Ranges))
	})
	read := slices.IndexFunc(list, func(s Stack) bool { return s.Unread != "" })
	if read < 0 {
		read = len(list)
	}
	if read > 2 { // the largest stands beside the smallest
		largest := list[read-1]
		list = slices.Insert(slices.Delete(list, read-1, read), 1, largest)
	}
	if read > 1 {
		list[0].Shared = shared(list[0].Frames, list[1].Frames)
		list[1].Shared = list[0].Shared
	}
	left = max(0, len(list)-mostStacks)
	return list[:len(list)-left], left
}

// shared is how many frames, from the outermost in, are the same.
func shared(a, b []Frame) int {
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}
