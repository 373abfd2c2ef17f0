package otlpreceiver

import (
	"sync"

	"github.com/tracecoreai/tracecore/internal/memorylimit"
)

// Shares of the memory limit of the process.
const (
	requestShare    = 0.25  // all requests under way, as bytes and decoded
	connectionShare = 0.125 // buffers and goroutines of the open connections
	messageShare    = 0.125 // gRPC messages that are on their way in
)

// connectionCost is what an open connection holds: two buffers of bufferSize, three
// goroutines, the tables of HTTP/2 and of TLS.
const connectionCost = 64 << 10

// greed is how many times what is left a sender may hold of a room that it shares.
const greed = 4

// shares is room that senders share, so that nobody fills it alone. A sender that holds
// nothing takes what fits. Another holds at most four times what is left then: one alone has
// four fifths, and each that comes finds room (Choudhury and Hahne, 1998).
type shares struct {
	size int64 // of all
	each int64 // the most of one; 0: all

	mu   sync.Mutex // guards what follows
	held int64
	of   map[origin]int64 // who holds something
}

// newBudget is a share of the memory.
func newBudget(share float64) *shares { return &shares{size: memorylimit.Budget(share)} }

// take reserves room for a sender, or says that there is none for it.
func (s *shares) take(from origin, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.fits(from, n) {
		return false
	}
	if n == 0 {
		return true
	}
	if s.of == nil {
		s.of = map[origin]int64{}
	}
	s.held += n
	s.of[from] += n
	return true
}

// room reports whether so much would fit now. Nothing is reserved for who only says that he
// sends so much.
func (s *shares) room(from origin, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fits(from, n)
}

// fits is called with mu held.
func (s *shares) fits(from origin, n int64) bool {
	own, left := s.of[from], s.size-s.held-n
	return left >= 0 && (own == 0 || n == 0 || own+n <= greed*left) && (s.each == 0 || own+n <= s.each)
}

func (s *shares) giveBack(from origin, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n == 0 {
		return
	}
	s.held -= n
	if s.of[from] -= n; s.of[from] == 0 {
		delete(s.of, from)
	}
}

func (s *shares) all() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

// maxCost is what one request may cost.
func (s *shares) maxCost() int64 { return s.size / 2 }
