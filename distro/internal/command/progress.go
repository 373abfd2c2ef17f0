package command

import (
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/distro/internal/replay"
	"github.com/tracecoreai/tracecore/internal/safetext"
)

// progress tells at a terminal how far a long replay got. Elsewhere it only
// passes on what is said.
type progress struct {
	w     io.Writer
	shown bool // there is a line to take back
	live  bool
	total int64 // bytes, 0 when not known
	next  time.Time
}

// patience is how long nothing is told, and refresh how often then: a replay
// that takes no time needs no progress.
const (
	patience = time.Second
	refresh  = 200 * time.Millisecond
)

func newProgress(w io.Writer, paths []string) *progress {
	p := &progress{w: w, live: atTerminal(w), next: time.Now().Add(patience)}
	if p.live {
		p.total = sizeOf(paths)
	}
	return p
}

// sizeOf sums up the files; what cannot be read is reported by the replay.
func sizeOf(paths []string) int64 {
	var total int64
	for _, path := range paths {
		if path == replay.Stdin {
			return 0
		}
		_ = filepath.WalkDir(path, func(_ string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return nil
			}
			if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
				total += info.Size()
			}
			return nil
		})
	}
	return total
}

// report shows how far it got.
func (p *progress) report(at replay.Progress) {
	if !p.live || time.Now().Before(p.next) {
		return
	}
	p.next = time.Now().Add(refresh)
	read := fmt.Sprintf("%d MiB", at.Bytes>>20)
	if p.total > 0 {
		read = fmt.Sprintf("%d %% of %d MiB", at.Bytes*100/p.total, p.total>>20)
	}
	fmt.Fprintf(p.w, "\r\x1b[Kread %s, %d records, %d verdicts", read, at.Records, at.Verdicts)
	p.shown = true
}

// clear takes the line back.
func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}

// say prints a message on a line of its own.
func (p *progress) say(text string) {
	p.clear()
	fmt.Fprintln(p.w, safetext.Lines(strings.TrimSuffix(text, "\n")))
}
