package flightrecorder

import (
	"slices"
	"strconv"
	"strings"
)

// Bounds of what is kept of a group.
const (
	// MaxOperations are the unfinished collectives that travel with their
	// details, and as many point-to-point operations: the earliest, since the
	// later ones wait behind them.
	MaxOperations = 16
	// MaxHistory are the collectives whose hash travels: twice the default of
	// TORCH_FR_BUFFER_SIZE (2000).
	MaxHistory = 4096
	// MaxSignatures are the distinct collectives that travel in words. A training
	// step repeats a few.
	MaxSignatures = 64
	// MaxGroups are the process groups of a dump; a rank is in some ten.
	MaxGroups = 1024
)

// Group is what a join across ranks needs of one process group of one dump.
type Group struct {
	Name    string // as pg_config and the entries call it: "0", "1" or a hash
	Desc    string // "default_pg", or as the program calls it
	Backend string
	// Ranks are the members that pg_config names, nil where it names none.
	// Gloo's pg_config may be that of another group: compare with the entries.
	Ranks   []int
	Status  GroupStatus
	Entries int // in the dump

	Unfinished      []Operated // the earliest, at most MaxOperations of each kind
	UnfinishedTotal int
	LastFinished    *Operated // the last collective that is over

	// History has the hash of the signature of each collective in the dump, the
	// first at sequence number HistoryFirst; 0 where none was recorded.
	History      []uint32
	HistoryFirst int64
	Signatures   []string
	NewestNS     int64 // when the rank last entered or finished something in the group
}

// Operated is an entry whose state is settled.
type Operated struct {
	*Entry
	Done bool
}

// Front returns the collective the rank waits in, else the last it finished;
// nil where the group has had none.
func (g *Group) Front() *Operated {
	for i := range g.Unfinished {
		if !g.Unfinished[i].IsP2P {
			return &g.Unfinished[i]
		}
	}
	return g.LastFinished
}

// defaultGroup is how the entries call the group of all ranks; Gloo's pg_config
// has it under "".
const defaultGroup, defaultDesc = "0", "default_pg"

// Condense condenses a dump, in order of first appearance.
func (d *Dump) Condense() []Group {
	byKey := map[[2]string]*collector{}
	var order []*collector
	for i := range d.Entries {
		e := &d.Entries[i]
		key := [2]string{e.Group, e.Desc}
		c := byKey[key]
		if c == nil {
			if len(order) == MaxGroups {
				continue
			}
			c = &collector{}
			byKey[key] = c
			order = append(order, c)
		}
		c.entries = append(c.entries, Operated{Entry: e, Done: e.Finished()})
	}
	groups := make([]Group, 0, len(order))
	for _, c := range order {
		groups = append(groups, d.condense(c))
	}
	return d.withSilent(groups)
}

// withSilent adds the groups that pg_config names and no entry does: this rank
// has entered nothing there. A dump that names no group at all has one without a
// name: the rank has spoken.
func (d *Dump) withSilent(groups []Group) []Group {
	names := make([]string, 0, len(d.Groups))
	for name := range d.Groups {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		seen := slices.ContainsFunc(groups, func(g Group) bool { return g.Name == name })
		if seen || len(groups) == MaxGroups || (name == "" && len(groups) > 0) {
			continue
		}
		g := Group{Name: name, Desc: d.Groups[name].Desc, Ranks: d.Groups[name].Ranks, Status: GroupStatus{Unknown, Unknown, Unknown}}
		if name == "" {
			g.Name, g.Desc = defaultGroup, defaultDesc
		}
		groups = append(groups, g)
	}
	if len(groups) == 0 {
		groups = append(groups, Group{Status: GroupStatus{Unknown, Unknown, Unknown}})
	}
	return groups
}

// collector gathers the entries of one group.
type collector struct{ entries []Operated }

func (d *Dump) condense(c *collector) Group {
	c.settle()
	first := c.entries[0]
	g := Group{
		Name: first.Group, Desc: first.Desc, Backend: ParseOperation(first.Name).Backend, Entries: len(c.entries),
		Ranks: d.ranksOf(first.Group, first.Desc), Status: GroupStatus{Unknown, Unknown, Unknown},
	}
	if status, found := d.Status[strconv.FormatInt(first.PGID, 10)]; found {
		g.Status = status // its keys are the ids of the entries, not the names
	}
	g.takeUnfinished(c.entries)
	g.takeHistory(c.entries)
	for _, e := range c.entries {
		g.NewestNS = max(g.NewestNS, e.lastSignNS())
	}
	return g
}

// lastSignNS is when the rank is known to have done something. Start and end are
// discovered, not timed: what nobody has retired yet may have been discovered by
// the making of the dump itself (FlightRecorder::dump_entries), and that is no sign
// of life of a rank that has waited for an hour.
func (e *Entry) lastSignNS() int64 {
	if !e.Retired {
		return e.CreatedNS
	}
	return max(e.CreatedNS, e.StartedNS, e.CompletedNS)
}

func (d *Dump) ranksOf(name, desc string) []int {
	if config, found := d.Groups[name]; found {
		return config.Ranks
	}
	if name == defaultGroup || desc == defaultDesc {
		return d.Groups[""].Ranks
	}
	return nil
}

