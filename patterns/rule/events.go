package rule

// Events of the life of a rank that several patterns and views read.
const (
	EventStart       = "process.start"        // it runs
	EventAsked       = "process.asked"        // it was asked to end, and lives
	EventExit        = "process.exit"         // a process of it has ended, by the kernel's word
	EventGone        = "process.gone"         // it was not there any more when its agent began: nobody saw its end
	EventStack       = "process.stack"        // its main thread stands still
	EventStackMoving = "process.stack.moving" // it does not stand there any more
)
