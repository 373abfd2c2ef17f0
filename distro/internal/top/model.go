package top

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/incidentview"
)

// every is how often a source is asked, and the screen made anew.
const every = time.Second

// patience is how long a source is waited for.
const patience = 10 * time.Second

// Actions are what a screen can do beside showing. An action that is nil has no key.
type Actions struct {
	Report      func(incidentview.View) (file string, err error)
	Acknowledge func(ctx context.Context, incident string) error
	Mute        func(ctx context.Context, incident string, lasts time.Duration, reason string) error
	Unmute      func(ctx context.Context, incident string) error
	// Local is the agent of this machine, where the source is another.
	Local Source
}

// screen is one of those there are.
type screen uint8

const (
	atHome screen = iota
	atIncident
	atIncidents
	atRanks
	atRank
	atStatus
)

// place is a screen and where on it one is.
type place struct {
	screen   screen
	incident string // that is shown
	cursor   string // incident that is chosen in a list
	scroll   int    // rows
}

// jobName names a job among others.
type jobName struct{ job, domain string }

// Model is the state of the view. The same messages give the same screens.
type Model struct {
	source  Source
	actions Actions
	colors  bool

	width, height int
	printed       bool      // once: there are no keys, and no row is the last
	now           time.Time // of this machine

	picture  Picture
	answered time.Time // when the picture came, zero for never
	problem  error     // of the last question
	failed   time.Time // since when there is no answer
	looking  bool
	late     bool // what was asked for is not wanted any more: ask again
	paused   bool

	places  []place
	chosen  jobName
	rank    int // under the cursor, -1 for none
	gridded gridded
	fold    fold
	zoom    int

	filter   string
	typing   bool
	asked    *question // is answered in the last row
	openOnly bool
	drills   bool
	help     bool
	note     string   // what was done, until the next key
	copied   []string // commands that were given to the terminal's clipboard
}

// New makes a view of what a source tells.
func New(source Source, actions Actions, colors bool) *Model {
	return &Model{source: source, actions: actions, colors: colors, places: []place{{}}, rank: -1, width: 80, height: 24}
}

// Copied are the commands that were given to the terminal's clipboard. Not every terminal
// takes them.
func (m *Model) Copied() []string { return m.copied }

type tickMsg time.Time

// lookedMsg is an answer of the source.
type lookedMsg struct {
	picture Picture
	err     error
	at      time.Time
}

// doneMsg says what an action did.
type doneMsg string

// Init asks for the first picture.
func (m *Model) Init() tea.Cmd {
	m.now = time.Now()
	m.looking = true
	return tea.Batch(m.look(), tick())
}

func tick() tea.Cmd { return tea.Tick(every, func(at time.Time) tea.Msg { return tickMsg(at) }) }

// look asks the source for what this screen needs.
func (m *Model) look() tea.Cmd {
	source, want := m.source, m.want()
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		picture, err := source.Look(ctx, want)
		return lookedMsg{picture, err, time.Now()}
	}
}

func (m *Model) want() Want {
	w := Want{Incident: m.at().incident, Job: m.chosen.job, Domain: m.chosen.domain, Rank: -1}
	if m.at().screen == atRank {
		w.Rank = m.rank
	}
	return w
}

func (m *Model) at() *place { return &m.places[len(m.places)-1] }

// Update takes a message.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tickMsg:
		m.now = time.Time(msg)
		if m.looking || m.paused || m.picture.Recorded {
			return m, tick()
		}
		m.looking = true
		return m, tea.Batch(m.look(), tick())
	case lookedMsg:
		return m, m.take(msg)
	case doneMsg:
		m.note = string(msg)
	case tea.KeyPressMsg:
		return m, m.press(msg)
	}
	return m, nil
}

// take takes an answer. What was told last stays where there is none.
func (m *Model) take(msg lookedMsg) tea.Cmd {
	m.looking, m.now = false, msg.at
	if m.problem = msg.err; msg.err == nil {
		m.picture, m.answered, m.failed = msg.picture, msg.at, time.Time{}
		before := m.chosen
		m.choose()
		if m.chosen != before || m.late {
			m.late, m.looking = false, true
			return m.look()
		}
		return nil
	}
	if m.failed.IsZero() {
		m.failed = msg.at
	}
	if m.answered.IsZero() {
		m.picture.Host = msg.picture.Host
	}
	return nil
}

