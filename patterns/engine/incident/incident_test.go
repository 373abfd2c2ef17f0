package incident

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// told is a verdict that answers what a test says.
type told struct {
	node      *Node
	id        string
	domain    string
	onset     int64
	before    int64 // by so much what was seen began before
	resolved  int64
	withdrawn bool
	partial   bool
	short     bool
	expired   bool
	leads     bool
	trust     verdict.Trust
	severity  verdict.Severity
	parties   Parties
	named     Culprits
	accused   *Culprits // nil where it is not sure
	atFirst   *Culprits // whom it accused when it began, where others came
	saw       int64     // since when its evidence 0 is seen, 0 for never
	last      int64     // when that was seen last, 0 for then alone
	runs      []string
	ranks     []int
	lists     map[int][]int
	meets     func(*told)
	events    []string
}

func (t *told) Domain() string                        { return t.domain }
func (t *told) Run() string                           { return "" }
func (t *told) Runs() ([]string, bool)                { return t.runs, !slices.Contains(t.runs, "") }
func (t *told) Together(_, _ string) int64            { return 0 }
func (t *told) Owner() []string                       { return []string{t.id} }
func (t *told) ID() string                            { return t.id }
func (t *told) Pattern() string                       { return "pattern of " + t.id }
func (t *told) PatternID() int                        { return 1 }
func (t *told) Onset() int64                          { return t.onset }
func (t *told) Began() int64                          { return t.onset - t.before }
func (t *told) Resolved() int64                       { return t.resolved }
func (t *told) Withdrawn() bool                       { return t.withdrawn }
func (t *told) Expired() bool                         { return t.expired }
func (t *told) Parties() Parties                      { return t.parties }
func (t *told) Trust() verdict.Trust                  { return t.trust }
func (t *told) Severity() verdict.Severity            { return cmp.Or(t.severity, verdict.Error) }
func (t *told) Sure() bool                            { return !t.partial }
func (t *told) Full() bool                            { return !t.partial }
func (t *told) Leads() bool                           { return t.leads }
func (t *told) Ranks() []int                          { return t.ranks }
func (t *told) RanksOf(Job) []int                     { return t.ranks }
func (t *told) Connect()                              { t.meets(t) }
func (t *told) Places(func(*Link, string, Role)) bool { return t.short }
func (t *told) Changed()                              { t.events = append(t.events, "changed") }
func (t *told) Grew()                                 { t.events = append(t.events, "grew") }
func (t *told) CauseCleared(c Verdict) {
	t.events = append(t.events, "cleared by "+c.ID())
}

func (t *told) Accuses(until int64) (Culprits, bool) {
	switch {
	case t.accused == nil:
		return Culprits{}, false
	case t.atFirst != nil && until != math.MaxInt64:
		return *t.atFirst, true
	}
	return *t.accused, true
}

func (t *told) Names(int64) Culprits { return t.named }

func (t *told) Saw(evidence int) bool { return evidence == 0 && t.saw != 0 }

func (t *told) SeenBetween(evidence []int, from, to int64) bool {
	return !slices.Contains(evidence, 1) && t.saw <= to && max(t.saw, t.last) >= from
}

func (t *told) RanksUntil(int64) ([]int, bool) { return t.ranks, true }

func (t *told) Lists(fields, ranks []int) bool {
	return slices.ContainsFunc(fields, func(f int) bool {
		return slices.ContainsFunc(ranks, func(r int) bool { return slices.Contains(t.lists[f], r) })
	})
}

const second = int64(time.Second)

// bench is a graph with one explanation, and another that shares more fields.
type bench struct {
	*Graph
	link, closer *Link
}

func newBench() *bench {
	return &bench{
		Graph:  NewGraph(4),
		link:   &Link{Shared: 1, Within: 5 * time.Minute},
		closer: &Link{Index: 1, Shared: 2, Within: 5 * time.Minute},
	}
}

func (b *bench) verdict(id string, onset int64) *told {
	t := &told{id: id, onset: onset}
	t.node = NewNode(t)
	return t
}

