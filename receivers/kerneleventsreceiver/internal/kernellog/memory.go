package kernellog

import "time"

// memory is a small map that forgets its oldest entry when it is full. Its zero
// value is ready to use.
type memory[K comparable, V any] struct {
	entries map[K]entry[V]
	order   []K // oldest first
}

type entry[V any] struct {
	value V
	at    time.Time
}

// set remembers value since at, and returns what had to be forgotten for it.
func (m *memory[K, V]) set(key K, value V, at time.Time) (forgotten V, full bool) {
	if m.entries == nil {
		m.entries = make(map[K]entry[V])
	}
	if _, known := m.entries[key]; !known {
		if len(m.order) == remembered {
			forgotten, full = m.entries[m.order[0]].value, true
			m.remove(m.order[0])
		}
		m.order = append(m.order, key)
	}
	m.entries[key] = entry[V]{value, at}
	return forgotten, full
}

func (m *memory[K, V]) get(key K) (V, bool) {
	e, known := m.entries[key]
	return e.value, known
}

// recent returns the value if it was set within the assembly window before at.
func (m *memory[K, V]) recent(key K, at time.Time) (V, bool) {
	e, known := m.entries[key]
	if !known || at.Sub(e.at).Abs() > assemblyWindow {
		var none V
		return none, false
	}
	return e.value, true
}

func (m *memory[K, V]) remove(key K) {
	if _, known := m.entries[key]; !known {
		return
	}
	delete(m.entries, key)
	for i, k := range m.order {
		if k == key {
			m.order = append(m.order[:i], m.order[i+1:]...)
			return
		}
	}
}

// expire hands out, and forgets, what was set longer ago than the assembly window.
func (m *memory[K, V]) expire(now time.Time, each func(V)) {
	for len(m.order) > 0 {
		if _, recent := m.recent(m.order[0], now); recent {
			return
		}
		value, _ := m.get(m.order[0])
		m.remove(m.order[0])
		each(value)
	}
}

func (m *memory[K, V]) len() int { return len(m.entries) }
