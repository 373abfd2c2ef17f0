package top

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/distro/internal/toptest"
	"github.com/tracecoreai/tracecore/internal/heartbeat"
	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/incidentview"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

var update = flag.Bool("update", false, "write the golden screens")

// user sits before a view.
type user struct {
	*Model
	t *testing.T
}

func newUser(t *testing.T, s Source, a Actions) *user {
	u := &user{New(s, a, true), t}
	u.size(80, 24)
	u.look(began)
	return u
}

func (u *user) size(width, height int) { u.Update(tea.WindowSizeMsg{Width: width, Height: height}) }

// look has the source answer, and again while the view asks for more.
func (u *user) look(at time.Time) {
	u.t.Helper()
	for range 3 {
		p, err := u.source.Look(context.Background(), u.want())
		if _, again := u.Update(lookedMsg{p, err, at}); again == nil {
			return
		}
	}
	require.Fail(u.t, "it asks for ever")
}

// press presses keys; what they do is done.
func (u *user) press(keys ...string) {
	u.t.Helper()
	for _, name := range keys {
		msg := tea.KeyPressMsg{Text: name, Code: []rune(name)[0]}
		switch name {
		case "enter":
			msg = tea.KeyPressMsg{Code: tea.KeyEnter}
		case "esc":
			msg = tea.KeyPressMsg{Code: tea.KeyEscape}
		case "space":
			msg = tea.KeyPressMsg{Code: tea.KeySpace, Text: " "}
		case "backspace":
			msg = tea.KeyPressMsg{Code: tea.KeyBackspace}
		}
		_, do := u.Update(msg)
		for do != nil {
			answer := do()
			if _, isTick := answer.(tickMsg); isTick || answer == nil {
				break
			}
			if _, quits := answer.(tea.QuitMsg); quits {
				return
			}
			_, do = u.Update(answer)
		}
	}
}

var sgr = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// screen is the screen as text. It is exactly its size, and tells the same without
// colours.
func (u *user) screen() string {
	u.t.Helper()
	rows := u.Screen()
	require.Len(u.t, rows, u.height)
	for i, row := range rows {
		require.Equal(u.t, u.width, ansi.StringWidthWc(row), "row %d: %q", i, row)
		rows[i] = sgr.ReplaceAllString(row, "")
		require.NotContains(u.t, rows[i], "\x1b")
	}
	u.colors = false
	for i, row := range u.Screen() {
		require.NotRegexp(u.t, `\x1b\[[0-9;]*3[0-9]`, row, "a colour")
		require.Equal(u.t, rows[i], sgr.ReplaceAllString(row, ""))
	}
	u.colors = true
	for i, row := range rows {
		rows[i] = strings.TrimRight(row, " ")
	}
	return strings.Join(rows, "\n") + "\n"
}

func (u *user) golden(name string) {
	u.t.Helper()
	got, path := u.screen(), filepath.Join("testdata", name+".txt")
	if *update {
		require.NoError(u.t, os.MkdirAll("testdata", 0o755))
		require.NoError(u.t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(u.t, err)
	require.Equal(u.t, string(want), got, "go test -update writes it")
}

var sizes = [][2]int{{80, 24}, {200, 60}}

func TestScreensOfAJobThatStands(t *testing.T) {
	for _, n := range []int{8, 64, 1024, 16384} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			if n > 1024 && testing.Short() {
				t.Skip("the patterns need seconds for so many ranks")
			}
			source := NewRecorded(play(t, toptest.Checkpoint(n)))
			for _, size := range sizes {
				u := newUser(t, source, Actions{})
				u.size(size[0], size[1])
				name := func(screen string) string { return fmt.Sprintf("%d-%s-%dx%d", n, screen, size[0], size[1]) }
				u.golden(name("home"))
				u.press("r", "n")
				u.golden(name("ranks"))
				u.press("f")
				u.golden(name("ranks-local"))
				if n != 1024 {
					continue
				}
				u.press("enter")
				u.look(began)
				u.golden(name("rank"))
				u.press("esc", "esc", "enter")
				u.golden(name("incident"))
				u.press("esc", "i")
				u.golden(name("incidents"))
				u.press("?")
				u.golden(name("help"))
			}
		})
	}
}

