package top

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/tracecoreai/tracecore/internal/history"
)

// key is what a key does on the screen that is shown. A key that would do nothing is not
// among them.
type key struct {
	keys  []string // as Bubble Tea names them
	label string   // as it is written; "" is not written
	does  string
	do    func() tea.Cmd
}

// press does what a key does here.
func (m *Model) press(msg tea.KeyPressMsg) tea.Cmd {
	m.note = ""
	pressed := msg.String()
	if m.asked != nil {
		return m.answers(pressed, msg.Text)
	}
	if m.typing {
		return m.typed(pressed, msg.Text)
	}
	if m.help && pressed != "q" && pressed != "ctrl+c" {
		m.help = false
		return nil
	}
	for _, k := range m.keys() {
		if slices.Contains(k.keys, pressed) {
			return k.do()
		}
	}
	return nil
}

// mostFilter bounds what is typed.
const mostFilter = 64

// typed takes what is typed for the filter.
func (m *Model) typed(pressed, text string) tea.Cmd {
	switch pressed {
	case "enter":
		m.typing = false
	case "esc", "ctrl+c":
		m.typing, m.filter = false, ""
	case "backspace":
		_, size := utf8.DecodeLastRuneInString(m.filter)
		m.filter = m.filter[:len(m.filter)-size]
	default:
		if len(m.filter)+len(text) <= mostFilter {
			m.filter += shown(text)
		}
	}
	m.at().scroll = 0
	return nil
}

// keys are those of this screen, the most needed first.
func (m *Model) keys() []key {
	var list []key
	if m.stale() {
		list = append(list, key{[]string{"R"}, "R", "try now", m.refresh})
		if m.actions.Local != nil {
			list = append(list, key{[]string{"L"}, "L", "local agent", m.goLocal})
		}
	}
	switch m.at().screen {
	case atHome:
		list = append(list, m.homeKeys()...)
	case atIncident:
		list = append(list, m.incidentKeys()...)
	case atIncidents:
		list = append(list, m.incidentsKeys()...)
	case atRanks:
		list = append(list, m.ranksKeys()...)
	case atRank:
		list = append(list, m.rankKeys()...)
	case atStatus:
		list = append(list, m.scrollKeys()...)
	}
	return append(list, m.commonKeys()...)
}

func (m *Model) commonKeys() []key {
	list := []key{{[]string{"?"}, "?", "help", func() tea.Cmd { m.help = true; return nil }}}
	if len(m.places) > 1 {
		list = append([]key{{[]string{"esc", "backspace"}, "esc", "back", m.back}}, list...)
	}
	if !m.picture.Recorded && !m.answered.IsZero() { // before, it is not known which
		list = append(list, key{[]string{"p"}, "p", map[bool]string{false: "pause", true: "go on"}[m.paused], func() tea.Cmd { m.paused = !m.paused; return nil }})
	}
	return append(list, key{[]string{"q", "ctrl+c"}, "q", "quit", func() tea.Cmd { return tea.Quit }})
}

func (m *Model) enter(to place) tea.Cmd {
	m.places = append(m.places, to)
	return m.refresh()
}

func (m *Model) back() tea.Cmd {
	m.places = m.places[:len(m.places)-1]
	return m.refresh()
}

// goLocal asks the agent of this machine from now on.
func (m *Model) goLocal() tea.Cmd {
	m.source, m.actions.Local = m.actions.Local, nil
	m.places, m.chosen, m.rank = []place{{}}, jobName{}, -1
	return m.refresh()
}

func (m *Model) homeKeys() []key {
	var list []key
	if open := m.picture.Open(); len(open) > 0 {
		list = append(list, key{[]string{"enter"}, "enter", "incident", func() tea.Cmd {
			return m.enter(place{screen: atIncident, incident: open[0].ID})
		}})
	}
	if len(m.jobs()) > 1 {
		list = append(list, key{[]string{"down", "j"}, "j k", "job", func() tea.Cmd { return m.moveJob(1) }},
			key{[]string{"up", "k"}, "", "", func() tea.Cmd { return m.moveJob(-1) }})
	}
	if len(m.picture.Incidents) > 0 {
		list = append(list, key{[]string{"i"}, "i", "incidents", func() tea.Cmd { return m.enter(place{screen: atIncidents}) }})
	}
	if m.job() != nil {
		list = append(list, key{[]string{"r"}, "r", "ranks", func() tea.Cmd { return m.enter(place{screen: atRanks}) }})
	}
	if m.picture.Status != nil {
		list = append(list, key{[]string{"s"}, "s", "status", func() tea.Cmd { return m.enter(place{screen: atStatus}) }})
	}
	return append(list, m.filterKey()...)
}