// Who explains whom is one question with many reasons for no.
func TestACauseExplainsWhatFitsItInTimeAndRanks(t *testing.T) {
	minute := 60 * second
	for name, tc := range map[string]struct {
		change func(cause, effect *told, l *Link)
		want   bool
	}{
		"it began before":                {func(_, _ *told, _ *Link) {}, true},
		"it began at that moment":        {func(c, e *told, _ *Link) { c.onset = e.onset }, true},
		"it began after":                 {func(c, e *told, _ *Link) { c.onset = e.onset + 1 }, false},
		"its first sign was before":      {func(c, e *told, l *Link) { l.Early, c.onset = 10*time.Second, e.onset+10*second }, true},
		"its first sign was long before": {func(c, e *told, l *Link) { l.Early, c.onset = 10*time.Second, e.onset+11*second }, false},
		"what it says began before":      {func(_, e *told, _ *Link) { e.before = 61 * second }, false},
		"both say when they began":       {func(c, e *told, _ *Link) { e.before, c.before = 61*second, 2*second }, true},
		"the effect was over": {func(c, e *told, l *Link) {
			l.Early, c.onset, e.resolved = 10*time.Second, e.onset+5*second, e.onset+4*second
		}, false},
		"the effect ended later": {func(c, e *told, l *Link) {
			l.Early, c.onset, e.resolved = 10*time.Second, e.onset+5*second, e.onset+5*second
		}, true},
		"it is too long ago":               {func(c, e *told, _ *Link) { c.onset = e.onset - 6*minute }, false},
		"it cleared a moment before":       {func(c, e *told, _ *Link) { c.resolved = e.onset - 1 }, false},
		"it cleared at that moment":        {func(c, e *told, _ *Link) { c.resolved = e.onset }, true},
		"it is withdrawn":                  {func(c, _ *told, _ *Link) { c.withdrawn = true }, false},
		"the effect is withdrawn":          {func(_, e *told, _ *Link) { e.withdrawn = true }, false},
		"a watchdog tells later":           {func(_, _ *told, l *Link) { l.After = 30 * time.Second }, true},
		"a watchdog cannot tell so soon":   {func(_, _ *told, l *Link) { l.After = 2 * time.Minute }, false},
		"it expired until the watchdog":    {func(c, e *told, l *Link) { l.After, c.expired, c.resolved = time.Second, true, e.onset-30*second }, true},
		"it was seen about then":           {func(c, e *told, l *Link) { l.Near, c.saw = 30*time.Second, e.onset-30*second }, true},
		"it was last seen too long before": {func(c, e *told, l *Link) { l.Near, c.saw = 30*time.Second, e.onset-31*second }, false},
		"it was seen again about then": {func(c, e *told, l *Link) {
			l.Near, c.saw, c.last = 30*time.Second, e.onset-minute, e.onset-second
		}, true},
		"it was seen as early as a first sign": {func(c, e *told, l *Link) { l.Near, l.Early, c.saw = 30*time.Second, 5*time.Second, e.onset+5*second }, true},
		"it was seen after it began":           {func(c, e *told, l *Link) { l.Near, l.Early, c.saw = 30*time.Second, 5*time.Second, e.onset+6*second }, false},
		"other evidence was seen about then":   {func(c, e *told, l *Link) { l.Near, l.When, c.saw = 30*time.Second, []int{0, 1}, e.onset }, false},
		"what it takes was seen":               {func(c, _ *told, l *Link) { l.When, c.saw = []int{0}, c.onset }, true},
		"what it takes was not seen":           {func(_, _ *told, l *Link) { l.When = []int{0} }, false},
		"the effect knows better":              {func(_, e *told, l *Link) { l.Except, e.saw = []int{0}, e.onset }, false},
		"the effect knows nothing better":      {func(_, _ *told, l *Link) { l.Except = []int{0} }, true},
		"its rank is accused":                  {func(c, e *told, l *Link) { l.In, c.ranks, e.lists = []int{7}, []int{3}, map[int][]int{7: {3}} }, true},
		"another rank is accused":              {func(c, e *told, l *Link) { l.In, c.ranks, e.lists = []int{7}, []int{3}, map[int][]int{7: {4}} }, false},
		"its rank waits like all others":       {func(c, e *told, l *Link) { l.NotIn, c.ranks, e.lists = []int{7}, []int{3}, map[int][]int{7: {3}} }, false},
		"its rank is not among the others":     {func(c, e *told, l *Link) { l.NotIn, c.ranks, e.lists = []int{7}, []int{3}, map[int][]int{7: {4}} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, first := range []Role{Cause, Effect} {
				b := newBench()
				cause, effect := b.verdict("cause", 600*second), b.verdict("effect", 660*second)
				tc.change(cause, effect, b.link)
				if first == Effect {
					b.Meet(effect.node, b.link, "x", Effect)
				}
				b.Meet(cause.node, b.link, "x", Cause)
				b.Meet(effect.node, b.link, "x", Effect)
				require.Equal(t, tc.want, !effect.node.IsRoot(), "first: %v", first)
				require.True(t, cause.node.IsRoot())
			}
		})
	}
}

