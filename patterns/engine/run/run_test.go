package run

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

const second = int64(time.Second)

// at is a time of day.
func at(s float64) int64 { return 1_700_000_000*second + int64(s*float64(second)) }

func of(rank int, pid int64, start float64) *Sighting {
	return &Sighting{Job: Job{ID: "j", Domain: "user 0", Trust: verdict.Proven}, Process: Process{Host: "n1", PID: pid, Start: at(start)}, Rank: rank, Attempt: -1, Time: at(start + 5)}
}

func see(t *testing.T, b *Book, s *Sighting) string {
	t.Helper()
	id, _, _ := b.Of(s)
	require.NotEmpty(t, id)
	return id
}

func TestTheSameRankAsALaterProcessIsAnotherRun(t *testing.T) {
	b := NewBook(1000)
	first := see(t, b, of(0, 10, 0))
	require.Equal(t, first, see(t, b, of(1, 11, 40)), "ranks of one run start apart")
	require.Equal(t, first, see(t, b, of(0, 10, 0.9)), "clocks are slewed")

	id, news, began := b.Of(of(1, 21, 100))
	require.NotEqual(t, first, id)
	require.True(t, news)
	require.Nil(t, began, "one of two ranks")
	require.Zero(t, b.Followed(of(0, 0, 0).Job, first))
	_, news, began = b.Of(of(0, 20, 99))
	require.True(t, news)
	require.Equal(t, &Began{Of: of(0, 0, 0).Job, ID: id, At: at(99), Older: []string{first}}, began)
	require.Equal(t, at(99), b.Followed(began.Of, first))
	require.Zero(t, b.Followed(began.Of, id))
	require.Zero(t, b.Followed(Job{ID: "other", Trust: verdict.Proven}, id))
	_, _, began = b.Of(of(2, 25, 103))
	require.Nil(t, began)
	_, _, began = b.Of(of(3, 26, 98))
	require.Equal(t, at(98), began.At, "it began earlier than was known")
	require.Equal(t, id, see(t, b, of(0, 20, 99)))
	require.Equal(t, first, see(t, b, of(0, 10, 0)), "what is told late of the first run")
	require.Equal(t, first, see(t, b, of(2, 12, 1)), "also of a rank that was not seen in it")
}

// A wall clock that is set, and the agent then started again, makes no other processes of those that run:
// boot, pid and start name one, whatever the wall clock says.
func TestAStepOfTheClockBeginsNoRun(t *testing.T) {
	own := func(rank int, start float64, boot string, since int64) *Sighting {
		s := of(rank, int64(10+rank), start)
		s.Boot, s.Since = boot, since
		return s
	}
	b := NewBook(1000)
	first := see(t, b, own(0, 0, "a", 500))
	see(t, b, own(1, 0, "a", 510))
	id, news, began := b.Of(own(0, 30, "a", 500))
	require.Equal(t, first, id)
	require.True(t, news, "it is kept what the clock says now")
	require.Nil(t, began)
	_, news, _ = b.Of(own(0, 30, "a", 500))
	require.False(t, news)
	require.Equal(t, first, see(t, b, of(0, 10, 30)), "what a child of the rank tells knows the wall clock alone")

	require.NotEqual(t, first, see(t, b, own(0, 30, "a", 900)), "the next process of that pid")
	require.NotEqual(t, first, see(t, b, own(1, 0, "b", 510)), "another boot")
	require.Equal(t, first, see(t, b, own(1, 0, "", 510)), "a boot that is not known")
}

// The first record may be about a child of the rank.
func TestAProcessIsKnownByItsStartOnceThatIsTold(t *testing.T) {
	b := NewBook(1000)
	first := see(t, b, of(0, 10, 0))
	s := of(0, 10, 0.5)
	s.Since = 500
	id, news, _ := b.Of(s)
	require.Equal(t, first, id)
	require.True(t, news)
	later := of(0, 10, 60)
	later.Since = 500
	require.Equal(t, first, see(t, b, later))
}

