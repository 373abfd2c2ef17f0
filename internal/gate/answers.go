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
// A question that does not get its turn within patience is busy's to answer.
//
// To ask costs nothing, to answer can take tens of milliseconds of a processor that later
// verdicts need. So a place rests after each answer, for seven times as long as that took, a
// second at most. Questions without end take an eighth of a processor for each place, more where
// an answer takes longer than a seventh of a second.
func Answers(most int, patience time.Duration, next, busy http.HandlerFunc) http.Handler {
	return &answers{
		making: make(chan struct{}, most), most: 2 * most, patience: patience, next: next, busy: busy,
		now: time.Now, after: func(d time.Duration, free func()) { time.AfterFunc(d, free) },
	}
}

const (
	rests   = 7           // times as long as the answer took
	longest = time.Second // an answer may have waited for a file instead
)

type answers struct {
	making     chan struct{}
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
	select {
	case a.making <- struct{}{}:
	case <-ctx.Done():
		a.busy(w, r)
		return
	}
	one := &answer{ResponseWriter: w, code: http.StatusOK}
	func() {
		began := a.now()
		defer func() { a.after(min(rests*a.now().Sub(began), longest), func() { <-a.making }) }()
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
