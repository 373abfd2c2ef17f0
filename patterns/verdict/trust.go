package verdict

import "fmt"

// Trust says how it is known that a record, or what is concluded from records, is
// true. The zero value is Claimed: nobody has to say that nothing is shown.
type Trust int8

// The trusts, from the weakest.
const (
	// Foreign: it came over the network from somebody who is not an agent.
	Foreign Trust = iota - 1
	// Claimed: a process of the node said it, or nothing shows who did.
	Claimed
	// Proven: the kernel or a driver said it, as structure or the call stack of the
	// write shows.
	Proven
)

var trusts = [...]string{"foreign", "claimed", "proven"}

// Trusts returns all of them, the strongest first.
func Trusts() []Trust { return []Trust{Proven, Claimed, Foreign} }

func (t Trust) String() string {
	if t < Foreign || t > Proven {
		return trusts[0]
	}
	return trusts[t-Foreign]
}

// ParseTrust reads a trust by its name.
func ParseTrust(text string) (Trust, bool) {
	for i, name := range trusts {
		if text == name {
			return Trust(i) + Foreign, true
		}
	}
	return Claimed, false
}

// MarshalText writes its name.
func (t Trust) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads its name.
func (t *Trust) UnmarshalText(text []byte) error {
	read, ok := ParseTrust(string(text))
	if !ok {
		return fmt.Errorf("trust %.40q is none of %q", text, trusts)
	}
	*t = read
	return nil
}
