package cudaoom

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

const gib = int64(1 << 30)

func record(name, host string, at int64, number float64, attributes map[string]any) *rule.Record {
	r := &rule.Record{Name: name, Time: at * second, Resource: pcommon.NewMap(), Attributes: pcommon.NewMap(), Number: number}
	r.Resource.PutStr("host.name", host)
	if err := r.Attributes.FromRaw(attributes); err != nil {
		panic(err)
	}
	return r
}

func free(host, gpu string, at, bytes int64) *rule.Record {
	return record(metricFree, host, at, float64(bytes), map[string]any{"gpu.id": gpu})
}

func held(host, gpu string, pid, at, bytes int64) *rule.Record {
	return record(metricProcess, host, at, float64(bytes), map[string]any{"gpu.id": gpu, "process.pid": pid})
}

func refused(host string, pid, at int64, more ...any) *rule.Record {
	attributes := map[string]any{"process.pid": pid, "cuda_oom.tried_alloc_bytes": 2 * gib, "gen_ai.training.rank": 3, "k8s.pod.uid": "u-1"}
	for i := 0; i < len(more); i += 2 {
		attributes[more[i].(string)] = more[i+1]
	}
	return record(eventRefused, host, at, 0, attributes)
}

func newDetector() *detector {
	return Detector().New(limitsOf(10 * second)).(*detector)
}

func observe(t *testing.T, d *detector, records ...*rule.Record) {
	t.Helper()
	for _, r := range records {
		require.True(t, d.Observe(r), "%+v", r)
	}
}

func TestFiguresAreThoseOfTheLastReadingBefore(t *testing.T) {
	d := newDetector()
	observe(t, d,
		free("a", "x", 90, 5*gib), held("a", "x", 7, 90, gib), held("a", "x", 8, 90, 70*gib),
		free("a", "x", 100, gib), held("a", "x", 7, 101, 78*gib), // pid 8 has ended
		free("a", "x", 110, 80*gib), held("a", "x", 9, 110, 80*gib), // after the refusal
		free("b", "x", 104, 0), held("b", "x", 7, 104, 0), // another host
		refused("a", 7, 105),
	)
	require.Equal(t, 105*second, d.Due())
	found := d.Decide(110 * second)
	require.Len(t, found, 1)
	require.Equal(t, rule.Finding{
		Event: "finding.cuda_oom", ID: "refusal a 7 105000000000 2147483648", Time: 105 * second, Last: 105 * second,
		Resource: map[string]any{"host.name": "a"},
		Attributes: map[string]any{
			"process.pid": int64(7), "cuda_oom.tried_alloc_bytes": 2 * gib, "gen_ai.training.rank": int64(3), "k8s.pod.uid": "u-1",
			"gpu.id": "x", "cuda_oom.free_bytes": gib, "cuda_oom.own_bytes": 78 * gib, "cuda_oom.read_before_ms": int64(5000),
		},
	}, found[0])
	require.Equal(t, 116*second+1, d.Due(), "a late reading may change it")
	require.Empty(t, d.Decide(111*second), "told once")

	observe(t, d, held("a", "x", 8, 100, 3*gib)) // late
	found = d.Decide(112 * second)
	require.Len(t, found, 1)
	require.Equal(t, "refusal a 7 105000000000 2147483648", found[0].ID)
	require.Equal(t, int64(8), found[0].Attributes["cuda_oom.holder_pid"])
	require.Equal(t, 3*gib, found[0].Attributes["cuda_oom.holder_bytes"])

	require.Empty(t, d.Decide(117*second))
	require.Zero(t, d.Due())
	require.Empty(t, d.refusals)
}

// at moves a record by so many milliseconds.
func at(r *rule.Record, ms int64) *rule.Record {
	r.Time += ms * millisecond
	return r
}

