package verdicts

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// disk is a storage that a test looks into.
type disk struct {
	storage.Client
	values map[string][]byte
}

func (d *disk) Set(_ context.Context, key string, value []byte) error {
	d.values[key] = value
	return nil
}

func (d *disk) Delete(_ context.Context, key string) error {
	delete(d.values, key)
	return nil
}

func (d *disk) Walk(_ context.Context, fn storage.WalkFunc) error {
	for key, value := range d.values {
		ops, err := fn(key, value)
		if err != nil {
			return err
		}
		for _, op := range ops {
			delete(d.values, op.Key)
		}
	}
	return nil
}

// receiver takes verdicts, but for what its test makes it refuse. Of symptoms it is told nothing.
type receiver struct {
	Turns
	answer  func(*Found) error
	clock   time.Time
	taken   []string
	counted map[string]int
	waits   int
}

var errAway = errors.New("connection refused")

func begin(t *testing.T, on storage.Client) *receiver {
	t.Helper()
	r := &receiver{answer: func(*Found) error { return nil }, clock: lost().Onset, counted: map[string]int{}}
	r.Apply = func(_ context.Context, f *Found) error {
		if f.Role == verdict.Symptom {
			return nil
		}
		err := r.answer(f)
		if err == nil {
			r.Took()
			r.taken = append(r.taken, fmt.Sprint(f.ID, f.Revision))
		}
		return err
	}
	r.Count = func(_ context.Context, outcome string) { r.counted[outcome]++ }
	r.Wait, r.Refuse = func(error) { r.waits++ }, func(error) {}
	r.Now = func() time.Time { return r.clock }
	require.NoError(t, r.Load(t.Context(), on))
	return r
}

func (r *receiver) refuses(ids ...string) {
	r.answer = func(f *Found) error {
		for _, id := range ids {
			if f.ID == id {
				return Alone(fmt.Errorf("500 to %s", id))
			}
		}
		return nil
	}
}

func batch(ids ...string) plog.Logs {
	all := make([]Found, len(ids))
	for i, id := range ids {
		all[i] = Found{Verdict: lost(), Proven: true}
		all[i].ID = id
	}
	return Write(all)
}

func revised(id string, revision int, repeated bool) plog.Logs {
	f := Found{Verdict: lost(), Proven: true, Repeated: repeated}
	f.ID, f.Revision = id, revision
	return Write([]Found{f})
}

// through is what a queue does: it tries a batch until it is taken.
func (r *receiver) through(t *testing.T, ld plog.Logs) (attempts int) {
	t.Helper()
	for attempts = 1; attempts < 10; attempts++ {
		err := r.Consume(t.Context(), ld)
		if err == nil {
			return attempts
		}
		var rest consumererror.Logs
		require.ErrorAs(t, err, &rest)
		ld = rest.Data()
	}
	require.Fail(t, "it holds up all others")
	return attempts
}

func TestWhatIsRefusedAloneHoldsNobodyUp(t *testing.T) {
	r := begin(t, nil)
	r.refuses("a", "b")
	require.Equal(t, mostTries, r.through(t, batch("a", "b", "c")), "a server may hiccup")
	require.Equal(t, []string{"c1"}, r.taken)
	require.Equal(t, 1, r.through(t, batch("a", "d")), "it is known by now")
	require.Equal(t, []string{"c1", "d1"}, r.taken)

	r.Again(t.Context())
	require.Equal(t, []string{"c1", "d1"}, r.taken)
	r.refuses("a")
	r.Again(t.Context())
	r.refuses()
	r.Again(t.Context())
	r.Again(t.Context())
	require.Equal(t, []string{"c1", "d1", "b1", "a1"}, r.taken, "once each")
	require.Equal(t, map[string]int{"aside": 3}, r.counted)
}

// What waits is the newest that was said of it: an old revision never comes after a new one.
func TestWhatIsSetAsideKeepsUp(t *testing.T) {
	r := begin(t, nil)
	r.refuses("a")
	r.through(t, revised("a", 3, false))
	r.through(t, revised("a", 5, false))
	r.through(t, revised("a", 4, false))
	r.refuses()
	r.through(t, revised("a", 5, true))
	require.Empty(t, r.taken, "told again: what waits says more")
	r.Again(t.Context())
	require.Equal(t, []string{"a5"}, r.taken)

	r.refuses("a")
	r.through(t, revised("a", 6, false))
	r.refuses()
	r.through(t, revised("a", 7, false))
	r.Again(t.Context())
	require.Equal(t, []string{"a5", "a7"}, r.taken, "6 is outdated")
}

