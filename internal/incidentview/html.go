package incidentview

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the page
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

//go:embed report.css
var css string

//go:embed report.tmpl
var reportTemplate string

var page = template.Must(template.New("report").Funcs(template.FuncMap{
	"badge": badge, "certain": certain, "likely": likely, "over": over, "changes": changes, "commands": commands,
	"clock": clock, "stamp": stamp, "stampMilli": stampMilli, "iso": iso, "offset": offset, "since": sinceWords,
	"number": func(n any) string { return number(n) }, "few": few, "hours": hours, "lasting": lastingSeconds,
	"fields": strings.Fields, "timeline": func(v View) template.HTML { return timeline(&v) }, "unseen": unseenWords,
	"pretty": pretty, "whole": whole, "source": source, "paths": paths, "cut": cutAt, "frameClass": frameClass,
}).Parse(reportTemplate))

// policy lets the page load nothing and run nothing: its one style is known by its hash.
var policy = func() string {
	sum := sha256.Sum256([]byte(css))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'"
}()

// WriteHTML writes one page that needs nothing beside it: no script, no request.
func WriteHTML(w io.Writer, v View) error { return writeHTML(w, v, "") }

// WriteServedHTML writes the same page with a link to the list that it is of.
func WriteServedHTML(w io.Writer, v View, list string) error { return writeHTML(w, v, list) }

func writeHTML(w io.Writer, v View, list string) error {
	return page.Execute(w, struct {
		View   View
		List   string
		Title  string
		Policy string
		Style  template.HTML
	}{v, list, title(v), policy, template.HTML("<style>" + css + "</style>")}) //nolint:gosec // our own style sheet
}

func title(v View) string {
	return drillMark(&v) + short(v.Headline, 90) + ", " + stamp(v.Since) + " UTC"
}

// drillMark stands before the headline of a drill.
func drillMark(v *View) string {
	if v.Drill {
		return "DRILL: "
	}
	return ""
}

// badge is what the terminal writes before a headline.
func badge(v View) string {
	if v.Status == verdict.Resolved {
		took := ""
		if v.Resolved != nil {
			took = " after " + verdict.Lasting(v.Resolved.Sub(v.Since))
		}
		return "CLEARED" + took
	}
	return strings.ToUpper(string(v.Severity)) + ", open"
}

func certain(v View) string {
	if likely(v) {
		return "likely: not all evidence was seen"
	}
	return "certain"
}

func likely(v View) bool { return v.Confidence != verdict.Full }

func over(v View) bool { return v.Status == verdict.Resolved }

func changes(s Step) bool { return s.Effect == verdict.Changes }

func commands(v View) bool {
	return slices.ContainsFunc(v.Do, func(s Step) bool { return s.Command != "" })
}

func stamp(t time.Time) string      { return t.UTC().Format(time.DateTime) }
func stampMilli(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000") }
func iso(t time.Time) string        { return t.UTC().Format(time.RFC3339Nano) }

// offset is how long after the cause something was: +604.800 s, −0.090 s.
func offset(at, since time.Time) string {
	took, sign := at.Sub(since), "+"
	if took < 0 {
		took, sign = -took, "−"
	}
	return sign + strconv.FormatFloat(took.Seconds(), 'f', 3, 64) + " s"
}

const firstYear = 1980 // before, a time counts from the boot of a machine as if that had been in 1970

func sinceWords(v View) string {
	if v.Resolved != nil {
		return "to " + stampMilli(*v.Resolved) + ", " + verdict.Lasting(v.Resolved.Sub(v.Since))
	}
	if v.Since.Year() < firstYear {
		return "by a log that has no time of day"
	}
	switch age := v.Made.At.Sub(v.Since); {
	case v.Made.At.IsZero() || age < 0:
		return ""
	case age < time.Millisecond:
		return "at the time of this report"
	default:
		return verdict.Lasting(age) + " before this report"
	}
}

// few are some ranges, or the first and the last rank.
func few(r Ranks) string {
	const most = 3
	parts := strings.Split(r.Ranges, ",")
	if r.Ranges == "" || len(parts) <= most {
		return strings.Join(parts, ", ")
	}
	return strings.Join(parts[:most], ", ") + ", …"
}

func number(n any) string {
	switch n := n.(type) {
	case int:
		return verdict.Number(n)
	case uint64:
		return verdict.Number(n)
	}
	return fmt.Sprint(n)
}

func hours(h float64) string {
	if h >= 10 {
		return verdict.Number(int(h))
	}
	return strconv.FormatFloat(h, 'f', 1, 64)
}

func lastingSeconds(s float64) string {
	return verdict.Lasting(time.Duration(s * float64(time.Second)))
}

func unseenWords(n NotSeen) template.HTML {
	switch n.Kind {
	case CannotSee:
		return "<b>cannot see</b>"
	case NotThere:
		return "not there"
	}
	return "not seen"
}

// whole reports whether a word is not broken over two lines: a name that is short.
func whole(word string) bool {
	return strings.ContainsAny(word, "-_./") && utf8.RuneCountInString(word) <= 24
}

// source is an event without the word for what a detector found: what it says is derived.
func source(event string) string { return strings.TrimPrefix(event, "finding.") }

// paths joins edges that follow one another, so that a reader goes from the first who waits
// to the last who is waited for.
func paths(edges []Wait) [][]Wait {
	var list [][]Wait
	for _, e := range edges {
		at := slices.IndexFunc(list, func(path []Wait) bool { return path[len(path)-1].To == e.From })
		if at >= 0 {
			list[at] = append(list[at], e)
		} else {
			list = append(list, []Wait{e})
		}
	}
	return list
}

// pretty is JSON over several lines, with what does not show escaped.
func pretty(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return ""
	}
	return string(safetext.JSON(b.Bytes()))
}

// cutAt reports whether from frame i on all frames are also those of the next stack.
func cutAt(s Stack, i int) bool { return s.Shared > 0 && i == len(s.Frames)-s.Shared }

func frameClass(s Stack, i int) string {
	switch {
	case s.Shared > 0 && i >= len(s.Frames)-s.Shared:
		return "same"
	case s.Here == i+1:
		return "here"
	}
	return ""
}