// TestWhichReadingCounts: in whatever order they come, what is told in the end is the same.
func TestWhichReadingCounts(t *testing.T) {
	full, growing := []*rule.Record{free("a", "x", 100, gib), held("a", "x", 7, 100, 78*gib)}, []*rule.Record{free("a", "x", 100, 77*gib), held("a", "x", 7, 100, gib)}
	after := func(ms, unused, own int64) []*rule.Record {
		return []*rule.Record{at(free("a", "x", 105, unused), ms), at(held("a", "x", 7, 105, own), ms)}
	}
	for name, tc := range map[string]struct {
		readings []*rule.Record
		free     any // nil: nothing is told
		after    any
	}{
		"a full GPU before":                      {full, gib, nil},
		"one that has grown since":               {growing, nil, nil},
		"just after, it holds its memory":        {append(after(60, gib/2, 79*gib), growing...), gib / 2, int64(60)},
		"just after counts before a full one":    {append(after(60, gib/2, 78*gib), full...), gib / 2, int64(60)},
		"the first after":                        {append(after(900, 70*gib, gib), after(60, gib/2, 79*gib)...), gib / 2, int64(60)},
		"room just after":                        {after(60, 3*gib, 70*gib), 3 * gib, int64(60)},
		"it has given memory back":               {append(after(60, 40*gib, 39*gib), full...), gib, nil},
		"given back, but not enough":             {append(after(60, gib, 77*gib), full...), gib, int64(60)},
		"too late":                               {append(after(1001, gib/2, 79*gib), growing...), nil, nil},
		"at the same moment, so it began before": {append(after(0, 3*gib, 79*gib), growing...), nil, nil},
		"the process is gone":                    {append(after(60, 80*gib, 0)[:1], growing...), nil, nil},
		"two GPUs just after":                    {append(append(after(60, gib/2, 79*gib), at(held("a", "y", 7, 105, 40*gib), 60)), full...), nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			all := append([]*rule.Record{refused("a", 7, 105)}, tc.readings...)
			for first := range all {
				d, told := newDetector(), map[string]any(nil)
				for i := range all {
					d.Observe(all[(first+i)%len(all)])
					for _, f := range d.Decide(110 * second) {
						told = f.Attributes
					}
				}
				require.Equal(t, tc.free, told["cuda_oom.free_bytes"], "from record %d on", first)
				require.Equal(t, tc.after, told["cuda_oom.read_after_ms"])
			}
		})
	}
}

func TestWhatIsNoRefusalOrReadingIsNotTaken(t *testing.T) {
	d := newDetector()
	nowhere := refused("a", 7, 1)
	nowhere.Resource.Remove("host.name")
	unsized := refused("a", 7, 1)
	unsized.Attributes.Remove("cuda_oom.tried_alloc_bytes")
	for name, r := range map[string]*rule.Record{
		"no host": nowhere, "no size": unsized,
		"granted":                refused("a", 7, 1, "cuda_oom.retried", true),
		"pid is a text":          refused("a", 7, 1, "process.pid", "7"),
		"no GPU":                 record(metricFree, "a", 1, 1, nil),
		"no pid":                 record(metricProcess, "a", 1, 1, map[string]any{"gpu.id": "x"}),
		"no number":              record(metricFree, "a", 1, math.NaN(), map[string]any{"gpu.id": "x"}),
		"more than there can be": record(metricFree, "a", 1, math.Inf(1), map[string]any{"gpu.id": "x"}),
		"less than nothing":      record(metricFree, "a", 1, -1, map[string]any{"gpu.id": "x"}),
	} {
		require.False(t, d.Observe(r), name)
	}
	require.True(t, d.Observe(refused("a", 7, 1)))
	require.False(t, d.Observe(refused("a", 7, 1)), "told twice")
}

