package gate

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Answers makes so many answers at once, and sends twice as many. An answer is made in
// memory before it is sent, so that who reads it slowly holds up nobody who asks: where one
// more is ready than may be sent at once, the one that has been sent for longest is ended.
// Those who ask take turns, by the owners of their connections. A question is busy's to answer
// where it does not get its turn within patience, or where too many wait: half as many as there
// are connections, so that there is always one that has no question to give way to a new one.
//
// To ask costs nothing, to answer can take tens of milliseconds of a processor that later
// verdicts need. So a place rests after each answer, for seven times as long as that took, a
// second at most. Questions without end take an eighth of a processor for each place, more where
// an answer takes longer than a seventh of a second.
func Answers(most, connections int, patience time.Duration, next, busy http.HandlerFunc) http.Handler {
	return &answers{
		making: newTurns(most, max(1, connections/2)), most: 2 * most, patience: patience, next: next, busy: busy,
		now: time.Now, after: func(d time.Duration, free func()) { time.AfterFunc(d, free) },
	}
}

const (
	rests   = 7           // times as long as the answer took
	longest = time.Second // an answer may have waited for a file instead
)

type answers struct {
	making     *turns
	most       int
	patience   time.Duration
	next, busy http.HandlerFunc
	now        func() time.Time
	after      func(time.Duration, func())

	mu      sync.Mutex // guards sending
	sending []*answer  // the oldest first
}

// ServeHTTP implements http.Handler.
func (a *answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), a.patience)
	defer cancel()
	var owner string
	if c, ok := ctx.Value(connKey{}).(*conn); ok {
		owner = c.owner
		c.is(asked)
		defer c.is(waiting)
	}
	if !a.making.wait(ctx, owner) {
		a.busy(w, r)
		return
	}
	one := &answer{ResponseWriter: w, code: http.StatusOK}
	func() {
		began := a.now()
		defer func() { a.after(min(rests*a.now().Sub(began), longest), a.making.leave) }()
		a.next(one, r.WithContext(ctx))
	}()
	a.begin(one)
	defer a.end(one)
	w.WriteHeader(one.code)
	_, _ = w.Write(one.body.Bytes()) // who does not read it does not get it
}

// begin lets an answer be sent, and ends the oldest where there are too many.
func (a *answers) begin(one *answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sending = append(a.sending, one)
	if len(a.sending) > a.most {
		_ = http.NewResponseController(a.sending[0].ResponseWriter).SetWriteDeadline(time.Unix(1, 0)) // it is over
		a.sending = a.sending[1:]
	}
}

func (a *answers) end(one *answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.Index(a.sending, one); i >= 0 {
		a.sending = slices.Delete(a.sending, i, i+1)
	}
}

// answer is one that is made, and then sent.
type answer struct {
	http.ResponseWriter
	code int
	body bytes.Buffer
}

// WriteHeader notes the status.
func (a *answer) WriteHeader(code int) { a.code = code }

// Write keeps the text.
func (a *answer) Write(text []byte) (int, error) { return a.body.Write(text) }