func TestWhatIsSetAsideOutlivesARestart(t *testing.T) {
	on := &disk{values: map[string][]byte{}}
	before := begin(t, on)
	before.refuses("a", "b", "c")
	before.through(t, batch("a", "b", "c"))
	before.refuses("a", "c")
	before.Again(t.Context())
	require.Equal(t, []string{"b1"}, before.taken)
	after := begin(t, on)
	after.Again(t.Context())
	require.ElementsMatch(t, []string{"a1", "c1"}, after.taken)
	require.Empty(t, begin(t, on).aside)

	require.Empty(t, on.values)
	on.values["a"] = []byte("damaged")
	require.Empty(t, begin(t, on).aside)
	require.Empty(t, on.values)
}

// Verdicts of one node that are refused without end take no room from another's, and few
// requests in vain are made in a row.
func TestAFloodThatIsRefused(t *testing.T) {
	on := &disk{values: map[string][]byte{}}
	r := begin(t, on)
	requests := 0
	r.answer = func(*Found) error { requests++; return Alone(errors.New("500")) }
	other := Found{Verdict: lost()}
	other.ID, other.Culprit = "other", map[string]string{"node": "gpu-2"}
	r.through(t, Write([]Found{other}))
	for i := range 2 * mostAside {
		r.through(t, batch(fmt.Sprint("x", i)))
	}
	require.Len(t, r.aside, mostAside)
	require.Len(t, on.values, mostAside)
	require.True(t, r.Aside("other"))
	require.Equal(t, map[string]int{"aside": 2*mostAside + 1, "refused": mostAside + 1}, r.counted)

	requests = 0
	r.Again(t.Context())
	require.Equal(t, mostFailed, requests)
	r.answer = func(*Found) error { requests++; return errAway }
	r.Again(t.Context())
	require.Equal(t, mostFailed+1, requests, "it is away")
	r.refuses()
	r.Again(t.Context())
	require.Empty(t, r.aside)
	require.Empty(t, on.values)
}

// about is a verdict about a machine.
func about(id, node string, change func(*Found)) plog.Logs {
	f := Found{Verdict: lost()}
	f.ID, f.Culprit = id, map[string]string{"node": node}
	if change != nil {
		change(&f)
	}
	return Write([]Found{f})
}

// try is what a queue does for a while: it tries what is first until it is taken.
func (r *receiver) try(t *testing.T, queue []plog.Logs) []plog.Logs {
	t.Helper()
	for range 10 * mostAside {
		if len(queue) == 0 {
			break
		}
		var rest consumererror.Logs
		if err := r.Consume(t.Context(), queue[0]); errors.As(err, &rest) {
			queue[0] = rest.Data()
		} else {
			queue = queue[1:]
		}
	}
	return queue
}

// A receiver that answers an error of its own to everything, or takes a token no longer, is away.
// Between what it refuses there is much that it is not asked for.
func TestAReceiverThatRefusesEverybodyLosesNothing(t *testing.T) {
	const all = 2 * mostAside
	var queue []plog.Logs
	for i := range all {
		queue = append(queue, about(fmt.Sprint("x", i), fmt.Sprint("gpu-", i), nil))
		queue = append(queue, about(fmt.Sprint("symptom", i), "gpu-1", func(f *Found) { f.Role = verdict.Symptom }))
	}
	on := &disk{values: map[string][]byte{}}
	var r *receiver
	for range 3 { // it restarts meanwhile
		r = begin(t, on)
		r.answer = func(*Found) error { return Alone(errors.New("500")) }
		queue = r.try(t, queue)
		r.Again(t.Context())
		require.NotEmpty(t, queue)
		require.Zero(t, r.counted["refused"])
		require.True(t, r.Waits(), "those that are told again are left out")
	}
	r.clock = r.clock.Add(time.Hour)
	require.Equal(t, r.clock, r.Heard(lost().Onset))
	r.refuses("x1")
	r.Again(t.Context())
	require.Empty(t, r.try(t, queue))
	require.Equal(t, r.clock, r.Heard(lost().Onset), "it has just come back")
	require.Len(t, r.taken, all-1)
	require.True(t, r.Aside("x1"), "it is refused alone")
	require.Zero(t, r.counted["refused"])
}