// ended is the end of a process.
// A host may get another name while its processes run.
func TestAHostThatIsRenamedBeginsNoRun(t *testing.T) {
	on := func(host, boot string, since int64, s *Sighting) *Sighting {
		s.Host, s.Boot, s.Since = host, boot, since
		return s
	}
	b := NewBook(100)
	first := see(t, b, on("n1", "B", 5, of(0, 100, 5)))
	require.Equal(t, first, see(t, b, on("n2", "B", 6, of(1, 101, 5))))
	require.Equal(t, first, see(t, b, on("n2-new", "B", 6, of(1, 101, 5))), "another name, one process")
	require.Equal(t, first, see(t, b, on("n2-new", "", 0, of(1, 101, 5))), "a child of it says no start")
	p, _ := b.Process(of(1, 101, 5).Job, first, 1)
	require.Equal(t, "n2-new", p.Host)

	require.NotEqual(t, first, see(t, b, on("n2-new", "C", 6, of(1, 101, 500))), "the same pid and start in another boot")

	stranger := on("elsewhere", "B", 5, of(0, 100, 5))
	stranger.Trust = verdict.Foreign
	id, _, _ := b.Of(stranger)
	require.Empty(t, id, "where he sends from is not his word")
}

func ended(s *Sighting) *Sighting {
	s.Ended = true
	return s
}

// The container of one rank is started again, as Kubernetes does. The others have not gone: they
// wait for it, or die of it.
func TestARankThatBeginsAgainAloneTakesNobodysPlace(t *testing.T) {
	b := NewBook(1000)
	first := see(t, b, of(0, 10, 0))
	for rank := range 3 {
		see(t, b, of(1+rank, int64(11+rank), 0))
	}
	b.Of(ended(of(2, 12, 0)))
	for again := range 3 {
		id, news, began := b.Of(of(2, int64(22+10*again), float64(100+10*again)))
		require.NotEqual(t, first, id)
		require.True(t, news)
		require.Equal(t, first, b.Beside(of(2, 0, 0).Job, id), "the others live")
		require.Empty(t, b.With(of(2, 0, 0).Job, id, at(float64(224+10*again))), "more may begin again")
		require.Equal(t, first, b.With(of(2, 0, 0).Job, id, at(float64(225+10*again))))
		require.Equal(t, at(float64(225+10*again)), b.Together(of(2, 0, 0).Job, id, first), "they are one job since")
		require.Empty(t, b.Beside(of(2, 0, 0).Job, first))
		require.True(t, began == nil || began.Stands != nil && began.Stands[0] == first, "what it takes the place of is its own try before")
	}
	require.Zero(t, b.Followed(of(0, 0, 0).Job, first))
	data, err := json.Marshal(b.Save())
	require.NoError(t, err)
	var kept []Saved
	require.NoError(t, json.Unmarshal(data, &kept))
	saved := NewBook(1000)
	saved.Restore(kept)
	for _, b := range []*Book{b, saved} {
		_, _, began := b.Of(ended(of(0, 10, 0)))
		require.Nil(t, began)
		_, news, _ := b.Of(ended(of(0, 10, 0)))
		require.False(t, news, "it is known")
		b.Of(ended(of(1, 11, 0)))
		_, _, began = b.Of(of(3, 43, 130))
		require.Nil(t, began, "half of them begin again, the others are dead")
		last, _, began := b.Of(of(1, 41, 131))
		require.Contains(t, began.Older, first)
		require.Equal(t, last, began.ID)
		require.Empty(t, began.Stands)
		require.Empty(t, b.Beside(began.Of, last), "the start before is over")
		require.Zero(t, b.Together(began.Of, last, first))
	}
}

