//go:build linux

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/truth/judge"
)

// What a trial ends with.
const (
	healed  = iota // the job goes on
	ended          // the job has ended
	running        // nothing was broken
)

// kind is one kind of fault, or of health.
type kind struct {
	name    string
	cause   string // as docs/truth.md says it
	healthy bool
	late    time.Duration // after which a fault may be told: the documented exceptions
	class   class         // which share of the faults of real clusters it stands for
	apart   bool          // it takes a job of which each rank has a host of its own
	host    bool          // it touches the whole machine: other lanes have no trial meanwhile
	do      func(*trial) (int, error)
}

// MarshalText writes a kind by its name.
func (k kind) MarshalText() ([]byte, error) { return []byte(k.name), nil }

// UnmarshalText finds the kind of a name.
func (k *kind) UnmarshalText(name []byte) error {
	named, err := choose(string(name))
	if err != nil {
		return err
	}
	*k = named[0]
	return nil
}

// settle is how long a verdict may take after the fault is over, and its end too.
const settle = 15 * time.Second

// trial is one kind, done to a job.
type trial struct {
	*job
	lane   *lane
	agent  *agent
	disk   *disk
	chance *rand.Rand
	folder string
	number int

	rank  int            // the culprit
	place *regexp.Regexp // where in its code it is, for the answers that are added from now on; nil where nobody knows
	truth judge.Truth
	wipe  []func() error
}

// begin notes that the fault is there from now on.
func (t *trial) begin() { t.truth.Began = time.Now() }

// agentAgain kills the agent and starts it, and notes for how long nothing could be told.
func (t *trial) agentAgain() error {
	from := time.Now()
	err := t.agent.again()
	t.truth.Away = append(t.truth.Away, judge.Span{From: from, To: time.Now()})
	return err
}

// seconds is a random time.
func (t *trial) seconds(from, to int) time.Duration {
	return time.Duration(from)*time.Second + time.Duration(t.chance.Int64N(int64(time.Duration(to-from)*time.Second)))
}

func (t *trial) other() int { return (t.rank + 1 + t.chance.IntN(t.world-1)) % t.world }

// stalls is the answer that a rank holds its job up, for a reason: by its sockets, or by its
// calls, its stack or its dumps.
func (t *trial) stalls(reason string) {
	t.right("nccl_socket_stall", reason)
	t.right("nccl_hang", reason)
}

// right adds a right answer about the rank.
func (t *trial) right(pattern, reason string) {
	t.truth.Right = append(t.truth.Right, judge.Answer{
		Pattern: pattern, Culprit: map[string]string{"rank": strconv.Itoa(t.rank)}, Says: regexp.MustCompile(reason), At: t.place,
	})
}

// rightAgain adds the answer that the job dies of the rank at each of its starts. It is
// right where trials before this one ended the job, too. It says how the rank died, or what it
// displayed last, and at which line.
func (t *trial) rightAgain(reason string) {
	t.truth.Right = append(t.truth.Right, judge.Answer{
		Pattern: "crash_loop", Says: regexp.MustCompile(fmt.Sprintf(`rank %[1]d \((%[2]s)\)|rank %[1]d \([^()]*\)( \d+ times)?; the last displayed .*(%[2]s)`, t.rank, reason)), At: t.place,
	})
}

// also lets statements of a pattern pass: they are true and beside the point.
func (t *trial) also(pattern string) {
	t.truth.Also = append(t.truth.Also, judge.Answer{Pattern: pattern})
}

// alsoOf is also for statements about the culprit alone.
func (t *trial) alsoOf(pattern string) {
	t.truth.Also = append(t.truth.Also, judge.Answer{Pattern: pattern, Culprit: map[string]string{"rank": strconv.Itoa(t.rank)}})
}

// does has a rank carry out an order that takes so long.
func (t *trial) does(rank int, order string, lasts time.Duration) (int, error) {
	if err := t.order(rank, order, fmt.Sprintf("%.0f", lasts.Seconds())); err != nil {
		return running, err
	}
	if err := t.carried(rank, lasts+time.Minute); err != nil {
		return running, err
	}
	return t.heals()
}

// heals is the end of a fault after which the job goes on.
func (t *trial) heals() (int, error) {
	t.truth.Healed = time.Now()
	return healed, t.moves(time.Minute)
}

// reaches is the end of a fault of the network: what TCP sends again comes after its
// back-off, up to twice the time it was cut off.
func (t *trial) reaches() (int, error) {
	err := t.moves(time.Minute)
	t.truth.Healed = time.Now()
	return healed, err
}

// hangs is does for a fault.
func (t *trial) hangs(order, reason string, from, to int) (int, error) {
	t.place = place(order)
	t.stalls(reason)
	t.begin()
	return t.does(t.rank, order, t.seconds(from, to))
}

// dies is an order after which the rank is dead.
func (t *trial) dies(reason string, order ...string) (int, error) {
	t.place = place(order[0])
	t.right("rank_exit", reason)
	t.rightAgain(reason)
	t.begin()
	if err := t.order(t.rank, order...); err != nil {
		return ended, err
	}
	select {
	case <-t.ranks[t.rank].ended:
	case <-time.After(time.Minute):
		return ended, errors.New("the rank does not die")
	}
	return ended, t.watch(8 * time.Second)
}

