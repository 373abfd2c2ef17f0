//go:build linux && (amd64 || arm64)

package pyexception

import (
	"slices"
	"strconv"
	"strings"
)

// mostName is how long the name of a class may be as it is written in C++: references to what stands in front of them make it
// longer than its mangled name without end.
const mostName = 256

// typeOf is the name of a class as it is written in C++, or as compilers write it where that cannot be read.
func typeOf(mangled string) string {
	r := nameReader{rest: mangled}
	if name := r.kind(); !r.failed && r.rest == "" && name != "" {
		return strings.ToValidUTF8(name, "�")
	}
	return mangled
}

// nameReader reads the name of a class as compilers write it (Itanium C++ ABI, 5.1 External Names): namespaces, names, templates,
// pointers and numbers, of which classes that are thrown are made. It knows neither functions nor expressions. The process chooses
// the name, so each step takes a byte, none is taken twice, and what is written is bounded: no name takes long.
type nameReader struct {
	rest   string
	failed bool     // nothing counts any more
	known  []string // what S_, S0_, … refer to
}

// builtins are the types that have a letter, or two.
var builtins = map[string]string{
	"v": "void", "w": "wchar_t", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char", "s": "short",
	"t": "unsigned short", "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long", "x": "long long",
	"y": "unsigned long long", "n": "__int128", "o": "unsigned __int128", "f": "float", "d": "double", "e": "long double",
	"g": "__float128", "Du": "char8_t", "Ds": "char16_t", "Di": "char32_t", "Dn": "decltype(nullptr)",
}

// standard are the names that have an abbreviation.
var standard = map[byte]string{
	'a': "std::allocator", 'b': "std::basic_string", 's': "std::string", 'i': "std::istream", 'o': "std::ostream", 'd': "std::iostream",
}

// behind are the marks of what is made from another type.
var behind = map[byte]string{'P': "*", 'R': "&", 'O': "&&", 'K': " const", 'V': " volatile"}

// suffixes are what follows a number of a type; of another, the type stands before it.
var suffixes = map[string]string{"i": "", "j": "u", "l": "l", "m": "ul", "x": "ll", "y": "ull"}

func (r *nameReader) fail() string {
	r.rest, r.failed = "", true
	return ""
}

// next is the next byte, 0 at the end.
func (r *nameReader) next() byte {
	if r.rest == "" {
		return 0
	}
	return r.rest[0]
}

// take takes so many bytes.
func (r *nameReader) take(n int) (taken string) {
	if n > len(r.rest) {
		return r.fail()
	}
	taken, r.rest = r.rest[:n], r.rest[n:]
	return taken
}

func (r *nameReader) join(parts ...string) string {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	if n > mostName {
		return r.fail()
	}
	return strings.Join(parts, "")
}

// know notes what may be referred to.
func (r *nameReader) know(name string) string {
	r.known = append(r.known, name)
	return name
}

// kind reads a type.
func (r *nameReader) kind() string {
	c := r.next()
	switch {
	case behind[c] != "":
		r.take(1)
		return r.know(r.join(r.kind(), behind[c]))
	case c == 'N':
		return r.nested()
	case c == 'S', isDigit(c):
		return r.outer()
	case c == 'D':
		return r.builtin(2)
	}
	return r.builtin(1)
}

func (r *nameReader) builtin(letters int) string {
	if name := builtins[r.take(letters)]; name != "" {
		return name
	}
	return r.fail()
}

// outer reads a name that is in no namespace, or in std.
func (r *nameReader) outer() (name string) {
	if r.next() != 'S' {
		name = r.know(r.source())
	} else if name = r.reference(); name == "std" {
		name = r.know(r.join("std::", r.source()))
	}
	if r.next() == 'I' {
		name = r.know(r.join(name, r.arguments()))
	}
	return name
}

// nested reads a name in namespaces and classes.
func (r *nameReader) nested() (name string) {
	r.take(1)
	for !r.failed && r.next() != 'E' {
		switch {
		case r.next() == 'I' && name != "":
			name = r.know(r.join(name, r.arguments()))
		case r.next() == 'S' && name == "":
			name = r.reference()
		case name == "":
			name = r.know(r.source())
		default:
			name = r.know(r.join(name, "::", r.source()))
		}
	}
	if name == "" {
		return r.fail()
	}
	r.take(1)
	return name
}

// source reads one name, and what marks its version.
func (r *nameReader) source() string {
	name := r.counted()
	if strings.HasPrefix(name, "_GLOBAL__N") {
		name = "(anonymous namespace)"
	}
	for r.next() == 'B' {
		r.take(1)
		name = r.join(name, "[abi:", r.counted(), "]")
	}
	return name
}

// counted reads a name behind its length.
func (r *nameReader) counted() string {
	n := r.digits()
	length, err := strconv.Atoi(n)
	if err != nil || length == 0 {
		return r.fail()
	}
	return r.take(length)
}

func (r *nameReader) digits() string {
	n := strings.IndexFunc(r.rest, func(c rune) bool { return c < '0' || c > '9' })
	if n < 0 {
		n = len(r.rest)
	}
	return r.take(n)
}

// reference reads what stands for something else: std, an abbreviation, what was read before.
func (r *nameReader) reference() string {
	r.take(1)
	c := r.next()
	if name := standard[c]; name != "" || c == 't' {
		r.take(1)
		if c == 't' {
			return "std"
		}
		return name
	}
	id, rest, found := strings.Cut(r.rest, "_")
	if !found || id != strings.ToUpper(id) {
		return r.fail()
	}
	at := int64(0)
	if id != "" {
		var err error
		if at, err = strconv.ParseInt(id, 36, 32); err != nil || at < 0 || id[0] == '+' {
			return r.fail()
		}
		at++
	}
	if at >= int64(len(r.known)) {
		return r.fail()
	}
	r.rest = rest
	return r.known[at]
}

// arguments reads what a template was made of.
func (r *nameReader) arguments() string {
	list := strings.Join(r.list(nil), ", ")
	if strings.HasSuffix(list, ">") {
		list += " "
	}
	return r.join("<", list, ">")
}

// list reads up to its end. A pack of arguments stands in line with the others.
func (r *nameReader) list(before []string) []string {
	r.take(1)
	for !r.failed && r.next() != 'E' {
		switch r.next() {
		case 'J':
			before = r.list(before)
		case 'L':
			before = append(before, r.literal())
		default:
			before = append(before, r.kind())
		}
	}
	r.take(1)
	return before
}

// literal reads a number.
func (r *nameReader) literal() string {
	r.take(1)
	from := r.rest
	kind := r.kind()
	letter := from[:len(from)-len(r.rest)]
	sign := ""
	if r.next() == 'n' {
		r.take(1)
		sign = "-"
	}
	number := r.digits()
	if number == "" || r.take(1) != "E" || !strings.ContainsRune("ijlmxybcahst0123456789NS", rune(letter[0])) {
		return r.fail()
	}
	suffix, plain := suffixes[letter]
	switch {
	case plain:
		return r.join(sign, number, suffix)
	case letter == "b" && slices.Contains([]string{"0", "1"}, number):
		return map[string]string{"0": "false", "1": "true"}[number]
	}
	return r.join("(", kind, ")", sign, number)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
