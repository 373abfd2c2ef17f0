package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tracecoreai/tracecore/distro/internal/top"
	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/incidentview"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

const (
	// statusEvery is how often a poller asks what feeds the patterns: that answer is large,
	// and another each time.
	statusEvery = 15 * time.Second
	// mostWhole bounds the open incidents that are asked for as a whole.
	mostWhole = 8
)

// poller asks a running tracecore again and again. What did not change is not told again.
type poller struct {
	asking  asking
	address string
	base    *site
	client  *http.Client

	mu       sync.Mutex
	tags     map[string]string // by path and query
	picture  top.Picture
	whole    map[string]history.Whole
	views    map[string]incidentview.View // as the history tells them, of those that are shown whole
	jobs     []history.RankJob            // without nodes and groups
	plotted  map[string]history.RankJob   // by path and query
	statusAt time.Time
	feeding  *feeding
}

func newPoller(a *asking) *poller {
	return &poller{
		asking: *a, address: a.address, client: a.client(),
		tags: map[string]string{}, whole: map[string]history.Whole{}, views: map[string]incidentview.View{}, plotted: map[string]history.RankJob{},
	}
}

// Look implements top.Source.
func (p *poller) Look(ctx context.Context, want top.Want) (top.Picture, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.base == nil {
		base, err := siteOf(p.address)
		if err != nil {
			return top.Picture{Host: p.address}, err
		}
		p.base = base
	}
	picture, err := p.look(ctx, want)
	if err != nil {
		p.tags = map[string]string{} // who answers next may be another
		p.statusAt = time.Time{}
		return top.Picture{Host: p.base.Host}, fmt.Errorf("ask %s: %w", p.base.Host, err)
	}
	return picture, nil
}

func (p *poller) look(ctx context.Context, want top.Want) (top.Picture, error) {
	if err := p.status(ctx); err != nil {
		return top.Picture{}, err
	}
	if err := p.kept(ctx, want.Incident); err != nil {
		return top.Picture{}, err
	}
	return p.picture, p.ranks(ctx, want)
}

// kept asks for incidents and runs, and for the open incidents as a whole.
func (p *poller) kept(ctx context.Context, chosen string) error {
	var list history.Incidents
	news, err := conditional(ctx, p, "/v1/incidents", url.Values{"limit": {"200"}}, &list)
	if err != nil {
		return err
	}
	if news {
		p.picture.Incidents, p.picture.More = list.Incidents, list.More
		p.picture.Host = cmp.Or(list.Host, p.base.Host)
	}
	if !loopback(p.address) {
		p.picture.Host = p.base.Host
	}
	var runs history.Jobs
	if got, err := conditional(ctx, p, "/v1/jobs", url.Values{"open": {"true"}}, &runs); err != nil {
		return err
	} else if got {
		p.picture.Runs = runs.Runs
	}
	_, known := p.whole[chosen]
	if _, shown := p.views[chosen]; !news && (known && shown || chosen == "") {
		return nil
	}
	return p.incidents(ctx, chosen)
}

// incidents asks for the open incidents, and for the one that is looked at.
func (p *poller) incidents(ctx context.Context, chosen string) error {
	var wanted []string
	for _, one := range p.picture.Open() {
		if len(wanted) < mostWhole {
			wanted = append(wanted, one.ID)
		}
	}
	if chosen != "" && !slices.Contains(wanted, chosen) {
		wanted = append(wanted, chosen)
	}
	views := map[string]incidentview.View{}
	p.picture.Named = nil
	for _, id := range wanted {
		whole := p.whole[id]
		news, err := conditional(ctx, p, incidentPath(id), nil, &whole)
		if errors.Is(err, errNotThere) {
			continue
		}
		if err != nil {
			return err
		}
		if news {
			p.whole[id] = whole
			delete(p.views, id)
		}
		for i := range whole.Verdicts {
			whole.Verdicts[i] = verdict.Bounded(whole.Verdicts[i])
		}
		if views[id], err = p.view(ctx, id, id == chosen || id == wanted[0]); err != nil {
			return err
		}
		p.picture.Named = append(p.picture.Named, top.NamedBy(whole.Verdicts)...)
	}
	maps.DeleteFunc(p.whole, func(id string, _ history.Whole) bool {
		gone := !slices.Contains(wanted, id)
		if gone {
			delete(p.tags, incidentPath(id))
			delete(p.views, id)
		}
		return gone
	})
	p.picture.Views = views
	return nil
}

