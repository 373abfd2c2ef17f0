// Package nodeguard is what exporters share that take machines out of service because of
// verdicts: which verdict may, how many nodes at a time, and how a text on the node itself
// holds the verdicts that it stands for.
package nodeguard

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// What stands on a node is the state: its text is
//
//	gpu_lost/5b1e6f0c: GPU 0000:65:00.0 has fallen off the bus | hbm_ecc/… | (and 2 more: r08f1… -77c0…) | (boot 0f3c9a1e)
//
// so that an exporter that has just started, or another replica, knows what is left
// when one of them is resolved, and after which boot of the node it was said. What
// stands in brackets is never a verdict: the ids of verdicts have none.
const (
	between = " | "
	afterID = ": "
)

// Room is how much a text may say.
type Room struct {
	Listed    int // verdicts with their headlines
	Tracked   int // verdicts beside them, by 17 bytes each
	LineBytes int // of a headline
}

// Line is one open verdict of a text.
type Line struct{ ID, Headline string }

// LineOf says a verdict.
func (r Room) LineOf(v verdict.Verdict) Line {
	return Line{IDOf(v), safetext.Clip(strings.ReplaceAll(safetext.Object(v.Headline), "|", "/"), r.LineBytes)}
}

// IDOf is a verdict's pattern and id.
func IDOf(v verdict.Verdict) string { return name(v.Pattern) + "/" + name(v.ID) }

// PatternOf is the pattern of such an id.
func PatternOf(id string) string {
	pattern, _, _ := strings.Cut(id, "/")
	return pattern
}

func name(text string) string {
	return strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("._-", r)) {
			return r
		}
		return '_'
	}, text[:min(len(text), verdict.MaxNameBytes)])
}

// Said is what a text says.
type Said struct {
	Lines   []Line
	Tracked []string // of verdicts that are not listed, see track
	Lost    int      // verdicts beyond these: they hold until a reboot, or until somebody takes it back
	Boot    string   // boot of the node that it was said of
}

// track is a verdict in 17 characters: r for one that a reboot ends, else -, and
// half of a hash of its id.
func track(id string, rebootEnds bool) string {
	sum := sha256.Sum256([]byte(id))
	if rebootEnds {
		return "r" + hex.EncodeToString(sum[:8])
	}
	return "-" + hex.EncodeToString(sum[:8])
}

// Read is what a text says.
func Read(text string) (s Said) {
	for text := range strings.SplitSeq(text, between) {
		note, isNote := strings.CutPrefix(strings.TrimSuffix(text, ")"), "(")
		if !isNote {
			if id, headline, ok := strings.Cut(text, afterID); ok {
				s.Lines = append(s.Lines, Line{id, headline})
			}
			continue
		}
		if boot, ok := strings.CutPrefix(note, "boot "); ok {
			s.Boot = boot
		}
		if more, ok := strings.CutPrefix(note, "and "); ok {
			count, list, _ := strings.Cut(more, " more")
			if tracked, ok := strings.CutPrefix(list, afterID); ok {
				s.Tracked = strings.Fields(tracked)
			} else {
				s.Lost, _ = strconv.Atoi(count)
			}
		}
	}
	return s
}

// Write is the text, with a note beside it.
func (s *Said) Write(note string) string {
	texts := make([]string, 0, len(s.Lines)+4)
	for _, l := range s.Lines {
		texts = append(texts, l.ID+afterID+l.Headline)
	}
	if len(s.Tracked) > 0 {
		texts = append(texts, fmt.Sprintf("(and %d more%s%s)", len(s.Tracked), afterID, strings.Join(s.Tracked, " ")))
	}
	if s.Lost > 0 {
		texts = append(texts, fmt.Sprintf("(and %d more that are not listed: a reboot ends them, or a person who takes this back)", s.Lost))
	}
	for _, one := range []string{note, s.bootNote()} {
		if one != "" {
			texts = append(texts, "("+one+")")
		}
	}
	return strings.Join(texts, between)
}

func (s *Said) bootNote() string {
	if s.Boot == "" {
		return ""
	}
	return "boot " + s.Boot
}

// Empty reports whether it stands for no verdict.
func (s *Said) Empty() bool { return len(s.Lines) == 0 && len(s.Tracked) == 0 && s.Lost == 0 }

// At is where a verdict is listed, -1 for nowhere.
func (s *Said) At(id string) int {
	return slices.IndexFunc(s.Lines, func(l Line) bool { return l.ID == id })
}

// Has reports whether it stands for a verdict.
func (s *Said) Has(id string, rebootEnds bool) bool {
	return s.At(id) >= 0 || slices.Contains(s.Tracked, track(id, rebootEnds))
}

// Add enters an open verdict. What finds no room is counted: the text then outlives all
// that it can name.
func (s *Said) Add(room Room, l Line, rebootEnds bool) {
	at := s.At(l.ID)
	switch {
	case at >= 0:
		s.Lines[at] = l
	case s.Has(l.ID, rebootEnds):
	case len(s.Lines) < room.Listed:
		s.Lines = append(s.Lines, l)
	case len(s.Tracked) < room.Tracked:
		s.Tracked = append(s.Tracked, track(l.ID, rebootEnds))
	default:
		s.Lost++
	}
}

// Remove takes a verdict out.
func (s *Said) Remove(id string, rebootEnds bool) {
	s.Lines = slices.DeleteFunc(s.Lines, func(l Line) bool { return l.ID == id })
	s.Tracked = slices.DeleteFunc(s.Tracked, func(t string) bool { return t == track(id, rebootEnds) })
}

// mostBoot is how much of the name of a boot is kept.
const mostBoot = 8

// Booted takes out what ends with the boot that it was said of, and remembers the
// boot that runs now.
func (s *Said) Booted(boot string, rebootEnds func(id string) bool) {
	if boot = name(boot[:min(len(boot), mostBoot)]); boot == "" {
		return
	}
	if s.Boot != "" && s.Boot != boot {
		s.Lines = slices.DeleteFunc(s.Lines, func(l Line) bool { return rebootEnds(l.ID) })
		s.Tracked = slices.DeleteFunc(s.Tracked, func(t string) bool { return strings.HasPrefix(t, "r") })
		s.Lost = 0
	}
	s.Boot = boot
}
