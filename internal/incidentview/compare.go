package incidentview

import (
	"cmp"
	"fmt"
	"html/template"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	_ "embed" // the page

	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// CompareSchema names the form of a Comparison in JSON.
const CompareSchema = "tracecore.compare/1"

// Side is one of two that are compared: a recording with all its incidents, or a report
// with its one.
type Side struct {
	Name        string
	Incidents   []View
	First, Last time.Time // event time that was recorded, zero where only a report is there
	Notes       []string  // what is not in it
	// Steps of its job, and how long one took, as the job's code tells; 0 where it does not.
	Steps    uint64
	StepTime time.Duration
}

// Within is the view as far as it falls into an interval: what ranks lost before and after is
// not counted.
func (v View) Within(from, to time.Time) View {
	if v.Lost == nil {
		return v
	}
	end := v.Since.Add(time.Duration(v.Lost.Seconds * float64(time.Second)))
	if v.Since.Before(from) {
		v.Since = from
	}
	if end.After(to) {
		end = to
	}
	if took := end.Sub(v.Since); took > 0 {
		v.Lost = &Lost{Ranks: v.Lost.Ranks, Seconds: took.Seconds(), RankHours: took.Hours() * float64(v.Lost.Ranks)}
	} else {
		v.Lost = nil
	}
	return v
}

// Comparison says what is worse, better and new in B.
type Comparison struct {
	Schema   string      `json:"schema"`
	Headline string      `json:"headline"`
	A        Total       `json:"a"`
	B        Total       `json:"b"`
	Hour     []HourDiff  `json:"minutes_of_an_hour,omitempty"` // what an hour of each was spent on; absent where it is not known of one
	Causes   []CauseDiff `json:"causes"`                       // by what they cost more in B
	New      []Finding   `json:"new,omitempty"`                // incidents of B whose like is not in A
	Gone     []Finding   `json:"gone,omitempty"`
	Ranks    []RankDiff  `json:"ranks,omitempty"`
	Nodes    []RankDiff  `json:"nodes,omitempty"`
	Not      []string    `json:"not_compared"`
}

// Total is one side.
type Total struct {
	Name      string    `json:"name"`
	First     time.Time `json:"first"`
	Last      time.Time `json:"last"`
	Incidents int       `json:"incidents"`
	Standing  float64   `json:"standing_seconds"` // something stood, in event time; times that overlap count once
	RankHours float64   `json:"rank_hours"`
	Ranks     int       `json:"ranks"`           // most that one incident hit
	PerHour   *float64  `json:"minutes_an_hour"` // standing, of an hour that was recorded; null for a report
	Steps     uint64    `json:"steps,omitempty"`
	StepTime  float64   `json:"step_seconds,omitempty"` // one step, as the job's code tells; absent where it does not
}

// HourDiff is for how many minutes of an hour each side did something.
type HourDiff struct {
	What string  `json:"what"` // moving, or a pattern
	A    float64 `json:"a"`
	B    float64 `json:"b"`
}

// Tally is what one cause cost.
type Tally struct {
	Incidents int     `json:"incidents"`
	Seconds   float64 `json:"seconds"`
	RankHours float64 `json:"rank_hours"`
}

// CauseDiff is one cause on both sides.
type CauseDiff struct {
	Pattern string  `json:"pattern"`
	A       Tally   `json:"a"`
	B       Tally   `json:"b"`
	Change  float64 `json:"rank_hours_change"` // B − A
}

// Finding is an incident that only one side has.
type Finding struct {
	ID       string    `json:"incident_id"`
	Pattern  string    `json:"pattern"`
	Headline string    `json:"headline"`
	Since    time.Time `json:"since"`
}

// RankDiff is who is named by incidents: a rank or a node, how often on each side.
type RankDiff struct {
	Name string `json:"name"`
	A    int    `json:"a"`
	B    int    `json:"b"`
}

const mostDiffs = 32 // of one list

// Compare compares what the patterns say of two sides. Drills are no incidents.
func Compare(a, b Side) Comparison {
	var drills [2]int
	a.Incidents, drills[0] = withoutDrills(a.Incidents)
	b.Incidents, drills[1] = withoutDrills(b.Incidents)
	c := Comparison{Schema: CompareSchema, A: total(a), B: total(b)}
	causes := map[string]*CauseDiff{}
	ranks, nodes := map[string]*RankDiff{}, map[string]*RankDiff{}
	for i, side := range []Side{a, b} {
		for _, v := range side.Incidents {
			cause := entry(causes, v.Pattern, func() *CauseDiff { return &CauseDiff{Pattern: v.Pattern} })
			t := []*Tally{&cause.A, &cause.B}[i]
			t.Incidents++
			if v.Lost != nil {
				t.Seconds, t.RankHours = t.Seconds+v.Lost.Seconds, t.RankHours+v.Lost.RankHours
			}
			count(ranks, "rank ", v.Culprit["rank"], i)
			count(nodes, "", cmp.Or(v.Culprit["host"], v.Culprit["node"]), i)
		}
	}
	for _, d := range causes {
		d.Change = d.B.RankHours - d.A.RankHours
		c.Causes = append(c.Causes, *d)
	}
	slices.SortFunc(c.Causes, func(x, y CauseDiff) int {
		return cmp.Or(cmp.Compare(y.Change, x.Change), cmp.Compare(x.Pattern, y.Pattern))
	})
	c.Causes = c.Causes[:min(len(c.Causes), mostDiffs)]
	c.New, c.Gone = only(b, a), only(a, b)
	c.Ranks, c.Nodes = differ(ranks), differ(nodes)
	c.Hour = hour(a, b, &c)
	c.Headline = c.headline()
	if c.A.StepTime > 0 && c.B.StepTime > 0 {
		c.Not = []string{"loss: no part of what is compared here"}
	} else {
		c.Not = []string{"how long a step takes: " + stepless(&c) + ". Loss is no part of what is compared here"}
	}
	if drills[0]+drills[1] > 0 {
		c.Not = append(c.Not, "drills: A has "+verdict.Number(drills[0])+", B has "+verdict.Number(drills[1]))
	}
	for _, note := range slices.Concat(a.Notes, b.Notes) {
		c.Not = append(c.Not, text(note, maxText))
	}
	if a, b := c.A.Last.Sub(c.A.First), c.B.Last.Sub(c.B.First); c.A.PerHour != nil && c.B.PerHour != nil && max(a, b) > min(a, b)*11/10 {
		c.Not = append(c.Not, fmt.Sprintf("unequal lengths: A is %s, B %s. Minutes of an hour are shares; rank hours are sums", verdict.Lasting(a), verdict.Lasting(b)))
	}
	if c.A.PerHour == nil || c.B.PerHour == nil {
		c.Not = append(c.Not, "shares of time: "+shareless(&c))
	}
	return c
}

// withoutDrills are the incidents that are real, and how many are not.
func withoutDrills(all []View) (incidents []View, drills int) {
	incidents = slices.DeleteFunc(slices.Clone(all), func(v View) bool { return v.Drill })
	return incidents, len(all) - len(incidents)
}

// stepless says of which side no steps are known.
func stepless(c *Comparison) string {
	switch {
	case c.A.StepTime == 0 && c.B.StepTime == 0:
		return "neither job tells of its steps"
	case c.A.StepTime == 0:
		return "A does not tell of its steps"
	}
	return "B does not tell of its steps"
}

// shareless says why it is not known what an hour was spent on.
func shareless(c *Comparison) string {
	for i, side := range []*Total{&c.A, &c.B} {
		name := [2]string{"A", "B"}[i]
		switch {
		case side.PerHour != nil || side.First.IsZero() && side.Incidents > 0:
		case side.First.IsZero():
			return name + " has no record with a time"
		default:
			return name + " has records of one moment alone"
		}
	}
	return "a report has one incident, not what lies between incidents"
}

// moving is what a job does that does not stand.
const moving = "moving"

// hour is what an hour of each side was spent on. Where two causes overlap, the one that
// began first counts.
func hour(a, b Side, c *Comparison) []HourDiff {
	if c.A.PerHour == nil || c.B.PerHour == nil {
		return nil
	}
	all := map[string]*HourDiff{}
	for i, side := range []Side{a, b} {
		took := side.Last.Sub(side.First).Seconds()
		for pattern, seconds := range stoodFor(side) {
			d := entry(all, pattern, func() *HourDiff { return &HourDiff{What: pattern} })
			*[]*float64{&d.A, &d.B}[i] = min(60, seconds/took*60)
		}
	}
	list := []HourDiff{{What: moving, A: 60 - *c.A.PerHour, B: 60 - *c.B.PerHour}}
	for _, pattern := range slices.Sorted(maps.Keys(all)) {
		list = append(list, *all[pattern])
	}
	slices.SortStableFunc(list[1:], func(x, y HourDiff) int { return cmp.Compare(y.B-y.A, x.B-x.A) })
	return list[:min(len(list), mostDiffs)]
}

// stoodFor is for how many seconds a side stood for each pattern.
func stoodFor(s Side) map[string]float64 {
	incidents := slices.DeleteFunc(slices.Clone(s.Incidents), func(v View) bool { return v.Lost == nil })
	slices.SortStableFunc(incidents, func(x, y View) int { return x.Since.Compare(y.Since) })
	seconds := map[string]float64{}
	var until time.Time
	for _, v := range incidents {
		from, to := v.Since, v.Since.Add(time.Duration(v.Lost.Seconds*float64(time.Second)))
		if from.Before(until) {
			from = until
		}
		if to.After(from) {
			seconds[v.Pattern] += to.Sub(from).Seconds()
			until = to
		}
	}
	return seconds
}

func entry[T any](m map[string]*T, key string, make func() *T) *T {
	if m[key] == nil {
		m[key] = make()
	}
	return m[key]
}

func count(m map[string]*RankDiff, prefix, name string, side int) {
	if name == "" {
		return
	}
	d := entry(m, name, func() *RankDiff { return &RankDiff{Name: prefix + name} })
	if side == 0 {
		d.A++
	} else {
		d.B++
	}
}

// differ lists who is named not as often on one side as on the other.
func differ(m map[string]*RankDiff) []RankDiff {
	var list []RankDiff
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if d := *m[name]; d.A != d.B {
			list = append(list, d)
		}
	}
	slices.SortStableFunc(list, func(x, y RankDiff) int { return (y.B - y.A) - (x.B - x.A) })
	return list[:min(len(list), mostDiffs)]
}

