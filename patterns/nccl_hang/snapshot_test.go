package ncclhang

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
)

// requireSameState takes the state of j through a snapshot.
func requireSameState(t testing.TB, j joinUnderTest) joinUnderTest {
	t.Helper()
	saved, err := j.Snapshot()
	require.NoError(t, err)
	again := newJoin(j.options)
	require.NoError(t, again.Restore(saved))
	copied, err := again.Snapshot()
	require.NoError(t, err)
	require.Equal(t, string(saved), string(copied))
	require.Equal(t, j.Due(), again.Due())
	require.Equal(t, j.Stats().Held, again.Stats().Held)
	require.Equal(t, j.Stats().HeldStalls, again.Stats().HeldStalls)
	return again
}

// TestAJoinGoesOnFromItsSnapshot: whatever the moment, the findings are those of a
// join that was never interrupted.
func TestAJoinGoesOnFromItsSnapshot(t *testing.T) {
	for name, logs := range map[string]func() plog.Logs{
		"missing":                func() plog.Logs { return realLogs(t, "missing") },
		"subgroup":               func() plog.Logs { return realLogs(t, "subgroup") },
		"mismatched_operation":   func() plog.Logs { return realLogs(t, "mismatched_operation") },
		"hang_inside_a_pipeline": func() plog.Logs { return realLogs(t, "hang_inside_a_pipeline") },
		"sockets": func() plog.Logs {
			return merged(newJob(4).does(1, steps(reduce, reduce), 0, 1, 2).logs(), socketLogs(with(ring(4), deaf(3, 2))...))
		},
	} {
		t.Run(name, func(t *testing.T) {
			one, other := newJoin(DefaultOptions), newJoin(DefaultOptions)
			one.Add(logs(), written)
			other.Add(logs(), written)
			other = requireSameState(t, other)
			at := written.Add(DefaultOptions.Window)
			require.Equal(t, one.Advance(at), other.Advance(at))

			other = requireSameState(t, other)
			more := socketLogs(deaf(2, 1))
			later := at.Add(time.Second)
			one.Add(more, later)
			other.Add(more, later)
			done := newJob(4).does(2, steps(reduce, reduce), 0, 1, 2, 3)
			done.at = later.Add(time.Minute)
			one.Add(done.logs(), later)
			other.Add(done.logs(), later)
			require.Equal(t, one.Advance(later.Add(time.Minute)), other.Advance(later.Add(time.Minute)))
		})
	}
}

// What a join takes while its state is encoded is not in it.
func TestAJoinGoesOnWhileItsStateIsEncoded(t *testing.T) {
	c := newCalls(8)
	c.stands(c.all(), 10, "overdue", but(8, 5)...).stands(c.all(), 9, "overdue", 5)
	j := newJoin(DefaultOptions)
	for _, logs := range []plog.Logs{newJob(4).does(1, steps(reduce, reduce), 0, 1, 2).logs(), socketLogs(with(ring(4), deaf(3, 2))...), c.list} {
		j.Add(logs, written)
	}
	want, err := j.Snapshot()
	require.NoError(t, err)
	saved := j.Save()
	at := written.Add(DefaultOptions.Window)
	j.Advance(at)
	j.Add(socketLogs(deaf(2, 1)), at)
	j.Add(newJob(4).does(2, steps(reduce, reduce), 0, 1, 2, 3).logs(), at)
	c.list, c.at = plog.NewLogs(), c.at.Add(10*time.Second)
	c.stands(c.all(), 11, "overdue", but(8)...)
	j.Add(c.list, at)
	j.Advance(at.Add(time.Hour))
	got, err := saved.Encode()
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
	now, err := j.Snapshot()
	require.NoError(t, err)
	require.NotEqual(t, string(want), string(now))
}

func TestAStateThatDoesNotFitIsRefused(t *testing.T) {
	j := newJoin(DefaultOptions)
	j.Add(merged(newJob(4).does(1, steps(reduce, reduce), 0, 1, 2).logs(), socketLogs(ring(4)...)), written)
	good, err := j.Snapshot()
	require.NoError(t, err)
	for name, change := range map[string][2]string{
		"no JSON":                    {`{"stalls":`, `{`},
		"no book":                    {`{"stalls":{`, `{"stalls":null,"old":{`},
		"a text that is not there":   {`"m":0`, `"m":9999`},
		"a text before the first":    {`"m":0`, `"m":-1`},
		"a history that is none":     {`"texts":["0-3","`, `"texts":["0-3","§`},
		"a rank beyond all jobs":     {`"r":2,"t"`, `"r":9999999,"t"`},
		"a process of another pid":   {`"node-0/100":{`, `"node-0/7":{`},
		"a code line not there":      {`"c":[`, `"c":[7777,`},
		"a size beyond all jobs":     {`"h":{"h":"node-0"}`, `"w":9999999,"h":{"h":"node-0"}`},
		"a host of a rank below all": {`"hosts":{"0":`, `"hosts":{"-5":`},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(string(good), change[0], change[1], 1)
			require.NotEqual(t, string(good), text)
			require.Error(t, newJoin(DefaultOptions).Restore([]byte(text)))
		})
	}
	few := DefaultOptions
	few.Dumps = 2
	require.Error(t, newJoin(few).Restore(good), "beyond the limits")
}

// FuzzRestore: stored bytes do no harm, and what is accepted is written the same
// again.
func FuzzRestore(f *testing.F) {
	j := newJoin(DefaultOptions)
	j.Add(merged(newJob(4).does(1, steps(reduce, reduce), 0, 1, 2).logs(), socketLogs(ring(4)...)), written)
	good, err := j.Snapshot()
	require.NoError(f, err)
	f.Add(good)
	f.Add([]byte(`{"stalls":{},"runs":[{"texts":[""],"groups":[{"group":"0","dumps":[{"r":1,"o":[{}]}]}]}]}`))
	f.Fuzz(func(t *testing.T, stored []byte) {
		j := newJoin(DefaultOptions)
		if j.Restore(stored) != nil {
			return
		}
		again := requireSameState(t, j)
		for _, round := range again.Advance(written.Add(time.Hour)) {
			for i := range round.Findings {
				_ = round.Findings[i].String()
			}
		}
	})
}