func TestScreensOfJobsThatGoOn(t *testing.T) {
	source := NewRecorded(play(t, toptest.Healthy(1024)))
	for _, size := range sizes {
		u := newUser(t, source, Actions{})
		u.size(size[0], size[1])
		u.golden(fmt.Sprintf("well-%dx%d", size[0], size[1]))
	}
	text, broken, err := Once(t.Context(), source)
	require.NoError(t, err)
	require.False(t, broken)
	require.Contains(t, text, "Nothing is wrong that tracecore can see")
}

// A recording says which agents it tells of, as they were at its end; one that tells of none has
// no such screen.
func TestARecordingHasAStatusWhereAgentsTold(t *testing.T) {
	recording := play(t, toptest.Healthy(8))
	u := newUser(t, NewRecorded(recording), Actions{})
	u.size(80, 24)
	require.NotContains(t, u.screen(), "status")
	for _, host := range []string{"node-1", "node-2"} {
		began := recording.At.Add(-10 * time.Minute)
		recording.Agents.Hear(heartbeat.Beat{
			Host: host, Instance: host, Started: began, At: began, Number: 1, Receivers: []heartbeat.Component{{Name: "gpu", State: heartbeat.Fails, Since: began}},
		}, began)
		if host == "node-1" {
			recording.Agents.Hear(heartbeat.Beat{Host: host, Instance: host, Started: began, At: recording.At, Number: 2, Receivers: []heartbeat.Component{{Name: "gpu", State: heartbeat.Fails, Since: began}}}, recording.At)
		}
	}
	u = newUser(t, NewRecorded(recording), Actions{})
	u.size(80, 24)
	require.Contains(t, u.screen(), "agents   1 watching, 1 silent")
	u.press("s")
	require.Contains(t, u.screen(), "from     dgx-a\n")
	require.Contains(t, u.screen(), "watching, without gpu")
}

// told is a source of a test.
type told struct {
	picture Picture
	err     error
	wants   []Want
}

func (s *told) Look(_ context.Context, w Want) (Picture, error) {
	s.wants = append(s.wants, w)
	return s.picture, s.err
}

