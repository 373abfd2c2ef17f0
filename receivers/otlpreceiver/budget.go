package otlpreceiver

import (
	"sync/atomic"

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

// budget is memory that requests hold and give back.
type budget struct {
	size int64
	held atomic.Int64
}

func newBudget(share float64) *budget { return &budget{size: memorylimit.Budget(share)} }

// take reserves memory, or says that there is none.
func (b *budget) take(bytes int64) bool {
	if b.held.Add(bytes) <= b.size {
		return true
	}
	b.held.Add(-bytes)
	return false
}

// room reports whether so many bytes would fit now. Nothing is reserved for who only says
// that he sends so much.
func (b *budget) room(bytes int64) bool { return b.held.Load()+bytes <= b.size }

func (b *budget) giveBack(bytes int64) { b.held.Add(-bytes) }

// maxCost is what one request may cost: two of the largest fit at once.
func (b *budget) maxCost() int64 { return b.size / 2 }
