package peer

// Domains is an extension that knows whose jobs run on this machine.
type Domains interface {
	// DomainOf is the domain of a job, as users of this machine call it, for which a user
	// speaks from a cgroup of the unified hierarchy ("": not known): never that of a job of
	// another user. "" where nothing is known of processes.
	DomainOf(user uint32, cgroup, job string) string
}

// Nobodys is the domain of what a sender said who cannot be asked for any more. No job is in it.
const Nobodys = "unknown"
