package ncclhang

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// group is one process group of a run in one round.
type group struct {
	run     *run
	key     key
	dumps   []*dump // of the members that have a record of it, by rank
	members []int   // in order
	// doubt says why members may be wrong, "" where they are known.
	doubt string
}

// analyse finds the incomplete collectives of a run: those that others do not
// explain, with whom they affect and what the sockets say of them.
func (r *run) analyse(options *Options, book *socketstall.Book) []Finding {
	var found []*Finding
	r.hear(options, book)
	r.size = r.ranksOfJob()
	for _, g := range r.split() {
		found = append(found, g.findings(options)...)
		if g.isDefault() && g.doubt == "" {
			r.size = max(r.size, len(g.members))
		}
	}
	if r.lost { // a rank whose dump found no room sent one
		found = slices.DeleteFunc(found, func(f *Finding) bool { return f.Kind == NoDump })
	}
	for _, f := range found {
		if r.lost {
			f.doubt(Unsure, doubtLost)
		}
		f.Run, f.Job, f.Domain, f.World = r.name, cmp.Or(r.job, r.socketsJob), cmp.Or(r.domain, r.socketsDomain), r.size
		f.identify()
	}
	roots := rootsOf(circles(found, func(rank int) socketstall.Identity { return r.ranks[rank] }))
	for i := range roots {
		roots[i].Stalls = r.view.words(&roots[i])
	}
	return roots
}

// maxRoundMembers bounds the members of all groups of a round, whatever they
// claim: sixty groups for each rank of a job of 262,144.
const maxRoundMembers = 1 << 24

// split makes the groups of a run. Groups of one name and different members
// (split_group) are told apart by their members.
func (r *run) split() []*group {
	keys := slices.SortedFunc(maps.Keys(r.groups), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Desc, b.Desc))
	})
	var groups []*group
	room := maxRoundMembers
	r.skipped = 0
	for _, k := range keys {
		if k.Group == "" && k.Desc == "" {
			continue // dumps that name no group only say that their rank has spoken
		}
		for _, dumps := range r.apart(byRank(r.groups[k])) {
			g := &group{run: r, key: k, dumps: dumps}
			g.members, g.doubt = g.membership()
			if room -= len(g.members); room < 0 {
				r.skipped++
				continue
			}
			groups = append(groups, g)
		}
	}
	return groups
}

// byRank returns dumps in the order of their ranks.
func byRank(dumps map[int]*dump) []*dump {
	sorted := make([]*dump, 0, len(dumps))
	for _, rank := range slices.Sorted(maps.Keys(dumps)) {
		sorted = append(sorted, dumps[rank])
	}
	return sorted
}

// dump returns that of a rank, nil where it has no record of the group.
func (g *group) dump(rank int) *dump {
	at, found := slices.BinarySearchFunc(g.dumps, rank, func(d *dump, rank int) int { return d.rank - rank })
	if !found {
		return nil
	}
	return g.dumps[at]
}

// apart returns the dumps by what they say the members are, where that makes
// groups that do not touch; else all together.
func (r *run) apart(dumps []*dump) [][]*dump {
	if !slices.ContainsFunc(dumps, func(d *dump) bool { return d.members != dumps[0].members }) {
		return [][]*dump{dumps}
	}
	by := map[string][]*dump{}
	for _, d := range dumps {
		by[d.members] = append(by[d.members], d)
	}
	taken := map[int]bool{}
	var parts [][]*dump
	for _, text := range slices.Sorted(maps.Keys(by)) {
		members := r.membersOf(text)
		for _, d := range by[text] {
			if !has(members, d.rank) {
				return [][]*dump{dumps}
			}
		}
		for _, member := range members {
			if taken[member] {
				return [][]*dump{dumps}
			}
			taken[member] = true
		}
		parts = append(parts, by[text])
	}
	return parts
}

func (g *group) isDefault() bool { return g.key.Group == "0" || g.key.Desc == "default_pg" }

// membership returns the members of the group: those of pg_config where no entry
// contradicts it (Gloo's holds the group made last under the name ""), of the
// group of all ranks all of them, else the ranks with entries.
func (g *group) membership() (members []int, doubt string) {
	if claimed := g.claimed(); claimed != nil {
		return claimed, ""
	}
	if g.isDefault() {
		if world := g.run.ranksOfJob(); world > 0 {
			return g.run.upTo(world), ""
		}
		return g.run.upTo(g.run.highest + 1), "the number of ranks of the job is not known"
	}
	for _, d := range g.dumps {
		if d.entries > 0 {
			members = append(members, d.rank)
		}
	}
	return members, "the members of the group are known from its entries alone"
}

