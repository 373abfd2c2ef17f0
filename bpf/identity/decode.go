//go:build linux && (amd64 || arm64)

package identity

import (
	"bytes"
	"fmt"
	"strings"
	"unsafe"
)

// The kinds of event, as in identity.bpf.c.
const (
	kindExec       = 1
	kindExecNotice = 2
	kindExit       = 3
	kindSignalled  = 4 // an exit with the signals before it
)

// eventBytes is the length of an event without an environment.
const eventBytes = int(unsafe.Sizeof(bpfEvent{}))

// event is one record of the ring.
type event struct {
	kind      uint32
	timeNS    uint64 // boot clock
	startNS   uint64 // boot clock, 0 in a notice
	pid       uint32
	parentPID uint32
	status    uint32 // as wait(2) gives it
	oomVictim bool
	comm      string
	environ   []byte   // its end when whole is false; refers to the record
	whole     bool     // environ is all of it
	signals   *signals // to a process that ended; nil when there were none
}

// decode checks the length of one ring record and reads it. The environ of e
// refers to raw.
func decode(raw []byte, e *event) error {
	if len(raw) < eventBytes {
		return fmt.Errorf("decode identity event: %d bytes, one has at least %d", len(raw), eventBytes)
	}
	// Records lie on 8 bytes in the ring, but not always in a test.
	var r bpfEvent
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&r)), eventBytes), raw)
	if r.Kind < kindExec || r.Kind > kindSignalled {
		return fmt.Errorf("decode identity event: unknown kind %d", r.Kind)
	}
	if int64(r.EnvironCopied) > int64(len(raw)-eventBytes) || r.EnvironCopied > r.EnvironBytes {
		return fmt.Errorf("decode identity event: %d bytes of environment of %d, the record has room for %d",
			r.EnvironCopied, r.EnvironBytes, len(raw)-eventBytes)
	}
	*e = event{
		kind: r.Kind, timeNS: r.TimeNs, startNS: r.StartNs,
		pid: r.Pid, parentPID: r.ParentPid,
		status: r.Status, oomVictim: r.OomVictim != 0,
		comm:    text(r.Comm[:]),
		environ: raw[eventBytes : eventBytes+int(r.EnvironCopied)],
		whole:   r.Kind == kindExec && r.EnvironCopied == r.EnvironBytes,
	}
	if r.Kind == kindSignalled {
		e.kind = kindExit
		return decodeSignals(raw[eventBytes:], e)
	}
	return nil
}

// decodeSignals reads what follows the header of a signalled exit.
func decodeSignals(raw []byte, e *event) error {
	var r bpfSignals
	if uintptr(len(raw)) < unsafe.Sizeof(r) {
		return fmt.Errorf("decode identity event: %d bytes of signals, there are %d", len(raw), unsafe.Sizeof(r))
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&r)), unsafe.Sizeof(r)), raw)
	if r.TargetStartNs != e.startNS {
		return fmt.Errorf("decode identity event: signals to a process started at %d, that which ended was started at %d", r.TargetStartNs, e.startNS)
	}
	e.signals = signalsOf(&r)
	return nil
}

func signalsOf(r *bpfSignals) *signals {
	return &signals{
		asked: asked{sent: sentOf(&r.Asked), first: sent{timeNS: r.FirstNs, startNS: r.FirstStartNs, pid: r.FirstPid}},
		own:   sentOf(&r.Own), stopped: sentOf(&r.Stopped),
	}
}

func sentOf(r *bpfSent) sent {
	return sent{
		signal: r.Signal, code: r.Code, flags: r.Flags, timeNS: r.TimeNs, startNS: r.SenderStartNs,
		pid: r.SenderPid, parentPID: r.SenderParentPid, userID: r.SenderUid, comm: text(r.SenderComm[:]),
	}
}

// text copies bytes up to the first NUL into a string of valid UTF-8.
func text(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return strings.ToValidUTF8(string(b), "�")
}

// code, signal and coreDump take a wait status apart (include/uapi/linux/wait.h:
// the low seven bits are the signal, the eighth says a core was dumped, the
// second byte is the exit code).
func (e *event) code() int      { return int(e.status >> 8 & 0xff) }
func (e *event) signal() int    { return int(e.status & 0x7f) }
func (e *event) coreDump() bool { return e.status&0x80 != 0 }
