package verdicts

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

const (
	// mostTries is how often a verdict that is refused alone is tried while the others wait:
	// with the first pauses of exporterhelper (1 s, 1.5 s) a server that hiccups is over it.
	mostTries = 3
	// mostAside bounds the verdicts that are set aside: at some 8 KiB each, 2 MiB.
	mostAside = 256
	// mostFailed ends a round of those that were set aside: more requests in vain hold up
	// what is new.
	mostFailed = 16
	// mostRefused is how many owners may be refused in a row before it is the receiver that is
	// away. A user may have a few domains (namespaces), and a text that is disliked a few users.
	mostRefused = 8
	// stillTried is how long after an attempt in vain there is another, if anything waits: a
	// receiver may ask to be left alone for 5 minutes.
	stillTried = 10 * time.Minute
)

// What became of a verdict that an exporter did not apply, as the metadata.yaml of each lists it.
const (
	OutcomeAside   = "aside"   // it was refused alone, and is tried again
	OutcomeInvalid = "invalid" // its record claims to be a verdict and cannot be used
	outcomeGone    = "refused" // it was given up
)

// nameAside is what the storage of the verdicts that were set aside is called.
const nameAside = "aside"

// Turns applies the verdicts of an exporter, one after the other. While the receiver is away
// they wait in their order. A verdict that it refuses alone is set aside, holds up nobody, and
// is tried again in each round, as it then stands. A receiver that refuses those of many
// owners and takes nothing is away: no verdict is given up for another. The owner serializes
// all calls.
type Turns struct {
	// Apply does what a verdict asks for, and counts it. Its error is worth another attempt;
	// Alone marks that of this verdict alone. It calls Took for each request that was taken.
	Apply func(context.Context, *Found) error
	// Count counts a verdict that was set aside, given up (refused) or is invalid. It may be
	// called at any time.
	Count func(ctx context.Context, outcome string)
	// Wait hears why verdicts wait, once for each outage, and Refuse of each set aside.
	Wait, Refuse func(error)
	Now          func() time.Time

	began  time.Time
	failed atomic.Pointer[time.Time] // when the last attempt was in vain; nil: it was not
	back   time.Time                 // when an attempt was last in vain
	head   string                    // the verdict that was last refused alone, and how often
	tries  int

	client  storage.Client // nil without storage
	aside   map[string]*fairlru.Element[*held]
	order   fairlru.List[*held] // what was tried last is last
	refused map[owner]bool      // whose verdicts were set aside since anything was taken
}

// held is a verdict that was set aside.
type held struct {
	Found
	rounds int // in which it was tried in vain
}

// Alone marks the answer of a receiver that is about one verdict alone: others may pass.
func Alone(err error) error { return &alone{err} }

// IsAlone reports whether an answer is about one verdict alone.
func IsAlone(err error) bool {
	var one *alone
	return errors.As(err, &one)
}

type alone struct{ error }

// Unwrap implements errors.Unwrap.
func (a *alone) Unwrap() error { return a.error }

// Start reads what an earlier process had set aside: where the queue is kept, too.
func (t *Turns) Start(ctx context.Context, host component.Host, id component.ID, queue configoptional.Optional[exporterhelper.QueueBatchConfig]) error {
	client, err := Storage(ctx, host, id, queue, nameAside)
	if err != nil {
		return err
	}
	return t.Load(ctx, client)
}

// Load begins, with what a storage has; nil is none.
func (t *Turns) Load(ctx context.Context, client storage.Client) error {
	t.began, t.aside, t.client = t.Now(), map[string]*fairlru.Element[*held]{}, client
	t.refused = map[owner]bool{}
	if client == nil {
		return nil
	}
	walker, ok := client.(storage.Walker)
	if !ok {
		return errors.New("the storage cannot list what it holds: name a file_storage")
	}
	return walker.Walk(ctx, func(id string, text []byte) ([]*storage.Operation, error) {
		ld, err := (&plog.ProtoUnmarshaler{}).UnmarshalLogs(text)
		if err == nil && len(t.aside) < mostAside {
			if all := t.read(ctx, ld); len(all) == 1 && all[0].ID == id {
				t.hold(&all[0])
				return nil, nil
			}
		}
		return []*storage.Operation{storage.DeleteOperation(id)}, nil
	})
}

// read reads the verdicts among ld and counts what claims to be one and cannot be used.
func (t *Turns) read(ctx context.Context, ld plog.Logs) []Found {
	return Read(ld, func() { t.Count(ctx, OutcomeInvalid) })
}

// Close closes the storage.
func (t *Turns) Close(ctx context.Context) error {
	if t.client == nil {
		return nil
	}
	return t.client.Close(ctx)
}

// Consume applies the verdicts of ld in their order, until the receiver is away. That one and
// those behind it are the error's, for the next attempt.
func (t *Turns) Consume(ctx context.Context, ld plog.Logs) error {
	all := t.read(ctx, ld)
	for i := range all {
		if err := t.take(ctx, &all[i]); err != nil {
			t.wait(err)
			return consumererror.NewLogs(err, Write(all[i:]))
		}
		t.failed.Store(nil)
	}
	return nil
}

