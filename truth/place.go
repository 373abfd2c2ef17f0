//go:build linux

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// stands marks the lines of train.py that the main thread is in while it carries out an order.
const stands = "# stands: "

// place is where a verdict must say that a rank is while it carries out an order; nil where
// train.py marks no line of it.
func place(order string) *regexp.Regexp {
	var places []string
	function := "<module>"
	for i, text := range strings.Split(string(train), "\n") {
		if name, is := strings.CutPrefix(strings.TrimSpace(text), "def "); is {
			function, _, _ = strings.Cut(name, "(")
		}
		if _, orders, marked := strings.Cut(text, stands); marked && slices.Contains(strings.Fields(orders), order) {
			places = append(places, fmt.Sprintf(`train\.py:%d in (%s|<genexpr>)`, i+1, regexp.QuoteMeta(function)))
		}
	}
	if places == nil {
		return nil
	}
	return regexp.MustCompile(`\bat (` + strings.Join(places, "|") + `)(\W|$)`)
}
