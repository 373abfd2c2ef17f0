package ncclcall

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// windowAt is a communicator that has launched so often, among words of other kinds.
func windowAt(launched uint64) []uint64 {
	return []uint64{8<<32 | 5, 0x7f00_dead_beef_0000 + launched, 4096, launched, launched / 2, launched + 7}
}

func TestLaunchesAreFoundByHowTheyGrow(t *testing.T) {
	var l launches
	for i, number := range []uint64{0, 3, 3, 4, 100} {
		_, ok := l.learn(number, windowAt(5000+number))
		require.False(t, ok, "after %d", i)
	}
	before, ok := l.learn(130, windowAt(5130))
	require.True(t, ok)
	require.EqualValues(t, 5000, before, "of two words the first")
	before, ok = l.learn(130, windowAt(5130))
	require.True(t, ok, "no call since")
	require.EqualValues(t, 5000, before)

	_, ok = l.learn(140, windowAt(5141))
	require.False(t, ok, "a launch without a call: nobody knows any more")
	_, ok = l.learn(2, windowAt(9))
	require.False(t, ok, "another one at the same address")
}

func TestLaunchesOfGroupsAreNotGuessed(t *testing.T) {
	var l launches
	for number := uint64(0); number < 400; number += 4 {
		_, ok := l.learn(number, []uint64{5000 + number/4})
		require.False(t, ok, "four calls in one launch")
	}
}

func FuzzLaunches(f *testing.F) {
	f.Add(uint64(3), uint64(5003), uint64(9), uint64(5009))
	f.Fuzz(func(t *testing.T, n1, w1, n2, w2 uint64) {
		var l launches
		for _, one := range [][2]uint64{{n1, w1}, {n2, w2}, {n2, w1}, {n1, w2}, {n2 + 1, w2 + 1}} {
			l.learn(one[0], []uint64{one[1], one[1] * 3})
		}
	})
}