// live is a picture that goes on: a job in which ranks fare in each way there is.
func live() *told {
	since, start := began.Add(-time.Minute), began.Add(-26*time.Hour)
	group := func(state, what, ranks string, count int) history.RankGroup {
		return history.RankGroup{State: state, What: what, Since: &since, Ranks: ranks, Count: count}
	}
	job := history.RankJob{
		Job: "llm", Began: &start, Updated: began, World: 32, Hosts: 4, Since: &since,
		Counts: map[string]int{history.RankBlocked: 1, history.RankDied: 2, history.RankSilent: 3, history.RankUnseen: 2, history.RankWaits: 21, history.RankGoesOn: 2, history.RankEnded: 1},
		Groups: []history.RankGroup{
			group(history.RankBlocked, "READ on /data", "3", 1), group(history.RankDied, "SIGKILL", "8-9", 2), group(history.RankSilent, "", "10-12", 3), group(history.RankUnseen, "", "30-31", 2),
			group(history.RankWaits, "", "0-2,4-7,13-26", 21), group(history.RankGoesOn, "", "27-28", 2), group(history.RankEnded, "", "29", 1),
		},
	}
	for node := range 4 {
		job.Nodes = append(job.Nodes, history.RankNode{Host: fmt.Sprint("node-", node), Ranks: fmt.Sprintf("%d-%d", node*8, min(node*8+7, 29))})
	}
	open := history.Incident{
		ID: "inc-1", Role: verdict.RootCause, Status: verdict.Open, Severity: verdict.Error, Confidence: verdict.Partial, Pattern: "fuse_stall", Headline: "daemon juicefs of /data is gone",
		Culprit: map[string]string{"host": "node-0"}, Onset: since, Updated: began, Jobs: []string{"llm"}, Nodes: []string{"node-0"}, Verdicts: 2,
	}
	over, drill := open, open
	ended := began.Add(-2 * time.Hour)
	over.ID, over.Status, over.Onset, over.Resolved, over.Headline = "inc-0", verdict.Resolved, began.Add(-3*time.Hour), &ended, "mlx5_2 of node-3 went down and up"
	drill.ID, drill.Drill, drill.Headline, drill.Severity = "inc-2", true, "a drill", verdict.Critical
	view := incidentview.View{
		ID: "inc-1", Headline: "Daemon juicefs of /data is gone", Severity: verdict.Error, Status: verdict.Open, Role: verdict.RootCause, Confidence: verdict.Partial, Job: "llm", Since: since, Updated: began,
		Culprit: open.Culprit,
		Do:      []incidentview.Step{{Text: "look", Command: "ls /data", Effect: verdict.Looks}, {Text: "mount again", Command: "umount -l /data", Effect: verdict.Changes, Target: "node-0"}},
		NotSeen: []incidentview.NotSeen{{Kind: incidentview.CannotSee, Text: "an Xid", Why: "nothing came from gpu"}, {Kind: incidentview.NotThere, Text: "an OOM kill"}},
	}
	return &told{picture: Picture{
		Host: "gateway-1", At: began, Incidents: []history.Incident{drill, open, over}, Views: map[string]incidentview.View{"inc-1": view},
		Named: []Named{{Job: "llm", Rank: 5, Slow: true, Incident: "inc-9", Text: "rank 5 is slow"}, {Job: "llm", Rank: 27, Incident: "inc-8", Text: "GPU of rank 27 is lost"}},
		Jobs:  []history.RankJob{job, {Job: "other", Began: &start, Counts: map[string]int{history.RankGoesOn: 8}, Hosts: 1}},
		Status: &history.Status{Version: "1", Started: start, Incidents: 3, Open: 2, Ailing: []history.Ailing{{Kind: "Receiver", Component: "gpu", Error: "no driver", Since: start}},
			Agents: heartbeat.Counts{Watching: 1023, Silent: 1, Gone: 1}, WorstAgents: []heartbeat.Agent{
				{Host: "node-7", State: heartbeat.Silent, Since: start}, {Host: "node-9", State: heartbeat.Watching, Since: start, Receivers: []heartbeat.Component{{Name: "gpu", State: heartbeat.Fails}}},
			},
			Feeds: []history.Feed{{Pattern: "gpu_lost", Evidence: "xid", Reads: []string{"gpu.xid"}}, {Pattern: "gpu_lost", Evidence: "lost", Reads: []string{"gpu.lost"}, Last: &since}}},
		Unfed: []string{"gpu", "rdma"}, Started: start,
	}}
}

// TestEveryWayToFare: each state has its mark, the worst of those that share one is shown,
// and nothing is told that was not seen.
func TestEveryWayToFare(t *testing.T) {
	u := newUser(t, live(), Actions{})
	u.golden("states-home")
	u.press("r")
	u.golden("states-ranks")
	text := u.screen()
	for _, want := range []string{"- 20 wait", "# 1 stuck", "# 1 named", "x 2 dead", "? 3 silent", "? 2 not seen", "~ 1 slow", ". 1 goes on", ": 1 ended", "---#-~--xx???--------------#.:??"} {
		require.Contains(t, text, want)
	}
	u.press("f")
	require.Contains(t, u.screen(), "mark = 1 rank, row = rank on its node")
	u.press("f")
	require.Contains(t, u.screen(), "by state")
	u.press("esc", "s")
	u.golden("status")
}

