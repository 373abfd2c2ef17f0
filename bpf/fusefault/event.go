package fusefault

import "time"

// Kind tells a request to a FUSE daemon from a page fault on a file of its mount.
type Kind uint8

// The kinds.
const (
	KindRequest Kind = iota // a request that the daemon has not answered
	KindFault               // a page fault that has not returned
)

// InFlight is one FUSE request or page fault that began and has not ended.
type InFlight struct {
	ID     uint64 // the same in every snapshot while it is in flight
	Kind   Kind
	Start  time.Time
	Device Device // of the mount
	// Opcode is FUSE's (include/uapi/linux/fuse.h, enum fuse_opcode), 0 for a fault. A
	// thread that waits in read, write or fsync for what another has begun has
	// that operation's opcode, and its Start is when it was first seen to wait.
	Opcode uint32
	Inode  uint64 // node id of the request, inode number of the fault; 0 when unknown

	// PID and TID are the thread that waits (or, for a background request, the one
	// that began it), in the initial pid namespace. 0 when no thread began it.
	PID, TID uint32
	Comm     string
	// Background: nobody waits for it as far as can be seen (readahead, writeback,
	// release). Where its thread waits for the pages it reads, it is false.
	Background bool
}

// Device is the device number of a file system (st_dev), as in the third field
// of /proc/<pid>/mountinfo.
type Device struct{ Major, Minor uint32 }

// Histogram counts durations in powers of two of a microsecond: bucket 0 holds
// what took less than 1 µs, bucket i what took less than 2^i µs, the last all
// that took longer.
type Histogram struct {
	Buckets [28]uint64 // the last boundary is 2^26 µs = 67 s
	SumNS   uint64
}

// Mount is one FUSE file system that was seen to work since the probe was opened.
type Mount struct {
	Device Device
	// Connection tells mounts of one device number apart, of which a later one has that of an
	// earlier: the kernel's name of the connection to the daemon, 0 while it is not known.
	Connection uint64

	// DaemonPID is the process that answers it: the one that last took or answered
	// a request; 0 while nobody was seen.
	DaemonPID  uint32
	DaemonComm string

	// Requests has completed requests, from sending to answer: one of sixteen that take
	// less than 65 ms, which counts for sixteen, and each that takes longer.
	Requests Histogram
	Faults   Histogram // completed major page faults

	Answered uint64 // completed requests, each counted

	InFlight int // requests of any age, and faults at least Options.MinAge old

	// Aborted counts requests that the kernel ended itself, because the daemon died
	// or somebody aborted the connection; they are not among Requests.
	Aborted uint64
}

// Snapshot is what the kernel side holds at one moment.
type Snapshot struct {
	Time     time.Time
	InFlight []InFlight // at least Options.MinAge old, oldest first
	Mounts   []Mount
	// Missed counts what could not be noted since the probe was opened, because a map
	// was full or the kernel would not run a program within itself.
	Missed uint64
}