// only are the incidents of one side whose like the other has not: the same pattern at the
// same place.
func only(one, other Side) []Finding {
	like := func(v View) string {
		return strings.Join([]string{v.Pattern, v.Culprit["host"], v.Culprit["mount"], v.Culprit["gpu"], v.Culprit["rank"]}, "\x00")
	}
	known := map[string]bool{}
	for _, v := range other.Incidents {
		known[like(v)] = true
	}
	var list []Finding
	for _, v := range one.Incidents {
		if !known[like(v)] && len(list) < mostDiffs {
			known[like(v)] = true
			list = append(list, Finding{ID: v.ID, Pattern: v.Pattern, Headline: v.Headline, Since: v.Since})
		}
	}
	return list
}

func total(s Side) Total {
	t := Total{Name: text(s.Name, verdict.MaxNameBytes), First: s.First.UTC(), Last: s.Last.UTC(), Incidents: len(s.Incidents), Steps: s.Steps, StepTime: s.StepTime.Seconds()}
	type interval struct{ from, to time.Time }
	var stood []interval
	for _, v := range s.Incidents {
		if t.Ranks = max(t.Ranks, v.Ranks.Count); v.Lost == nil {
			continue
		}
		t.RankHours += v.Lost.RankHours
		stood = append(stood, interval{v.Since, v.Since.Add(time.Duration(v.Lost.Seconds * float64(time.Second)))})
	}
	slices.SortFunc(stood, func(x, y interval) int { return x.from.Compare(y.from) })
	var until time.Time
	for _, i := range stood {
		if i.from.Before(until) {
			i.from = until
		}
		if i.to.After(i.from) {
			t.Standing += i.to.Sub(i.from).Seconds()
			until = i.to
		}
	}
	if took := s.Last.Sub(s.First); !s.First.IsZero() && took > 0 {
		share := min(60, t.Standing/took.Seconds()*60)
		t.PerHour = &share
	}
	return t
}

