package historyextension

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// rankSources know how ranks fare, by the processor that does.
type rankSources struct {
	mu sync.Mutex
	of map[string]history.RankSource
}

var _ history.RankListener = (*keeper)(nil)

// ListenRanks implements history.RankListener.
func (k *keeper) ListenRanks(processor string, source history.RankSource) (cancel func()) {
	k.rankSources.mu.Lock()
	defer k.rankSources.mu.Unlock()
	if k.rankSources.of == nil {
		k.rankSources.of = map[string]history.RankSource{}
	}
	k.rankSources.of[processor] = source
	return func() {
		k.rankSources.mu.Lock()
		defer k.rankSources.mu.Unlock()
		delete(k.rankSources.of, processor)
	}
}

func (s *rankSources) all() []history.RankSource {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]history.RankSource, 0, len(s.of))
	for _, name := range slices.Sorted(maps.Keys(s.of)) {
		list = append(list, s.of[name])
	}
	return list
}

// ranks answers how the ranks of jobs fare: in numbers, or of one job by node.
func (k *keeper) ranks(w http.ResponseWriter, r *http.Request, query url.Values) {
	job, rank := query.Get("job"), -1
	if text := query.Get("rank"); text != "" {
		var err error
		if rank, err = strconv.Atoi(text); err != nil || rank < 0 || rank > verdict.MaxRank || job == "" {
			fail(w, http.StatusBadRequest, fmt.Errorf("rank is %.40q: give a number of a rank, and its job", text))
			return
		}
	}
	told := history.Ranks{Head: k.head(), Jobs: []history.RankJob{}}
	var version uint64
	for _, source := range k.rankSources.all() {
		jobs, changed := source.States(k.now())
		version += changed
		for _, one := range jobs {
			switch {
			case job == "":
				one.Nodes, one.Groups = nil, nil
				version += paceOf(&one)
			case one.Job != job || query.Has("domain") && one.Domain != query.Get("domain"):
				continue
			case rank >= 0:
				detail, known := source.State(one.Job, one.Domain, rank, k.now())
				if !known {
					continue
				}
				one.Nodes, one.Groups, one.Rank = nil, nil, &detail
			}
			told.Jobs = append(told.Jobs, one)
		}
	}
	switch {
	case rank >= 0 && len(told.Jobs) == 0:
		fail(w, http.StatusNotFound, errors.New("there is no such rank, or nothing was told of it"))
	case rank >= 0: // what it does changes without its state
		answer(w, told)
	case !k.known(w, r, "ranks", version):
		answer(w, told)
	}
}

// paceOf is a number that changes as a job goes on, where nothing else of it does.
func paceOf(j *history.RankJob) (number uint64) {
	if j.Steps != nil {
		number += uint64(j.Steps.Last.UnixNano()) //nolint:gosec // wrapping round does no harm
	}
	if j.Sends != nil {
		number += uint64(*j.Sends) + 1
	}
	return number
}

// changed notes that questions about what is kept have new answers.
func (k *keeper) changed() { k.revision.Add(1) }

// known answers that nothing changed since the asker was told last, if so: it names the
// revision that it was told (RFC 9110, 13.1.2). A question about a time since has another
// answer as time goes by.
func (k *keeper) known(w http.ResponseWriter, r *http.Request, what string, revision uint64) bool {
	if r.URL.Query().Has("since") {
		return false
	}
	tag := fmt.Sprintf(`"%s-%x-%x"`, what, k.started.UnixNano(), revision)
	w.Header().Set("ETag", tag)
	if r.Header.Get("If-None-Match") != tag {
		return false
	}
	w.WriteHeader(http.StatusNotModified)
	return true
}
