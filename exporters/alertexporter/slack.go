package alertexporter

import (
	"fmt"
	"strings"

	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// slackMessage is what Slack's incoming webhooks take, and Mattermost's, Rocket.Chat's and
// Discord's (at /slack): attachments of the first form, which all of them show.
type slackMessage struct {
	Text        string            `json:"text"`
	Attachments []slackAttachment `json:"attachments"`
}

type slackAttachment struct {
	Fallback  string       `json:"fallback"`
	Color     string       `json:"color"`
	Title     string       `json:"title"`
	TitleLink string       `json:"title_link,omitempty"`
	Text      string       `json:"text,omitempty"`
	Fields    []slackField `json:"fields"`
	Footer    string       `json:"footer"`
	Time      int64        `json:"ts"`
	// MarkdownIn is empty: nothing that strangers wrote is formatted.
	MarkdownIn []string `json:"mrkdwn_in"`
}

type slackField struct {
	Title string `json:"title"`
	Value string `json:"value"`
	Short bool   `json:"short"`
}

// slackText makes of a text what Slack shows as it is: no link, no mention of a channel or
// of anybody (Slack, "Formatting text for app surfaces": &, < and > are escaped). Others
// take a plain @channel for a mention, [text](address) for a link, with ! before it for a
// picture that is fetched, and all of them an address with its scheme for a link.
var slackText = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "@", "＠", "[", "［", "]", "］", "://", "：//")

func slackBody(n *notice) ([]byte, error) {
	title := strings.ToUpper(string(n.Verdict.Severity))
	color := "#808080"
	switch {
	case n.Status == resolved && n.Why != "": // grey: nothing is mended
		title = "ALERT ENDS, " + strings.ToUpper(n.Why)
	case n.Status == resolved:
		title, color = "RESOLVED", "#2eb886"
	case n.Verdict.Severity == verdict.Critical:
		color = "#a30200"
	case n.Verdict.Severity == verdict.Error:
		color = "#d64e00"
	case n.Verdict.Severity == verdict.Warning:
		color = "#daa038"
	}
	if n.Drill {
		title = "DRILL " + title
	}
	headline := slackText.Replace(n.Verdict.Headline)
	a := slackAttachment{
		Fallback: title + ": " + headline, Color: color, Title: headline, TitleLink: n.Annotations["runbook_url"],
		Footer: slackText.Replace(fmt.Sprintf("tracecore, %s, %s", n.Verdict.Pattern, n.Verdict.IncidentID)), Time: n.Starts.Unix(), Fields: []slackField{}, MarkdownIn: []string{},
	}
	if n.Status == firing {
		a.Text = slackText.Replace(strings.TrimSpace(n.Annotations["goes_on"] + "\n" + n.Verdict.Remediation))
	}
	for _, name := range n.Where() {
		a.Fields = append(a.Fields, slackField{name, slackText.Replace(n.Labels[name]), true})
	}
	return safetext.Marshal(slackMessage{Text: title, Attachments: []slackAttachment{a}})
}