// view is an incident as it is shown: with its stacks, its evidence and what was before it
// where it is shown whole, else by its verdicts alone.
func (p *poller) view(ctx context.Context, id string, whole bool) (incidentview.View, error) {
	if v, known := p.views[id]; known {
		return v, nil
	}
	kept := p.whole[id]
	v := incidentview.Build(kept.Verdicts, incidentview.Options{Now: p.picture.At, Version: version, Feeds: p.feeding.feed})
	if !whole {
		return v, nil
	}
	full, err := p.asking.view(ctx, id)
	switch {
	case errors.Is(err, errNotThere): // it has given way since
		full, err = v, nil
	case err != nil:
		return v, err
	}
	p.views[id] = full
	return full, err
}

func incidentPath(id string) string { return "/v1/incidents/" + url.PathEscape(id) }

// ranks asks how ranks fare: in numbers of all jobs, by node of the one that is shown.
func (p *poller) ranks(ctx context.Context, want top.Want) error {
	var all history.Ranks
	news, err := conditional(ctx, p, "/v1/ranks", nil, &all)
	if err != nil {
		return err
	}
	if news {
		p.jobs = all.Jobs
	}
	p.picture.Rank = nil
	if want.Job == "" {
		p.picture.Jobs = p.jobs
		return nil
	}
	query := url.Values{"job": {want.Job}, "domain": {want.Domain}}
	name := query.Encode()
	var one history.Ranks
	if news, err = conditional(ctx, p, "/v1/ranks", query, &one); err != nil {
		return err
	}
	if news {
		p.plotted = map[string]history.RankJob{}
		if len(one.Jobs) > 0 {
			p.plotted[name] = one.Jobs[0]
		}
		maps.DeleteFunc(p.tags, func(path, _ string) bool { return strings.HasPrefix(path, "/v1/ranks?") && path != "/v1/ranks?"+name })
	}
	p.picture.Jobs = slices.Clone(p.jobs)
	if j, ok := p.plotted[name]; ok {
		if at := slices.IndexFunc(p.picture.Jobs, func(o history.RankJob) bool { return o.Job == j.Job && o.Domain == j.Domain }); at >= 0 {
			j.Steps, j.Sends = p.jobs[at].Steps, p.jobs[at].Sends // they go on, and what was plotted stays
			p.picture.Jobs[at] = j
		}
	}
	if want.Rank < 0 {
		return nil
	}
	query.Set("rank", strconv.Itoa(want.Rank))
	var detail history.Ranks
	_, err = conditional(ctx, p, "/v1/ranks", query, &detail)
	if err == nil && len(detail.Jobs) > 0 {
		p.picture.Rank = detail.Jobs[0].Rank
	}
	if errors.Is(err, errNotThere) {
		return nil
	}
	return err
}

// status asks what feeds the patterns, now and then.
func (p *poller) status(ctx context.Context) error {
	if time.Since(p.statusAt) < statusEvery {
		return nil
	}
	var told history.Status
	if _, err := conditional(ctx, p, "/v1/status", nil, &told); err != nil {
		return err
	}
	fed, err := newFeeding(told.Feeds)
	if err != nil {
		return err
	}
	p.feeding = fed
	p.picture.Status, p.picture.Started, p.picture.Unfed, p.statusAt = &told, told.Started, fed.unfed(told.Works...), time.Now()
	p.picture.Problem = told.Problem
	if len(told.Ailing) > 0 && told.Problem == "" {
		p.picture.Problem = counted(uint64(len(told.Ailing)), "component") + " of tracecore reports an error: s"
	}
	return nil
}

// conditional asks, and reads the answer where there is news since the same was asked last.
func conditional[T any](ctx context.Context, p *poller, path string, query url.Values, into *T) (news bool, err error) {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	request, err := p.base.request(ctx, path)
	if err != nil {
		return false, err
	}
	if tag := p.tags[path]; tag != "" {
		request.Header.Set("If-None-Match", tag)
	}
	response, err := do(p.client, request)
	if err != nil {
		return false, hintOf(err, notHere)
	}
	if at, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		p.picture.At = at
	}
	if response.StatusCode == http.StatusNotModified {
		return false, response.Body.Close()
	}
	text, err := answerIn(response, history.Schema)
	if err != nil {
		return false, err
	}
	if err := decode(text, into); err != nil {
		return false, err
	}
	if tag := response.Header.Get("ETag"); tag != "" {
		p.tags[path] = tag
	}
	return true, nil
}