// What two verdicts share is a machine alone; whose they are decides.
func TestAMachineJoinsNothingOfTwoJobs(t *testing.T) {
	in := func(domain string, names ...string) (p Parties) {
		for _, name := range names {
			p.Jobs = append(p.Jobs, Job{name, domain})
		}
		return p
	}
	job := func(names ...string) Parties { return in("", names...) }
	process := func(pids ...string) (p Parties) {
		for _, pid := range pids {
			p.Processes = append(p.Processes, Process{Host: "n", PID: pid})
		}
		return p
	}
	for name, tc := range map[string]struct {
		cause, effect Parties
		weaker        bool // the cause is trusted less
		want          bool
	}{
		"one job":                           {job("a"), job("a", "b"), false, true},
		"two jobs":                          {job("a"), job("b"), false, false},
		"one job, two processes":            {Parties{job("a").Jobs, process("1").Processes}, Parties{job("a").Jobs, process("2").Processes}, false, true},
		"one id in two domains":             {in("user 1000", "a"), in("user 1001", "a"), false, false},
		"one id in one domain":              {in("user 1000", "a"), in("user 1000", "a"), false, true},
		"one id, one domain not known":      {in("user 1000", "a"), job("a"), false, true},
		"a claim of one id in two domains":  {in("user 1000", "a"), in("user 1001", "a"), true, false},
		"two processes":                     {process("1"), process("2"), false, false},
		"a cause that is nobody's":          {Parties{}, job("b"), false, true},
		"a claim that is nobody's":          {Parties{}, job("b"), true, false},
		"a claim of another job":            {job("a"), job("b"), true, false},
		"a claim of its own job":            {job("b"), job("b"), true, true},
		"a claim of one of its processes":   {process("1"), process("1"), true, true},
		"a claim about what is of no party": {job("a"), Parties{}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench()
			b.link.Wide = true
			cause, effect := b.verdict("cause", 600*second), b.verdict("effect", 660*second)
			cause.parties, effect.parties = tc.cause, tc.effect
			cause.trust, effect.trust = verdict.Proven, verdict.Proven
			if tc.weaker {
				cause.trust = verdict.Claimed
			}
			b.Meet(cause.node, b.link, "x", Cause)
			b.Meet(effect.node, b.link, "x", Effect)
			require.Equal(t, tc.want, !effect.node.IsRoot())
		})
	}
}

