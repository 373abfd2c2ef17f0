package patterndetectorprocessor

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

func every(interval time.Duration) rigOption {
	return withConfig(func(c *Config) { c.Repeat = interval })
}

// marked are the repeated verdicts that were delivered.
func (d *downstream) marked() (things []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, batch := range d.batches {
		eachLog(batch, func(_ pcommon.Resource, record plog.LogRecord) bool {
			if v, ok := record.Attributes().Get(verdict.AttrRepeated); ok && v.Bool() {
				thing, _ := record.Attributes().Get("pattern.culprit.thing")
				things = append(things, thing.Str())
			}
			return false
		})
	}
	return things
}

func TestOpenVerdictsAreToldAgain(t *testing.T) {
	dir := t.TempDir()
	r := newRig(t, every(10*time.Minute), withStorage(dir)).start(t)
	r.send(t, "test.first", "a", "b")
	r.send(t, "test.second", "a", "b")
	r.clock.pass(9 * time.Minute)
	require.Empty(t, r.next.marked())
	r.clock.pass(time.Minute)
	require.ElementsMatch(t, []string{"a", "b"}, r.next.marked())
	require.ElementsMatch(t, r.next.verdicts[:2], r.next.verdicts[2:], "the same revisions")

	r.next.set(errors.New("busy"))
	r.clock.pass(10 * time.Minute)
	r.next.set(nil)
	r.clock.pass(time.Minute)
	require.Len(t, r.next.marked(), 2, "what is refused waits for its next time")
	r.clock.pass(9 * time.Minute)
	require.Len(t, r.next.marked(), 4)

	r.stop(t)
	after := newRig(t, every(10*time.Minute), withStorage(dir)).start(t)
	after.clock.pass(10 * time.Minute)
	require.ElementsMatch(t, []string{"a", "b"}, after.next.marked(), "after a restart")

	lost := newRig(t, every(10*time.Minute)).start(t)
	lost.clock.pass(10 * time.Minute)
	require.Empty(t, lost.next.marked(), "who lost the state confirms nothing")
}

func TestNothingIsToldAgainUnlessAskedFor(t *testing.T) {
	r := newRig(t).start(t)
	r.send(t, "test.first", "a")
	r.send(t, "test.second", "a")
	r.clock.pass(time.Hour)
	require.Empty(t, r.next.marked())
}

// Who keeps state by what is told again is not to lose it since the queue of another is full.
func TestAFullQueueKeepsNoRepetitionFromTheOthers(t *testing.T) {
	r := newRig(t, every(10*time.Minute))
	r.detector.next = besideFullQueue{r.next, func(_ bool, healthy error) error {
		return errors.Join(healthy, exporterhelper.ErrQueueIsFull)
	}}
	r.start(t)
	r.send(t, "test.first", "a")
	r.send(t, "test.second", "a")
	for range 6 {
		r.clock.pass(10 * time.Minute)
	}
	require.Len(t, r.next.marked(), 6)
}