func TestWhatTellsThatAJobWasStartedAgain(t *testing.T) {
	four := func() (*Book, string) {
		b := NewBook(1000)
		for rank := range 4 {
			s := of(rank, int64(10+rank), 0)
			s.World, s.Attempt = 4, 0
			b.Of(s)
		}
		return b, see(t, b, of(0, 10, 0))
	}
	for name, tell := range map[string]func(*Book) *Began{
		"most ranks begin again": func(b *Book) (began *Began) {
			for rank := range 3 {
				require.Nil(t, began)
				_, _, began = b.Of(of(rank, int64(20+rank), 60))
			}
			return began
		},
		"another size": func(b *Book) *Began {
			s := of(0, 20, 60)
			s.World = 2
			_, _, began := b.Of(s)
			return began
		},
		"the launcher counts": func(b *Book) *Began {
			s := of(0, 20, 60)
			s.Attempt = 1
			_, _, began := b.Of(s)
			return began
		},
		"all have ended": func(b *Book) (began *Began) {
			for rank := range 4 {
				_, _, began = b.Of(ended(of(rank, int64(10+rank), 0)))
				require.Nil(t, began)
			}
			for rank := range 3 { // other ranks of the job, on the machine that this one sees
				require.Nil(t, began)
				_, _, began = b.Of(of(4+rank, int64(20+rank), 7200))
			}
			return began
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, first := four()
			began := tell(b)
			require.NotNil(t, began)
			require.Equal(t, []string{first}, began.Older)
			require.Empty(t, began.Stands)
			require.Greater(t, began.At, at(59))
			require.Equal(t, began.At, b.Followed(began.Of, first))
		})
	}
}

// TestARecordWithoutAHostIsOfTheProcessItNames: findings and dumps may say none.
func TestARecordWithoutAHostIsOfTheProcessItNames(t *testing.T) {
	b := NewBook(1000)
	first := see(t, b, of(0, 10, 0))
	s := of(0, 10, 0)
	s.Host = ""
	require.Equal(t, first, see(t, b, s))
	s.Host = "n2"
	require.NotEqual(t, first, see(t, b, s), "the same pid on another machine")
}

func TestARankThatWasNotSeenBeforeARestartIsOfTheLaterRun(t *testing.T) {
	b := NewBook(1000)
	first := see(t, b, of(0, 10, 0))
	require.Equal(t, first, see(t, b, of(1, 21, 100)), "nothing speaks against it yet")
	second := see(t, b, of(0, 20, 101))
	require.NotEqual(t, first, second)
	require.Equal(t, second, see(t, b, of(1, 21, 100)))
}

func TestADumpIsOfTheRunThatStood(t *testing.T) {
	b := NewBook(1000)
	first, second := see(t, b, of(0, 10, 0)), see(t, b, of(0, 20, 100))
	for when, want := range map[float64]string{-60: "", 50: first, 150: second} {
		s := of(-1, 0, 0)
		s.Start, s.Time, s.Domain, s.Trust = 0, at(when), "", verdict.Claimed
		id, news, _ := b.Of(s)
		require.Equal(t, want, id, when)
		require.False(t, news)
	}
}

func TestTheLaunchersCountTellsRunsApart(t *testing.T) {
	b := NewBook(1000)
	rank := func(rank int, pid int64, start float64, attempt int64) string {
		s := of(rank, pid, start)
		s.Attempt = attempt
		return see(t, b, s)
	}
	first := rank(0, 10, 0, 0)
	second := rank(1, 21, 2, 1)
	require.NotEqual(t, first, second, "no rank was seen twice")
	require.Equal(t, second, rank(0, 20, 1.5, 1))
	require.Equal(t, first, rank(1, 11, 0.1, 0))
}

// TestLessTrustedWordsBeginNoRun of a job whose runs are known better.
func TestLessTrustedWordsBeginNoRun(t *testing.T) {
	b := NewBook(1000)
	first := see(t, b, of(0, 10, 0))
	s := of(0, 99, 50)
	s.Trust = verdict.Foreign
	id, news, began := b.Of(s)
	require.Equal(t, first, id)
	require.False(t, news)
	require.Nil(t, began)

	s.Domain = "user 1"
	id, _, _ = b.Of(s)
	require.NotEqual(t, first, id, "another's job of that name is another job")
	none := of(0, 1, 0)
	none.Domain, none.Start = "", 0
	id, _, _ = b.Of(none)
	require.Equal(t, first, id, "what says no domain is of the job that is known best")
}

