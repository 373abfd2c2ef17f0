package verdict

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Wait says that ranks wait for somebody, as the records of their calls or connections show.
type Wait struct {
	Ranks  string    `json:"ranks,omitempty"`        // that wait, as ranges; absent where these are too long
	Count  int       `json:"ranks_count"`            // how many they are
	Direct string    `json:"direct_ranks,omitempty"` // of them, as ranges: their own connection shows it, the others wait for these
	For    string    `json:"for"`                    // "rank 517", "ranks 3, 5", an address, "each other"
	What   string    `json:"what"`                   // "data", "AllReduce #10432"
	Since  time.Time `json:"since,omitzero"`         // of the first of them
}

// String is a wait in words: "ranks 0-4,6-7 (6 directly) wait for rank 5: data".
func (w Wait) String() string {
	who := "ranks " + w.Ranks
	switch {
	case w.Ranks == "":
		who = Number(w.Count) + " ranks"
	case w.Count == 1:
		who = "rank " + w.Ranks
	}
	if w.Direct != "" {
		who += " (" + w.Direct + " directly)"
	}
	return who + map[bool]string{true: " waits for ", false: " wait for "}[w.Count == 1] + w.For + ": " + w.What
}

// MaxWaits is how many waits a verdict has at most.
const MaxWaits = 8

// EachOther stands in Wait.For where ranks wait in a circle.
const EachOther = "each other"

// WaitsField is the field of a rule that holds the waits of its verdict, as WriteWaits has
// them.
const WaitsField = "edges"

// WriteWaits is waits as one text of at most so many bytes: what finds them hands them to a
// rule so. The ranges of too many ranks give way to their number, then the last waits.
//
//	0-516,518-1023/518>rank 517|data@1763780724400;12>10.0.0.7:4000|data
//
// are ranks, those that wait directly, for whom, for what, and since when (ms).
func WriteWaits(waits []Wait, most int) string {
	var b strings.Builder
	for _, w := range waits[:min(len(waits), MaxWaits)] {
		one := w.line()
		if len(one) > most/2 {
			w.Ranks, w.Direct = "", ""
			one = w.line()
		}
		if b.Len()+len(";")+len(one) > most {
			break
		}
		if b.Len() > 0 {
			b.WriteByte(';')
		}
		b.WriteString(one)
	}
	return b.String()
}

func (w *Wait) line() string {
	who := w.Ranks
	if who == "" {
		who = "*" + strconv.Itoa(w.Count)
	}
	if w.Direct != "" {
		who += "/" + w.Direct
	}
	plain := strings.NewReplacer(";", ",", "@", " ", "|", " ")
	text := who + ">" + plain.Replace(w.For) + "|" + plain.Replace(w.What)
	if !w.Since.IsZero() {
		text += "@" + strconv.FormatInt(w.Since.UnixMilli(), 10)
	}
	return text
}

// ReadWaits reads what WriteWaits wrote. What is none is left out.
func ReadWaits(text string) []Wait {
	var waits []Wait
	for one := range strings.SplitSeq(text, ";") {
		if w, ok := readWait(one); ok && len(waits) < MaxWaits {
			waits = append(waits, w)
		}
	}
	return waits
}

func readWait(text string) (w Wait, ok bool) {
	who, rest, ok := strings.Cut(text, ">")
	if !ok {
		return w, false
	}
	who, w.Direct, _ = strings.Cut(who, "/")
	if count, isCount := strings.CutPrefix(who, "*"); isCount {
		n, err := strconv.ParseUint(count, 10, 31)
		if err != nil {
			return w, false
		}
		w.Count = int(n)
	} else if ranks, err := ParseRanks(who); err == nil {
		w.Ranks, w.Count = who, len(ranks)
	}
	if _, err := ParseRanks(w.Direct); err != nil || w.Count == 0 {
		return w, false
	}
	rest, since, timed := strings.Cut(rest, "@")
	if ms, err := strconv.ParseInt(since, 10, 64); timed && err == nil && ms > 0 {
		w.Since = boundTime(time.UnixMilli(ms))
	}
	w.For, w.What, ok = strings.Cut(rest, "|")
	return w, ok && w.For != ""
}

// RanksNamed are ranks as who is waited for: "rank 5", "ranks 3, 5", "" for none, and of
// many how many they are.
func RanksNamed(ranks []int) string {
	const most = 4
	words := RanksInWords(ranks)
	switch {
	case len(ranks) == 0:
		return ""
	case len(ranks) == 1:
		return "rank " + words
	case strings.Count(words, ",") >= most:
		return Number(len(ranks)) + " ranks"
	}
	return "ranks " + words
}

func boundWaits(waits []Wait) []Wait {
	var bounded []Wait
	for _, w := range waits[:min(len(waits), MaxWaits)] {
		w.For, w.What = clip(w.For, MaxTextBytes), clip(w.What, MaxTextBytes)
		for _, ranks := range []*string{&w.Ranks, &w.Direct} {
			if _, err := ParseRanks(*ranks); err != nil || len(*ranks) > MaxTextBytes {
				*ranks = ""
			}
		}
		if !w.Since.IsZero() {
			w.Since = boundTime(w.Since)
		}
		if w.Count = max(w.Count, 0); w.For != "" {
			bounded = append(bounded, w)
		}
	}
	return slices.Clip(bounded)
}
