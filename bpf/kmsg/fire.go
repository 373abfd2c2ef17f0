//go:build linux && (amd64 || arm64)

package kmsg

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/tracecoreai/tracecore/bpf/internal/kerninfo"
	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

const (
	markerPrefix = "tracecore: self-test "
	// The record is in the ring when write returns; this only bounds how long a
	// silent rung is waited for.
	markerWait = 500 * time.Millisecond
	// A ring that is full of other records can drop the marker.
	markerTries = 3
	// Records read while waiting for the marker and kept for Read.
	maxSeen = 8192
)

// trial is what the rungs are tried with, and what trying them found.
type trial struct {
	ringBytes int
	automaton *automaton
	device    string // the kernel log
	marker    string

	kernelNames bool // the kernel names its functions; else its list of symbols is searched

	seen    []Event // other records that came while waiting for the marker
	invalid uint64
	lost    uint64 // of those, what was beyond maxSeen
	// markedNS is when the marker was stored, by the boot clock.
	markedNS int64

	limit string // what the rung in use was not seen to do, and why
	// unproven is why the rung in use cannot show who wrote a record.
	unproven string
}

func newTrial(opts Options) (*trial, error) {
	nonce := make([]byte, 8)
	if _, err := rand.Read(nonce); err != nil {
		return nil, fmt.Errorf("make a nonce: %w", err)
	}
	words := opts.Words
	if words == nil {
		words = DefaultWords()
	}
	t := &trial{ringBytes: opts.RingBytes, device: "/dev/kmsg", marker: markerPrefix + hex.EncodeToString(nonce)}
	if t.ringBytes == 0 {
		t.ringBytes = DefaultRingBytes
	}
	if page := os.Getpagesize(); t.ringBytes < page || t.ringBytes&(t.ringBytes-1) != 0 {
		return nil, fmt.Errorf("ring of %d bytes: use a power of two of at least %d", t.ringBytes, page)
	}
	var err error
	if t.automaton, err = newAutomaton(append(slices.Clone(words), t.marker)); err != nil {
		return nil, err
	}
	// A question that cannot be answered is answered by the verifier.
	t.kernelNames = !errors.Is(features.HaveProgramHelper(ebpf.RawTracepoint, asm.FnSnprintf), ebpf.ErrNotSupported)
	return t, nil
}

// symbols reads the names of functions where the kernel does not send them.
func (t *trial) symbols() func() lookup {
	if t.kernelNames {
		return nil
	}
	return func() lookup {
		table, err := kerninfo.Symbols()
		if err != nil {
			return nil // not known, as where the kernel hides its addresses
		}
		return func(addresses []uint64) map[uint64]Function {
			functions := make(map[uint64]Function, len(addresses))
			for address, s := range table.Functions(addresses) {
				functions[address] = Function{Name: string(s.Name), Module: strings.Trim(string(s.Module), "[]")}
			}
			return functions
		}
	}
}

// fire writes the marker to the kernel log and waits for its event. Where the
// log cannot be written, what is known of the kernel decides.
func (t *trial) fire(rung string, a *attached) (bool, error) {
	t.seen, t.lost, t.invalid, t.limit, t.unproven = nil, 0, 0, "", ""
	for range markerTries {
		before := a.dropped(0)
		if err := t.writeMarker(); err != nil {
			t.limit = fmt.Sprintf("could not fire it: %v: make %s writable (kernel.printk_devkmsg must not be off)", err, t.device)
			t.unproven = t.whyUnproven(true) // nothing shows the contrary
			return false, storesTextAt(rung, kerninfo.Release())
		}
		found, err := t.await(a)
		if found || err != nil {
			return found, err
		}
		if a.dropped(0) == before {
			break
		}
	}
	return false, fmt.Errorf("%w within %v of writing to %s%s", ladder.ErrSilent, markerWait, t.device, silentReason(rung))
}

// writeMarker writes as facility user, level debug: no console prints it. A
// fresh descriptor has its own rate limit (kernel.printk_devkmsg=ratelimit).
func (t *trial) writeMarker() error {
	f, err := os.OpenFile(t.device, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("<15>" + t.marker + "\n")
	return errors.Join(err, f.Close())
}

// await reads until the marker comes. The text must be the marker and nothing
// else: before 5.19 a console that prints everything makes the tracepoint fire,
// but with a time prefix, late, and not for every record.
func (t *trial) await(a *attached) (bool, error) {
	a.reader.SetDeadline(time.Now().Add(markerWait))
	defer a.reader.SetDeadline(time.Time{})
	var record ringbuf.Record
	for {
		var e Event
		err := a.next(&record, &e)
		switch {
		case err == nil && e.Text == t.marker:
			t.markedNS = e.Time.UnixNano() - wallOffset()
			t.unproven = t.whyUnproven(e.Origin != Function{})
			return true, nil
		case err == nil && len(t.seen) < maxSeen:
			t.seen = append(t.seen, e)
		case err == nil:
			t.lost++
		case errors.Is(err, errInvalid):
			t.invalid++
		case errors.Is(err, os.ErrDeadlineExceeded):
			return false, nil
		default:
			return false, fmt.Errorf("read: %w", err)
		}
	}
}

// storesTextAt says whether a rung that could not be fired can be trusted.
func storesTextAt(rung, release string) error {
	if rung == RungCommit {
		return nil // both functions exist, and their arguments are relocated by BTF
	}
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return &ladder.Problem{Outcome: probe.Broken, Reason: fmt.Sprintf("cannot read the kernel release %q", release), Err: err}
	}
	if major > 5 || major == 5 && minor >= 19 {
		return nil
	}
	return &ladder.Problem{
		Outcome: probe.Silent,
		Reason:  fmt.Sprintf("before Linux 5.19 (this is %s) the tracepoint sees only what a console prints", release),
	}
}

func silentReason(rung string) string {
	if rung == RungCommit {
		return ""
	}
	return "; before Linux 5.19 the tracepoint sees only what a console prints"
}