// Pids are used again: the next process of a pid has nothing to do with what befell the one before.
func TestAPidJoinsOneProcess(t *testing.T) {
	of := func(boot, started, job, domain string) Process {
		return Process{Host: "n", PID: "7", Boot: boot, Started: started, Job: Job{job, domain}}
	}
	for name, tc := range map[string]struct {
		cause, effect Process
		want          bool
	}{
		"one start":                                      {of("b", "10", "a", ""), of("b", "10", "a", ""), true},
		"one start, its job was learned late":            {of("b", "10", "10.0.0.1:29500", ""), of("b", "10", "a", ""), true},
		"another start":                                  {of("b", "10", "a", ""), of("b", "20", "a", ""), false},
		"one start in another boot":                      {of("b", "10", "a", ""), of("c", "10", "a", ""), false},
		"a start that one side does not know":            {of("b", "10", "a", ""), of("b", "", "a", ""), true},
		"no start, another job":                          {of("", "10", "a", ""), of("", "", "b", ""), false},
		"no start, another domain":                       {of("", "", "a", "user 1000"), of("", "", "a", "user 1001"), false},
		"no start, no job":                               {of("", "", "", ""), of("", "10", "b", ""), true},
		"another pid: what they share is none of theirs": {of("b", "10", "a", ""), Process{Host: "n", PID: "8", Started: "20"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench()
			b.link.OfProcess = true
			cause, effect := b.verdict("cause", 600*second), b.verdict("effect", 660*second)
			cause.parties, effect.parties = Parties{Processes: []Process{tc.cause}}, Parties{Processes: []Process{tc.effect}}
			b.Meet(cause.node, b.link, "x", Cause)
			b.Meet(effect.node, b.link, "x", Effect)
			require.Equal(t, tc.want, !effect.node.IsRoot())
		})
	}
}

// A verdict that is sure about another culprit is no symptom.
func TestAVerdictThatAccusesAnotherIsNoSymptom(t *testing.T) {
	rank := func(host string, ranks ...int) Culprits { return Culprits{Ranks: ranks, Hosts: []string{host}} }
	process := func(host, pid, gpu string) Culprits {
		var c Culprits
		c.Add(host, pid, gpu)
		return c
	}
	for name, tc := range map[string]struct {
		cause, effect Culprits
		unsure        bool // the effect accuses nobody
		want          bool
	}{
		"the same rank":                       {rank("a", 3), rank("a", 3), false, true},
		"one of those that the cause names":   {rank("a", 1, 2, 3), rank("b", 3), false, true},
		"another rank":                        {rank("a", 3), rank("b", 5), false, false},
		"another rank of that machine":        {rank("a", 3), rank("a", 5), false, false},
		"nobody":                              {rank("a", 3), rank("b", 5), true, true},
		"another machine, its rank not known": {Culprits{Hosts: []string{"a"}}, rank("b", 5), false, false},
		"that machine, its rank not known":    {Culprits{Hosts: []string{"a"}}, rank("a", 5), false, true},
		"a rank on a machine not known":       {Culprits{}, rank("b", 5), false, true},
		"that GPU":                            {process("a", "", "65:00.0"), process("a", "7", "65:00.0"), false, true},
		"a GPU of that address elsewhere":     {process("a", "", "65:00.0"), process("b", "", "65:00.0"), false, false},
		"that process":                        {process("a", "7", ""), process("a", "7", ""), false, true},
		"a process of that number elsewhere":  {process("a", "7", ""), process("b", "7", ""), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench()
			cause, effect := b.verdict("cause", 600*second), b.verdict("effect", 660*second)
			cause.named = tc.cause
			if !tc.unsure {
				effect.accused = &tc.effect
			}
			b.Meet(cause.node, b.link, "x", Cause)
			b.Meet(effect.node, b.link, "x", Effect)
			require.Equal(t, tc.want, !effect.node.IsRoot())
		})
	}
}

// A fault that was told before its cause began did not come of whom the cause took down with it later.
func TestPeersLendACauseNothingOfWhatWasToldBeforeIt(t *testing.T) {
	for name, tc := range map[string]struct {
		told, atFirst int
		want          bool
	}{
		"told after":                          {660, 2, true},
		"told before":                         {590, 2, false},
		"told before, of whom it began with":  {590, 3, true},
		"told at the moment the cause began":  {600, 2, true},
		"told before, and too long before it": {530, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench()
			b.link.Early = time.Minute
			cause, effect := b.verdict("cause", 600*second), b.verdict("effect", int64(tc.told)*second)
			cause.accused, cause.atFirst = &Culprits{Ranks: []int{2, 3}}, &Culprits{Ranks: []int{tc.atFirst}}
			effect.accused = &Culprits{Ranks: []int{3}}
			b.Meet(cause.node, b.link, "x", Cause)
			b.Meet(effect.node, b.link, "x", Effect)
			require.Equal(t, tc.want, !effect.node.IsRoot())
		})
	}
}