// claimed returns what pg_config says, nil where dumps disagree or a rank with
// entries is not in it.
func (g *group) claimed() []int {
	text := ""
	for _, d := range g.dumps {
		switch {
		case text == "":
			text = d.members
		case d.members != "" && d.members != text:
			return nil
		}
	}
	claimed := g.run.membersOf(text)
	if g.isDefault() && (len(claimed) < g.run.ranksOfJob() || len(claimed) <= g.run.highest) {
		return nil
	}
	if slices.ContainsFunc(g.dumps, func(d *dump) bool { return !has(claimed, d.rank) }) {
		return nil
	}
	return claimed
}

// upTo returns the ranks below n, which all groups of all ranks share.
func (r *run) upTo(n int) []int {
	for len(r.all) < n {
		r.all = append(r.all, len(r.all))
	}
	return r.all[:n:n]
}

// silent returns the members of whom there is no dump at all.
func (g *group) silent() []int {
	var silent []int
	for member, d := range g.each() {
		if d == nil && !g.run.spoke(member) {
			silent = append(silent, member)
		}
	}
	return silent
}

// each gives the members, each with its dump of the group, nil where there is none.
func (g *group) each() iter.Seq2[int, *dump] {
	return func(yield func(int, *dump) bool) {
		rest := g.dumps
		for _, member := range g.members {
			for len(rest) > 0 && rest[0].rank < member {
				rest = rest[1:]
			}
			var d *dump
			if len(rest) > 0 && rest[0].rank == member {
				d = rest[0]
			}
			if !yield(member, d) {
				return
			}
		}
	}
}

// spoke reports whether the rank sent a dump, of whatever group.
func (r *run) spoke(rank int) bool {
	_, spoke := r.ranks[rank]
	return spoke
}

// findings are the incomplete collective of the group, if any, and the sends
// and receives that wait.
func (g *group) findings(options *Options) []*Finding {
	var found []*Finding
	if f := g.collective(); f != nil {
		found = append(found, f)
	}
	found = append(found, g.pointToPoint()...)
	for _, f := range found {
		g.complete(f, options)
	}
	return found
}

// complete fills what every finding has.
func (g *group) complete(f *Finding, options *Options) {
	f.Group, f.Desc, f.Members = g.key.Group, g.key.Desc, len(g.members)
	if g.doubt != "" {
		f.doubt(Likely, g.doubt)
	}
	f.rank = -1
	if len(f.Culprits) > 0 {
		f.rank = f.Culprits[0]
		f.Host = g.run.ranks[f.rank]
	} else if f.Kind == NoDump && len(f.NoDump) > 0 {
		f.rank = f.NoDump[0]
	}
	f.elsewhere = slices.ContainsFunc(f.Culprits, func(rank int) bool { return g.run.view.known(rank).halted })
	g.timing(f)
	g.listen(f, options)
	if f.rank >= 0 {
		f.Host.Fill(g.run.view.known(f.rank).host)
	}
	if len(f.Waiting) > 0 && f.Waited < options.MinWait && f.Kind != Mismatch {
		f.doubt(Unsure, "nobody had waited long when the dumps were written")
	}
	if f.Kind == Stuck && f.rank < 0 {
		between(f, slices.Values(g.dumps), func(d *dump) socketstall.Identity { return g.run.ranks[d.rank] })
	}
	if d := g.dump(f.rank); d != nil && len(f.Culprits) > 0 {
		f.Last = d.lastSeen()
	}
}

// timing takes since when, how long and where from the ranks that wait. Where
// is said by the rank that waits longest.
func (g *group) timing(f *Finding) {
	for _, rank := range f.Waiting {
		d := g.dump(rank)
		op := d.waitsIn
		if f.P2P {
			op = d.waitsWith
		}
		if op == nil || op.created <= 0 {
			continue
		}
		created := unix(op.created)
		if f.Since.IsZero() || created.Before(f.Since) {
			f.Since, f.Code = created, op.code
		}
		f.Waited = max(f.Waited, time.Duration(d.at-op.created))
	}
}

// lastSeen is where the rank was last: in what it waits for, else in the last
// collective it finished.
func (d *dump) lastSeen() []string {
	for i := range d.operations {
		if !d.operations[i].finished {
			return d.operations[i].code
		}
	}
	if n := len(d.operations); n > 0 {
		return d.operations[n-1].code
	}
	return nil
}
