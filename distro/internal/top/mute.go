package top

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/tracecoreai/tracecore/internal/history"
)

// question is asked in the last row.
type question struct {
	text   string // of the question
	wrong  string // with what was answered before
	answer string
	take   func(answer string) (do tea.Cmd, err string)
}

// mostAnswer bounds what is typed. The history takes a longer reason.
const mostAnswer = 200

// answers takes what is typed for the question.
func (m *Model) answers(pressed, text string) tea.Cmd {
	q := m.asked
	switch pressed {
	case "esc", "ctrl+c":
		m.asked = nil
	case "enter":
		do, wrong := q.take(q.answer)
		if q.wrong = wrong; wrong == "" {
			m.asked = nil
		}
		return do
	case "backspace":
		_, size := utf8.DecodeLastRuneInString(q.answer)
		q.answer = q.answer[:len(q.answer)-size]
	default:
		if len(q.answer)+len(text) <= mostAnswer {
			q.answer += shown(text)
		}
	}
	return nil
}

// written is the question as the last row shows it: of a long answer its end.
func (q *question) written(columns int) line {
	ask := q.text + " "
	if q.wrong != "" {
		ask = clip(shown(q.wrong), columns/2) + " "
	}
	answer := q.answer
	for room := max(columns-Width(ask)-len("  enter  esc ")-1, 8); Width(answer) > room; {
		_, size := utf8.DecodeRuneInString(answer)
		answer = answer[size:]
	}
	return line{{bold, ask}, {plain, answer}, {reverse, " "}, {dim, "  enter  esc"}}
}

// muteKey asks how long and why, and mutes; or ends a mute.
func (m *Model) muteKey(id string) []key {
	at := slices.IndexFunc(m.picture.Incidents, func(i history.Incident) bool { return i.ID == id })
	if m.actions.Mute == nil || at < 0 {
		return nil
	}
	if m.muted(&m.picture.Incidents[at]) != "" {
		return []key{{[]string{"m"}, "m", "unmute", func() tea.Cmd { return m.unmute(id) }}}
	}
	return []key{{[]string{"m"}, "m", "mute", func() tea.Cmd {
		m.asked = &question{text: "mute for how long, and why, as 2h OPS-4711:", take: func(answer string) (tea.Cmd, string) { return m.mute(id, answer) }}
		return nil
	}}}
}

func (m *Model) mute(id, answer string) (do tea.Cmd, wrong string) {
	first, reason, _ := strings.Cut(strings.TrimSpace(answer), " ")
	lasts, err := time.ParseDuration(first)
	if err != nil {
		return nil, "first how long, as 30m or 2h:"
	}
	if reason = strings.TrimSpace(reason); reason == "" {
		return nil, "say why, too; others will ask:"
	}
	tell := m.actions.Mute
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := tell(ctx, id, lasts, reason); err != nil {
			return doneMsg("not muted: " + shown(err.Error()))
		}
		return doneMsg("muted; the history goes on to show it")
	}, ""
}

func (m *Model) unmute(id string) tea.Cmd {
	tell := m.actions.Unmute
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := tell(ctx, id); err != nil {
			return doneMsg("the mute goes on: " + shown(err.Error()))
		}
		return doneMsg("told again from now on, while it is open")
	}
}
