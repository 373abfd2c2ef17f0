package k8seventsreceiver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	toolswatch "k8s.io/client-go/tools/watch"
)

// errGap says that the API server no longer knows where a watch stood.
var errGap = errors.New("the API server has forgotten where the watch stood")

// The pause after a failure grows from the first to the longest.
const (
	firstPause   = time.Second
	longestPause = time.Minute
)

// source is how an object is known.
type source int

const (
	watched source = iota // it is news
	listed                // a list has it: when it happened, nobody has said
	seen                  // a list has it as it was seen before
)

// stream is a list and watch of one kind of object, which goes on where it
// stopped: after a broken connection, a restart, and a gap.
type stream struct {
	name   string
	client *cache.ListWatch
	seen   func(ctx context.Context, object runtime.Object, from source)
	gone   func(ctx context.Context, object runtime.Object) // told of what was deleted
	listed func(ctx context.Context, names map[string]bool) // told of what a whole list has; may be nil
	// position is the resource version up to which everything was seen; "" at the
	// first start and after a gap.
	position string
	// forgotten is the position that the API server has forgotten, until a list says what is newer.
	forgotten string
	moved     func(position string) // told of every position
	opened    func()                // told of every watch that the API server begins
	failed    func(error)           // told of every failure
	pause     time.Duration
}

// errTold ends a watch whose error was told already.
var errTold = errors.New("the watch was refused")

// run goes on until ctx ends.
func (s *stream) run(ctx context.Context) {
	pause := s.pause
	for ctx.Err() == nil {
		before := s.position
		err := s.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if !errors.Is(err, errTold) {
			s.failed(fmt.Errorf("watch %s: %w", s.name, err))
		}
		if errors.Is(err, errGap) {
			s.forgotten, s.position = s.position, ""
			continue
		}
		if s.position != before {
			pause = s.pause
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
	}
}

// follow lists when it has no position, and watches until something fails.
func (s *stream) follow(ctx context.Context) error {
	if s.position == "" {
		if err := s.list(ctx); err != nil {
			return err
		}
	}
	watcher, err := toolswatch.NewRetryWatcherWithContext(ctx, s.position, opener{s})
	if err != nil {
		return err
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		if err := s.take(ctx, event); err != nil {
			return err
		}
	}
	return errors.New("the watch ended")
}

// opener begins the watches of a stream. The retry watcher goes on by itself
// while the API server is away, and would tell nobody.
type opener struct{ *stream }

// WatchWithContext implements cache.WatcherWithContext.
func (o opener) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	watcher, err := o.client.WatchWithContext(ctx, options)
	switch {
	case err == nil:
		o.opened()
	case ctx.Err() == nil:
		o.failed(fmt.Errorf("watch %s: %w", o.name, err))
	}
	return watcher, err
}

func (s *stream) list(ctx context.Context) error {
	list, _, err := pager.New(pager.SimplePageFunc(func(o metav1.ListOptions) (runtime.Object, error) {
		return s.client.ListWithContext(ctx, o)
	})).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for _, one := range inOrder(list) {
		s.seen(ctx, one.object, s.since(accessor.GetResourceVersion(), one.version))
		names[one.name] = true
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if s.listed != nil {
		s.listed(ctx, names)
	}
	s.position, s.forgotten = accessor.GetResourceVersion(), ""
	s.moved(s.position)
	return nil
}

// item is an object of a list.
type item struct {
	object        runtime.Object
	name, version string
}

// inOrder returns the objects of a list in the order in which they came to be as they are: a list is
// ordered by name.
func inOrder(list runtime.Object) (all []item) {
	_ = meta.EachListItem(list, func(o runtime.Object) error { // it returns what that returns
		if one, err := meta.Accessor(o); err == nil {
			all = append(all, item{o, one.GetName(), one.GetResourceVersion()})
		}
		return nil
	})
	slices.SortStableFunc(all, func(a, b item) int {
		order, _ := resourceversion.CompareResourceVersion(a.version, b.version) // 0 where it cannot be said
		return order
	})
	return all
}

// since reports whether an object of a list that is as new as newest was seen before a gap. Versions
// before a restored backup cannot be compared with those after it.
func (s *stream) since(newest, version string) source {
	if back, err := resourceversion.CompareResourceVersion(newest, s.forgotten); err != nil || back < 0 {
		return listed
	}
	switch order, err := resourceversion.CompareResourceVersion(version, s.forgotten); {
	case err != nil:
		return listed
	case order > 0:
		return watched
	}
	return seen
}

func (s *stream) take(ctx context.Context, event watch.Event) error {
	switch event.Type {
	case watch.Added, watch.Modified:
		s.seen(ctx, event.Object, watched)
	case watch.Deleted:
		s.gone(ctx, event.Object)
	case watch.Error:
		err := apierrors.FromObject(event.Object)
		if apierrors.IsGone(err) || apierrors.IsResourceExpired(err) {
			return errGap
		}
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			return errTold // the opener did
		}
		return err
	}
	accessor, err := meta.Accessor(event.Object)
	if err != nil {
		return err
	}
	s.position = accessor.GetResourceVersion()
	s.moved(s.position)
	return nil
}
