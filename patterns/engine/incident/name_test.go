package incident

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func (t *told) incident() string {
	id, _ := t.node.Incident()
	return id
}

// People know an incident by the name that they were told. A cause that is found later is news of it.
func TestAnIncidentKeepsItsNameWhenItsCauseIsFound(t *testing.T) {
	for name, tt := range map[string]struct {
		told []string // of cause and effect, before they meet
		want string
	}{
		"nobody was told":             {nil, "cause"},
		"they were told of an effect": {[]string{"effect"}, "effect"},
		"they were told of the cause": {[]string{"cause"}, "cause"},
		"they were told of both":      {[]string{"effect", "cause"}, "cause"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench()
			at := map[string]*told{"cause": b.verdict("cause", 10*second), "effect": b.verdict("effect", 20*second)}
			cause, effect := at["cause"], at["effect"]
			for _, id := range tt.told {
				at[id].node.Told()
			}
			b.Meet(effect.node, b.link, "x", Effect)
			b.Meet(cause.node, b.link, "x", Cause)
			require.Equal(t, "cause", effect.node.Root())
			require.Equal(t, tt.want, cause.incident())
			require.Equal(t, tt.want, effect.incident())
			if tt.want == "effect" {
				require.Contains(t, cause.events, "changed", "it is to be told in another incident")
			}

			b.Leave(cause.node)
			require.Equal(t, tt.want, effect.incident(), "who has left the state was told in it")
		})
	}
}

// A symptom that becomes the cause of its cause takes no name with it that nobody knows.
func TestAnIncidentKeepsItsNameWhenCauseAndEffectChangePlaces(t *testing.T) {
	b := newBench()
	here, back := *b.link, *b.link
	here.Early, back.Early = 60*1e9, 60*1e9
	sure, guess := b.verdict("sure", 20*second), b.verdict("guess", 10*second)
	sure.partial, guess.partial = true, true
	b.Meet(guess.node, &here, "x", Cause)
	b.Meet(guess.node, &back, "x", Effect)
	b.Meet(sure.node, &here, "x", Effect)
	guess.node.Told()
	require.Equal(t, "guess", sure.node.Root())

	sure.partial = false
	b.Meet(sure.node, &back, "x", Cause)
	require.Equal(t, "sure", guess.node.Root())
	require.Equal(t, "guess", sure.incident())
	require.Equal(t, "guess", guess.incident())
}

// What turns out to be no effect of it keeps the name, if that is its own.
func TestAnIncidentThatFallsApartHasTwoNames(t *testing.T) {
	b := newBench()
	cause, effect, third := b.verdict("cause", 10*second), b.verdict("effect", 20*second), b.verdict("third", 21*second)
	effect.node.Told()
	for _, one := range []*told{effect, third} {
		one.meets = func(*told) {}
		b.Meet(one.node, b.link, "x", Effect)
	}
	b.Meet(cause.node, b.link, "x", Cause)
	require.Equal(t, "effect", third.incident())

	third.events, cause.resolved = nil, 15*second
	third.before = 10 * second // it began while the cause lasted
	b.Ended(cause.node)
	require.Equal(t, "effect", effect.incident())
	require.True(t, effect.node.IsRoot())
	require.Equal(t, "cause", cause.incident())
	require.Equal(t, "cause", third.incident())
	require.Contains(t, third.events, "changed")
}

// What is withdrawn was told in its incident, and is read there to have been none. Nothing that it
// explained is its effect any more. Open again, it is explained anew.
func TestWhatIsWithdrawnEndsInItsIncident(t *testing.T) {
	b := newBench()
	cause, effect, third := b.verdict("cause", 10*second), b.verdict("effect", 20*second), b.verdict("third", 21*second)
	meet := func(*told) {
		b.MeetAgain(cause.node, b.link, "x", Cause)
		b.MeetAgain(effect.node, b.link, "x", Effect)
		b.MeetAgain(effect.node, b.closer, "y", Cause)
		b.MeetAgain(third.node, b.closer, "y", Effect)
	}
	for _, one := range []*told{cause, effect, third} {
		one.meets = meet
		one.node.Told()
	}
	meet(nil)
	require.Equal(t, "cause", third.incident())

	effect.withdrawn, effect.resolved = true, 22*second
	b.Relook(effect.node)
	b.Ended(effect.node)
	require.Equal(t, "cause", effect.incident())
	require.False(t, effect.node.IsRoot())
	require.True(t, third.node.IsRoot())
	b.Reconsider(cause.node)
	require.Equal(t, "cause", effect.incident())
	cause.resolved = 15 * second
	b.Ended(cause.node)
	require.Equal(t, "cause", effect.incident(), "also where it began after the end of its cause")

	effect.withdrawn, effect.resolved = false, 0
	b.Refit(effect.node)
	require.Equal(t, "cause", third.node.Root())
	require.False(t, effect.node.IsRoot(), "it has its cause")
	b.Relook(effect.node)
	require.True(t, effect.node.IsRoot(), "which ended before")
}

// Whatever happens, all verdicts of an incident have one name, and no other incident has it.
func TestNamesAreOnesOwn(t *testing.T) {
	const verdicts = 12
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := newBench()
		b.fanOut = verdicts
		here, closer := *b.link, *b.closer
		here.Early, closer.Early = 60*1e9, 60*1e9
		links := []*Link{&here, &closer}
		var all []*told
		for i := range verdicts {
			one := b.verdict(fmt.Sprint(i), int64(10+r.IntN(20))*second)
			one.partial = r.IntN(2) == 0
			one.meets = func(o *told) {
				for _, l := range links {
					b.Meet(o.node, l, fmt.Sprint(r.IntN(2)), r.IntN(2) == 0)
				}
			}
			all = append(all, one)
		}
		for range 60 {
			one := all[r.IntN(verdicts)]
			switch r.IntN(6) {
			case 0:
				one.partial = !one.partial
				b.Reconsider(one.node)
			case 1:
				one.resolved = int64(10+r.IntN(20)) * second
				b.Ended(one.node)
			case 2:
				one.withdrawn, one.resolved = r.IntN(4) == 0, 0
				b.Relook(one.node)
			case 3:
				one.node.Told()
			default:
				one.Connect()
			}
			of := map[string]string{} // the root cause of each incident
			for _, v := range all {
				top := v.node.top().verdict.ID()
				require.Equal(t, top, v.node.Root(), "seed %d", seed)
				if was, known := of[v.incident()]; known {
					require.Equal(t, was, top, "seed %d: one name for two incidents", seed)
				}
				of[v.incident()] = top
				require.Equal(t, v.node.top().incident, v.node.incident, "seed %d: two names in one incident", seed)
			}
		}
	}
}
