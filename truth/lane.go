//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/truth/judge"
)

// lane makes one trial after the other, with a job and a mount of its own. Lanes share the
// agent and the machine.
type lane struct {
	*bench
	number int
	chance *rand.Rand // seed and number decide it
	folder string
	disk   *disk
	job    *job        // nil when none trains
	last   *job        // the one before, which may start again
	ended  time.Time   // of the trial before
	before judge.Truth // of it
}

// newLane is a lane that has no mount yet.
func (b *bench) newLane(number int) *lane {
	return &lane{
		bench: b, number: number, chance: rand.New(rand.NewPCG(b.seed, uint64(number)+1)), //nolint:gosec // chance that can be repeated
		folder: filepath.Join(b.folder, fmt.Sprint("lane", number)), ended: time.Now(),
	}
}

func (l *lane) open() (err error) {
	if err := os.Mkdir(l.folder, 0o700); err != nil {
		return err
	}
	l.disk, err = mount(l.root, filepath.Join(l.folder, "disk"), fmt.Sprint("data", l.number))
	return err
}

func (l *lane) close() error {
	var errs []error
	if l.job != nil {
		errs = append(errs, l.job.close())
	}
	if l.last != nil && l.last != l.job {
		errs = append(errs, l.last.close())
	}
	if l.disk != nil {
		errs = append(errs, l.disk.close())
	}
	return errors.Join(errs...)
}

// run makes the lane's share of the trials.
func (l *lane) run(over context.Context, chosen []kind) {
	for n, k := range l.deal(chosen) {
		if over.Err() != nil || l.atMost > 0 && n > l.atMost {
			break
		}
		if n%l.jobs == l.number {
			r := l.trial(k, n)
			l.results.add([]result{r})
			fmt.Fprintln(l.log, r.line())
		}
	}
	l.between.add(l.quiet(&judge.Truth{Began: time.Now()}))
}

// trial does one kind to a job that trains.
func (l *lane) trial(k kind, number int) result {
	r := result{Kind: k, Lane: l.number}
	if err := l.train(&k); err != nil {
		r.Void = err.Error()
		return r
	}
	if k.host { // the others only train meanwhile
		l.trials.Lock()
		defer l.trials.Unlock()
	} else {
		l.trials.RLock()
		defer l.trials.RUnlock()
	}
	t := l.newTrial(number)
	r.World, r.Style = t.world, t.how.name
	if !k.healthy && t.starts > 2 { // trials before have ended its other starts, which is a loop
		t.also("crash_loop")
	}
	r.Healthy = time.Since(latest(l.ended, l.job.began))
	start := time.Now()
	at, err := k.do(t)
	if err == nil && at == healed {
		t.after()
	}
	if k.healthy && err == nil {
		r.Healthy += time.Since(start)
	}
	r.Outcome = judge.Judge(t.truth, l.news(&t.truth))
	r.Heals = !t.truth.Healed.IsZero()
	l.between.add(l.quiet(&t.truth))
	err = errors.Join(err, t.undo())
	if at == ended || err != nil {
		err = errors.Join(err, t.end())
		l.last, l.job = l.job, nil
	}
	if err != nil {
		r.Void = err.Error()
	}
	if at == ended || k.host || err != nil { // what is left of a broken job was killed
		time.Sleep(3 * time.Second)
	}
	l.ended, l.before = time.Now(), t.truth
	l.past.add([]span{{from: t.truth.Began, to: l.ended.Add(settle), truth: t.truth, host: k.host}})
	return r
}

