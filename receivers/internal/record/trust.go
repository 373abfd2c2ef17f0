package record

// Trust says how it is known that a record is true.
type Trust string

// The trusts. A record without one is at most claimed.
const (
	// Proven: the kernel or a driver said it, as structure or the call stack of the
	// write shows.
	Proven Trust = "proven"
	// Claimed: a process of the node said it, or nothing shows who did.
	Claimed Trust = "claimed"
	// Foreign: it came over the network.
	Foreign Trust = "foreign"
)