// An alert that stands is told once that it ended: a beginning gives way first.
func TestEndsGiveWayLast(t *testing.T) {
	r := begin(t, nil)
	r.answer = func(*Found) error { return Alone(errors.New("500")) }
	r.through(t, about("end", "gpu-1", func(f *Found) { f.Status = verdict.Resolved }))
	r.Again(t.Context())
	for i := range 2 * mostAside {
		r.through(t, about(fmt.Sprint("x", i), "gpu-1", nil))
	}
	require.Len(t, r.aside, mostAside)
	require.True(t, r.Aside("end"))
}

// A verdict that met a hiccup is told in the next round, also where all others are refused.
func TestAHiccupIsNotBehindAllThatIsRefused(t *testing.T) {
	for name, whose := range map[string]func(i int) (node, domain string){
		"of another user":   func(i int) (string, string) { return fmt.Sprint("gpu-", i%40), "uid 1001" },
		"of the same owner": func(int) (string, string) { return "gpu-0", "" },
		"of many machines":  func(i int) (string, string) { return fmt.Sprint("gpu-", i), "" },
	} {
		t.Run(name, func(t *testing.T) {
			r := begin(t, nil)
			r.answer = func(*Found) error { return Alone(errors.New("500")) }
			for i := range 200 {
				node, domain := whose(i)
				r.through(t, about(fmt.Sprint("x", i), node, func(f *Found) { f.Culprit["job_domain"] = domain }))
				if i%4 == 0 {
					r.Again(t.Context())
				}
			}
			for range 20 {
				r.Again(t.Context())
			}
			r.through(t, about("other", "gpu-0", nil))
			refuses := r.answer
			r.answer = func(f *Found) error {
				if f.ID == "other" {
					return nil
				}
				return refuses(f)
			}
			r.Again(t.Context())
			require.Equal(t, []string{"other1"}, r.taken)
		})
	}
}

// An owner who is refused anew without end is no reason to try another's no more.
func TestAFloodTakesNobodysTurn(t *testing.T) {
	r := begin(t, nil)
	tried := 0
	r.answer = func(f *Found) error {
		if f.ID == "other" {
			tried++
		}
		return Alone(errors.New("500"))
	}
	r.through(t, about("other", "gpu-2", nil))
	for i := range 100 {
		for k := range mostFailed {
			r.through(t, about(fmt.Sprint("x", i, " ", k), "gpu-1", nil))
		}
		before := tried
		r.Again(t.Context())
		require.Equal(t, before+1, tried, "once in each round")
	}
}

// While the receiver is away all wait in their order, and nobody's silence says anything.
func TestAnOutageIsNoSilence(t *testing.T) {
	r := begin(t, nil)
	confirmed := r.clock.Add(time.Minute)
	require.Equal(t, confirmed, r.Heard(confirmed))
	r.answer = func(*Found) error { return errAway }
	ld := batch("a", "b")
	for range 60 {
		r.clock = r.clock.Add(time.Minute)
		var rest consumererror.Logs
		require.ErrorAs(t, r.Consume(t.Context(), ld), &rest)
		require.Equal(t, 2, rest.Data().LogRecordCount())
		require.True(t, r.Waits())
		require.Equal(t, r.clock, r.Heard(confirmed))
	}
	require.Equal(t, 1, r.waits, "one line")
	back := r.clock
	r.refuses()
	require.Equal(t, 1, r.through(t, ld))
	r.clock = r.clock.Add(time.Hour)
	require.False(t, r.Waits())
	require.Equal(t, back, r.Heard(confirmed), "everybody has time to say so again")
	require.Equal(t, []string{"a1", "b1"}, r.taken)

	// Where nothing is tried any more, as with retry_on_failure: max_elapsed_time, nothing waits.
	r.answer = func(*Found) error { return errAway }
	require.Error(t, r.Consume(t.Context(), ld))
	r.clock = r.clock.Add(stillTried)
	require.False(t, r.Waits())
}

func TestQueuesThatHoldUpOthersAreRefused(t *testing.T) {
	queue := exporterhelper.NewDefaultQueueConfig()
	queue.NumConsumers = 1
	require.Empty(t, QueueProblems(configoptional.Some(queue)))
	require.Len(t, QueueProblems(configoptional.None[exporterhelper.QueueBatchConfig]()), 1)
	blocks := queue
	blocks.BlockOnOverflow = true
	require.Len(t, QueueProblems(configoptional.Some(blocks)), 1)
	waits := queue
	waits.WaitForResult, waits.NumConsumers = true, 2
	require.Len(t, QueueProblems(configoptional.Some(waits)), 2)
}
