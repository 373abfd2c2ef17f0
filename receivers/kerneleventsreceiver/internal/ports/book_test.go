package ports

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var start = time.Unix(1_000_000, 0)

func up() Port { return Port{Device: "mlx5_0", Number: 1, State: active} }

func down() Port {
	return Port{Device: "mlx5_0", Number: 1, State: "down", Physical: "polling", Reason: NoLink}
}

// look is a look so long after the start, and for how long the port is then said to have been
// inactive; -1: nothing is told.
type look struct {
	at   time.Duration
	sees []Port
	told time.Duration
}

const nothing = time.Duration(-1)

func (l look) check(t *testing.T, b *Book) {
	t.Helper()
	news := b.Look(l.sees, start.Add(l.at))
	if l.told == nothing {
		require.Empty(t, news, "after %s", l.at)
		return
	}
	require.Len(t, news, 1, "after %s", l.at)
	require.Equal(t, l.sees[0], news[0].Port)
	require.Equal(t, l.told, news[0].Inactive, "after %s", l.at)
}

func TestBook(t *testing.T) {
	one := func(p Port) []Port { return []Port{p} }
	disabled := down()
	disabled.Physical, disabled.Reason = "disabled", SwitchedOff
	unread := Port{Device: "mlx5_0", Number: 1}
	on := func(name, state string) Port {
		p := Port{Device: "mlx5_0", Number: 1, Interface: name, Ethernet: true, State: state}
		if state != active && name != "" {
			p.Reason = SwitchedOff
		}
		return p
	}
	ipoib := Port{Device: "mlx5_0", Number: 1, Interface: "ib0", State: active}
	for name, looks := range map[string][]look{
		"never active":              {{0, one(down()), nothing}, {time.Hour, one(down()), nothing}},
		"active once":               {{0, one(up()), 0}, {5 * time.Second, one(up()), nothing}, {time.Hour, one(up()), nothing}},
		"plugged in later":          {{0, one(down()), nothing}, {time.Hour, one(up()), 0}, {2 * time.Hour, one(down()), 0}},
		"down and up":               {{0, one(up()), 0}, {5 * time.Second, one(down()), 0}, {10 * time.Second, one(up()), 0}, {15 * time.Second, one(up()), nothing}},
		"down for long":             {{0, one(up()), 0}, {5 * time.Second, one(down()), 0}, {10 * time.Second, one(down()), nothing}, {65 * time.Second, one(down()), time.Minute}, {70 * time.Second, one(down()), nothing}},
		"down, and then disabled":   {{0, one(up()), 0}, {5 * time.Second, one(down()), 0}, {10 * time.Second, one(disabled), 5 * time.Second}},
		"gone and back":             {{0, one(up()), 0}, {5 * time.Second, nil, nothing}, {10 * time.Second, one(down()), nothing}},
		"unreadable for a while":    {{0, one(up()), 0}, {5 * time.Second, one(down()), 0}, {10 * time.Second, one(unread), nothing}, {95 * time.Second, one(down()), 90 * time.Second}},
		"unreadable from the start": {{0, one(unread), nothing}, {5 * time.Second, one(down()), nothing}},
		"a pod gives it back": {
			{0, one(on("", active)), 0},
			{5 * time.Second, one(on("eth5", "down")), nothing},
			{time.Hour, one(on("eth5", "down")), nothing},
			{2 * time.Hour, one(on("", active)), 0},
		},
		"a pod takes it down and gives it back": {
			{0, one(on("", active)), 0},
			{5 * time.Second, one(on("", "down")), 0},
			{10 * time.Second, one(on("eth5", "down")), nothing},
			{time.Hour, one(on("eth5", "down")), nothing},
		},
		"a pod gets it, and begins slowly": {
			{0, one(on("eth5", active)), 0},
			{5 * time.Second, one(on("", "down")), nothing},
			{time.Hour, one(on("", "down")), nothing},
			{2 * time.Hour, one(on("", active)), 0},
		},
		"it is renamed while it is active": {
			{0, one(on("eth5", active)), 0},
			{5 * time.Second, one(on("ens5", active)), 0},
			{10 * time.Second, one(on("ens5", "down")), 0},
			{70 * time.Second, one(on("ens5", "down")), time.Minute},
		},
		"it fails in a pod": {
			{0, one(on("", active)), 0},
			{5 * time.Second, one(on("", "down")), 0},
			{65 * time.Second, one(on("", "down")), time.Minute},
		},
		"InfiniBand does not mind its interface": {{0, one(ipoib), 0}, {5 * time.Second, one(down()), 0}, {65 * time.Second, one(down()), time.Minute}},
		"the clock goes back":                    {{0, one(up()), 0}, {time.Minute, one(down()), 0}, {0, one(disabled), 0}},
	} {
		t.Run(name, func(t *testing.T) {
			var b Book
			for _, l := range looks {
				l.check(t, &b)
			}
		})
	}
}

func TestBookOutlivesItsProcess(t *testing.T) {
	for name, tc := range map[string]struct {
		before []look
		after  look
	}{
		"it went down before":    {[]look{{0, []Port{up()}, 0}, {time.Minute, []Port{down()}, 0}}, look{time.Hour, []Port{down()}, 59 * time.Minute}},
		"it went down meanwhile": {[]look{{0, []Port{up()}, 0}}, look{time.Hour, []Port{down()}, 0}},
		"it came up meanwhile":   {[]look{{0, []Port{up()}, 0}, {time.Minute, []Port{down()}, 0}}, look{time.Hour, []Port{up()}, 0}},
		"it was never active":    {[]look{{0, []Port{down()}, nothing}}, look{time.Hour, []Port{down()}, nothing}},
		"the clock was set back": {[]look{{time.Hour, []Port{up()}, 0}, {2 * time.Hour, []Port{down()}, 0}}, look{time.Minute, []Port{down()}, 0}},
		"its pod has ended meanwhile": {
			[]look{{0, []Port{{Device: "mlx5_0", Number: 1, Ethernet: true, State: active}}, 0}},
			look{time.Hour, []Port{{Device: "mlx5_0", Number: 1, Interface: "eth5", Ethernet: true, State: "down", Reason: SwitchedOff}}, nothing},
		},
		"it was switched off meanwhile": {
			[]look{{0, []Port{{Device: "mlx5_0", Number: 1, Interface: "eth5", Ethernet: true, State: active}}, 0}},
			look{time.Hour, []Port{{Device: "mlx5_0", Number: 1, Interface: "eth5", Ethernet: true, State: "down", Reason: SwitchedOff}}, 0},
		},
		"its adapter is another now": {[]look{{0, []Port{up()}, 0}}, look{time.Hour, []Port{{Device: "mlx5_1", Number: 1, State: "down"}}, nothing}},
	} {
		t.Run(name, func(t *testing.T) {
			var b, next Book
			for _, l := range tc.before {
				l.check(t, &b)
			}
			saved, err := b.Save()
			require.NoError(t, err)
			require.NoError(t, next.Restore(saved, start.Add(tc.after.at)))
			tc.after.check(t, &next)
		})
	}
}

func TestRestoreRefusesWhatIsNoBook(t *testing.T) {
	var b Book
	require.Error(t, b.Restore([]byte(`{"device":`), start))
	require.NoError(t, b.Restore([]byte(`[{"device":"mlx5_0","port":1,"since_unix_nano":-5},{}]`), start))
	look{0, []Port{down()}, 0}.check(t, &b)
}