func (c *Comparison) headline() string {
	why := ""
	if len(c.Causes) > 0 && c.Causes[0].Change > 0 {
		why = ": " + strings.ReplaceAll(c.Causes[0].Pattern, "_", " ")
	}
	const notable = 0.02 // of a step
	steps := ""
	if a, b := c.A.StepTime, c.B.StepTime; a > 0 && b > 0 && max(a, b) > min(a, b)*(1+notable) {
		steps = fmt.Sprintf("B is %.0f %% %s: a step takes %s, in A %s", math.Abs(b/a-1)*100, map[bool]string{true: "slower", false: "faster"}[b > a], stepTime(b), stepTime(a))
	}
	switch a, b := c.A.PerHour, c.B.PerHour; {
	case steps != "":
		return steps + why
	case c.A.Incidents+c.B.Incidents == 0:
		return "Nothing is wrong in either that tracecore can see"
	case a != nil && b != nil && *b > *a+0.05:
		return fmt.Sprintf("B stands %.1f min of each hour, A %.1f%s", *b, *a, why)
	case a != nil && b != nil && *a > *b+0.05:
		return fmt.Sprintf("B stands less: %.1f min of each hour, A %.1f", *b, *a)
	case c.B.RankHours > c.A.RankHours*1.01:
		return fmt.Sprintf("B lost %s rank hours, A %s%s", hours(c.B.RankHours), hours(c.A.RankHours), why)
	case c.A.RankHours > c.B.RankHours*1.01:
		return fmt.Sprintf("B lost less: %s rank hours, A %s", hours(c.B.RankHours), hours(c.A.RankHours))
	}
	return fmt.Sprintf("A and B lost the same: %s rank hours", hours(c.A.RankHours))
}

