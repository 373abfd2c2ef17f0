package ncclhang

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// savedCalls is what calls tell, as JSON.
type savedCalls struct {
	Limited []savedLimit   `json:"processes_limited,omitempty"`
	Unseen  []savedLimit   `json:"processes_unseen,omitempty"`
	GPUs    []savedGPUs    `json:"gpus,omitempty"`
	Runs    []savedCallRun `json:"runs,omitempty"`
}

// savedLimit is a process whose calls are not counted.
type savedLimit struct {
	Host string `json:"h"`
	PID  int64  `json:"p"`
	At   int64  `json:"t"`
	Why  string `json:"w,omitempty"` // not all calls are seen
}

type savedCallRun struct {
	Name    string         `json:"name"`
	Job     string         `json:"job,omitempty"`
	Domain  string         `json:"domain,omitempty"`
	Begun   string         `json:"begun,omitempty"`
	Anew    map[int]string `json:"anew,omitempty"`
	World   int            `json:"world,omitempty"`
	Heard   int64          `json:"heard"`
	Pending int64          `json:"pending,omitempty"`
	Again   int64          `json:"again,omitempty"`
	Last    int64          `json:"last"`
	Lost    bool           `json:"lost,omitempty"`
	Watched int64          `json:"watched,omitempty"`
	Resumed int64          `json:"resumed,omitempty"`
	Held    int64          `json:"held,omitempty"`
	Stopped int64          `json:"stopped,omitempty"`
	Asked   [2]int64       `json:"asked,omitzero"`
	Told    *toldStop      `json:"told,omitempty"`
	Callers []savedCaller  `json:"callers,omitempty"`
	Comms   []savedComm    `json:"comms,omitempty"`
	Texts   []string       `json:"texts,omitempty"`
}

type savedCaller struct {
	Host   socketstall.Identity `json:"h"`
	Rank   int                  `json:"r"`
	World  int                  `json:"n,omitempty"`
	At     int64                `json:"t"`
	State  socketstall.State    `json:"s,omitempty"`
	Doing  socketstall.Doing    `json:"d"`
	Unread bool                 `json:"u,omitempty"`
	GPU    string               `json:"g,omitempty"`
	Stack  *stackPlace          `json:"k,omitempty"`
	Early  string               `json:"e,omitempty"`
	End    string               `json:"x,omitempty"`
	Ended  int64                `json:"w,omitempty"`
}

type savedComm struct {
	Name     string       `json:"name"`
	Size     int          `json:"size"`
	Disputed bool         `json:"disputed,omitempty"`
	Heard    int64        `json:"heard"`
	Windows  [][]savedAt  `json:"windows,omitempty"`
	Places   []savedPlace `json:"places"`
}

// savedAt is a number and a text.
type savedAt [2]int64

// savedPlace has numbers of a caller, of a text and of a window.
type savedPlace struct {
	Rank    int      `json:"r"`
	Caller  int      `json:"c"`
	Numbers [4]int64 `json:"n"` // time, number, last, since
	Flags   int      `json:"f,omitempty"`
	Last    int      `json:"o"`
	Peer    int      `json:"p"`
	Window  int      `json:"w"` // -1: none
}

func (p *place) flags() (f int) {
	for i, set := range []bool{p.standing, p.making, p.ended, p.exact, p.graphs, p.aligned, p.left, p.grouped} {
		if set {
			f |= 1 << i
		}
	}
	return f
}

func (p process) compare(o process) int {
	return cmp.Or(cmp.Compare(p.host, o.host), cmp.Compare(p.pid, o.pid))
}

// save copies all that changes.
func (b *callBook) save() savedCalls {
	s := savedCalls{GPUs: b.gpus.save()}
	for _, who := range slices.SortedFunc(maps.Keys(b.limited), process.compare) {
		s.Limited = append(s.Limited, savedLimit{Host: who.host, PID: who.pid, At: b.limited[who]})
	}
	byName := func(a, b unseenCalls) int { return cmp.Or(a.compare(b.process), cmp.Compare(a.why, b.why)) }
	for _, one := range slices.SortedFunc(maps.Keys(b.unseen), byName) {
		s.Unseen = append(s.Unseen, savedLimit{one.host, one.pid, b.unseen[one], one.why})
	}
	for _, name := range slices.Sorted(maps.Keys(b.runs)) {
		s.Runs = append(s.Runs, b.runs[name].save())
	}
	return s
}

func (r *callRun) save() savedCallRun {
	s := savedCallRun{
		Name: r.name, Job: r.job, Domain: r.domain, Begun: r.begun, Anew: maps.Clone(r.anew), World: r.world, Heard: r.heard, Pending: r.pending, Again: r.again, Last: r.last, Lost: r.lost, Watched: r.watched, Resumed: r.resumed, Held: r.held, Stopped: r.stopped, Asked: [2]int64{r.asked, r.askedLast}, Told: r.told,
	}
	texts, numbers := &table{index: map[string]int{}}, map[*caller]int{}
	keys := slices.SortedFunc(maps.Keys(r.callers), process.compare)
	for i, key := range keys {
		c := r.callers[key]
		numbers[c] = i
		saved := savedCaller{Host: c.host, Rank: c.rank, World: c.world, At: c.at, State: c.state, Doing: c.doing, Unread: c.unread, GPU: c.gpu, Early: c.early, End: c.end, Ended: c.ended}
		if c.stack.At != 0 || c.early != "" {
			stack := c.stack
			saved.Stack = &stack
		}
		s.Callers = append(s.Callers, saved)
	}
	for _, name := range slices.Sorted(maps.Keys(r.comms)) {
		s.Comms = append(s.Comms, r.comms[name].save(numbers, texts))
	}
	s.Texts = texts.texts
	return s
}