// settle gives the members of a coalesced operation the state of the entry that
// ends it: they have no events of their own and are never retired. A coalesced
// operation of sends and receives is point to point itself.
func (c *collector) settle() {
	var end *Operated
	for i := len(c.entries) - 1; i >= 0; i-- {
		e := &c.entries[i]
		op := ParseOperation(e.Name)
		switch {
		case op.coalesces():
			end = e
		case end == nil:
		case e.IsP2P && (e.P2PSeq == end.P2PSeq || e.P2PSeq == end.CollectiveSeq):
			e.Done = e.Done || end.Done
			end.Entry = asP2P(end.Entry)
		case !e.IsP2P && e.CollectiveSeq == end.CollectiveSeq:
			e.Done = e.Done || end.Done
		default:
			end = nil
		}
	}
}

func asP2P(e *Entry) *Entry {
	if e.IsP2P {
		return e
	}
	marked := *e
	marked.IsP2P = true
	return &marked
}

// takeUnfinished keeps the earliest operations that are not over and the last
// collective that is.
func (g *Group) takeUnfinished(entries []Operated) {
	var collectives, p2p int
	for i := range entries {
		e := entries[i]
		if e.Done {
			if !e.IsP2P && (g.LastFinished == nil || e.CollectiveSeq >= g.LastFinished.CollectiveSeq) {
				g.LastFinished = &entries[i]
			}
			continue
		}
		if e.IsP2P && ParseOperation(e.Name).coalesces() {
			continue // its members tell who waits for whom
		}
		g.UnfinishedTotal++
		kind := &collectives
		if e.IsP2P {
			kind = &p2p
		}
		if *kind++; *kind <= MaxOperations {
			g.Unfinished = append(g.Unfinished, e)
		}
	}
}

// takeHistory keeps the hashes of the newest collectives.
func (g *Group) takeHistory(entries []Operated) {
	signatures := map[int64]string{}
	first, last := int64(0), int64(-1)
	for _, e := range entries {
		if e.IsP2P || e.CollectiveSeq < 0 {
			continue
		}
		if last < 0 {
			first, last = e.CollectiveSeq, e.CollectiveSeq
		}
		first, last = min(first, e.CollectiveSeq), max(last, e.CollectiveSeq)
		signatures[e.CollectiveSeq] = joinSignatures(signatures[e.CollectiveSeq], e.Entry)
	}
	if last < 0 {
		return
	}
	first = max(first, last-MaxHistory+1)
	g.HistoryFirst, g.History = first, make([]uint32, last-first+1)
	for i := range g.History {
		if signature, found := signatures[first+int64(i)]; found {
			g.History[i] = Hash(signature)
			g.keepSignature(signature)
		}
	}
}

// joinSignatures puts the members of a coalesced collective, which share a
// sequence number, into one signature.
func joinSignatures(before string, e *Entry) string {
	if before == "" {
		return e.Signature()
	}
	const most = 2 * maxText
	if len(before) > most {
		return before[:most] + strconv.FormatUint(uint64(Hash(before+e.Signature())), 16)
	}
	return before + "; " + e.Signature()
}

func (g *Group) keepSignature(signature string) {
	if len(g.Signatures) < MaxSignatures && !slices.Contains(g.Signatures, signature) {
		g.Signatures = append(g.Signatures, signature)
	}
}

// Code returns the lines of the program that led to the operation, at most n,
// innermost first, without PyTorch's own on top of them: "ar (train.py:8)".
func (e *Entry) Code(n int) []string {
	frames := e.Frames
	own := slices.IndexFunc(frames, func(f Frame) bool { return !isTorch(f.File) })
	if own > 0 {
		frames = frames[own:]
	}
	lines := make([]string, 0, min(n, len(frames)))
	for _, f := range frames[:min(n, len(frames))] {
		lines = append(lines, Clip(f.Name, 96)+" ("+clipLeft(f.File, 192)+":"+strconv.FormatInt(f.Line, 10)+")")
	}
	return lines
}

func isTorch(file string) bool {
	return strings.Contains(file, "/torch/distributed/") || strings.Contains(file, "/torch/nn/") ||
		strings.Contains(file, "/torch/autograd/") || strings.Contains(file, "/torch/_") || strings.Contains(file, "/torch/utils/") || file == "??"
}

// clipLeft keeps the end of a path, which tells more.
func clipLeft(s string, n int) string {
	if len(s) <= n {
		return s
	}
	from := len(s) - n
	for from < len(s) && s[from]&0xc0 == 0x80 {
		from++
	}
	return "…" + s[from:]
}

// Digest is what a join across ranks needs of a dump. It is small whatever the
// dump is.
type Digest struct {
	Version string
	Library string
	Host    string
	Rank    int // Unknown where the dump does not say
	Groups  []Group
}

// Read decodes and condenses a dump.
func Read(data []byte, limits Limits) (*Digest, error) {
	d, err := Decode(data, limits)
	if err != nil {
		return nil, err
	}
	return &Digest{
		Version: Clip(d.Version, 16), Library: Clip(d.Library, 64), Host: Clip(d.Host, 256), Rank: d.Rank, Groups: d.Condense(),
	}, nil
}