// What is learned of a culprit later ends an explanation.
func TestAnAccusationThatComesLaterEndsAnExplanation(t *testing.T) {
	b := newBench()
	cause, effect := b.verdict("cause", 600*second), b.verdict("effect", 660*second)
	cause.named = Culprits{Ranks: []int{3}}
	effect.meets = func(*told) { b.Meet(effect.node, b.link, "x", Effect) }
	b.Meet(cause.node, b.link, "x", Cause)
	effect.Connect()
	require.False(t, effect.node.IsRoot())
	effect.accused = &Culprits{Ranks: []int{5}}
	b.Refit(effect.node)
	require.True(t, effect.node.IsRoot())
}

// A start of a job that is over explains nothing of the next, until the cause is seen in that, too.
func TestWhatSharesAJobIsOfOneStart(t *testing.T) {
	for name, tc := range map[string]struct {
		ofJob         bool
		cause, effect []string
		want          bool
	}{
		"of the same":                     {true, []string{"1"}, []string{"1"}, true},
		"of the next":                     {true, []string{"1"}, []string{"2"}, false},
		"of both":                         {true, []string{"1", "2"}, []string{"2"}, true},
		"of an effect nobody knows":       {true, []string{"1"}, nil, true},
		"of a cause nobody knows":         {true, nil, []string{"2"}, true},
		"of some that nobody knows":       {true, []string{"1", ""}, []string{"2"}, true},
		"of the next, and the same thing": {false, []string{"1"}, []string{"2"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench()
			b.link.OfJob = tc.ofJob
			cause, effect := b.verdict("cause", 600*second), b.verdict("effect", 660*second)
			cause.runs, effect.runs = tc.cause, tc.effect
			b.Meet(cause.node, b.link, "x", Cause)
			b.Meet(effect.node, b.link, "x", Effect)
			require.Equal(t, tc.want, !effect.node.IsRoot())
			cause.runs = append(cause.runs, tc.effect...)
			b.MeetAgain(cause.node, b.link, "x", Cause)
			require.False(t, effect.node.IsRoot())
		})
	}
}

func TestTheCloserThenTheEarlierCauseWins(t *testing.T) {
	b := newBench()
	effect := b.verdict("effect", 100*second)
	b.Meet(effect.node, b.link, "host", Effect)
	b.Meet(effect.node, b.closer, "host pid", Effect)
	for _, one := range []struct {
		id    string
		onset int64
		link  *Link
		want  string
	}{{"late", 90, b.link, "late"}, {"early", 80, b.link, "early"}, {"later", 85, b.link, "early"}, {"close", 95, b.closer, "close"}, {"earliest", 10, b.link, "close"}} {
		c := b.verdict(one.id, one.onset*second)
		b.Meet(c.node, one.link, map[*Link]string{b.link: "host", b.closer: "host pid"}[one.link], Cause)
		require.Equal(t, one.want, effect.node.Root(), one.id)
	}
}

// Two that explain each other: the earlier one does, whichever was told first.
func TestTheEarlierOfACircleIsTheRoot(t *testing.T) {
	for _, order := range [][]string{{"a", "b"}, {"b", "a"}} {
		b := newBench()
		one := map[string]*told{"a": b.verdict("a", 10*second), "b": b.verdict("b", 12*second)}
		for _, id := range order {
			b.Meet(one[id].node, b.link, "x", Cause)
			b.Meet(one[id].node, b.link, "x", Effect)
		}
		require.True(t, one["a"].node.IsRoot(), fmt.Sprint(order))
		require.Equal(t, "a", one["b"].node.Root())
	}
}

