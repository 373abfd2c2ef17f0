package stacksreceiver

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/identity"
)

// of is a process of the rank that began as rank; the rank itself has no parent here.
func of(rank, pid, parent uint32, name string) identity.Process {
	return identity.Process{PID: pid, ParentPID: parent, Comm: name, RankPID: rank, RankStart: start, Inherited: pid != rank}
}

func takesPart(p identity.Process) identity.Process { p.TakesPart = true; return p }

func TestTheProcessesThatAreTheRank(t *testing.T) {
	for name, tc := range map[string]struct {
		ranks   []identity.Process
		pythons []uint32
		waits   []uint32
		want    []uint32
		trains  []uint32
	}{
		"python, and its workers are not": {
			[]identity.Process{of(10, 10, 0, "python"), of(10, 11, 10, "python"), of(10, 12, 10, "python")}, []uint32{10, 11, 12}, nil, []uint32{10}, nil,
		},
		"started by a shell": {
			[]identity.Process{of(10, 10, 0, "bash"), of(10, 12, 11, "python3"), of(10, 11, 10, "env"), of(10, 13, 12, "python3")}, []uint32{12, 13}, nil, []uint32{12}, nil,
		},
		"started by a launcher in Python that waits": {
			[]identity.Process{of(10, 10, 0, "accelerate"), of(10, 11, 10, "python")}, []uint32{10, 11}, []uint32{10}, []uint32{10, 11}, nil,
		},
		"started by a launcher in Python that polls for it": {
			[]identity.Process{of(10, 10, 0, "python"), of(10, 11, 10, "python"), of(10, 12, 11, "python")}, []uint32{10, 11, 12}, nil, []uint32{11}, []uint32{11, 12},
		},
		"by a launcher that waits, through a shell": {
			[]identity.Process{of(10, 10, 0, "python"), of(10, 11, 10, "sh"), of(10, 12, 11, "python")}, []uint32{10, 12}, []uint32{10}, []uint32{12}, []uint32{12},
		},
		"by a launcher of a launcher": {
			[]identity.Process{of(10, 10, 0, "python"), of(10, 11, 10, "python"), of(10, 12, 11, "python")}, []uint32{10, 11, 12}, nil, []uint32{12}, []uint32{12},
		},
		"a launcher whose child does not train yet": {
			[]identity.Process{of(10, 10, 0, "python"), of(10, 11, 10, "python")}, []uint32{10, 11}, nil, []uint32{10}, nil,
		},
		"a rank that trains, and so do its workers": {
			[]identity.Process{of(10, 10, 0, "python"), of(10, 11, 10, "python")}, []uint32{10, 11}, nil, []uint32{10}, []uint32{10, 11},
		},
		"a launcher that has the libraries of its child, which takes part": {
			[]identity.Process{of(10, 10, 0, "python"), takesPart(of(10, 11, 10, "python"))}, []uint32{10, 11}, nil, []uint32{11}, []uint32{10, 11},
		},
		"a rank that takes part, and so does its child": {
			[]identity.Process{takesPart(of(10, 10, 0, "python")), takesPart(of(10, 11, 10, "python"))}, []uint32{10, 11}, nil, []uint32{10}, []uint32{10, 11},
		},
		"a rank that takes part without such libraries, and a child that has some": {
			[]identity.Process{takesPart(of(10, 10, 0, "python")), of(10, 11, 10, "python")}, []uint32{10, 11}, nil, []uint32{10}, []uint32{11},
		},
		"a child that takes part is no Python": {
			[]identity.Process{of(10, 10, 0, "python"), takesPart(of(10, 11, 10, "trainer"))}, []uint32{10}, nil, []uint32{11}, nil,
		},
		"no Python": {
			[]identity.Process{of(10, 10, 0, "trainer"), of(10, 11, 10, "ptxas")}, nil, nil, []uint32{10}, nil,
		},
		"no Python, started by a shell": {
			[]identity.Process{of(10, 10, 0, "sh"), of(10, 11, 10, "trainer"), of(10, 12, 11, "ptxas")}, nil, nil, []uint32{11}, nil,
		},
		"two ranks": {
			[]identity.Process{of(20, 20, 0, "python"), of(10, 10, 0, "python")}, []uint32{10, 20}, nil, []uint32{10, 20}, nil,
		},
		"the rank has ended, its worker has not": {
			[]identity.Process{of(10, 11, 10, "python")}, []uint32{11}, nil, nil, nil,
		},
		"nothing is known of its start": {
			[]identity.Process{{PID: 7, Comm: "python"}}, []uint32{7}, nil, []uint32{7}, nil,
		},
		"its own parent": {
			[]identity.Process{of(10, 10, 0, "sh"), of(10, 11, 11, "sh")}, nil, nil, []uint32{10}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []uint32
			for _, family := range families(tc.ranks) {
				for _, p := range family.themselves(func(p identity.Process, _ bool) program {
					return program{slices.Contains(tc.pythons, p.PID), slices.Contains(tc.waits, p.PID), slices.Contains(tc.trains, p.PID)}
				}) {
					got = append(got, p.PID)
				}
			}
			require.Equal(t, tc.want, got)
		})
	}
}

func TestWhoStartsManyRanksTakesRoomFromHimself(t *testing.T) {
	var ranks []identity.Process
	for i := range uint32(1000) {
		p := of(i+1, i+1, 0, "python")
		p.Domain = "user:1000"
		ranks = append(ranks, p)
	}
	for i := range uint32(8) {
		p := of(5000+i, 5000+i, 0, "python")
		p.Domain = "slurm:7"
		ranks = append(ranks, p)
	}
	some, over := share(families(ranks), 64)
	require.Equal(t, 1008-64, over)
	held := map[string]int{}
	for _, f := range some {
		held[f.outermost.Domain]++
	}
	require.Equal(t, map[string]int{"user:1000": 56, "slurm:7": 8}, held)
	all, over := share(families(ranks[1000:]), 64)
	require.Len(t, all, 8)
	require.Zero(t, over)
}
