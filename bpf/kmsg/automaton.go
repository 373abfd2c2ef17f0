package kmsg

import (
	"errors"
	"fmt"
	"slices"
)

// Sizes of struct automaton in kmsg.bpf.c.
const (
	maxStates  = 1024
	maxClasses = 64
	accept     = 0xffff
)

// automaton finds any of a list of words in a text in one pass, one table step
// per byte (Aho and Corasick, 1975). It has the layout of struct automaton.
type automaton struct {
	Class [256]uint8
	Next  [maxStates * maxClasses]uint16
}

// newAutomaton builds the automaton of the words. The kernel side stops at the
// first word found, so which word it was does not matter.
func newAutomaton(words []string) (*automaton, error) {
	if len(words) == 0 {
		return nil, errors.New("no words to look for: give at least one")
	}
	a := &automaton{}
	if err := a.classify(words); err != nil {
		return nil, err
	}
	states, err := a.plant(words)
	if err != nil {
		return nil, err
	}
	a.fallBack(states)
	return a, nil
}

// classify gives each byte that occurs in a word its own column; all others
// share column 0.
func (a *automaton) classify(words []string) error {
	next := uint8(1)
	for _, word := range words {
		if word == "" || len(word) > matchBytes {
			return fmt.Errorf("word %.40q has %d bytes: use 1 to %d", word, len(word), matchBytes)
		}
		for _, b := range []byte(word) {
			if a.Class[b] != 0 {
				continue
			}
			if next == maxClasses {
				return fmt.Errorf("the words use more than %d different bytes: use fewer words", maxClasses-1)
			}
			a.Class[b] = next
			next++
		}
	}
	return nil
}

// plant enters the words as a tree into Next and returns how many states it has.
// A word with a shorter one at its beginning ends there.
func (a *automaton) plant(words []string) (int, error) {
	states := 1
	for _, word := range words {
		state := 0
		for i, b := range []byte(word) {
			cell := a.cell(state, a.Class[b])
			switch {
			case i == len(word)-1:
				*cell = accept
			case *cell == 0 && states == maxStates:
				return 0, fmt.Errorf("the words are too long together: use at most about %d bytes", maxStates)
			case *cell == 0:
				*cell = uint16(states)
				states++
			}
			if *cell == accept {
				break
			}
			state = int(*cell)
		}
	}
	return states, nil
}

// fallBack turns the tree into a table without gaps: where a state has no step
// for a byte, it takes that of its longest proper suffix that is also a state.
// States are visited by depth, so that the suffix is complete before.
func (a *automaton) fallBack(states int) {
	suffix := make([]uint16, states)
	queue := slices.Grow([]uint16(nil), states)
	for class := range uint8(maxClasses) {
		if to := *a.cell(0, class); to != 0 && to != accept {
			queue = append(queue, to)
		}
	}
	for len(queue) > 0 {
		state := queue[0]
		queue = queue[1:]
		for class := range uint8(maxClasses) {
			cell, viaSuffix := a.cell(int(state), class), *a.cell(int(suffix[state]), class)
			switch {
			case *cell == accept:
			case viaSuffix == accept || *cell == 0:
				*cell = viaSuffix
			default:
				suffix[*cell] = viaSuffix
				queue = append(queue, *cell)
			}
		}
	}
}

func (a *automaton) cell(state int, class uint8) *uint16 {
	return &a.Next[state*maxClasses+int(class)]
}

// match does what has_word in kmsg.bpf.c does.
func (a *automaton) match(text []byte) bool {
	state := uint16(0)
	for _, b := range text[:min(len(text), matchBytes)] {
		state = *a.cell(int(state), a.Class[b])
		if state == accept {
			return true
		}
	}
	return false
}