func (c *communicator) save(callers map[*caller]int, texts *table) savedComm {
	s := savedComm{Name: c.name, Size: c.size, Disputed: c.disputed, Heard: c.heard}
	hashes := slices.Sorted(maps.Keys(c.windows))
	for _, hash := range hashes {
		var window []savedAt
		for _, at := range c.windows[hash] {
			window = append(window, savedAt{at.number, int64(texts.put(at.what))})
		}
		s.Windows = append(s.Windows, window)
	}
	for _, rank := range slices.Sorted(maps.Keys(c.places)) {
		p := c.places[rank]
		window := -1
		if len(p.window) > 0 {
			window = slices.Index(hashes, windowHash(p.window))
		}
		s.Places = append(s.Places, savedPlace{
			Rank: rank, Caller: callers[p.caller], Numbers: [4]int64{p.at, p.number, p.last, p.since}, Flags: p.flags(), Last: texts.put(p.operation), Peer: p.peer, Window: window,
		})
	}
	return s
}

// restore adds what was saved to an empty book. What does not fit, or is beyond the
// bounds, is refused.
func (b *callBook) restore(s *savedCalls) error {
	if len(s.Runs) > b.options.Runs || len(s.Limited) > maxRanks || len(s.Unseen) > maxRanks {
		return errState
	}
	for _, u := range s.Unseen {
		if doubtUnseen[u.Why] == "" {
			return errState
		}
		b.unseen[unseenCalls{process{u.Host, u.PID}, u.Why}] = u.At
	}
	if err := b.gpus.restore(s.GPUs); err != nil {
		return err
	}
	for _, l := range s.Limited {
		b.limited[process{l.Host, l.PID}] = l.At
	}
	for i := range s.Runs {
		if b.runs[s.Runs[i].Name] != nil {
			return errState
		}
		if err := b.resume(&s.Runs[i]); err != nil {
			return err
		}
	}
	if b.shares.Size() > b.options.Calls+len(b.runs) || b.windows > maxWindows {
		return errState
	}
	return nil
}

func (b *callBook) resume(s *savedCallRun) error {
	r := &callRun{
		options: b.options, name: s.Name, job: s.Job, domain: s.Domain, begun: s.Begun, anew: s.Anew, world: s.World, heard: s.Heard, pending: s.Pending, again: s.Again, last: s.Last, lost: s.Lost, watched: s.Watched, resumed: s.Resumed, held: s.Held, stopped: s.Stopped, asked: s.Asked[0], askedLast: s.Asked[1], told: s.Told,
		comms: map[string]*communicator{}, callers: map[process]*caller{}, shares: map[string]*callShare{}, texts: map[string]string{},
	}
	host := ""
	callers := make([]*caller, len(s.Callers))
	for i := range s.Callers {
		c := &s.Callers[i]
		host = cmp.Or(host, c.Host.Host)
		callers[i] = &caller{host: c.Host, rank: c.Rank, world: c.World, at: c.At, state: c.State, doing: c.Doing, unread: c.Unread, gpu: c.GPU, early: c.Early, end: c.End, ended: c.Ended}
		if c.Stack != nil {
			callers[i].stack = *c.Stack
		}
		if r.callers[process{c.Host.Host, c.Host.PID}] != nil || c.Rank < -1 || c.Rank > socketstall.MaxRank {
			return errState
		}
		r.callers[process{c.Host.Host, c.Host.PID}] = callers[i]
	}
	b.enter(r, host)
	for _, c := range callers {
		b.add(r, c)
	}
	for i := range s.Comms {
		if err := b.resumeComm(r, &s.Comms[i], callers, s.Texts); err != nil {
			return err
		}
	}
	return nil
}

func (b *callBook) resumeComm(r *callRun, s *savedComm, callers []*caller, texts []string) error {
	c := &communicator{name: s.Name, size: s.Size, disputed: s.Disputed, heard: s.Heard, places: map[int]*place{}, windows: map[uint64][]calledAt{}, dirty: true}
	if r.comms[c.name] != nil || c.size < 1 || c.size > socketstall.MaxRank {
		return errState
	}
	windows := make([][]calledAt, len(s.Windows))
	for i, saved := range s.Windows {
		for _, at := range saved {
			if at[1] < 0 || at[1] >= int64(len(texts)) || len(saved) > maxCallWindow {
				return errState
			}
			windows[i] = append(windows[i], calledAt{at[0], r.one(texts[at[1]])})
		}
		c.windows[windowHash(windows[i])] = windows[i]
	}
	b.windows += len(c.windows)
	r.comms[c.name] = c
	for _, p := range s.Places {
		bad := p.Rank < 0 || p.Rank >= c.size || p.Caller < 0 || p.Caller >= len(callers) || p.Last < 0 || p.Last >= len(texts) || p.Window < -1 || p.Window >= len(windows)
		if bad || c.places[p.Rank] != nil {
			return errState
		}
		at := &place{
			caller: callers[p.Caller], at: p.Numbers[0], number: p.Numbers[1], last: p.Numbers[2], since: p.Numbers[3], operation: r.one(texts[p.Last]), peer: p.Peer,
			standing: p.Flags&1 != 0, making: p.Flags&2 != 0, ended: p.Flags&4 != 0, exact: p.Flags&8 != 0, graphs: p.Flags&16 != 0, aligned: p.Flags&32 != 0, left: p.Flags&64 != 0, grouped: p.Flags&128 != 0,
		}
		if p.Window >= 0 {
			at.window = windows[p.Window]
		}
		c.places[p.Rank] = at
		at.caller.places = append(at.caller.places, placeOf{c, p.Rank})
		b.grow(r.shares[at.caller.host.Host], 1)
	}
	return nil
}
