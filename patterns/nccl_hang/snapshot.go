package ncclhang

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	starts "github.com/tracecoreai/tracecore/patterns/engine/run"
)

// savedState is the state as JSON. The ranks of a job run the same program, so the
// texts of a run stand in one table, and histories are texts too.
type savedState struct {
	Stalls *socketstall.Book `json:"stalls"`
	Starts []starts.Saved    `json:"starts,omitempty"`
	Runs   []savedRun        `json:"runs"`
	Calls  savedCalls        `json:"calls"`
}

type savedRun struct {
	Name    string                       `json:"name"`
	Job     string                       `json:"job,omitempty"`
	Domain  string                       `json:"domain,omitempty"`
	Begun   string                       `json:"begun,omitempty"`
	Anew    map[int]string               `json:"anew,omitempty"`
	Pending int64                        `json:"pending,omitempty"`
	Heard   int64                        `json:"heard"`
	Last    int64                        `json:"last"`
	Judged  int64                        `json:"judged,omitempty"`
	Told    []savedTold                  `json:"told,omitempty"`
	Words   map[uint32]string            `json:"words,omitempty"`
	Texts   []string                     `json:"texts"`
	Hosts   map[int]socketstall.Identity `json:"hosts"`
	Lost    bool                         `json:"lost,omitempty"`
	Groups  []savedGroup                 `json:"groups"`
}

// savedTold is a group with a finding, and the stop that it is of where calls told that.
type savedTold struct {
	key
	Stop string `json:"stop,omitempty"`
}

type savedGroup struct {
	key
	Dumps []savedDump `json:"dumps"`
}

// savedDump has numbers of texts where the dump has texts.
type savedDump struct {
	Rank       int                  `json:"r"`
	At         int64                `json:"t"`
	World      int                  `json:"w,omitempty"`
	Host       socketstall.Identity `json:"h"`
	Members    int                  `json:"m"`
	Entries    int                  `json:"e"`
	Newest     int64                `json:"n"`
	Entered    int64                `json:"d"`
	First      int64                `json:"f"`
	History    int                  `json:"y"`
	Operations []savedOperation     `json:"o"`
}

type savedOperation struct {
	Texts    [5]int   `json:"x"` // name, signature, sizes in and out, state
	Numbers  [4]int64 `json:"n"` // number, source, target, created
	P2P      bool     `json:"p,omitempty"`
	Finished bool     `json:"f,omitempty"`
	Code     []int    `json:"c,omitempty"`
}

// table numbers texts in the order in which they are met.
type table struct {
	index map[string]int
	texts []string
}

func (t *table) put(text string) int {
	at, known := t.index[text]
	if !known {
		at = len(t.texts)
		t.index[text], t.texts = at, append(t.texts, text)
	}
	return at
}

func (t *table) all(texts []string) []int {
	numbers := make([]int, len(texts))
	for i, text := range texts {
		numbers[i] = t.put(text)
	}
	return numbers
}

// Snapshot returns the state.
func (j *Join) Snapshot() ([]byte, error) { return j.Save().Encode() }

// Saved is a copy of a state.
type Saved struct {
	state savedState
	runs  []*run
}

// Save returns a copy of the state, which takes a fraction of the time that its encoding does.
func (j *Join) Save() *Saved {
	s := &Saved{state: savedState{Stalls: j.book.Copy(), Starts: j.starts.Save(), Calls: j.calls.save()}}
	for _, name := range slices.Sorted(maps.Keys(j.runs)) {
		s.runs = append(s.runs, j.runs[name].copied())
	}
	return s
}

// Encode returns the snapshot. The join may go on meanwhile.
func (s *Saved) Encode() ([]byte, error) {
	state := s.state
	for _, r := range s.runs {
		state.Runs = append(state.Runs, r.save())
	}
	data, err := json.Marshal(state)
	if err != nil {
		return nil, fmt.Errorf("write dumps: %w", err)
	}
	return data, nil
}

// copied is what is saved of a run. Its dumps are the same: what is saved of a dump does not change
// once it is held.
func (r *run) copied() *run {
	groups := make(map[key]map[int]*dump, len(r.groups))
	for k, group := range r.groups {
		groups[k] = maps.Clone(group)
	}
	return &run{
		name: r.name, job: r.job, domain: r.domain, begun: r.begun, anew: maps.Clone(r.anew), pending: r.pending, heard: r.heard, last: r.last, judged: r.judged,
		told: maps.Clone(r.told), words: maps.Clone(r.words), ranks: maps.Clone(r.ranks), groups: groups, lost: r.lost,
	}
}

func compareKeys(a, b key) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Desc, b.Desc))
}

func (r *run) save() savedRun {
	t := &table{index: map[string]int{}}
	s := savedRun{
		Name: r.name, Job: r.job, Domain: r.domain, Begun: r.begun, Anew: r.anew, Pending: r.pending, Heard: r.heard, Last: r.last, Judged: r.judged,
		Words: r.words, Hosts: r.ranks, Lost: r.lost,
	}
	for _, k := range slices.SortedFunc(maps.Keys(r.told), compareKeys) {
		s.Told = append(s.Told, savedTold{k, r.told[k]})
	}
	for _, k := range slices.SortedFunc(maps.Keys(r.groups), compareKeys) {
		g := savedGroup{key: k}
		for _, rank := range slices.Sorted(maps.Keys(r.groups[k])) {
			g.Dumps = append(g.Dumps, r.groups[k][rank].save(t))
		}
		s.Groups = append(s.Groups, g)
	}
	s.Texts = t.texts
	return s
}