// claimed is what the process says itself.
func claimed(s *Sighting) *Sighting {
	s.Trust = verdict.Claimed
	return s
}

// A process displays an exception, and ends: the two records come in either order.
func TestTheWordOfAProcessIsOfTheRunOfItsEnd(t *testing.T) {
	b := NewBook(1000)
	first := see(t, b, claimed(of(1, 11, 0)))
	require.Equal(t, first, see(t, b, ended(of(1, 11, 0))), "it displayed before it ended")
	require.Equal(t, first, see(t, b, claimed(of(1, 11, 0))))
	require.Equal(t, first, see(t, b, of(0, 10, 1)))

	second := see(t, b, claimed(of(1, 21, 60)))
	require.NotEqual(t, first, second, "the rank is another process by now")
	require.Equal(t, second, see(t, b, claimed(of(0, 20, 61))))
	require.Equal(t, second, see(t, b, of(0, 20, 61)))
	require.Equal(t, second, see(t, b, of(1, 21, 60)))
	require.Equal(t, first, see(t, b, claimed(of(1, 11, 0))), "what is told late of the first run")

	stranger := of(1, 31, 120)
	stranger.Trust = verdict.Foreign
	require.Equal(t, second, see(t, b, stranger), "a stranger begins none")
	require.NotEqual(t, second, see(t, b, of(1, 31, 120)))
}

// Ranks of one start begin up to 30 s apart, and those of the next 30 s after these at least. What is
// told of them, by the kernel or by themselves, comes in any order within a start.
func TestAStartHasOneRun(t *testing.T) {
	const ranks, starts = 4, 5
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 3))
		b, runs, began := NewBook(1000), map[string]int{}, 0.0
		for start := range starts {
			var told []*Sighting
			latest := began
			for rank := range ranks {
				begins := began + 30*random.Float64()
				latest = max(latest, begins)
				for _, trust := range []verdict.Trust{verdict.Claimed, verdict.Proven} {
					s := of(rank, int64(100*start+rank+1), begins)
					s.Trust = trust
					told = append(told, s)
					end := *s
					end.Ended = trust == verdict.Proven
					told = append(told, &end)
				}
			}
			random.Shuffle(len(told), func(i, j int) { told[i], told[j] = told[j], told[i] })
			id := ""
			for _, s := range told {
				is := see(t, b, s)
				if id == "" {
					id = is
				}
				require.Equal(t, id, is, "seed %d, start %d, rank %d, trust %v", seed, start, s.Rank, s.Trust)
			}
			runs[id]++
			began = latest + 30 + 60*random.Float64()
		}
		require.Len(t, runs, starts, "seed %d", seed)
	}
}

// TestAStrangerElsewhereIsOfNoRun: where a rank runs is known, and he is not there.
func TestAStrangerElsewhereIsOfNoRun(t *testing.T) {
	b := NewBook(1000)
	first := see(t, b, of(0, 10, 0))
	of := func(host string, rank int, trust verdict.Trust) string {
		id, _, _ := b.Of(&Sighting{Job: Job{ID: "j", Trust: trust}, Process: Process{Host: host}, Rank: rank, Attempt: -1, Time: at(9)})
		return id
	}
	require.Equal(t, first, of("n1", 0, verdict.Foreign))
	require.Empty(t, of("elsewhere", 0, verdict.Foreign))
	require.Empty(t, of("", 0, verdict.Foreign))
	require.Equal(t, first, of("elsewhere", 1, verdict.Foreign), "nothing is known of that rank")
	require.Equal(t, first, of("elsewhere", 0, verdict.Claimed), "tracecore's own receivers may watch from elsewhere")
}

func TestJobsTakeRoomFromTheirOwnDomain(t *testing.T) {
	b := NewBook(100 * page)
	mine := see(t, b, of(0, 10, 0))
	for i := range 10_000 {
		s := of(i%7, int64(i), float64(i))
		s.ID, s.Domain = fmt.Sprint(i), "user 666"
		b.Of(s)
	}
	require.LessOrEqual(t, b.order.Size(), 1+100)
	require.NotZero(t, b.Evicted)
	require.Equal(t, mine, see(t, b, of(0, 10, 0)))
	_, news, _ := b.Of(of(0, 10, 0))
	require.False(t, news, "it was not forgotten")
	require.Len(t, b.jobs, b.order.Len())
}

