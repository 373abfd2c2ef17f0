package activity

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// Ranks of one user with thousands of children, which all rest and all are looked at first,
// hide no child of another's rank.
func TestChildrenOfOneUserHideNoneOfAnother(t *testing.T) {
	tree := newTree(t)
	victim := tree.add("S", 250, 125)
	victim.Domain = "user 2"
	tree.main(1000, 5, "202 0x1 0x2", "futex_do_wait")
	var flood []identity.Process
	for pid := uint32(1000); pid < 1003; pid++ {
		tree.child(pid, 1, "flood", 100, 0)
		flood = append(flood, identity.Process{PID: pid, Rank: int(pid), Domain: "user 1", StartNS: 70000 * uint64(procfs.Tick)})
		for child := range uint32(100) {
			pid, parent := 2000+pid%10*100+child, pid
			tree.write(fmt.Sprintf("%d/stat", pid), fmt.Sprintf("%d (flood) S %d 42 42 0 -1 4194304 1 0 0 0 1 0 0 0 20 0 1 0 70000 1000 1", pid, parent))
		}
	}
	l := newLooks(tree, victim)
	ranks := append(flood, victim)
	isRoot := func(pid uint32) bool {
		return slices.ContainsFunc(ranks, func(p identity.Process) bool { return p.PID == pid })
	}
	for look := range uint64(4) {
		tree.child(50, 42, "pt_data_worker", 100+100*look, 0) // a core
		tree.childIn("T", 51, 42, "pt_data_worker", 100, 0)
		l.at = l.at.Add(time.Second)
		l.Begin()
		var out Process
		for _, p := range ranks {
			out = l.Read(p, false)
			l.Inspect(&out, isRoot)
		}
		require.Equal(t, []uint32{50, 51}, out.Inside.Tree)
		if look >= 2 {
			require.InDelta(t, 1.0, out.Inside.Children, 0.001)
		}
	}
	for range 3 { // now it rests, too: the child that is stopped holds it up
		l.at = l.at.Add(time.Second)
		l.Begin()
		var out Process
		for _, p := range ranks {
			out = l.Read(p, false)
			l.Inspect(&out, isRoot)
		}
		if out.Inside.Holder != nil {
			require.EqualValues(t, 51, out.Inside.Holder.PID)
			return
		}
	}
	t.Fatal("nobody saw who holds the rank up")
}

func TestSharesOfARound(t *testing.T) {
	for _, tc := range []struct {
		room  int
		wants []int
		has   []int
	}{
		{10, nil, []int{}},
		{10, []int{3, 4}, []int{3, 4}},
		{10, []int{300, 2}, []int{8, 2}},
		{10, []int{300, 300}, []int{5, 5}},
		{0, []int{1}, []int{0}},
	} {
		require.Equal(t, tc.has, level(tc.room, 0, tc.wants, func(n int) int { return n }))
	}
	served := map[int]bool{}
	for round := range 8 { // more than there is room for take turns
		for at, room := range level(2, round, []int{1, 1, 1, 1}, func(n int) int { return n }) {
			served[at] = served[at] || room == 1
		}
	}
	require.Equal(t, map[int]bool{0: true, 1: true, 2: true, 3: true}, served)
}

// processes puts so many processes of a user into the tree, from that number on.
func (p tree) processes(user int, first, n uint32) {
	for pid := first; pid < first+n; pid++ {
		p.write(fmt.Sprintf("%d/stat", pid), fmt.Sprintf("%d (bomb) S 1 42 42 0 -1 4194304 1 0 0 0 1 0 0 0 20 0 1 0 70000 1000 1", pid))
		if os.Getuid() == 0 {
			require.NoError(p.t, os.Chown(filepath.Join(p.root, fmt.Sprint(pid)), user, -1))
		}
	}
}

func (p tree) end(first, n uint32) {
	for pid := first; pid < first+n; pid++ {
		require.NoError(p.t, os.RemoveAll(filepath.Join(p.root, fmt.Sprint(pid))))
	}
}

// Processes of one user without end, all newer, do not delay the look at those of another.
func TestProcessesOfOneUserHideNoChildOfAnother(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("gives folders to another user: run as root")
	}
	const bomb = 60
	tree := newTree(t)
	p := tree.add("S", 250, 125)
	tree.main(1000, 5, "202 0x1 0x2", "futex_do_wait")
	l := newLooks(tree, p)
	l.trees.family.met, l.trees.family.known = 20, 50
	for round := range uint32(5) {
		tree.processes(1001, 1000+round*bomb, bomb)
		tree.child(50+round, 42, "pt_data_worker", 100, 0)
		require.Len(t, l.look().Inside.Tree, int(round)+1)
		if round%2 == 1 { // else they stay, and fill what is known
			tree.end(1000+round*bomb, bomb)
		}
	}
}

// Where all are of one user, each has its turn: what ends and begins again and again delays
// the others, and hides none.
func TestProcessesOfTheSameUserDelayAndHideNone(t *testing.T) {
	const bomb = 100
	tree := newTree(t)
	p := tree.add("S", 250, 125)
	tree.main(1000, 5, "202 0x1 0x2", "futex_do_wait")
	l := newLooks(tree, p)
	l.trees.family.met = 20
	seen := 0
	for round := uint32(0); seen < 2; round++ {
		require.Less(t, round, uint32(2*bomb/20), "it has no turn")
		tree.processes(0, 1000+round*bomb, bomb)
		tree.child(50+round%2, 42, "pt_data_worker", 100, 0)
		seen = len(l.look().Inside.Tree)
		tree.end(1000+round*bomb, bomb)
	}
}
