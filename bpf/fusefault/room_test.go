//go:build linux && (amd64 || arm64)

package fusefault

import (
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/fusefault/hangfs"
	"github.com/tracecoreai/tracecore/bpf/internal/room"
	"github.com/tracecoreai/tracecore/bpf/oomkill"
	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// small is a probe whose maps a test can fill.
func small(rung string) Options {
	return Options{Rung: rung, MinAge: young.MinAge, MaxInFlight: 64}
}

const stranger = 64000 // the first of the users that hang threads

// flood hangs more threads than the maps have room for: so many of each of so many
// users, in each way.
func flood(t *testing.T, p *Probe, users uint32, threads int) (release func()) {
	t.Helper()
	var mounts []*hangfs.FS
	var visitors []*hangfs.Visitor
	before := p.Stats().Dropped
	for user := range users {
		f := mount(t, hangfs.Options{})
		v, err := f.Visit(hangfs.Visit{User: stranger + user, Accesses: []hangfs.Access{
			{How: hangfs.Fault, File: hangfs.Cached, Threads: threads}, {How: hangfs.Read, File: hangfs.Direct, Threads: threads},
		}})
		require.NoError(t, err)
		mounts, visitors = append(mounts, f), append(visitors, v)
	}
	for i, f := range mounts {
		require.NoError(t, f.Freeze())
		require.NoError(t, visitors[i].Go())
	}
	require.Eventually(t, func() bool {
		return p.Stats().Dropped-before >= 2*uint64(int(users)*threads-64)
	}, hosttest.Patience, pace)
	return func() {
		for i, f := range mounts {
			require.NoError(t, f.Thaw())
			require.NoError(t, visitors[i].Wait(t.Context()))
			require.NoError(t, visitors[i].Kill())
			<-visitors[i].Gone()
			until(t, p, f, gone)
		}
	}
}

// requireSeen hangs a thread in each way, in a cgroup of its own if it is confined, and
// waits until both are seen.
func requireSeen(t *testing.T, p *Probe, confined bool) {
	t.Helper()
	f := mount(t, hangfs.Options{})
	v := visit(t, f, hangfs.Access{How: hangfs.Fault, File: hangfs.Cached}, hangfs.Access{How: hangfs.Read, File: hangfs.Direct})
	remove := func() error { return nil }
	if confined {
		var err error
		remove, err = oomkill.Confine(v.PID(), 1<<30)
		require.NoError(t, err)
	}
	require.NoError(t, f.Freeze())
	require.NoError(t, v.Go())
	until(t, p, f, func(all []InFlight, _ Mount) bool { return len(waiters(all)) == 2 && len(of(all, KindFault)) == 1 })
	require.NoError(t, f.Thaw())
	require.NoError(t, v.Wait(t.Context()))
	require.NoError(t, v.Kill())
	<-v.Gone()
	require.NoError(t, remove())
}

// requireExact: what is counted as held is what the maps hold, by tenant and by user. Both are read
// one after the other, and threads that were let go still ask.
func requireExact(t *testing.T, p *Probe) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	b := &p.buffers
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		var err error
		b.requestKeys, b.requests, err = readAll(p.hooks, tableRequests, b, b.requestKeys, b.requests)
		require.NoError(c, err)
		b.faultKeys, b.faults, err = readAll(p.hooks, tableFaults, b, b.faultKeys, b.faults)
		require.NoError(c, err)
		b.mountKeys, b.mounts, err = readAll(p.hooks, tableMounts, b, b.mountKeys, b.mounts)
		require.NoError(c, err)
		var tables [3][]room.Owner
		add := func(table int, o bpfOwner) {
			tables[table] = append(tables[table], room.Owner{Tenant: o.TenantSlot, User: o.UserSlot})
		}
		for _, r := range b.requests {
			add(0, r.Owner)
		}
		for _, f := range b.faults {
			add(1, f.Owner)
		}
		for _, m := range b.mounts {
			add(2, m.Owner)
		}
		got, err := room.Held(p.hooks.maps.Held)
		require.NoError(c, err)
		require.True(c, slices.Equal(room.Counts(tables[:]...), got), "what is held is not what is counted")
	}, hosttest.Patience, pace)
}

// A user who may mount FUSE where nobody else sees it hangs as many threads on it as he
// likes.
func TestWaitersOfOneUserHideNoRankOfAnother(t *testing.T) {
	for _, rung := range Rungs() {
		t.Run(rung, func(t *testing.T) {
			p, ok := tryOpen(t, small(rung))
			if !ok {
				return
			}
			release := flood(t, p, 1, 80)
			requireSeen(t, p, false)
			release()
			requireExact(t, p)
		})
	}
}

