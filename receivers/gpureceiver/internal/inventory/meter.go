package inventory

// meter is a counter that goes on when the way it is counted changes. One source
// counts since the driver was loaded what the other sums up from rates: a jump from
// one to the other would look like a burst.
type meter struct {
	total  float64
	offset float64 // of the total from the driver's count
	moved  bool    // the total has to be kept at the next count
}

// add sums up.
func (m *meter) add(n float64) {
	m.total += n
	m.moved = true
}

// count takes the driver's count.
func (m *meter) count(n float64) {
	if m.moved {
		m.offset, m.moved = m.total-n, false
	}
	if n+m.offset < m.total { // the driver was loaded again
		m.offset = 0
	}
	m.total = n + m.offset
}

// meters are made when first used.
type meters[K comparable] map[K]*meter

func (m meters[K]) of(key K) *meter {
	if m[key] == nil {
		m[key] = &meter{}
	}
	return m[key]
}

// total is what a meter shows; any says that it has shown something.
func (m meters[K]) total(key K) (n float64, any bool) {
	if one := m[key]; one != nil {
		return one.total, true
	}
	return 0, false
}

// moved has all go on from where they are.
func (m meters[K]) moved() {
	for _, one := range m {
		one.moved = true
	}
}
