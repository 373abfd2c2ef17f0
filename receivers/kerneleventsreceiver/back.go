package kerneleventsreceiver

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/receiver"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// noteEvery is how often it is noted that the kernel log is watched. What came after the
// last note of a process that was killed is read twice.
const noteEvery = 5 * time.Second

// noteKey is where the note is kept.
const noteKey = "watched"

// note is up to when the kernel log was seen, in which boot.
type note struct {
	Boot  string      `json:"boot"`
	Until kmsg.Moment `json:"until"`
}

// watched remembers up to when the kernel log was seen, also by processes before this.
type watched struct {
	settings receiver.Settings
	id       *component.ID
	boot     string

	mu     sync.Mutex // guards what follows
	client storage.Client
	until  kmsg.Moment
	live   bool // the probe delivers
}

func newWatched(settings receiver.Settings, id *component.ID, boot string) *watched {
	return &watched{settings: settings, id: id, boot: boot}
}

// open takes up what was noted. A note of another boot says nothing of this one.
func (w *watched) open(ctx context.Context, host component.Host) error {
	client, err := record.Storage(ctx, host, w.id, w.settings.ID)
	if err != nil || client == nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.client = client
	text, err := client.Get(ctx, noteKey)
	if err != nil {
		w.settings.Logger.Warn("the storage does not answer: the kernel log of this boot is read again", zap.Error(err))
	}
	var last note
	if json.Unmarshal(text, &last) == nil && last.Boot == w.boot && last.Until <= kmsg.Now() {
		w.until = last.Until
	}
	return nil
}

// since is from when on nobody watched; kept is false where that is not kept.
func (w *watched) since() (at kmsg.Moment, kept bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.until, w.client != nil
}

// resume is called once all that was missed is in the queue: what is noted before would be
// lost with this process.
func (w *watched) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.live = true
}

// pause is called when the probe ends.
func (w *watched) pause() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.until, w.live = kmsg.Now(), false
}

// note notes that all was seen up to now, if nothing waits.
func (w *watched) note(idle bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.client != nil && w.live && idle {
		w.until = kmsg.Now()
		w.save()
	}
}

// save is called with the lock.
func (w *watched) save() {
	text, err := json.Marshal(note{Boot: w.boot, Until: w.until})
	if err == nil {
		err = w.client.Set(context.Background(), noteKey, text)
	}
	if err != nil {
		w.settings.Logger.Debug("note up to when the kernel log was seen", zap.Error(err)) // the storage itself says what is wrong
	}
}

// kept returns what was kept in this boot under a key, nil where nothing was.
func (w *watched) kept(ctx context.Context, key string) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.client == nil {
		return nil
	}
	text, err := w.client.Get(ctx, key)
	var one ofBoot
	if err != nil || json.Unmarshal(text, &one) != nil || one.Boot != w.boot {
		return nil
	}
	return one.What
}

// keep keeps something until the next boot, where there is a storage.
func (w *watched) keep(key string, what []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.client == nil {
		return nil
	}
	text, err := json.Marshal(ofBoot{Boot: w.boot, What: what})
	if err != nil {
		return err
	}
	return w.client.Set(context.Background(), key, text)
}

// ofBoot is what was kept in a boot.
type ofBoot struct {
	Boot string          `json:"boot"`
	What json.RawMessage `json:"what"`
}

// close notes when the probe ended. All that it delivered has left.
func (w *watched) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.client != nil {
		w.save()
		_ = w.client.Close(context.Background()) // its owner says what is wrong with it
		w.client = nil
	}
}

// readBack hands on what the kernel said while nobody watched.
func (w *worker) readBack(s source) {
	defer w.watched.resume()
	since, kept := w.watched.since()
	if !kept {
		return
	}
	back, err := s.ReadBack(since)
	logger := w.watched.settings.Logger
	if err != nil {
		w.telemetry.ReceiverKerneleventsLogGaps.Add(context.Background(), 1)
		logger.Warn("what the kernel said while nobody watched stays unknown: give the process CAP_SYSLOG and /dev/kmsg", zap.Error(err))
		return
	}
	if back.Gap || back.Cut > 0 {
		w.telemetry.ReceiverKerneleventsLogGaps.Add(context.Background(), 1)
		logger.Warn("the kernel's log buffer no longer holds all that was written while nobody watched: faults of that time can be missing; log_buf_len on the kernel's command line makes it larger",
			zap.Int("records_beyond_limit", back.Cut))
	}
	w.telemetry.ReceiverKerneleventsLinesLate.Add(context.Background(), int64(len(back.Events)))
	for i := range back.Events {
		w.events <- &back.Events[i]
	}
}
