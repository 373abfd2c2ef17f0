package ncclhang

import (
	"hash/fnv"

	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// maxTexts bounds the texts that a run shares between its dumps: the ranks of a
// job run the same program.
const maxTexts = 65_536

// learn keeps the words of a hash.
func (r *run) learn(words string) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(words)) // never fails
	hash := max(h.Sum32(), 1)
	if _, known := r.words[hash]; !known && len(r.words) < maxTexts {
		r.words[hash] = socketstall.Clip(words)
	}
}

// share replaces the texts of a dump by those that the run already has.
func (r *run) share(d *dump) {
	for i := range d.operations {
		op := &d.operations[i]
		for _, s := range []*string{&op.name, &op.signature, &op.in, &op.out, &op.state} {
			*s = r.one(*s)
		}
		for k := range op.code {
			op.code[k] = r.one(op.code[k])
		}
	}
	h := &d.host
	for _, s := range []*string{&d.members, &h.Host, &h.Node, &h.Process} {
		*s = r.one(*s)
	}
}

func (r *run) one(s string) string {
	if known, found := r.texts[s]; found {
		return known
	}
	if len(r.texts) < maxTexts {
		r.texts[s] = s
	}
	return s
}

// Bounds of the member lists that a run keeps: a job of 16,384 ranks has 8,192
// groups of two for each of its dimensions, and 16,384 members in each.
const (
	maxSets       = 65_536
	maxSetMembers = 1 << 22
)

// membersOf reads a text of ranks, each text once. A list beyond the bounds is
// one that is not known.
func (r *run) membersOf(text string) []int {
	if text == "" {
		return nil
	}
	members, known := r.sets[text]
	if !known && len(r.sets) < maxSets {
		members = parseRanks(text, maxSetMembers-r.setMembers)
		r.setMembers += len(members)
		r.sets[text] = members
	}
	return members
}