func (m *Model) filterKey() []key {
	if len(m.picture.Jobs)+len(m.picture.Incidents) < 2 && m.filter == "" {
		return nil
	}
	return []key{{[]string{"/"}, "/", "filter", func() tea.Cmd { m.typing = true; return nil }}}
}

// moveJob chooses the job so many rows below.
func (m *Model) moveJob(rows int) tea.Cmd {
	list := m.jobs()
	at := slices.IndexFunc(list, func(j *history.RankJob) bool { return j.Job == m.chosen.job && j.Domain == m.chosen.domain })
	to := list[max(min(at+rows, len(list)-1), 0)]
	m.chosen, m.rank = jobName{to.Job, to.Domain}, -1
	return m.refresh()
}

func (m *Model) incidentKeys() []key {
	var list []key
	v, ok := m.picture.Views[m.at().incident]
	if !ok {
		return nil
	}
	var numbers []string
	for i, step := range v.Do {
		if step.Command == "" || i > 8 {
			continue
		}
		number, command := strconv.Itoa(i+1), step.Command
		numbers = append(numbers, number)
		list = append(list, key{[]string{number}, "", "", func() tea.Cmd { return m.copy(command) }})
	}
	if len(numbers) > 0 {
		list = append([]key{{nil, strings.Join(numbers, " "), "copy command", nil}}, list...)
	}
	if scroll := m.scrollKeys(); len(scroll) > 0 {
		list = append(append(list, scroll...), key{[]string{"e"}, "e", "evidence", func() tea.Cmd { m.at().scroll = m.text().evidence; return nil }})
	}
	if m.actions.Report != nil {
		list = append(list, key{[]string{"w"}, "w", "write report", func() tea.Cmd { return m.write(v.ID) }})
	}
	if m.actions.Acknowledge != nil && !m.acknowledged(v.ID) {
		list = append(list, key{[]string{"a"}, "a", "acknowledge", func() tea.Cmd { return m.acknowledge(v.ID) }})
	}
	list = append(list, m.muteKey(v.ID)...)
	if v.Job != "" && m.picture.job(v.Job, v.Culprit["job_domain"]) != nil {
		list = append(list, key{[]string{"r"}, "r", "ranks", func() tea.Cmd {
			m.chosen, m.rank = jobName{v.Job, v.Culprit["job_domain"]}, -1
			return m.enter(place{screen: atRanks})
		}})
	}
	return list
}

// copy gives a command to the clipboard of the terminal (OSC 52).
func (m *Model) copy(command string) tea.Cmd {
	m.copied = append(m.copied, command)
	m.note = "given to the clipboard of the terminal; printed again at the end"
	return tea.SetClipboard(command)
}

func (m *Model) write(id string) tea.Cmd {
	v, do := m.picture.Views[id], m.actions.Report
	return func() tea.Msg {
		file, err := do(v)
		if err != nil {
			return doneMsg("not written: " + shown(err.Error()))
		}
		return doneMsg("written: " + shown(file))
	}
}

func (m *Model) acknowledged(id string) bool {
	return slices.ContainsFunc(m.picture.Incidents, func(i history.Incident) bool { return i.ID == id && i.Acknowledged != nil })
}

func (m *Model) acknowledge(id string) tea.Cmd {
	do := m.actions.Acknowledge
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := do(ctx, id); err != nil {
			return doneMsg("not acknowledged: " + shown(err.Error()))
		}
		return doneMsg("acknowledged; it stays open until the fault clears")
	}
}

// scrollKeys move in a text that is longer than the screen.
func (m *Model) scrollKeys() []key {
	rows := len(m.text().rows)
	room := m.textRows(rows)
	if rows <= room {
		return nil
	}
	scroll := func(by int) func() tea.Cmd {
		return func() tea.Cmd {
			m.at().scroll = max(min(m.at().scroll+by, rows-room), 0)
			return nil
		}
	}
	return []key{
		{[]string{"space", "pgdown"}, "space", "page", scroll(max(room-1, 1))},
		{[]string{"pgup", "b"}, "", "", scroll(-max(room-1, 1))},
		{[]string{"down", "j"}, "j k", "row", scroll(1)},
		{[]string{"up", "k"}, "", "", scroll(-1)},
	}
}