func TestKeys(t *testing.T) {
	source := live()
	wrote, seen, muted := "", "", ""
	u := newUser(t, source, Actions{
		Report:      func(v incidentview.View) (string, error) { wrote = v.ID; return "out.html", nil },
		Acknowledge: func(_ context.Context, id string) error { seen = id; return nil },
		Mute: func(_ context.Context, id string, lasts time.Duration, reason string) error {
			muted = fmt.Sprint(id, " ", lasts, " ", reason)
			return nil
		},
		Unmute: func(_ context.Context, id string) error { muted = id + " ended"; return nil },
	})
	require.Equal(t, jobName{"llm", ""}, u.chosen, "the job that stands")
	u.press("j")
	require.Equal(t, jobName{"other", ""}, u.chosen)
	require.Equal(t, "other", source.wants[len(source.wants)-1].Job)
	u.press("k", "enter")
	require.Equal(t, place{screen: atIncident, incident: "inc-1"}, *u.at(), "no drill while something is broken")
	require.Contains(t, u.screen(), "likely: not all evidence was seen")
	require.Less(t, strings.Index(u.screen(), "not seen"), strings.Index(u.screen(), "do 1"), "what bounds a likely verdict comes first")
	u.press("2")
	require.Equal(t, []string{"umount -l /data"}, u.Copied())
	require.Contains(t, u.screen(), "clipboard")
	u.press("w")
	require.Equal(t, "inc-1", wrote)
	require.Contains(t, u.screen(), "written: out.html")
	u.press("a")
	require.Equal(t, "inc-1", seen)
	u.press("m")
	require.Contains(t, u.screen(), "mute for how long, and why, as 2h OPS-4711:")
	u.press("q", "esc")
	require.Nil(t, u.asked)
	require.Empty(t, muted)
	u.press("m", "enter")
	require.Contains(t, u.screen(), "first how long, as 30m or 2h:")
	u.press("2", "h", "enter")
	require.Contains(t, u.screen(), "say why, too; others will ask: 2h")
	u.press("space", "x", "backspace", "O", "P", "S", "space", "m", "enter")
	require.Equal(t, "inc-1 2h0m0s OPS m", muted)
	require.Contains(t, u.screen(), "muted; the history goes on to show it")
	source.picture.Incidents[1].Muted = &history.Mute{Until: began.Add(time.Hour), UID: 1000, Reason: "OPS-4711"}
	u.look(began)
	require.Contains(t, u.screen(), "  mute     until 04:12:03 UTC by uid 1000: OPS-4711")
	u.press("m")
	require.Equal(t, "inc-1 ended", muted)
	u.press("x", "esc", "i")
	require.Contains(t, u.screen(), "(muted) daemon juicefs")
	u.press("esc", "enter", "r", "n")
	require.Equal(t, 3, u.rank)
	u.press("n")
	require.Equal(t, 5, u.rank)
	u.press(">", "<", "<")
	require.Equal(t, 4, u.rank)
	u.press("enter")
	require.Equal(t, Want{Job: "llm", Rank: 4}, source.wants[len(source.wants)-1])
	u.press("esc", "esc", "esc")
	require.Equal(t, atHome, u.at().screen)
	u.press("esc")
	require.Equal(t, atHome, u.at().screen)

	u.press("i")
	require.Contains(t, u.screen(), "1 drill not shown: D")
	require.NotContains(t, u.screen(), "a drill")
	u.press("D")
	require.Contains(t, u.screen(), "DRILL")
	u.press("o")
	require.NotContains(t, u.screen(), "went down")
	u.press("o", "D", "j", "enter")
	require.Equal(t, "inc-0", u.at().incident)
	require.Contains(t, u.screen(), "not there any more", "its view did not come")
	u.press("esc", "/", "m", "l", "x", "enter")
	require.Contains(t, u.screen(), "/mlx")
	require.Len(t, u.listed(), 1)
	u.press("/", "backspace", "esc")
	require.Empty(t, u.filter)
	u.press("?")
	require.Contains(t, u.screen(), "A mark of several ranks shows the worst of them.")
	u.press("x")
	require.False(t, u.help)
	u.press("p")
	source.picture.At = began.Add(time.Hour)
	u.Update(tickMsg(began.Add(time.Second)))
	require.Contains(t, u.screen(), "paused")
}

