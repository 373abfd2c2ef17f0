//go:build linux

package main

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestThePlaceOfAnOrderIsReadFromTheJob: numbers move when train.py is edited, marks do not.
func TestThePlaceOfAnOrderIsReadFromTheJob(t *testing.T) {
	lines := strings.Split(string(train), "\n")
	for order, want := range map[string]struct{ text, function string }{
		"lock": {"with held:", "lock"}, "spinlock": {"(held))  # stands", "spin_in_c"}, "raise": {"raise ValueError(\"bad batch", "run"},
		"start": {"raise ImportError", "main"}, "threadread": {"worker.join()", "in_thread"}, "read": {"while f.read(", "read"},
	} {
		at := slices.IndexFunc(lines, func(text string) bool { return strings.Contains(text, want.text) })
		said := "rank 3 sleeps at train.py:" + strconv.Itoa(at+1) + " in " + want.function
		require.Regexp(t, place(order), said+" < main", order)
		require.NotRegexp(t, place(order), said+"_of_another < main", order)
		require.NotRegexp(t, place(order), "rank 3 sleeps at train.py:1 in "+want.function, order)
	}
	require.Nil(t, place("exit"), "it displays nothing and ends at once")
}

// TestEachMarkIsAnOrder: a mark with a typing error would score nothing.
func TestEachMarkIsAnOrder(t *testing.T) {
	all := regexp.MustCompile(`(?m)^ALL = \((.*)\)`).FindStringSubmatch(string(train)) // those that all ranks carry out
	for _, text := range strings.Split(string(train), "\n") {
		_, orders, _ := strings.Cut(text, stands)
		for _, order := range strings.Fields(orders) {
			require.True(t, order == "start" || strings.Contains(string(train), `order == "`+order+`"`) || all != nil && strings.Contains(all[1], `"`+order+`"`), order)
		}
	}
}