// refresh asks at once: what is on the screen is about something else now.
func (m *Model) refresh() tea.Cmd {
	if m.looking {
		m.late = true
		return nil
	}
	m.looking = true
	return m.look()
}

// jobs are those that the filter lets through, those that stand first.
func (m *Model) jobs() []*history.RankJob {
	var list []*history.RankJob
	for i := range m.picture.Jobs {
		if j := &m.picture.Jobs[i]; matches(m.filter, j.Job, j.Domain) {
			list = append(list, j)
		}
	}
	slices.SortStableFunc(list, func(a, b *history.RankJob) int {
		return cmp.Or(m.trouble(b)-m.trouble(a), ranksOf(b)-ranksOf(a), cmp.Compare(a.Job, b.Job))
	})
	return list
}

// trouble is larger the sooner a job has to be looked at.
func (m *Model) trouble(j *history.RankJob) int {
	switch {
	case slices.ContainsFunc(m.picture.Named, func(n Named) bool { return about(j, n.Job, n.Domain) }):
		return 3
	case j.Counts[history.RankBlocked]+j.Counts[history.RankWaits]+j.Counts[history.RankSilent] > 0:
		return 2
	case j.Counts[history.RankDied] > 0:
		return 1
	case j.Counts[history.RankEnded] == ranksOf(j):
		return -1
	}
	return 0
}

// choose keeps the job that is chosen, or takes the first.
func (m *Model) choose() {
	if m.picture.job(m.chosen.job, m.chosen.domain) != nil && m.chosen.job != "" {
		return
	}
	m.chosen, m.rank = jobName{}, -1
	if list := m.jobs(); len(list) > 0 {
		m.chosen = jobName{list[0].Job, list[0].Domain}
	}
}

func (m *Model) job() *history.RankJob { return m.picture.job(m.chosen.job, m.chosen.domain) }

// listed are the incidents that the filter lets through: open ones first, then the newest.
func (m *Model) listed() []*history.Incident {
	list := m.picture.Open()
	for i := range m.picture.Incidents {
		if one := &m.picture.Incidents[i]; !slices.Contains(list, one) && !m.openOnly {
			list = append(list, one)
		}
	}
	return slices.DeleteFunc(list, func(i *history.Incident) bool {
		return i.Drill && !m.drills || !matches(m.filter, i.Headline, i.Pattern, i.ID, strings.Join(i.Nodes, " "), strings.Join(i.Jobs, " "))
	})
}

// moment is the time of what is shown: that of who tells, as it goes on here. While nothing
// is told, it stands: nobody knows whether what lasted then lasts on.
func (m *Model) moment() time.Time {
	if m.stale() {
		return m.picture.At
	}
	return m.clock()
}

// clock is the time where it is told.
func (m *Model) clock() time.Time {
	if m.picture.Recorded || m.paused || m.answered.IsZero() { // or it is printed once
		return m.picture.At
	}
	return m.picture.At.Add(max(m.now.Sub(m.answered), 0))
}

// stale reports whether nothing was told for longer than a hiccup.
func (m *Model) stale() bool { return m.problem != nil }

// View draws the screen.
func (m *Model) View() tea.View {
	v := tea.NewView(strings.Join(m.Screen(), "\n"))
	v.AltScreen = true
	v.WindowTitle = "tracecore top"
	v.DisableBracketedPasteMode = true
	return v
}

// Once is the first screen as text, and whether an incident is open.
func Once(ctx context.Context, source Source) (text string, broken bool, err error) {
	m := New(source, Actions{}, false)
	for range 2 { // which job is shown is known by the first answer
		picture, err := source.Look(ctx, m.want())
		if err != nil {
			return "", false, err
		}
		m.take(lookedMsg{picture, nil, time.Time{}})
	}
	return m.Text(), m.picture.Broken(), nil
}
