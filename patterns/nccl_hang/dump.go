package ncclhang

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// eventDump is the record that is joined.
const eventDump = "nccl.fr.dump"

// dumpAttributes are what is read of it, beside identity.
var dumpAttributes = []string{
	"nccl.fr.entries", "nccl.fr.history", "nccl.fr.history_first_seq_id", "nccl.fr.newest_unix_nano", "nccl.fr.operations",
	"nccl.fr.pg_desc", "nccl.fr.pg_id", "nccl.fr.pg_ranks", "nccl.fr.rank", "nccl.fr.run", "nccl.fr.signatures",
}

// Bounds of one record: any sender may be hostile.
const (
	maxHistory    = 4096
	maxOperations = 64
	maxLines      = 8
	maxSignatures = 64
	// maxMembersText is enough for the ranks of a group of 32,768 one by one.
	maxMembersText = 256 << 10
)

// dump is one record: what one rank's Flight Recorder holds of one group.
type dump struct {
	rank    int
	at      int64 // when the dump was written
	world   int   // 0: not known
	host    socketstall.Identity
	members string // as pg_config names them, "" where it does not
	entries int
	newest  int64
	// entered is the last collective the rank entered, 0 for none. It is not
	// last_enqueued of pg_status, which counts sends and receives too.
	entered    int64
	first      int64 // sequence number of history[0]
	history    []uint32
	operations []operation
	// The earliest of operations, of each kind, that the rank entered and has not finished; nil
	// for none.
	waitsIn   *operation // a collective
	waitsWith *operation // a send or receive
	places    int        // that it takes of Options.Dumps, 0 before it is entered
}

// dumpPlace is the memory, in bytes, of one of the places that Options.Dumps counts.
const dumpPlace = 4 << 10

// measure says how much room it takes; a history that others of its run have too takes none.
func (d *dump) measure(sharesHistory bool) {
	bytes := 256*len(d.operations) + 4*len(d.history)
	if sharesHistory {
		bytes -= 4 * len(d.history)
	}
	d.places = 1 + bytes/dumpPlace
}

// operation is one entry of a Flight Recorder.
type operation struct {
	name      string // all_reduce, without its backend
	p2p       bool
	seq       int64
	source    int // of a send or receive, as ranks of the group; -1 for none
	target    int
	signature string
	in, out   string // sizes
	state     string
	finished  bool
	created   int64
	code      []string
}

// key names a group within a run.
type key struct {
	Group string `json:"group"`
	Desc  string `json:"desc"`
}

// parsed is a record and what its job shares.
type parsed struct {
	run, job, domain string
	begun            string // which start of the job
	own              string // the same, or a later one of which only some ranks began again alone
	key              key
	dump             *dump
	words            []string
}

// parse reads a record; ok is false where it lacks what the join needs.
func parse(at int64, resource, a pcommon.Map) (p parsed, ok bool) {
	rank, found := socketstall.Rank(a, "nccl.fr.rank")
	if !found {
		return p, false
	}
	p.job, p.domain = str(a, "gen_ai.training.job_id"), str(a, "gen_ai.training.job_domain")
	p.run = socketstall.JobName(cmp.Or(p.job, str(a, "nccl.fr.run")), p.domain)
	p.key = key{str(a, "nccl.fr.pg_id"), str(a, "nccl.fr.pg_desc")}
	d := &dump{rank: rank, at: at, world: socketstall.World(a), host: socketstall.IdentityOf(resource, a)}
	if members := longStr(a, "nccl.fr.pg_ranks"); len(members) <= maxMembersText {
		d.members = strings.ToValidUTF8(members, "")
	}
	entries, _ := whole(a, "nccl.fr.entries")
	d.entries = int(max(entries, 0))
	d.newest, _ = whole(a, "nccl.fr.newest_unix_nano")
	d.takeHistory(a)
	d.takeOperations(a)
	p.dump, p.words = d, wordsOf(a)
	return p, true
}

func (d *dump) takeHistory(a pcommon.Map) {
	if first, found := whole(a, "nccl.fr.history_first_seq_id"); found && d.readHistory(first, longStr(a, "nccl.fr.history")) {
		d.entered = max(d.entered, first+int64(len(d.history))-1)
	}
}

// readHistory reads hashes of four bytes in base64, the first of that number.
func (d *dump) readHistory(first int64, text string) bool {
	if first < 0 || first > 1<<62 || len(text) > base64.StdEncoding.EncodedLen(4*maxHistory) {
		return false
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw) == 0 || len(raw)%4 != 0 {
		return false
	}
	d.first, d.history = first, make([]uint32, len(raw)/4)
	for i := range d.history {
		d.history[i] = binary.LittleEndian.Uint32(raw[4*i:])
	}
	return true
}

