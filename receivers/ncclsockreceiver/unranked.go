package ncclsockreceiver

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclsock"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/safetext"
)

// A job whose processes do not say which ranks they are is watched by nobody. It shows by its
// sockets. Each of its processes has NCCL, RCCL or PyTorch mapped, and moves data with others
// like it. Both ports of these connections are of the kernel's choice, and there are as many
// connections as processes at least. NCCL makes a ring of them, Gloo a mesh; a service and its
// clients are a star, which has one less.
const (
	unrankedInterval = 30 * time.Second
	// unrankedAfter is for how long they have to be seen so: Ray and mp.spawn say who they are
	// after their start, and the identity extension sees it within a minute.
	unrankedAfter   = 90 * time.Second
	leastMoved      = 64 << 10 // bytes, of a connection that counts
	mostPIDsInALine = 16
)

// unranked says of such groups that they are there, once each.
type unranked struct {
	config *Config
	logger *zap.Logger
	// collective reports whether a process has a library of collectives.
	collective func(pid uint32) bool
	count      atomic.Int64 // processes in groups that were told

	next     time.Time
	snapshot ncclsock.Snapshot
	seen     map[instance]*since
}

// instance is one process, once.
type instance struct {
	pid     uint32
	started int64
}

// since is when a process was first seen in a group, and whether that was told.
type since struct {
	first time.Time
	told  bool
	last  time.Time
}

func newUnranked(config *Config, logger *zap.Logger, collective func(uint32) bool) *unranked {
	return &unranked{config: config, logger: logger, collective: collective, seen: map[instance]*since{}}
}

// hasCollectives looks for the libraries in the memory map of a process.
func hasCollectives(pid uint32) bool {
	found, err := procfs.Open("").Libraries(pid, "libnccl.so", "librccl.so", "libtorch_cpu.so")
	return err == nil && len(found) > 0
}

// look looks at the processes that may be ranks, now and then. What cannot be read says nothing.
func (u *unranked) look(resolver identity.Resolver, s source, now time.Time) {
	candidates, ok := resolver.(identity.Candidates)
	if !ok || now.Before(u.next) {
		return
	}
	u.next = now.Add(unrankedInterval)
	known := map[uint32]identity.Process{}
	for _, p := range candidates.Unranked() {
		if len(known) < int(u.config.MaxProcesses) {
			known[p.PID] = p
		}
	}
	var groups [][]identity.Process
	if len(known) > 1 && s.Snapshot(slices.Sorted(maps.Keys(known)), &u.snapshot) == nil {
		groups = u.groups(known)
	}
	count := 0
	for _, group := range groups {
		count += u.tell(group, now)
	}
	u.count.Store(int64(count))
	maps.DeleteFunc(u.seen, func(_ instance, one *since) bool { return !one.last.Equal(now) })
}

// groups are processes that move data between them as ranks do.
func (u *unranked) groups(known map[uint32]identity.Process) (groups [][]identity.Process) {
	type end struct {
		netns         uint64 // of loopback addresses
		local, remote netip.AddrPort
	}
	ends := map[end]uint32{}
	partners := map[uint32][]uint32{} // one entry for each end of a connection
	for i := range u.snapshot.Sockets {
		c := &u.snapshot.Sockets[i]
		if c.State != ncclsock.Established || c.Local.Port() < u.config.RankPortsFrom || c.Remote.Port() < u.config.RankPortsFrom || c.BytesReceived+c.BytesSent < leastMoved {
			continue
		}
		one := end{local: c.Local, remote: c.Remote}
		if c.Local.Addr().IsLoopback() {
			one.netns = c.NetNS
		}
		if pid, there := ends[end{one.netns, one.remote, one.local}]; there && pid != c.PID {
			partners[pid], partners[c.PID] = append(partners[pid], c.PID), append(partners[c.PID], pid)
		}
		ends[one] = c.PID
	}
	maps.DeleteFunc(partners, func(pid uint32, _ []uint32) bool { return known[pid].PID == 0 || !u.collective(pid) })
	visited := map[uint32]bool{}
	for _, first := range slices.Sorted(maps.Keys(partners)) {
		var members []identity.Process
		found := 0
		for next := []uint32{first}; len(next) > 0; next = next[1:] {
			pid := next[0]
			if _, counts := partners[pid]; !counts || visited[pid] {
				continue
			}
			visited[pid] = true
			members = append(members, known[pid])
			for _, other := range partners[pid] {
				if _, counts := partners[other]; counts {
					next = append(next, other)
					found++
				}
			}
		}
		if len(members) > 1 && found/2 >= len(members) {
			groups = append(groups, members)
		}
	}
	return groups
}

// tell logs a group once it stands for long enough, and returns how many processes it has then.
func (u *unranked) tell(group []identity.Process, now time.Time) int {
	slices.SortFunc(group, func(a, b identity.Process) int { return cmp.Compare(a.PID, b.PID) })
	first, told := now, false
	for _, p := range group {
		one := u.seen[instanceOf(p)]
		if one == nil {
			one = &since{first: now}
			u.seen[instanceOf(p)] = one
		}
		one.last, told = now, told || one.told
		if one.first.Before(first) {
			first = one.first
		}
	}
	if now.Sub(first) < unrankedAfter {
		return 0
	}
	var pids []uint32
	for _, p := range group {
		u.seen[instanceOf(p)].told = true
		if len(pids) < mostPIDsInALine {
			pids = append(pids, p.PID)
		}
	}
	if !told {
		u.logger.Warn("processes move data between them as the ranks of a job do, and nothing says which ranks they are: their stalls and hangs go unseen. "+
			"Each needs its rank and the number of ranks in its environment: "+identity.Variables,
			zap.Int("processes", len(group)), zap.Uint32s("pids", pids), zap.String("process", safetext.Line(group[0].Comm)),
			zap.String("pod", cmp.Or(group[0].PodUID, group[0].ContainerID)))
	}
	return len(group)
}

func instanceOf(p identity.Process) instance { return instance{p.PID, p.StartTime.UnixNano()} }
