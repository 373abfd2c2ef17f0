package ncclfrreceiver

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// pace shares the one reader among those who write files. Files that give records are
// read as they come. Other reading takes a part of a processor, however many files,
// links and touches there are, and does not hold up the files of others.
type pace struct {
	files  map[fileID]time.Time // when a file may be read again
	owners map[owner]*account
}

// fileID is a file, by whatever name.
type fileID struct{ device, inode uint64 }

// owner is a user in a folder: who can put files there.
type owner struct {
	uid    uint32
	folder string
}

// account is what reading an owner's files in vain has cost.
type account struct {
	cost time.Duration
	next time.Time // when they may be read again
}

// candidate is a file to look at.
type candidate struct {
	path  string
	print fingerprint
	owner owner
	// written is who wrote it, where it lies where a rank writes its dumps; nil for what
	// the configuration names.
	written *written
}

// refused is that the file is not read.
func (c candidate) refused(why error) refusal { return refusal{c.path, c.owner.uid, c.written, why} }

func (c candidate) id() fileID { return fileID{c.print.Device, c.print.Inode} }

const (
	// fileShare: after a reading, a file rests for so many times what that cost.
	fileShare = 20
	// ownerShare: after readings in vain that cost vain in all, an owner's files rest
	// for so many times that.
	ownerShare = 4
	vain       = 250 * time.Millisecond
	// cheap is a reading after which no file rests: a poll a second bounds it.
	cheap = 50 * time.Millisecond
	// alike are sizes that do not matter for the order.
	alike = 4 << 20
)

func newPace() pace { return pace{files: map[fileID]time.Time{}, owners: map[owner]*account{}} }

// named are the files of these names that are still there.
func named(paths []string) []candidate {
	candidates := make([]candidate, 0, len(paths))
	for _, path := range paths {
		info, err := os.Lstat(path)
		if err != nil || !fileOrLink(info.Mode()) {
			continue // gone since it was found
		}
		_, _, uid := identify(info)
		candidates = append(candidates, candidate{path: path, print: fingerprintOf(info), owner: owner{uid, filepath.Dir(path)}})
	}
	return candidates
}

// inTurn returns the files to look at: each once, whatever its names; those that were
// not read before, and the small ones, first.
func (p *pace) inTurn(all []candidate) []candidate {
	named := map[fileID]bool{}
	folders := map[owner]bool{}
	candidates := make([]candidate, 0, len(all))
	for _, c := range all {
		if c.print.Inode != 0 && named[c.id()] {
			continue
		}
		named[c.id()], folders[c.owner] = true, true
		candidates = append(candidates, c)
	}
	maps.DeleteFunc(p.files, func(id fileID, _ time.Time) bool { return !named[id] })
	maps.DeleteFunc(p.owners, func(o owner, _ *account) bool { return !folders[o] })
	slices.SortStableFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(p.before(a), p.before(b)), cmp.Compare(a.print.Size/alike, b.print.Size/alike))
	})
	return candidates
}

// before is 1 for a file whose reading was not cheap.
func (p *pace) before(c candidate) int {
	if _, found := p.files[c.id()]; found {
		return 1
	}
	return 0
}

// may reports whether it is the file's turn.
func (p *pace) may(c candidate, now time.Time) bool {
	if now.Before(p.files[c.id()]) {
		return false
	}
	a := p.owners[c.owner]
	return a == nil || !now.Before(a.next)
}

// spent notes what a reading cost, and whether it gave records.
func (p *pace) spent(c candidate, cost time.Duration, delivered bool, now time.Time) {
	if cost > cheap && c.print.Inode != 0 {
		p.files[c.id()] = now.Add(fileShare * cost)
	}
	if delivered {
		return
	}
	a := p.owners[c.owner]
	if a == nil {
		a = &account{}
		p.owners[c.owner] = a
	}
	if a.cost += cost; a.cost > vain {
		a.next, a.cost = now.Add(ownerShare*a.cost), 0
	}
}