//go:embed compare.tmpl
var compareTemplate string

var comparePage = template.Must(template.New("compare").Funcs(template.FuncMap{
	"hours": hours, "signed": signed, "lasting": lastingSeconds, "number": func(n any) string { return number(n) },
	"stamp": stamp, "iso": iso, "spaced": func(s string) string { return strings.ReplaceAll(s, "_", " ") }, "minutes": minutes,
	"bars": bars, "change": change, "step": stepTime,
}).Parse(compareTemplate))

// stepTime is how long a step takes, in words.
func stepTime(s float64) string {
	switch {
	case s < 1:
		return fmt.Sprintf("%.0f ms", s*1000)
	case s < 60:
		return fmt.Sprintf("%.2f s", s)
	}
	return lastingSeconds(s)
}

// bars are the hours of both sides, as the page draws them: what stands is hatched, in the
// order of the table. A phone has a drawing of its own.
func bars(c Comparison) template.HTML {
	if len(c.Hour) == 0 {
		return ""
	}
	return template.HTML(wide.hours(&c) + narrow.hours(&c)) //nolint:gosec // numbers, own words, and text that pencil.text escapes
}

func (d *drawing) hours(c *Comparison) string {
	const bar, first = 18.0, 26.0
	var p pencil
	row, left := d.lane-6, d.left
	scale := (d.width - left) / 60
	height := first + 2*row
	p.put(`<svg class="%s" viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">`, d.class, d.width, height, template.HTMLEscapeString(c.Headline))
	p.put(`<defs><pattern id="%s" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><line class="sc" x1="0" y1="0" x2="0" y2="5" stroke-width="1.5"/></pattern></defs>`, d.id)
	for minute := 0; minute <= 60; minute += 10 {
		x, anchor, unit := left+scale*float64(minute), "middle", ""
		switch minute {
		case 0:
			anchor = "start"
		case 60:
			anchor, unit = "end", " min"
		}
		p.put(`<line class="sr" x1="%.1[1]f" x2="%.1[1]f" y1="20" y2="%.1[2]f"/>`, x, height-4)
		p.text(x, 13, "tm", anchor, fmt.Sprint(minute)+unit)
	}
	for i, name := range []string{"A, " + c.A.Name, "B, " + c.B.Name} {
		y, x := first+row*float64(i), left
		if d.above {
			p.text(0, y+12, "tb", "start", short(name, 48))
			y += 18
		} else {
			p.text(0, y+13, "tb", "start", short(name, 26))
		}
		for _, h := range c.Hour {
			minutes := []float64{h.A, h.B}[i]
			w := scale * minutes
			if w <= 0 {
				continue
			}
			look := `class="fw"`
			if h.What != moving {
				look = fmt.Sprintf(`class="sc" fill="url(#%s)"`, d.id)
			}
			p.put(`<rect %s x="%.1f" y="%.1f" width="%.1f" height="%.0f"/>`, look, x, y, max(w, 1), bar)
			if label := fmt.Sprintf("%.1f %s", minutes, strings.ReplaceAll(h.What, "_", " ")); w > character*float64(len(label))+8 {
				p.text(x+6, y+13, "tb", "start", label)
			}
			x += w
		}
	}
	p.put(`</svg>`)
	return p.String()
}