func (d *dump) takeOperations(a pcommon.Map) {
	list, found := a.Get("nccl.fr.operations")
	if !found || list.Type() != pcommon.ValueTypeSlice {
		return
	}
	for _, v := range list.Slice().All() {
		if v.Type() == pcommon.ValueTypeMap && len(d.operations) < maxOperations {
			d.operations = append(d.operations, readOperation(v.Map()))
		}
	}
}

func readOperation(m pcommon.Map) operation {
	op := operation{
		name: str(m, "name"), signature: str(m, "signature"), in: str(m, "input_sizes"), out: str(m, "output_sizes"),
		state: str(m, "state"), source: -1, target: -1,
	}
	if _, name, found := strings.Cut(op.name, ":"); found {
		op.name = name
	}
	op.name, _, _ = strings.Cut(op.name, " ")
	op.seq, _ = whole(m, "seq_id")
	op.created, _ = whole(m, "created_unix_nano")
	op.p2p, op.finished = truth(m, "p2p"), truth(m, "finished")
	if source, found := whole(m, "source"); found {
		op.source = end(source)
	}
	if target, found := whole(m, "destination"); found {
		op.target = end(target)
	}
	if code, found := m.Get("code"); found && code.Type() == pcommon.ValueTypeSlice {
		for i, line := range code.Slice().All() {
			if i == maxLines {
				break
			}
			op.code = append(op.code, socketstall.Clip(line.AsString()))
		}
	}
	return op
}

// end is one end of a send or receive, -1 for none.
func end(rank int64) int {
	if rank < 0 || rank > socketstall.MaxRank {
		return -1
	}
	return int(rank)
}

func wordsOf(a pcommon.Map) []string {
	list, found := a.Get("nccl.fr.signatures")
	if !found || list.Type() != pcommon.ValueTypeSlice {
		return nil
	}
	var words []string
	for _, v := range list.Slice().All() {
		if len(words) == maxSignatures {
			break
		}
		words = append(words, v.AsString())
	}
	return words
}

// unfinished finds what the rank waits in.
func (d *dump) unfinished() {
	d.waitsIn, d.waitsWith = nil, nil
	for i := range d.operations {
		op := &d.operations[i]
		switch {
		case op.finished:
		case op.p2p:
			d.waitsWith = cmp.Or(d.waitsWith, op)
		default:
			d.waitsIn = cmp.Or(d.waitsIn, op)
		}
	}
}

// waits reports whether the rank has not finished something that it entered.
func (d *dump) waits() bool { return d.waitsIn != nil || d.waitsWith != nil }

// hash returns the hash of the collective with that number, 0 where the dump
// does not have it.
func (d *dump) hash(seq int64) uint32 {
	if i := seq - d.first; i >= 0 && i < int64(len(d.history)) {
		return d.history[i]
	}
	return 0
}

// saysMore reports whether d should take the place of old: it is younger, the same
// moment in a form with stacks, or the same again later. A record that comes twice
// says nothing more.
func (d *dump) saysMore(old *dump) bool {
	if d.newest != old.newest {
		return d.newest > old.newest
	}
	if d.lines() != old.lines() {
		return d.lines() > old.lines()
	}
	return d.at > old.at
}

func (d *dump) lines() (n int) {
	for i := range d.operations {
		n += len(d.operations[i].code)
	}
	return n
}

// parseRanks reads "0-3,8,16-32/8"; nil for what it cannot read, and for more
// than most ranks.
func parseRanks(s string, most int) []int {
	if s == "" {
		return nil
	}
	var ranks []int
	for part := range strings.SplitSeq(s, ",") {
		first, last, step, ok := parseSpan(part)
		if !ok || last >= first && (last-first)/step >= most-len(ranks) {
			return nil
		}
		for rank := first; rank <= last; rank += step {
			ranks = append(ranks, rank)
		}
	}
	slices.Sort(ranks)
	return slices.Compact(ranks)
}

func parseSpan(part string) (first, last, step int, ok bool) {
	span, stepText, stepped := strings.Cut(part, "/")
	firstText, lastText, ranged := strings.Cut(span, "-")
	if !ranged {
		lastText = firstText
	}
	first, err1 := strconv.Atoi(firstText)
	last, err2 := strconv.Atoi(lastText)
	step, err3 := 1, error(nil)
	if stepped {
		step, err3 = strconv.Atoi(stepText)
	}
	ok = err1 == nil && err2 == nil && err3 == nil && first >= 0 && last <= socketstall.MaxRank && step >= 1 && step <= socketstall.MaxRank
	return first, last, step, ok
}