// newTrial is a trial of the job that trains. Until it begins its fault, it begins now.
func (l *lane) newTrial(number int) *trial {
	t := &trial{lane: l, job: l.job, agent: l.agent, disk: l.disk, chance: l.chance, folder: l.folder, number: number, rank: l.chance.IntN(l.job.world)}
	t.begin()
	return t
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// news are the lines about this lane since a trial began. Those of a verdict that was told
// before are marked. A line about nobody is of the lane whose truth has it.
func (l *lane) news(truth *judge.Truth) []judge.Line {
	var news []judge.Line
	old := map[string]bool{}
	for _, line := range l.agent.since(time.Time{}) {
		switch whose := l.owners.of(&line); {
		case whose != l.number && (whose != nobody || !truth.Has(&line)):
		case line.At.Before(truth.Began):
			old[line.ID] = true
		default:
			line.Old = old[line.ID]
			news = append(news, line)
		}
	}
	return news
}

// quiet returns the false statements between the trial before and the present one. What
// either is about may be told there, and what another lane did to the whole machine.
func (l *lane) quiet(now *judge.Truth) []judge.Line {
	also := slices.Concat(l.before.Right, l.before.Also, now.Right, now.Also)
	for _, s := range l.past.all() {
		if s.host && s.to.After(l.ended) {
			also = append(also, s.truth.Also...)
		}
	}
	truth := judge.Truth{Began: l.ended, Also: also}
	return judge.Judge(truth, slices.DeleteFunc(l.news(&truth), func(line judge.Line) bool { return !line.At.Before(now.Began) })).Wrong
}

// known is how long after its start a job is known: until then only what is beyond doubt is
// told of it (receivers/ncclsockreceiver/README.md).
const known = 25 * time.Second

// train sees to a job that trains, long enough for its usual pauses to be known.
func (l *lane) train(k *kind) (err error) {
	defer func() {
		if err != nil && l.job != nil { // the next trial takes another one
			err = errors.Join(err, l.job.end())
			l.last, l.job = l.job, nil
			time.Sleep(3 * time.Second)
			l.ended = time.Now() // what was killed is told before
		}
	}()
	if l.job != nil && k.apart && !l.job.apart() {
		if err := l.job.end(); err != nil {
			return err
		}
		l.job = nil
	}
	if l.job != nil {
		time.Sleep(max(time.Duration(2+l.chance.IntN(4))*time.Second, known-time.Since(l.job.began)))
		return l.job.moves(30 * time.Second)
	}
	j := l.last
	switch again := j != nil && (j.apart() || !k.apart) && l.chance.IntN(3) == 0; {
	case again: // the same job, started again
	default:
		if j != nil {
			if err := j.close(); err != nil {
				return err
			}
		}
		j = l.draw(k)
	}
	l.last, l.job = nil, j
	if err := l.launch(j); err != nil {
		return err
	}
	time.Sleep(time.Duration(12+l.chance.IntN(8)) * time.Second)
	return j.moves(30 * time.Second)
}

// launch starts a job. Few start at a time: the ranks' imports take the processors for
// seconds.
func (l *lane) launch(j *job) error {
	l.starts <- struct{}{}
	defer func() { <-l.starts }()
	return j.start(-1, 0)
}

// has reports whether the root has the launcher of a style.
func (l *lane) has(s style) bool {
	_, err := os.Stat(filepath.Join(l.root, s.starts(&job{})[0]))
	return err == nil
}

// draw makes another job, as chance has it. One of eight is larger than most.
func (l *lane) draw(k *kind) *job {
	fit := slices.DeleteFunc(styles(), func(s style) bool { return s.starts != nil && (k.apart || !l.has(s)) })
	if asked := slices.DeleteFunc(slices.Clone(fit), func(s style) bool { return !strings.Contains(s.name, l.launcher) }); len(asked) > 0 {
		fit = asked
	}
	world := 2 + l.chance.IntN(l.most-1)
	if l.chance.IntN(8) == 0 {
		world = l.most + 1 + l.chance.IntN(l.most)
	}
	j := &job{
		root: l.root, world: world, how: fit[l.chance.IntN(len(fit))], words: l.words, chance: l.chance,
		lane: l.number, lanes: max(1, l.jobs),
		started: func(pid int) { l.owners.process(pid, l.number) },
		named:   func(id string) { l.owners.job(id, l.number) },
	}
	j.fresh()
	return j
}