func TestStateSurvivesARestart(t *testing.T) {
	a := newDetector()
	observe(t, a, free("a", "x", 100, gib), held("a", "x", 7, 100, 78*gib), record(metricMIG, "a", 100, 1, map[string]any{"gpu.id": "y"}), refused("a", 7, 105))
	state, err := a.Snapshot()
	require.NoError(t, err)
	b := newDetector()
	require.NoError(t, b.Restore(state))
	again, err := b.Snapshot()
	require.NoError(t, err)
	require.Equal(t, string(state), string(again))
	require.Equal(t, a.Due(), b.Due())
	require.Equal(t, a.readings, b.readings)
	found := b.Decide(105 * second)
	require.Len(t, found, 1)
	require.Equal(t, a.Decide(105*second), found)
	observe(t, b, free("a", "y", 110, gib), held("a", "y", 9, 110, 1))
}

func TestStateOfAnotherIsRefused(t *testing.T) {
	for _, text := range []string{
		"", "[]", `{"hosts": {"a": null}}`, `{"hosts": {"a": {"gpus": {"x": null}}}}`, `{"hosts": {"a": {"gpus": {"x": {"held": {"1": []}}}}}}`,
		`{"refusals": [null]}`, `{"refusals": [{"resource": {}, "attributes": {"process.pid": 1.5}}]}`,
	} {
		require.Error(t, newDetector().Restore([]byte(text)), text)
	}
	require.NoError(t, newDetector().Restore([]byte("null")))
}

// TestAFloodTakesRoomFromItself: a user on one host lets allocations be refused all the
// time, and the host tells of processes without end. What others are told stays.
func TestAFloodTakesRoomFromItself(t *testing.T) {
	d := newDetector()
	d.Observe(refused("quiet", 1, 100))
	d.Observe(refused("loud", 1, 100, "gen_ai.training.job_domain", "user 1"))
	d.Observe(free("quiet", "x", 99, 1))
	for i := range int64(3 * maxRefusals) {
		d.Observe(refused("loud", 2+i, 101, "gen_ai.training.job_domain", "user 2", "gen_ai.training.job_id", fmt.Sprint(i)))
	}
	left := map[string]bool{}
	for _, f := range d.refusals {
		left[fmt.Sprint(f.Host, f.PID)] = true
	}
	require.True(t, left["quiet1"])
	require.True(t, left["loud1"])
	d.most = 1000
	for i := range int64(2 * d.most) {
		d.Observe(held("loud", "x", i+1, 101, 1))
	}
	require.NotNil(t, d.hosts["quiet"])
	require.LessOrEqual(t, d.readings, d.most)
	require.Positive(t, d.readings)
}

func TestReadingsAndRefusalsAreBounded(t *testing.T) {
	d := newDetector()
	for i := range int64(maxRefusals + 10) {
		d.Observe(refused("a", i, 100))
	}
	require.EqualValues(t, maxRefusals+10-len(d.refusals), d.Evicted())
	require.LessOrEqual(t, len(d.refusals), maxRefusals)

	d = newDetector()
	for i := range int64(maxHosts + 10) {
		d.Observe(free(fmt.Sprint(i), "x", i, 1))
	}
	require.EqualValues(t, 10, d.Evicted())
	require.Len(t, d.hosts, maxHosts)
	require.NotContains(t, d.hosts, "9")
	require.Contains(t, d.hosts, "10")
}

func TestOldReadingsAreForgotten(t *testing.T) {
	d := newDetector()
	for i := range int64(1000) {
		observe(t, d, free("a", "x", i, gib), held("a", "x", 7, i, gib), held("a", "x", 1000+i, i, gib))
	}
	require.LessOrEqual(t, d.readings, 1+3*52, "30 s and twice the lateness")
	size := 0
	for _, h := range d.hosts {
		size += h.size()
	}
	require.Equal(t, size, d.readings)
}

// limitsOf are the defaults of the pattern's own file.
func limitsOf(lateness int64) rule.Limits {
	rules, err := rule.LoadPaths("pattern.yaml")
	if err != nil {
		panic(err)
	}
	return rule.Limits{Lateness: lateness, Values: rules[0].Parameters}
}
