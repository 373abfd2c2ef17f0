package rule

import "sync"

// Texts keeps what texts of rules are parsed into: the same fields stand in nearly all rules,
// and every engine compiles them. Nothing is forgotten, for rules have only so many texts.
type Texts[V any] struct {
	Parse func(text string) V

	mu     sync.Mutex // guards what follows
	parsed map[string]V
}

// Of returns what text is parsed into. All who ask share it.
func (t *Texts[V]) Of(text string) V {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, ok := t.parsed[text]
	if !ok {
		if t.parsed == nil {
			t.parsed = map[string]V{}
		}
		v = t.Parse(text)
		t.parsed[text] = v
	}
	return v
}