// change is by how much something grew, with its sign.
func change(d HourDiff) string {
	if by := d.B - d.A; by < 0 {
		return fmt.Sprintf("−%.1f", -by)
	}
	return fmt.Sprintf("+%.1f", d.B-d.A)
}

func signed(h float64) string {
	switch {
	case h > 0:
		return "+" + hours(h)
	case h < 0:
		return "−" + hours(-h)
	}
	return "0"
}

func minutes(t Total) string {
	if t.PerHour == nil {
		return "not known"
	}
	return fmt.Sprintf("%.1f min", *t.PerHour)
}

// WriteCompareHTML writes one page that needs nothing beside it.
func WriteCompareHTML(w io.Writer, c Comparison) error {
	return comparePage.Execute(w, struct {
		Comparison
		Policy string
		Style  template.HTML
	}{c, policy, template.HTML("<style>" + css + "</style>")}) //nolint:gosec // our own style sheet
}

// WriteCompareJSON writes c as JSON over several lines.
func WriteCompareJSON(w io.Writer, c Comparison) error {
	raw, err := safetext.Marshal(c)
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, pretty(raw)+"\n")
	return err
}

// WriteCompareText writes c for a terminal of 80 columns.
func WriteCompareText(w io.Writer, c Comparison) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", c.Headline)
	fmt.Fprintf(&b, "  A      %s\n  B      %s\n\n", c.A.words(), c.B.words())
	c.hourText(&b)
	if len(c.Causes) > 0 {
		fmt.Fprintf(&b, "  %-32s %10s %10s %10s\n", "RANK HOURS LOST BY CAUSE", "A", "B", "B - A")
		for _, d := range c.Causes {
			fmt.Fprintf(&b, "  %-32s %10s %10s %10s\n", short(d.Pattern, 32), hours(d.A.RankHours), hours(d.B.RankHours), strings.Replace(signed(d.Change), "−", "-", 1))
		}
		b.WriteByte('\n')
	}
	who := append(slices.Clone(c.Nodes), c.Ranks...)
	if len(who) > 0 {
		fmt.Fprintf(&b, "  %-32s %10s %10s\n", "NAMED BY INCIDENTS", "A", "B")
		for _, d := range who {
			fmt.Fprintf(&b, "  %-32s %10d %10d\n", short(d.Name, 32), d.A, d.B)
		}
		b.WriteByte('\n')
	}
	for _, list := range []struct {
		label    string
		findings []Finding
	}{{"new", c.New}, {"gone", c.Gone}} {
		for i, f := range list.findings {
			label := list.label
			if i > 0 {
				label = ""
			}
			fmt.Fprintf(&b, "  %-6s %s\n", label, f.Headline)
		}
	}
	for i, not := range c.Not {
		label := "not"
		if i > 0 {
			label = ""
		}
		fmt.Fprintf(&b, "  %-6s %s\n", label, not)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// hourText writes what an hour was spent on, with a mark for each half minute of change.
func (c *Comparison) hourText(b *strings.Builder) {
	if len(c.Hour) == 0 {
		return
	}
	fmt.Fprintf(b, "  %-24s %7s %7s %7s\n", "MINUTES OF AN HOUR", "A", "B", "B - A")
	for _, d := range c.Hour {
		const most = 28
		marks := strings.Repeat(map[bool]string{true: "#", false: "-"}[d.B > d.A], min(int(math.Abs(d.B-d.A)*2+0.5), most))
		line := fmt.Sprintf("  %-24s %7.1f %7.1f %7s  %s", short(d.What, 24), d.A, d.B, strings.Replace(change(d), "−", "-", 1), marks)
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	b.WriteByte('\n')
}

func (t Total) words() string {
	incidents := verdict.Number(t.Incidents) + " incidents"
	if t.Incidents == 1 {
		incidents = "1 incident"
	}
	standing := lastingSeconds(t.Standing) + " standing"
	if t.PerHour != nil {
		standing += " of " + verdict.Lasting(t.Last.Sub(t.First))
	}
	words := []string{t.Name, incidents, standing, hours(t.RankHours) + " rank hours"}
	if t.StepTime > 0 {
		words = append(words, "a step in "+stepTime(t.StepTime))
	}
	return strings.Join(words, ", ")
}