// What people were told of stays the root cause, whichever is looked at anew, unless the other alone is a fault, or certain.
func TestOfACircleWhatWasToldStaysTheRoot(t *testing.T) {
	for name, tc := range map[string]struct {
		told, mild, likely string
		want               string
	}{
		"nobody was told":                {"", "", "", "a"},
		"the earlier was told":           {"a", "", "", "a"},
		"the later was told":             {"b", "", "", "b"},
		"both were told":                 {"ab", "", "", "a"},
		"the earlier is information":     {"", "a", "", "b"},
		"the later is information":       {"", "b", "", "a"},
		"information that was told":      {"a", "a", "", "b"},
		"both are information":           {"", "ab", "", "a"},
		"of both information, one told":  {"b", "ab", "", "b"},
		"the earlier is likely":          {"", "", "a", "b"},
		"what was told is likely":        {"a", "", "a", "b"},
		"both are likely":                {"b", "", "ab", "b"},
		"likely, and certain of no harm": {"", "b", "a", "a"},
	} {
		for _, order := range [][]string{{"a", "b"}, {"b", "a"}} {
			b := newBench()
			one := map[string]*told{"a": b.verdict("a", 10*second), "b": b.verdict("b", 12*second)}
			b.link.Early = 5 * time.Second
			for id, v := range one {
				v.leads, v.partial = strings.Contains(tc.told, id), strings.Contains(tc.likely, id)
				if strings.Contains(tc.mild, id) {
					v.severity = verdict.Info
				}
				v.meets = func(v *told) {
					b.MeetAgain(v.node, b.link, "x", Cause)
					b.MeetAgain(v.node, b.link, "x", Effect)
				}
			}
			for _, id := range order {
				one[id].Connect()
			}
			for _, again := range []string{"", "a", "b", "a"} {
				if again != "" {
					b.Relook(one[again].node)
				}
				require.Equal(t, tc.want, one["a"].node.Root(), "%s %v %s", name, order, again)
				require.Equal(t, tc.want, one["b"].node.Root(), "%s %v %s", name, order, again)
			}
		}
	}
}

func TestAChainHasOneRootAndItsBlastIsToldUpward(t *testing.T) {
	b := newBench()
	top, middle, low := b.verdict("top", 10*second), b.verdict("middle", 20*second), b.verdict("low", 30*second)
	b.Meet(middle.node, b.link, "1", Cause)
	b.Meet(low.node, b.link, "1", Effect)
	b.Meet(top.node, b.link, "2", Cause)
	b.Meet(middle.node, b.link, "2", Effect)
	require.Equal(t, "top", low.node.Root())
	var explained []string
	top.node.Explained(func(v Verdict) { explained = append(explained, v.ID()) })
	require.ElementsMatch(t, []string{"middle", "low"}, explained)

	top.events, middle.events, low.events = nil, nil, nil
	low.node.Grew()
	require.Equal(t, []string{"grew"}, top.events)
	require.Equal(t, []string{"grew"}, middle.events)
	require.Empty(t, low.events)
	b.Ended(middle.node)
	require.Equal(t, []string{"cleared by middle"}, low.events)
}

// A cause is resolved at a time before its effect began: it is told after the effect.
func TestWhatBeganAfterTheEndIsNoEffect(t *testing.T) {
	for name, tt := range map[string]struct {
		lingers  time.Duration
		resolved int64
		root     string
	}{
		"began while it lasted": {0, 25 * second, "cause"},
		"began after its end":   {0, 15 * second, "effect"},
		"broken by its end":     {10 * time.Second, 15 * second, "cause"},
		"long after its end":    {4 * time.Second, 15 * second, "effect"},
	} {
		b := newBench()
		b.link.Lingers = tt.lingers
		cause, effect := b.verdict("cause", 10*second), b.verdict("effect", 20*second)
		b.Meet(cause.node, b.link, "x", Cause)
		b.Meet(effect.node, b.link, "x", Effect)
		require.Equal(t, "cause", effect.node.Root(), name)
		cause.resolved = tt.resolved
		effect.meets = func(t *told) { b.Meet(t.node, b.link, "x", Effect) }
		b.Ended(cause.node)
		require.Equal(t, tt.root, effect.node.Root(), name)
	}
}