func (m *Model) incidentsKeys() []key {
	var list []key
	if listed := m.listed(); len(listed) > 0 {
		at := m.chosenRow(listed)
		move := func(by int) func() tea.Cmd {
			return func() tea.Cmd { m.at().cursor = listed[max(min(at+by, len(listed)-1), 0)].ID; return nil }
		}
		list = append(list, key{[]string{"enter"}, "enter", "open", func() tea.Cmd {
			return m.enter(place{screen: atIncident, incident: listed[at].ID})
		}}, key{[]string{"down", "j"}, "j k", "row", move(1)}, key{[]string{"up", "k"}, "", "", move(-1)},
			key{[]string{"space", "pgdown"}, "", "", move(max(m.height-6, 1))}, key{[]string{"pgup", "b"}, "", "", move(-max(m.height-6, 1))})
	}
	list = append(list, key{[]string{"o"}, "o", map[bool]string{false: "open only", true: "all"}[m.openOnly], func() tea.Cmd { m.openOnly = !m.openOnly; return nil }})
	if slices.ContainsFunc(m.picture.Incidents, func(i history.Incident) bool { return i.Drill }) {
		list = append(list, key{[]string{"D"}, "D", map[bool]string{false: "drills", true: "no drills"}[m.drills], func() tea.Cmd { m.drills = !m.drills; return nil }})
	}
	return append(list, m.filterKey()...)
}

// chosenRow is the row of the cursor in the list of incidents.
func (m *Model) chosenRow(listed []*history.Incident) int {
	return max(slices.IndexFunc(listed, func(i *history.Incident) bool { return i.ID == m.at().cursor }), 0)
}

func (m *Model) ranksKeys() []key {
	j := m.job()
	if j == nil || len(j.Groups) == 0 {
		return nil
	}
	g := m.gridOf(j).grid
	var list []key
	to := func(rank int) func() tea.Cmd {
		return func() tea.Cmd { m.rank = rank; return nil }
	}
	if m.rank >= 0 && m.rank < len(g.kinds) && g.kinds[m.rank] != nobody {
		list = append(list, key{[]string{"enter"}, "enter", "rank", func() tea.Cmd { return m.enter(place{screen: atRank}) }})
	}
	if next := g.next(m.rank); next >= 0 {
		list = append(list, key{[]string{"n"}, "n", "differs", to(next)})
	}
	if g.deep > 1 && g.deep <= m.gridRows() {
		list = append(list, key{[]string{"f"}, "f", "fold", func() tea.Cmd { m.fold = (m.fold + 1) % folds; m.zoom = 0; return nil }})
	}
	if per := m.plot(g, m.width, m.gridRows()).per; m.fold != byState && (per > 1 || m.zoom > 0) {
		if per > 1 {
			list = append(list, key{[]string{"+", "="}, "+", "closer", func() tea.Cmd { m.zoom++; return nil }})
		}
		if m.zoom > 0 {
			list = append(list, key{[]string{"-"}, "-", "farther", func() tea.Cmd { m.zoom--; return nil }})
		}
	}
	return append(list, key{[]string{"right", "l", ">"}, "< >", "rank", to(g.beside(m.rank, 1))}, key{[]string{"left", "h", "<"}, "", "", to(g.beside(m.rank, -1))})
}

func (m *Model) rankKeys() []key {
	j := m.job()
	if j == nil || len(j.Groups) == 0 {
		return nil
	}
	g := m.gridOf(j).grid
	to := func(rank int) func() tea.Cmd {
		return func() tea.Cmd { m.rank = rank; return m.refresh() }
	}
	var list []key
	if by, ok := m.picture.named(j)[m.rank]; ok {
		list = append(list, key{[]string{"enter"}, "enter", "incident", func() tea.Cmd { return m.enter(place{screen: atIncident, incident: by.Incident}) }})
	}
	if next := g.next(m.rank); next >= 0 && next != m.rank {
		list = append(list, key{[]string{"n"}, "n", "differs", to(next)})
	}
	list = append(list, key{[]string{"right", "l", ">"}, "< >", "rank", to(g.beside(m.rank, 1))}, key{[]string{"left", "h", "<"}, "", "", to(g.beside(m.rank, -1))})
	return append(list, m.scrollKeys()...)
}

// written are the keys as the last row shows them.
func (m *Model) written() line {
	if m.asked != nil {
		return m.asked.written(m.width)
	}
	if m.typing {
		return line{{bold, "/"}, {plain, shown(m.filter)}, {reverse, " "}, {dim, fmt.Sprintf("  enter keep  esc all  (%d listed)", len(m.jobs())+len(m.listed()))}}
	}
	list := slices.DeleteFunc(m.keys(), func(k key) bool { return k.label == "" })
	taken := func() (n int) {
		for _, k := range list {
			n += Width(k.label) + len(k.does) + len("   ")
		}
		return n
	}
	for _, label := range []string{"p", "j k", "s", "/", "< >", "o", "space", "-", "w", "r", "e"} { // help names them
		if taken() > m.width {
			list = slices.DeleteFunc(list, func(k key) bool { return k.label == label })
		}
	}
	var l line
	for _, k := range list {
		l = append(l, span{bold, k.label}, span{dim, " " + k.does + "  "})
	}
	return l
}