// TestTheEvidenceOfAnIncidentIsOneKeyAway: however long its steps and its chain are.
func TestTheEvidenceOfAnIncidentIsOneKeyAway(t *testing.T) {
	source := live()
	v := source.picture.Views["inc-1"]
	for i := range 30 {
		v.Seen = append(v.Seen, incidentview.Seen{At: began, Text: fmt.Sprint("evidence ", i), Says: "kernel", Count: 1})
	}
	source.picture.Views["inc-1"] = v
	u := newUser(t, source, Actions{})
	u.press("enter")
	require.NotContains(t, u.screen(), "evidence 12")
	u.press("e")
	require.Contains(t, strings.Split(u.screen(), "\n")[2], "  seen     03:12:03.000  evidence 0")
	u.press("?")
	require.Contains(t, u.screen(), "  e        evidence")
	require.NotContains(t, u.screen(), "mute", "nobody is there who could be told")
}

// A key that does nothing is not listed: help of each screen names what is there.
func TestNoKeyIsListedThatDoesNothing(t *testing.T) {
	u := newUser(t, &told{picture: Picture{Host: "node-1", At: began, Jobs: []history.RankJob{{Job: "llm", Counts: map[string]int{history.RankGoesOn: 8}}}}}, Actions{})
	u.press("?")
	text := u.screen()
	for _, absent := range []string{"incident", "filter", "status", "try now", "copy", "back"} {
		require.NotContains(t, strings.Split(text, "marks")[0], absent)
	}
	for _, screen := range []screen{atHome, atIncident, atIncidents, atRanks, atRank, atStatus} {
		u.places = []place{{}, {screen: screen}}
		for _, k := range u.keys() {
			require.False(t, len(k.keys) == 0 && k.do != nil)
		}
	}
}

func TestWhatIsOldSaysSo(t *testing.T) {
	source := live()
	local := live()
	u := newUser(t, source, Actions{Local: local})
	source.err = errors.New("connection refused")
	u.look(began.Add(14 * time.Second))
	require.Contains(t, u.screen(), "NO ANSWER for 14 s from gateway-1")
	u.golden("stale-80x24")
	require.NotRegexp(t, `\x1b\[(1;31|34)m`, strings.Join(u.Screen(), ""), "what is old has no colour")
	u.size(200, 60)
	u.golden("stale-200x60")
	asked := len(source.wants)
	u.Update(tickMsg(began.Add(15 * time.Second)))
	require.True(t, u.looking, "it is tried again")
	u.looking = false
	u.press("R")
	require.Len(t, source.wants, asked+1)
	u.press("L")
	require.NotEmpty(t, local.wants)
	require.NotContains(t, u.screen(), "NO ANSWER")

	never := newUser(t, &told{picture: Picture{Host: "10.0.0.1:13134"}, err: errors.New("connection refused")}, Actions{})
	require.Contains(t, never.screen(), "NO ANSWER from 10.0.0.1:13134")
	require.Contains(t, never.screen(), "why      connection refused")
}