// An effect is told as over before its cause is seen, which says later what was wrong all the time.
func TestWhatWasOverBeforeItsCauseIsNoEffect(t *testing.T) {
	for name, tt := range map[string]struct {
		over     time.Duration
		resolved int64
		root     string
	}{
		"it lasts":          {0, 0, "cause"},
		"it was over":       {0, 18 * second, "effect"},
		"it was just over":  {4 * time.Second, 18 * second, "cause"},
		"it was long since": {4 * time.Second, 15 * second, "effect"},
	} {
		b := newBench()
		b.link.Early, b.link.Over = time.Hour, tt.over
		cause, effect := b.verdict("cause", 20*second), b.verdict("effect", 10*second)
		effect.resolved = tt.resolved
		b.Meet(effect.node, b.link, "x", Effect)
		b.Meet(cause.node, b.link, "x", Cause)
		require.Equal(t, tt.root, effect.node.Root(), name)
	}
}

// A cause that leaves the state stays the root of what it explained, and nobody
// else takes its place.
func TestWhatACauseExplainedKeepsItsRoot(t *testing.T) {
	b := newBench()
	cause, effect, other := b.verdict("cause", 10*second), b.verdict("effect", 20*second), b.verdict("other", 5*second)
	b.Meet(cause.node, b.link, "x", Cause)
	b.Meet(effect.node, b.link, "x", Effect)
	b.Leave(cause.node)
	b.Meet(other.node, b.link, "x", Cause)
	require.Equal(t, "cause", effect.node.Root())
	b.Leave(effect.node)
	b.Leave(other.node)
	require.Empty(t, b.meetings, "nobody is left behind")
}

// A verdict that says something else now is connected anew, and so is what it
// explained.
func TestReconsiderFindsOtherCauses(t *testing.T) {
	b := newBench()
	cause, changed, effect := b.verdict("cause", 10*second), b.verdict("changed", 20*second), b.verdict("effect", 30*second)
	values := "x"
	changed.meets = func(*told) {
		b.Meet(changed.node, b.link, values, Cause)
		b.Meet(changed.node, b.link, "up "+values, Effect)
	}
	effect.meets = func(*told) { b.Meet(effect.node, b.link, "x", Effect) }
	b.Meet(cause.node, b.link, "up x", Cause)
	changed.Connect()
	effect.Connect()
	require.Equal(t, "cause", effect.node.Root())
	values = "y"
	b.Reconsider(changed.node)
	require.True(t, changed.node.IsRoot())
	require.True(t, effect.node.IsRoot())
}

func TestTheNewestMeetWhereTooManyShareValues(t *testing.T) {
	b := newBench()
	for i := range 9 {
		b.Meet(b.verdict(fmt.Sprint(i), int64(i)*second).node, b.link, "x", Cause)
	}
	require.Equal(t, uint64(5), b.FanOutLimited)
	effect := b.verdict("effect", 20*second)
	b.Meet(effect.node, b.link, "x", Effect)
	require.Equal(t, "5", effect.node.Root())
}

// A state that somebody wrote by hand may explain two verdicts by each other.
func TestRestoreRefusesACircle(t *testing.T) {
	b := newBench()
	x, y := b.verdict("x", second), b.verdict("y", second)
	x.node.Restore("y", "y", true, y.node, b.link)
	y.node.Restore("x", "y", true, x.node, b.link)
	cause, via := x.node.Cause()
	require.Equal(t, "y", cause.ID())
	require.Equal(t, b.link, via)
	cause, _ = y.node.Cause()
	require.Nil(t, cause)
}