func TestACrashLoopIsBounded(t *testing.T) {
	b := NewBook(1000)
	for i := range 100 {
		b.Of(of(0, int64(i+1), float64(10*i)))
	}
	id, _, began := b.Of(of(0, 1000, -500))
	require.NotContains(t, began.Older, id, "it has left")
	require.Len(t, b.jobs[Job{"j", "user 0", verdict.Proven}].runs, maxRuns)
}

// TestTheOrderOfRecordsDoesNotMatter: the ranks of a start are told of in any order, and
// those of earlier starts again and again.
func TestTheOrderOfRecordsDoesNotMatter(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // any order will do
		b, ids := NewBook(1000), map[int64]string{}
		var told []*Sighting
		check := func(s *Sighting) {
			id := see(t, b, s)
			if ids[s.PID/100] == "" {
				ids[s.PID/100] = id
			}
			require.Equal(t, ids[s.PID/100], id, "seed %d, pid %d", seed, s.PID)
		}
		for run := range 4 {
			for _, rank := range random.Perm(6) {
				s := of(rank, int64(100*run+rank), float64(60*run)+10*random.Float64())
				told = append(told, s)
				check(s)
				check(told[random.IntN(len(told))])
			}
		}
		require.Len(t, ids, 4)
	}
}

func TestWhatIsSavedComesBack(t *testing.T) {
	b := NewBook(1000)
	for i := range 20 {
		b.Of(of(i%4, int64(i+1), float64(300*(i/4))))
	}
	data, err := json.Marshal(b.Save())
	require.NoError(t, err)
	var saved []Saved
	require.NoError(t, json.Unmarshal(data, &saved))
	again := NewBook(1000)
	again.Restore(saved)
	twice, err := json.Marshal(again.Save())
	require.NoError(t, err)
	require.JSONEq(t, string(data), string(twice))
	require.Equal(t, see(t, b, of(0, 1, 0)), see(t, again, of(0, 1, 0)))
	again.Restore([]Saved{{Runs: []*Run{nil, {}}}, {Job: Job{Trust: 9}}})
	again.Of(of(0, 1, 0))
}

// A machine that is booted again has ended the ranks that it had before. They are told where nobody saw
// the end of one of that machine.
func TestABootEndsTheRanksOfItsMachine(t *testing.T) {
	on := func(host, boot string, rank int) *Sighting {
		s := of(rank, int64(10+rank), float64(rank))
		s.Host, s.Boot, s.Since = host, boot, int64(rank+1)*second
		return s
	}
	ended := on("n3", "one", 3)
	ended.Ended = true
	b := NewBook(1000)
	id := see(t, b, on("n1", "one", 0))
	for _, s := range []*Sighting{on("n2", "one", 1), on("n3", "one", 2), ended, on("n4", "two", 4), on("n5", "", 5)} {
		require.Equal(t, id, see(t, b, s))
	}
	job := ended.Job
	require.Empty(t, b.Rebooted("n4", "two", at(60)), "it is of that boot")
	require.Empty(t, b.Rebooted("n9", "two", at(60)), "no rank was there")
	require.Empty(t, b.Rebooted("n3", "two", at(60)), "it was up when rank 3 ended")
	require.Empty(t, b.Rebooted("n2", "other", at(-60)), "another machine of that name was booted before it began")
	require.Equal(t, []Left{{job, id, 1}}, b.Rebooted("n2", "two", at(60)))
	require.Empty(t, b.Rebooted("n2", "two", at(60)), "it is known")
	require.Empty(t, b.Rebooted("n5", "two", at(2)), "it began after the boot")
	require.Equal(t, []Left{{job, id, 5}}, b.Rebooted("n5", "two", at(60)), "it began before the boot")
	require.Equal(t, map[int]bool{1: false, 2: false, 3: false, 5: false}, b.jobs[job].runs[0].Gone)
}
