//go:build linux && (amd64 || arm64)

package fusefault

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unsafe"
)

// Sizes of the records of the two iterators.
const (
	threadBytes = int(unsafe.Sizeof(bpfThread{}))
	holderBytes = int(unsafe.Sizeof(bpfHolder{}))
)

// States of a thread, include/linux/sched.h.
const (
	taskUninterruptible = 0x02 // also in TASK_KILLABLE
	taskDead            = 0x80
)

// thread is what a thread does, as the iterator found it.
type thread struct {
	tid, pid            uint32
	start               uint64 // boot clock
	completed, switches uint64
	state               uint32
	asked               bool
	comm                string
	stack               []uint64
}

func (t *thread) dead() bool { return t.state&taskDead != 0 }

// sleepsHard: uninterruptibly, or for nothing but a fatal signal.
func (t *thread) sleepsHard() bool { return t.state&taskUninterruptible != 0 }

// decodeThreads reads the records of one run of the iterator.
func decodeThreads(raw []byte) (map[uint32]thread, error) {
	if len(raw)%threadBytes != 0 {
		return nil, fmt.Errorf("%d bytes of threads are no multiple of %d", len(raw), threadBytes)
	}
	threads := make(map[uint32]thread, len(raw)/threadBytes)
	for ; len(raw) > 0; raw = raw[threadBytes:] {
		t := decodeThread(raw[:threadBytes])
		threads[t.tid] = t
	}
	return threads, nil
}

// decodeThread reads struct thread of fusefault.bpf.c.
func decodeThread(raw []byte) thread {
	var r bpfThread
	word := func(offset uintptr) uint64 { return binary.NativeEndian.Uint64(raw[offset:]) }
	half := func(offset uintptr) uint32 { return binary.NativeEndian.Uint32(raw[offset:]) }
	t := thread{
		tid: half(unsafe.Offsetof(r.Tid)), pid: half(unsafe.Offsetof(r.Pid)),
		start: word(unsafe.Offsetof(r.StartNs)), completed: word(unsafe.Offsetof(r.Completed)),
		switches: word(unsafe.Offsetof(r.Switches)), state: half(unsafe.Offsetof(r.State)),
		asked: half(unsafe.Offsetof(r.Asked)) != 0,
		comm:  text(raw[unsafe.Offsetof(r.Comm):][:len(r.Comm)]),
	}
	for i := range r.Stack {
		address := word(unsafe.Offsetof(r.Stack) + uintptr(i)*8)
		if address == 0 {
			break
		}
		t.stack = append(t.stack, address)
	}
	return t
}

// holder is a process that has /dev/fuse open for a connection.
type holder struct {
	connection, start uint64
	pid               uint32
	comm              string
}

func decodeHolders(raw []byte) ([]holder, error) {
	if len(raw)%holderBytes != 0 {
		return nil, fmt.Errorf("%d bytes of holders are no multiple of %d", len(raw), holderBytes)
	}
	var r bpfHolder
	holders := make([]holder, 0, len(raw)/holderBytes)
	for ; len(raw) > 0; raw = raw[holderBytes:] {
		holders = append(holders, holder{
			connection: binary.NativeEndian.Uint64(raw[unsafe.Offsetof(r.Connection):]),
			start:      binary.NativeEndian.Uint64(raw[unsafe.Offsetof(r.StartNs):]),
			pid:        binary.NativeEndian.Uint32(raw[unsafe.Offsetof(r.Pid):]),
			comm:       text(raw[unsafe.Offsetof(r.Comm):][:len(r.Comm)]),
		})
	}
	return holders, nil
}

// decodeEntries reads keys and values, as the iterators over maps write them in turn, and
// adds them to the slices.
func decodeEntries[K, V any](raw []byte, keys []K, values []V) ([]K, []V, error) {
	keyBytes, valueBytes := int(unsafe.Sizeof(*new(K))), int(unsafe.Sizeof(*new(V)))
	if size := keyBytes + valueBytes; len(raw)%size != 0 {
		return keys, values, fmt.Errorf("%d bytes of entries are no multiple of %d", len(raw), size)
	}
	for len(raw) > 0 {
		var key K
		var value V
		raw = raw[copy(unsafe.Slice((*byte)(unsafe.Pointer(&key)), keyBytes), raw):]
		raw = raw[copy(unsafe.Slice((*byte)(unsafe.Pointer(&value)), valueBytes), raw):]
		keys, values = append(keys, key), append(values, value)
	}
	return keys, values, nil
}

// text is a name as the kernel keeps it: ended by NUL, any bytes before.
func text(raw []byte) string {
	name, _, _ := strings.Cut(string(raw), "\x00")
	return strings.ToValidUTF8(name, "�")
}

func textOf(comm [16]int8) string {
	raw := make([]byte, len(comm))
	for i, b := range comm {
		raw[i] = byte(b)
	}
	return text(raw)
}

// device is a kernel's dev_t: include/linux/kdev_t.h.
func device(dev uint32) Device { return Device{Major: dev >> 20, Minor: dev & (1<<20 - 1)} }

// number is its inverse.
func (d Device) number() uint32 { return d.Major<<20 | d.Minor&(1<<20-1) }