func (t *Turns) take(ctx context.Context, f *Found) error {
	before := t.aside[f.ID]
	if before != nil && (f.Repeated || f.Revision < before.Value.Revision) {
		t.Count(ctx, OutcomeAside) // what waits says it
		return nil
	}
	err := t.Apply(ctx, f)
	switch {
	case err == nil:
		t.release(ctx, f.ID)
		return nil
	case !IsAlone(err):
		return err
	}
	if t.head != f.ID {
		t.head, t.tries = f.ID, 0
	}
	// Where others were set aside, the receiver is known for it.
	if t.tries++; t.tries < mostTries && len(t.aside) == 0 {
		return err
	}
	if before == nil && len(t.aside) >= mostAside && t.away() {
		return err
	}
	t.setAside(ctx, f, err)
	return nil
}

func (t *Turns) setAside(ctx context.Context, f *Found, err error) {
	t.Count(ctx, OutcomeAside)
	t.Refuse(err)
	t.hold(f)
	t.keep(ctx, f)
	if len(t.aside) > mostAside {
		victim, _ := t.order.Victim()
		t.release(ctx, victim.Value.ID)
		t.Count(ctx, outcomeGone)
	}
}

// Again tries what was set aside, in turn. Rounds call it.
func (t *Turns) Again(ctx context.Context) {
	failed := 0
	for _, h := range t.inTurn() {
		err := t.Apply(ctx, &h.Found)
		switch {
		case err == nil:
			t.release(ctx, h.ID)
			continue
		case !IsAlone(err):
			return // what is new tells that the receiver is away
		}
		h.rounds++
		t.order.Touch(t.aside[h.ID], worthOf(&h.Found))
		if failed++; failed == mostFailed {
			return
		}
	}
}

// inTurn is what was set aside: one of each owner, then another of each. Of an owner, and
// among owners, what was tried in the fewest rounds is first, then what waited longest.
// So a verdict that met a hiccup is not behind all those that are refused without end.
func (t *Turns) inTurn() (all []*held) {
	t.order.Each(func(h *held) { all = append(all, h) })
	slices.SortStableFunc(all, func(a, b *held) int { return cmp.Compare(a.rounds, b.rounds) })
	turn, next := map[*held]int{}, map[owner]int{}
	for _, h := range all {
		of := whose(&h.Found)
		turn[h] = next[of]
		next[of]++
	}
	slices.SortStableFunc(all, func(a, b *held) int { return cmp.Compare(turn[a], turn[b]) })
	return all
}

// Took notes that the receiver took a request: what it refuses is about single verdicts.
func (t *Turns) Took() {
	if t.away() {
		t.back = t.Now()
	}
	clear(t.refused)
}

// away reports whether the receiver refuses everybody, as far as is known.
func (t *Turns) away() bool { return len(t.refused) >= mostRefused }

// whose is the owner of a verdict on all machines: a job's domain, or where no job is named
// the machine.
func whose(f *Found) owner {
	of := ownerOf(f)
	if of.domain != "" {
		of.node = ""
	}
	return owner{"", of.domain, of.node}
}

// worthOf has the end of what stands matter more than a beginning: it is told once.
func worthOf(f *Found) fairlru.Worth {
	if f.Status != verdict.Open {
		return fairlru.Some
	}
	return fairlru.Little
}

// Aside reports whether a verdict waits that was refused alone.
func (t *Turns) Aside(id string) bool { return t.aside[id] != nil }

// Heard is since when silence says anything about what was last confirmed at some time. While
// the receiver is away, confirmations wait in the queue; a process that has just started, and
// a receiver that has just come back, give everybody time.
func (t *Turns) Heard(confirmed time.Time) time.Time {
	if t.Waits() || t.away() {
		return t.Now()
	}
	return slices.MaxFunc([]time.Time{confirmed, t.began, t.back}, time.Time.Compare)
}

// Waits reports whether verdicts wait for a receiver that is away. It may be called at any time.
func (t *Turns) Waits() bool {
	failed := t.failed.Load()
	return failed != nil && t.Now().Sub(*failed) < stillTried
}

func (t *Turns) wait(err error) {
	if t.failed.Load() == nil {
		t.Wait(err)
	}
	t.back = t.Now()
	failed := t.back
	t.failed.Store(&failed)
}

// hold sets a verdict aside, in the place of an older revision.
func (t *Turns) hold(f *Found) {
	t.drop(f.ID)
	t.refused[whose(f)] = true
	t.aside[f.ID] = t.order.Add(&held{Found: *f}, worthOf(f), f.Culprit["node"], f.Pattern, f.Culprit["job_domain"], f.Culprit["job"])
}

func (t *Turns) drop(id string) {
	if one := t.aside[id]; one != nil {
		t.order.Remove(one)
		delete(t.aside, id)
	}
}

func (t *Turns) release(ctx context.Context, id string) {
	if t.aside[id] == nil {
		return
	}
	t.drop(id)
	if t.client != nil {
		t.stored(t.client.Delete(ctx, id))
	}
}

// keep writes what was set aside. A disk that takes nothing costs the memory over a restart.
func (t *Turns) keep(ctx context.Context, f *Found) {
	if t.client == nil {
		return
	}
	text, err := (&plog.ProtoMarshaler{}).MarshalLogs(Write([]Found{*f}))
	if err == nil {
		err = t.client.Set(ctx, f.ID, text)
	}
	t.stored(err)
}

func (t *Turns) stored(err error) {
	if err != nil {
		t.Refuse(err)
	}
}