// watch waits until the fault was told right, or so long, and a little for what comes after.
func (t *trial) watch(most time.Duration) error {
	limit := time.NewTimer(most)
	defer limit.Stop()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	var told time.Time
	for {
		select {
		case <-limit.C:
			return nil
		case now := <-again.C:
			o := judge.Judge(t.truth, t.lane.news(&t.truth))
			if told.IsZero() && o.Cause {
				told = now
			}
			if !told.IsZero() && now.Sub(told) > 4*time.Second {
				return nil
			}
		}
	}
}

// after waits until the right statement was told to be over.
func (t *trial) after() {
	limit := time.NewTimer(settle)
	defer limit.Stop()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		select {
		case <-limit.C:
			return
		case <-again.C:
			if o := judge.Judge(t.truth, t.lane.news(&t.truth)); o.Resolved || !o.Culprit && time.Since(t.truth.Healed) > 5*time.Second {
				return
			}
		}
	}
}

// undo takes back what the trial changed, in the reverse order.
func (t *trial) undo() error {
	var errs []error
	for i := len(t.wipe) - 1; i >= 0; i-- {
		errs = append(errs, t.wipe[i]())
	}
	return errors.Join(errs...)
}

func (t *trial) later(undo func() error) { t.wipe = append(t.wipe, undo) }

// checkpoint has the rank write so much that it takes so long.
func (t *trial) checkpoint(lasts time.Duration) (int, error) { return t.saves("save", lasts) }

// saves is checkpoint by one of several orders that write.
func (t *trial) saves(order string, lasts time.Duration) (int, error) {
	const megabytes = 128
	if err := t.disk.rate(int(megabytes << 20 / lasts.Seconds())); err != nil {
		return running, err
	}
	t.later(func() error { return t.disk.rate(0) })
	return t.carries(order, t.disk.name+"/checkpoint", strconv.Itoa(megabytes))
}

// loads has the rank read so much that it takes so long.
func (t *trial) loads(order string, lasts time.Duration) (int, error) {
	const megabytes = 64
	if err := t.file(megabytes); err != nil {
		return running, err
	}
	if err := t.disk.rate(int(megabytes << 20 / lasts.Seconds())); err != nil {
		return running, err
	}
	t.later(func() error { return t.disk.rate(0) })
	t.begin()
	return t.carries(order, t.disk.name+"/data")
}

// carries has the rank carry out an order, however long it takes.
func (t *trial) carries(order ...string) (int, error) {
	if err := t.order(t.rank, order...); err != nil {
		return running, err
	}
	if err := t.carried(t.rank, 2*time.Minute); err != nil {
		return running, err
	}
	return t.heals()
}

// file writes the data set, so that the kernel has none of it in its cache.
func (t *trial) file(megabytes int) error {
	return os.WriteFile(filepath.Join(t.folder, "disk", "data"), make([]byte, megabytes<<20), 0o600)
}

// worker finds a DataLoader's worker of the rank. It may be a child of a child: Python
// starts them by a server of its own.
func (t *trial) worker(most time.Duration) (int, error) {
	var found int
	if !within(most, func() bool {
		for _, pid := range below(t.pid(t.rank), 0) {
			if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil && string(comm) == "pt_data_worker\n" {
				found = pid
				return true
			}
		}
		return false
	}) {
		return 0, fmt.Errorf("rank %d has no DataLoader worker after %s", t.rank, most)
	}
	t.started(found)
	return found, nil
}

// nanosleep is where the kernel lets a thread sleep for a time (kernel/time/hrtimer.c).
const nanosleep = "hrtimer_nanosleep"

// waitsIn waits until a thread of the process sleeps in that function of the kernel.
func (t *trial) waitsIn(pid int, function string) error {
	if !within(time.Minute, func() bool { return sleepsIn(pid, function) }) {
		return fmt.Errorf("process %d is not in %s after a minute", pid, function)
	}
	return nil
}

// waitsNoMore waits until none does.
func (t *trial) waitsNoMore(pid int, function string) error {
	if !within(time.Minute, func() bool { return !sleepsIn(pid, function) }) {
		return fmt.Errorf("process %d is still in %s after a minute", pid, function)
	}
	return nil
}

func sleepsIn(pid int, function string) bool {
	return slices.ContainsFunc(glob(fmt.Sprintf("/proc/%d/task/*/wchan", pid)), func(task string) bool {
		in, err := os.ReadFile(task)
		return err == nil && string(in) == function
	})
}

// within asks until it is so.
func within(most time.Duration, is func() bool) bool {
	for end := time.Now().Add(most); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if is() {
			return true
		}
	}
	return false
}

// below are the processes that descend from one.
func below(pid, depth int) []int {
	if depth == 8 {
		return nil
	}
	var all []int
	for _, task := range glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) {
		text, err := os.ReadFile(task)
		if err != nil {
			continue
		}
		for _, word := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				all = append(append(all, child), below(child, depth+1)...)
			}
		}
	}
	return all
}

func glob(pattern string) []string {
	found, _ := filepath.Glob(pattern) // the pattern is right
	return found
}