// Nor as many users as he likes, from the one pod that he has.
func TestUsersOfOneTenantHideNoRankOfAnother(t *testing.T) {
	for _, rung := range Rungs() {
		t.Run(rung, func(t *testing.T) {
			p, ok := tryOpen(t, small(rung))
			if !ok {
				return
			}
			release := flood(t, p, 40, 4)
			requireSeen(t, p, true)
			release()
			requireExact(t, p)
		})
	}
}

// The kernel uses a structure again for anybody: what one has left behind is not held
// against another, nor does it let him have more.
func TestRoomGoesToWhoUsesTheStructure(t *testing.T) {
	// Room for as many structures as the kernel may take for all that follows.
	p := open(t, Options{MinAge: young.MinAge, MaxInFlight: 512})
	for user := uint32(stranger); user < stranger+20; user++ {
		f := mount(t, hangfs.Options{})
		v, err := f.Visit(hangfs.Visit{User: user, Accesses: []hangfs.Access{{How: hangfs.Read, File: hangfs.Direct, Threads: 16}}})
		require.NoError(t, err)
		require.NoError(t, v.Go())
		require.NoError(t, v.Wait(t.Context()))
		require.NoError(t, v.Kill())
		<-v.Gone()
	}
	requireSeen(t, p, false)
	requireExact(t, p)
}

// Entries that are not used again go, and give their room back.
func TestForgottenEntriesGiveTheirRoomBack(t *testing.T) {
	p := open(t, small(""))
	release := flood(t, p, 1, 80)
	release()
	require.Eventually(t, func() bool {
		var s Snapshot
		require.NoError(t, p.Snapshot(&s))
		p.mu.Lock()
		defer p.mu.Unlock()
		picture, err := p.look(young.MinAge)
		require.NoError(t, err)
		all := picture.unused
		for i, r := range p.buffers.requests {
			all = append(all, request{p.buffers.requestKeys[i], r})
		}
		require.NoError(t, p.forget(verdicts{endedFaults: picture.faults}, all))
		requests, err := room.InAll(p.hooks.maps.Held, 0)
		require.NoError(t, err)
		faults, err := room.InAll(p.hooks.maps.Held, 1)
		require.NoError(t, err)
		return requests == 0 && faults == 0
	}, hosttest.Patience, pace)
	requireExact(t, p)
}

// crowded is a probe that follows few mounts.
func crowded(rung string) Options {
	return Options{Rung: rung, MinAge: young.MinAge, maxMounts: 32}
}

// use lets a mount answer so often that one answer at least is timed, which says whose it is.
func use(t *testing.T, f *hangfs.FS) {
	t.Helper()
	file, err := os.Open(f.Path(hangfs.Direct))
	require.NoError(t, err)
	for range 200 {
		_, err := file.ReadAt(make([]byte, 1), 0)
		require.NoError(t, err)
	}
	require.NoError(t, file.Close())
}

// A user who may mount FUSE makes as many mounts as he likes: those of others are followed all
// the same, and his own beyond his share are counted.
func TestMountsOfOneTenantHideNoneOfAnother(t *testing.T) {
	for _, rung := range Rungs() {
		t.Run(rung, func(t *testing.T) {
			p, ok := tryOpen(t, crowded(rung))
			if !ok {
				return
			}
			before := mount(t, hangfs.Options{})
			use(t, before)
			for n := 0; p.Stats().Dropped == 0; n++ {
				require.Less(t, n, 40, "there is room for all")
				use(t, mount(t, hangfs.Options{}))
			}
			_, m := look(t, p, before)
			require.Equal(t, uint32(before.PID()), m.DaemonPID, "it was followed before the others came")
			f := mount(t, hangfs.Options{})
			remove, err := oomkill.Confine(f.PID(), 1<<30)
			require.NoError(t, err)
			until(t, p, f, func(_ []InFlight, m Mount) bool {
				use(t, f)
				return m.DaemonPID == uint32(f.PID()) && m.Requests != Histogram{}
			})
			requireExact(t, p)
			require.NoError(t, f.Close())
			require.NoError(t, remove())
		})
	}
}

// Mounts that nobody used for long make room once half of it is in use.
func TestQuietMountsGiveTheirRoomBack(t *testing.T) {
	p := open(t, crowded(""))
	for range 18 {
		use(t, mount(t, hangfs.Options{}))
	}
	f := mount(t, hangfs.Options{})
	use(t, f)
	_, m := look(t, p, f)
	require.Equal(t, uint32(f.PID()), m.DaemonPID)
	p.mu.Lock()
	now, err := bootNow()
	require.NoError(t, err)
	left, err := p.mounts(&picture{now: now + 2*quietAfter})
	p.mu.Unlock()
	require.NoError(t, err)
	require.Empty(t, left)
	requireExact(t, p)
	use(t, f)
	_, m = look(t, p, f)
	require.Equal(t, uint32(f.PID()), m.DaemonPID, "it is followed again")
}
