package story

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Every verdict stays below 16 kB as a record's JSON, whichever of 16,384 ranks it is about,
// and says exactly how many they are. Lists of ranks in records become random ones here, as a
// job has them whose ranks were placed at random; and where a verdict names ranks, all others
// are put in, as the incidents that it explains would do.
func TestVerdictsAboutScatteredRanksAreSmall(t *testing.T) {
	const world = 16_384
	random := rand.New(rand.NewPCG(5, 6))
	scattered := func() verdict.Ranks {
		var ranks verdict.Ranks
		for rank := range world {
			if random.IntN(2) == 0 {
				ranks = append(ranks, rank)
			}
		}
		return ranks
	}
	sets := []verdict.Ranks{scattered(), scattered(), scattered()}
	var second verdict.Ranks
	for rank := 0; rank < world; rank += 2 {
		second = append(second, rank)
	}
	sets = append(sets, second)
	lists, patterns, largest := map[string]int{}, map[string]bool{}, 0
	small := func(t *testing.T, v verdict.Verdict) {
		text := verdict.ToJSON(v)
		largest = max(largest, len(text))
		require.Less(t, len(text), mostVerdict, v.Pattern)
		record := plog.NewLogRecord()
		verdict.ToRecord(v, record)
		read, err := verdict.FromRecord(record)
		require.NoError(t, err)
		require.Equal(t, verdict.Bounded(v).BlastRadius, read.BlastRadius)
		count, _ := record.Attributes().Get(verdict.AttrBlastCount)
		require.EqualValues(t, len(v.BlastRadius), count.Int())
	}
	each(t, func(t *testing.T, s told) {
		s = s.scattered(sets)
		s.eachVerdict(t, func(_ time.Time, v verdict.Verdict) {
			if len(v.BlastRadius) == 0 {
				return
			}
			patterns[v.Pattern] = true
			if len(v.BlastRadius) > world/3 {
				lists[v.Pattern]++
			}
			small(t, v)
			for _, ranks := range sets {
				v.BlastRadius = ranks
				small(t, v)
			}
		})
	})
	t.Logf("%d patterns name ranks, %v have them from a list; the largest verdict has %d bytes", len(patterns), lists, largest)
	require.NotZero(t, lists["nccl_hang"])
	require.Greater(t, len(patterns), 10)
}

// scattered is the story with other ranks where its records have a list of them.
func (s told) scattered(sets []verdict.Ranks) told {
	n := 0
	story := *s.Story
	story.Input.Records = slices.Clone(s.Input.Records)
	s.Story = &story
	for i := range s.Input.Records {
		s.Input.Records[i].Attributes = maps.Clone(s.Input.Records[i].Attributes)
		for key, value := range s.Input.Records[i].Attributes {
			list, ok := value.([]any)
			if !ok || !strings.HasSuffix(key, "ranks") || len(list) < 2 {
				continue
			}
			ranks := slices.Clone(sets[n%len(sets)])
			n++
			other := make([]any, len(ranks))
			for j, rank := range ranks {
				other[j] = rank
			}
			s.Input.Records[i].Attributes[key] = other
		}
	}
	return s
}