// A guess about a machine pages nobody: it hides nothing that is sure, and explains it once it is more than a guess.
func TestAGuessAboutAMachineExplainsNothingThatIsSure(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(cause, effect *told, l *Link)
		guess  bool // whether a guess explains it
	}{
		"of its machine":         {func(*told, *told, *Link) {}, false},
		"the effect is not sure": {func(_, e *told, _ *Link) { e.accused = nil }, true},
		"of its process":         {func(_, _ *told, l *Link) { l.Wide, l.Alone = false, false }, true},
		"of the end of its path": {func(_, _ *told, l *Link) { l.Alone = false }, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench()
			b.link.Wide, b.link.Alone = true, true
			cause, effect := b.verdict("cause", 0), b.verdict("effect", second)
			cause.partial, cause.named.Hosts = true, []string{"node"}
			effect.accused = &Culprits{Hosts: []string{"node"}, Ranks: []int{5}}
			tc.change(cause, effect, b.link)
			cause.meets = func(c *told) { b.Meet(c.node, b.link, "node", Cause) }
			effect.meets = func(e *told) { b.Meet(e.node, b.link, "node", Effect) }
			cause.Connect()
			effect.Connect()
			require.Equal(t, !tc.guess, effect.node.IsRoot())
			cause.partial = false
			b.Refit(cause.node)
			require.False(t, effect.node.IsRoot())
			cause.partial = true
			b.Refit(cause.node)
			require.Equal(t, !tc.guess, effect.node.IsRoot())
		})
	}
}

// Whom evidence named that the cap took, the verdict names still, until some of it is taken back.
func TestWhatTheCapTookNamesItStill(t *testing.T) {
	for _, short := range []bool{false, true} {
		b := newBench()
		b.link.Except = []int{0} // so that the effect is looked at anew
		cause, effect := b.verdict("cause", 0), b.verdict("effect", second)
		cause.meets = func(c *told) { b.Meet(c.node, b.link, "one", Cause) }
		effect.meets = func(e *told) { b.Meet(e.node, b.link, "one", Effect) }
		cause.Connect()
		effect.Connect()
		require.False(t, effect.node.IsRoot())
		effect.short, effect.meets = short, func(e *told) { b.Meet(e.node, b.link, "other", Effect) }
		b.Refit(effect.node)
		require.Equal(t, !short, effect.node.IsRoot())
		b.Reconsider(effect.node)
		require.True(t, effect.node.IsRoot())
	}
}

// What pages is an incident: a cause that is over says how bad that is which it led to and that is not.
func TestWhatACauseLedToGoesOn(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(effect, below *told)
		want   verdict.Severity
	}{
		"an effect is open":                 {func(*told, *told) {}, verdict.Critical},
		"only what that led to is":          {func(effect, _ *told) { effect.resolved = 30 * second }, verdict.Critical},
		"all are over":                      {func(effect, below *told) { effect.resolved, below.resolved = 30*second, 30*second }, ""},
		"the worst is over":                 {func(_, below *told) { below.resolved = 30 * second }, verdict.Error},
		"the worst is likely":               {func(_, below *told) { below.partial = true }, verdict.Error},
		"the worst is claimed":              {func(_, below *told) { below.trust = verdict.Claimed }, verdict.Error},
		"the worst has not been heard of":   {func(_, below *told) { below.expired = true }, verdict.Error},
		"what is likely alone goes on":      {func(effect, below *told) { effect.partial, below.partial = true, true }, ""},
		"a likely effect led to a sure one": {func(effect, _ *told) { effect.partial = true }, verdict.Critical},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench()
			cause, effect, below := b.verdict("cause", 0), b.verdict("effect", 10*second), b.verdict("below", 20*second)
			below.severity = verdict.Critical
			cause.trust, effect.trust, below.trust = verdict.Proven, verdict.Proven, verdict.Proven
			b.Meet(cause.node, b.link, "a", Cause)
			b.Meet(effect.node, b.link, "a", Effect)
			b.Meet(effect.node, b.link, "b", Cause)
			b.Meet(below.node, b.link, "b", Effect)
			tc.change(effect, below)
			require.Equal(t, tc.want, cause.node.GoesOn())
		})
	}
}

// A cause that is open says so itself. One that is over changes with what it led to.
func TestOnlyACauseThatIsOverHearsOfItsEffects(t *testing.T) {
	b := newBench()
	cause, effect := b.verdict("cause", 0), b.verdict("effect", 10*second)
	b.Meet(cause.node, b.link, "a", Cause)
	b.Meet(effect.node, b.link, "a", Effect)
	cause.events = nil
	effect.node.Turned()
	require.Empty(t, cause.events)

	cause.resolved = 20 * second
	effect.node.Turned()
	require.Equal(t, []string{"changed"}, cause.events)
}