// Names are anyone's: none moves the cursor, reorders a row, or makes it wider.
func TestHostileNames(t *testing.T) {
	name := "\x1b[2J\u202e\x07" + strings.Repeat("名\u0301🚀", 700) + "\n\t</b>"
	source := live()
	p := &source.picture
	p.Host, p.Problem, p.Unfed = name, name, []string{name}
	for i := range p.Incidents {
		p.Incidents[i].Headline, p.Incidents[i].Nodes, p.Incidents[i].Jobs = name, []string{name, name}, []string{name}
		p.Incidents[i].Acknowledged = &history.Acknowledgement{At: began, Note: name}
	}
	for i := range p.Jobs {
		p.Jobs[i].Job = name
		for j := range p.Jobs[i].Groups {
			p.Jobs[i].Groups[j].What = name
		}
		for j := range p.Jobs[i].Nodes {
			p.Jobs[i].Nodes[j].Host = name
		}
	}
	for i := range p.Named {
		p.Named[i].Job, p.Named[i].Text = name, name
	}
	v := p.Views["inc-1"]
	v.Headline, v.Where, v.Facts, v.Job = name, name, name, name
	v.Do[0].Text, v.Do[0].Command = name, name
	v.LedTo = []incidentview.Link{{At: began, Kind: incidentview.KindNear, Text: name, Why: name, Pattern: name}}
	v.Waits = []incidentview.Wait{{From: name, To: name, Reason: name, State: name}}
	v.Stacks = []incidentview.Stack{{Ranks: incidentview.RanksOf([]int{1}), Wait: name, Thread: name, Frames: []incidentview.Frame{{Kind: name, Function: name, Place: name}}}, {Unread: name}, {Frames: []incidentview.Frame{{Function: name}}}}
	v.Seen = []incidentview.Seen{{At: began, Text: name, Says: name, Count: 3}}
	v.NotSeen[0].Text, v.NotSeen[0].Why = name, name
	p.Views["inc-1"] = v
	p.Status.WorstAgents[0].Host, p.Status.WorstAgents[1].Receivers[0].Name = name, name
	p.Status.Version, p.Status.Ailing[0].Error, p.Status.Ailing[0].Component, p.Status.Feeds[0].Pattern = name, name, name, name
	p.Rank = &history.RankDetail{Rank: 3, State: history.RankBlocked, Host: name, Process: name, PID: 3, Thread: name, File: name, Syscall: name, Channel: name, Activity: name,
		Waits: []history.RankWait{{For: name, What: name}}, Stack: &history.RankStack{At: began, Where: name, Waits: name, Function: name, Unread: name}}
	u := newUser(t, source, Actions{})
	u.chosen, u.rank = jobName{name, ""}, 3
	for _, size := range [][2]int{{80, 24}, {200, 60}, {81, 15}, {79, 24}, {20, 3}, {1, 1}} {
		u.size(size[0], size[1])
		for _, at := range []place{{}, {screen: atIncident, incident: "inc-1"}, {screen: atIncidents}, {screen: atRanks}, {screen: atRank}, {screen: atStatus}} {
			u.places = []place{{}, at}
			for range 2 {
				text := u.screen()
				require.NotContains(t, text, "\u202e")
				require.NotContains(t, text, "\x07")
				u.help = !u.help
			}
		}
	}
	text, broken, err := Once(t.Context(), source)
	require.NoError(t, err)
	require.True(t, broken)
	require.NotContains(t, text, "\x1b")
}

// What is not told has no line.
func TestWhatARankUses(t *testing.T) {
	source := live()
	u := newUser(t, source, Actions{})
	u.chosen, u.rank = jobName{"llm", ""}, 3
	u.places = []place{{}, {screen: atRank}}
	cores, busy, sends := 1.26, 0.5, 1.2e9
	for _, told := range []bool{false, true} {
		source.picture.Rank = &history.RankDetail{Rank: 3, State: history.RankGoesOn, Host: "node-0"}
		if told {
			source.picture.Rank.CPU, source.picture.Rank.GPUBusy = &cores, &busy
			source.picture.Rank.Rail, source.picture.Rank.Sends = "eth3", &sends
		}
		u.look(began)
		require.Equal(t, told, strings.Contains(u.screen(), "cpu      1.3 cores"))
		require.Equal(t, told, strings.Contains(u.screen(), "gpu      50 % busy"))
		require.Equal(t, told, strings.Contains(u.screen(), "rail     eth3, sends 1.2 GB/s"))
	}
}

