package pyexception

import "time"

// Relation is how an exception of a chain belongs to the one before it.
type Relation uint8

// The relations.
const (
	Displayed Relation = iota // the one that the interpreter displays
	Cause                     // the one before was raised from it
	Context                   // the one before was raised while it was handled
	Member                    // the one before holds several (a group), and it is the first of them
)

// Frame is one level of a traceback.
type Frame struct {
	File     string // its end, after …, where it is long
	Line     int    // 0 where it is not known
	Function string // qualified where the interpreter knows it so, from 3.11 on
	Skipped  int    // levels between it and the frame before, or the outermost, that are left out
}

// Exception is one exception. Its texts are what the program chose: valid UTF-8, neither
// safe for a terminal nor true.
type Exception struct {
	Relation Relation
	// Type is the name of its class, without the module where that was written in Python.
	Type string
	// Message is what the interpreter makes of its arguments. A class with a __str__ of
	// its own may display something else.
	Message string
	Cut     bool // the message was longer
	// Tail is the end of a message that was longer: what a quoted traceback of another process
	// says last. Gap: between Message and Tail there is more.
	Tail string
	Gap  bool
	// Unread says that the message was not in memory, or is none of a kind that is read.
	Unread bool
	// Frames are the innermost levels of its traceback, and of those farther out that are
	// no library's the outermost and the two innermost; the outermost first.
	Frames []Frame
	// Levels are how many the traceback has, or at least. Broken: others are farther in
	// and could not be read.
	Levels int
	Broken bool
}

// Event is one display of an exception.
type Event struct {
	// Terminates says that it is one of C++, which nobody catches: its process ends of it. It has no lines.
	Terminates  bool
	Time        time.Time
	PID, Thread uint32
	Comm        string // of the thread
	Minor       int    // of its CPython 3
	// Chain are the exception that was displayed and those that it came from.
	Chain []Exception
	More  bool // there are more of these

	address uint64
}