func (d *dump) save(t *table) savedDump {
	raw := make([]byte, 0, 4*len(d.history))
	for _, hash := range d.history {
		raw = binary.LittleEndian.AppendUint32(raw, hash)
	}
	s := savedDump{
		Rank: d.rank, At: d.at, World: d.world, Host: d.host, Members: t.put(d.members), Entries: d.entries, Newest: d.newest,
		Entered: d.entered, First: d.first, History: t.put(base64.StdEncoding.EncodeToString(raw)),
	}
	for i := range d.operations {
		op := &d.operations[i]
		s.Operations = append(s.Operations, savedOperation{
			Texts:   [5]int{t.put(op.name), t.put(op.signature), t.put(op.in), t.put(op.out), t.put(op.state)},
			Numbers: [4]int64{op.seq, int64(op.source), int64(op.target), op.created},
			P2P:     op.p2p, Finished: op.finished, Code: t.all(op.code),
		})
	}
	return s
}

var errState = errors.New("read dumps: not the state of this detector")

// Restore replaces the state. What does not fit, or is beyond the bounds, is
// refused.
func (j *Join) Restore(data []byte) error {
	fresh := New(j.options)
	s := savedState{Stalls: fresh.book}
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("read dumps: %w", err)
	}
	if s.Stalls == nil || len(s.Runs) > j.options.Runs {
		return errState
	}
	for i := range s.Runs {
		r, err := s.Runs[i].restore()
		if err != nil {
			return err
		}
		if fresh.runs[r.name] != nil {
			return errState
		}
		fresh.resume(r)
	}
	if fresh.stats.Held > int64(j.options.Dumps) {
		return errState
	}
	if err := fresh.calls.restore(&s.Calls); err != nil {
		return err
	}
	fresh.starts.Restore(s.Starts)
	fresh.calls.callCounts = j.calls.callCounts
	j.starts, j.calls = fresh.starts, fresh.calls
	j.book, j.runs, j.order, j.shares, j.places, j.stats.Held = fresh.book, fresh.runs, fresh.order, fresh.shares, fresh.places, fresh.stats.Held
	return nil
}

// resume adds a saved run and counts its dumps.
func (j *Join) resume(r *run) {
	host := ""
	for _, rank := range slices.Sorted(maps.Keys(r.ranks)) {
		host = cmp.Or(host, r.ranks[rank].Host)
	}
	j.enter(r, host)
	for _, group := range r.groups {
		for _, d := range group {
			j.count(r, nil, d)
		}
	}
}

func (s *savedRun) restore() (*run, error) {
	r := newRun(s.Name)
	r.begun, r.anew, r.lost = s.Begun, s.Anew, s.Lost
	r.job, r.domain, r.pending, r.heard, r.last, r.judged = s.Job, s.Domain, s.Pending, s.Heard, s.Last, s.Judged
	for _, k := range s.Told {
		r.told[k.key] = k.Stop
	}
	if s.Words != nil {
		r.words = s.Words
	}
	for rank, host := range s.Hosts {
		if rank < 0 || rank > socketstall.MaxRank {
			return nil, errState
		}
		r.ranks[rank] = host
	}
	for _, g := range s.Groups {
		for i := range g.Dumps {
			d, err := g.Dumps[i].restore(s.Texts)
			if err != nil {
				return nil, err
			}
			r.share(d)
			r.put(g.key, d)
		}
	}
	return r, nil
}

func (s *savedDump) restore(texts []string) (*dump, error) {
	if s.Rank < 0 || s.Rank > socketstall.MaxRank || s.World < 0 || s.World > socketstall.MaxRank+1 || len(s.Operations) > maxOperations {
		return nil, errState
	}
	numbers := []int{s.Members, s.History}
	for i := range s.Operations {
		op := &s.Operations[i]
		numbers = append(append(numbers, op.Texts[:]...), op.Code...)
		if len(op.Code) > maxLines {
			return nil, errState
		}
	}
	if slices.ContainsFunc(numbers, func(n int) bool { return n < 0 || n >= len(texts) }) {
		return nil, errState
	}
	d := &dump{
		rank: s.Rank, at: s.At, world: s.World, host: s.Host, members: texts[s.Members], entries: s.Entries, newest: s.Newest,
	}
	if !d.readHistory(s.First, texts[s.History]) && texts[s.History] != "" {
		return nil, errState
	}
	d.first, d.entered = s.First, s.Entered
	for i := range s.Operations {
		d.operations = append(d.operations, s.Operations[i].restore(texts))
	}
	return d, nil
}

func (s *savedOperation) restore(texts []string) operation {
	op := operation{
		name: texts[s.Texts[0]], signature: texts[s.Texts[1]], in: texts[s.Texts[2]], out: texts[s.Texts[3]], state: texts[s.Texts[4]],
		seq: s.Numbers[0], source: end(s.Numbers[1]), target: end(s.Numbers[2]), created: s.Numbers[3], p2p: s.P2P, finished: s.Finished,
	}
	for _, n := range s.Code {
		op.code = append(op.code, texts[n])
	}
	return op
}
