package ncclhang

import (
	"encoding/binary"
	"hash/fnv"
	"slices"

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
	if d.places == 0 {
		d.measure(r.shareHistory(d))
	}
	h := &d.host
	for _, s := range []*string{&d.members, &h.Host, &h.Node, &h.Process} {
		*s = r.one(*s)
	}
}

// maxHistories bounds the histories that a run shares: ranks that did the same have the same one.
// With more, sharing begins anew.
const maxHistories = 4096

// shareHistory replaces the history of a dump by the one that the run already has, and reports
// whether there is one.
func (r *run) shareHistory(d *dump) bool {
	if len(d.history) == 0 {
		return true
	}
	h := fnv.New64a()
	var raw [4]byte
	for _, one := range d.history {
		binary.LittleEndian.PutUint32(raw[:], one)
		_, _ = h.Write(raw[:]) // never fails
	}
	sum := h.Sum64()
	known, found := r.histories[sum]
	switch {
	case found && slices.Equal(known, d.history):
		d.history = known
		return true
	case found:
		return false
	case len(r.histories) >= maxHistories:
		clear(r.histories)
	}
	r.histories[sum] = d.history
	return false
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
