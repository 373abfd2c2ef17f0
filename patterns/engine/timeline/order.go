package timeline

import (
	"slices"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// favor is how many times as much room a trust may take as the next weaker one. What is
// proven leaves only when it fills more than two thirds by itself: claims cannot push it
// out, and a flood of proven deaths, which any user can make, leaves room for claims.
const favor = 3

// NewOrder makes an empty order of members by trust and owner, for Path.
func NewOrder[T any]() fairlru.List[T] {
	var l fairlru.List[T]
	times := 1
	for _, trust := range slices.Backward(verdict.Trusts()) {
		l.Favor(trust.String(), times)
		times *= favor
	}
	return l
}

// Path is the place in an order of what is trusted so far and takes the room of owner.
func Path(trust verdict.Trust, owner []string) []string {
	return append([]string{trust.String()}, owner...)
}
