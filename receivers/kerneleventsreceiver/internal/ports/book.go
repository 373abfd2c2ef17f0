package ports

import (
	"encoding/json"
	"time"
)

// Again is how often a port that is not active is told of while nothing changes.
const Again = time.Minute

// Seen is a port that is to be told of.
type Seen struct {
	Port
	// Inactive is how long it has not been active, as far as anybody looked.
	Inactive time.Duration
}

// Book remembers which ports were active, and since when one is not. A port that was never
// active is not in it: it may have no cable. Nor is one whose interface went to a container or
// came back from there since: that takes the port down, and nobody switched it off. The zero Book
// knows nothing.
type Book struct{ of map[key]entry }

type key struct {
	device string
	number int64
}

type entry struct {
	since time.Time // when it was first found not active; zero while it is active
	up    string    // its interface while it was active
	told  Port
	at    time.Time // when it was last told of
}

// Look takes in all ports at a moment and returns which are to be told of. A port whose state
// cannot be read stays as it was; one that is gone is forgotten: what comes back under its name may
// be another.
func (b *Book) Look(ports []Port, now time.Time) (news []Seen) {
	next := make(map[key]entry, len(ports))
	for _, p := range ports {
		k := key{p.Device, p.Number}
		before, known := b.of[k]
		one := before
		switch {
		case p.State == "":
			if known {
				next[k] = before
			}
			continue
		case p.Active():
			one.since, one.up = time.Time{}, p.Interface
		case !known, p.Ethernet && p.Interface != one.up:
			continue
		case one.since.IsZero():
			one.since = now
		}
		if p != before.told || !p.Active() && now.Sub(before.at) >= Again {
			news = append(news, Seen{Port: p, Inactive: one.inactive(now)})
			one.told, one.at = p, now
		}
		next[k] = one
	}
	b.of = next
	return news
}

func (e entry) inactive(now time.Time) time.Duration {
	if e.since.IsZero() {
		return 0
	}
	return max(now.Sub(e.since), 0)
}

// note is what outlives the process: of a port since when it is not active, 0 while it is.
type note struct {
	Device string `json:"device"`
	Number int64  `json:"port"`
	Up     string `json:"interface,omitempty"` // while it was active
	Since  int64  `json:"since_unix_nano,omitempty"`
}

// Save returns what Restore takes up.
func (b *Book) Save() ([]byte, error) {
	notes := []note{}
	for k, e := range b.of {
		n := note{Device: k.device, Number: k.number, Up: e.up}
		if !e.since.IsZero() {
			n.Since = e.since.UnixNano()
		}
		notes = append(notes, n)
	}
	return json.Marshal(notes)
}

// Restore takes up what was known of this boot at a moment. All ports are told of once more. A
// port that stopped being active while nobody looked is so since the first look after that.
func (b *Book) Restore(saved []byte, now time.Time) error {
	var notes []note
	if err := json.Unmarshal(saved, &notes); err != nil {
		return err
	}
	b.of = make(map[key]entry, min(len(notes), most))
	for _, n := range notes[:min(len(notes), most)] {
		e := entry{up: n.Up}
		if since := time.Unix(0, n.Since); n.Since > 0 && since.Before(now) {
			e.since = since
		}
		b.of[key{n.Device, n.Number}] = e
	}
	return nil
}