// Below 80 by 15 the incident stays, and any size is its size.
func TestSizes(t *testing.T) {
	u := newUser(t, live(), Actions{})
	for _, size := range [][2]int{{0, 0}, {1, 1}, {3, 2}, {40, 10}, {79, 24}, {80, 14}, {80, 15}, {100, 15}, {159, 40}, {160, 20}, {500, 200}} {
		u.size(size[0], size[1])
		for _, at := range []screen{atHome, atIncident, atIncidents, atRanks, atRank, atStatus} {
			u.places = []place{{screen: at, incident: "inc-1"}}
			u.screen()
			for _, k := range u.keys() {
				require.NotEmpty(t, append(k.keys, k.label))
			}
		}
	}
	u.size(40, 10)
	require.Contains(t, u.screen(), "# ERROR, likely daemon juicefs of /data\nis gone")
	require.Contains(t, u.screen(), "do look")
}

func BenchmarkRefresh(b *testing.B) {
	for _, n := range []int{1024, 16384} {
		source := NewRecorded(play(b, toptest.Checkpoint(n)))
		for _, size := range sizes {
			b.Run(fmt.Sprintf("%d ranks at %dx%d", n, size[0], size[1]), func(b *testing.B) {
				m := New(source, Actions{}, true)
				m.Update(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
				for range 2 {
					p, err := source.Look(b.Context(), m.want())
					require.NoError(b, err)
					m.Update(lookedMsg{p, nil, began})
				}
				for b.Loop() {
					m.Update(tickMsg(began))
					m.View()
				}
			})
			b.Run(fmt.Sprintf("grid of %d ranks at %dx%d", n, size[0], size[1]), func(b *testing.B) {
				m := New(source, Actions{}, true)
				m.Update(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
				for range 2 {
					p, err := source.Look(b.Context(), m.want())
					require.NoError(b, err)
					m.Update(lookedMsg{p, nil, began})
				}
				m.places = append(m.places, place{screen: atRanks})
				for b.Loop() {
					m.gridded = gridded{} // all is news
					m.View()
				}
			})
		}
	}
}

// What was not read, or what else is wrong with what tells, bounds all that a screen says: it
// stands on the first screen of any size, whether an incident is open or not.
func TestWhatIsWrongWithATellerIsOnTheFirstScreen(t *testing.T) {
	recording := play(t, toptest.Checkpoint(8))
	recording.Problem = "1 of 2 files could not be read, or not all of it"
	well := recording
	well.Verdicts = nil
	for name, r := range map[string]Recording{"an incident is open": recording, "nothing is wrong": well} {
		source := NewRecorded(r)
		u := newUser(t, source, Actions{})
		for _, size := range [][2]int{{40, 12}, {80, 24}, {200, 60}} {
			u.size(size[0], size[1])
			require.Contains(t, strings.Join(strings.Fields(u.screen()), " "), "1 of 2 files could not be read,", "%s, %d columns", name, size[0])
		}
		text, _, err := Once(t.Context(), source)
		require.NoError(t, err)
		require.Contains(t, text, "but      1 of 2 files could not be read, or not all of it")
	}
}

// What is printed once has all jobs, and names no key: nobody can press one.
func TestWhatIsPrintedOnceIsWholeAndHasNoKeys(t *testing.T) {
	source := live()
	for i := range 300 {
		source.picture.Jobs = append(source.picture.Jobs, history.RankJob{Job: fmt.Sprintf("job-%d", i), Hosts: 1, Counts: map[string]int{history.RankGoesOn: 4}})
	}
	for i := range 3 {
		more := source.picture.Incidents[1]
		more.ID = fmt.Sprintf("more-%d", i)
		source.picture.Incidents = append(source.picture.Incidents, more)
	}
	text, _, err := Once(t.Context(), source)
	require.NoError(t, err)
	require.Contains(t, text, "job-299")
	require.Contains(t, text, "and 3 more open incidents\n", "a drill is none")
	require.NotContains(t, text, "more: j k")
	u := newUser(t, source, Actions{})
	require.Contains(t, u.screen(), "more: j k")
	require.Contains(t, u.screen(), "more open incidents: i")
}

// Text that finds no room ends in two dots.
func TestWhatIsCutSaysSo(t *testing.T) {
	source := live()
	p := &source.picture
	p.Incidents[1].Headline = strings.Repeat("word ", 99)
	v := p.Views["inc-1"]
	v.Do[0].Text, v.Do[0].Command = strings.Repeat("step ", 99), ""
	p.Views["inc-1"] = v
	u := newUser(t, source, Actions{})
	require.Regexp(t, `(?m)^  +word .*word\.\.$`, u.screen())
	require.Regexp(t, `(?m)^  +step .*step\.\.$`, u.screen())
}

// A time that stands alone has its zone, and a rank is written as it is typed.
func TestTimesHaveAZoneAndRanksNoComma(t *testing.T) {
	source := NewRecorded(play(t, toptest.Checkpoint(1024)))
	u := newUser(t, source, Actions{})
	u.size(40, 12)
	require.Contains(t, u.screen(), "since 03:12:04 UTC, ")
	u.size(80, 24)
	u.press("r")
	u.rank = 1023
	u.press("enter")
	u.look(began)
	require.Contains(t, u.screen(), "llm-70b > rank 1023")
	require.Contains(t, u.screen(), "rank 1023 of llm-70b")
	require.NotContains(t, u.screen(), "1,023")

	source2 := live()
	source2.picture.Incidents[1].Acknowledged = &history.Acknowledgement{At: began, UID: 7}
	seen := newUser(t, source2, Actions{})
	seen.press("enter")
	require.Contains(t, seen.screen(), "UTC by uid 7")
}

// Two users may call a job alike: the domain tells them apart. How many ranks there are is whole.
func TestJobsOfOneName(t *testing.T) {
	source := live()
	source.picture.Jobs = []history.RankJob{
		{Job: "same", Domain: "user 1000", Hosts: 1, Counts: map[string]int{history.RankGoesOn: 8}, Groups: []history.RankGroup{{State: history.RankGoesOn, Ranks: "0-7", Count: 8}}},
		{Job: "same", Domain: "user 1001", Hosts: 1, Counts: map[string]int{history.RankGoesOn: 4}},
		{Job: "one-of-a-name", Domain: "user 1001", Hosts: 2000, Counts: map[string]int{history.RankGoesOn: 16000, history.RankUnseen: 384}},
	}
	u := newUser(t, source, Actions{})
	text := u.screen()
	require.Contains(t, text, "FOR  OF\n")
	require.Regexp(t, `(?m) same +8 .* user 1000$`, text)
	require.Regexp(t, `(?m) same +4 .* user 1001$`, text)
	require.Regexp(t, `(?m) one-of.* 16,000/16,384 +2,000 .*goes on *$`, text, "whole, and there is one of that name")
	u.press("j", "r")
	require.Contains(t, u.screen(), "> same, user 1000")
}

// A character that is shown escaped is there whole or not at all.
func TestEscapesAreNotCut(t *testing.T) {
	text := shown("ab\u202ecd")
	require.Equal(t, `ab\u202ecd`, text)
	for columns, want := range map[int]string{5: "ab..", 8: "ab..", 9: "ab..", 10: text} {
		require.Equal(t, want, clip(text, columns), "%d columns", columns)
	}
	require.Equal(t, `ab\u202e..`, clip(text+text, 10))
}
