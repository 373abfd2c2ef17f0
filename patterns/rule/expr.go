package rule

import (
	"fmt"
	"strings"
)

// Expr is a boolean expression over evidence names: names, and, or, parentheses.
type Expr struct {
	Text string
	root *node
}

// node is a leaf (a name) or an operation on two nodes.
type node struct {
	name        string
	op          string // "and", "or", "" for a leaf
	left, right *node
}

// maxDepth bounds the recursion of the parser.
const maxDepth = 50

// ParseExpr parses text.
func ParseExpr(text string) (Expr, error) {
	p := exprParser{tokens: exprTokens(text)}
	root, err := p.or(0)
	if err != nil {
		return Expr{}, err
	}
	if p.pos < len(p.tokens) {
		return Expr{}, fmt.Errorf("unexpected %q after a complete expression: join names with and, or", p.tokens[p.pos])
	}
	return Expr{Text: text, root: root}, nil
}

// IsZero reports whether there is no expression.
func (e Expr) IsZero() bool { return e.root == nil }

// Eval evaluates e; seen says whether the evidence of that name holds.
func (e Expr) Eval(seen func(name string) bool) bool {
	return e.root != nil && e.root.eval(seen)
}

// Names returns the evidence names in e, in order of appearance.
func (e Expr) Names() []string {
	var names []string
	e.root.walk(func(name string) { names = append(names, name) })
	return names
}

func (n *node) eval(seen func(string) bool) bool {
	switch n.op {
	case "and":
		return n.left.eval(seen) && n.right.eval(seen)
	case "or":
		return n.left.eval(seen) || n.right.eval(seen)
	default:
		return seen(n.name)
	}
}

func (n *node) walk(visit func(string)) {
	if n == nil {
		return
	}
	if n.op == "" {
		visit(n.name)
		return
	}
	n.left.walk(visit)
	n.right.walk(visit)
}

type exprParser struct {
	tokens []string
	pos    int
}

func (p *exprParser) peek() string {
	if p.pos == len(p.tokens) {
		return ""
	}
	return p.tokens[p.pos]
}

func (p *exprParser) or(depth int) (*node, error)  { return p.binary("or", p.and, depth) }
func (p *exprParser) and(depth int) (*node, error) { return p.binary("and", p.leaf, depth) }

func (p *exprParser) binary(op string, operand func(int) (*node, error), depth int) (*node, error) {
	left, err := operand(depth)
	if err != nil {
		return nil, err
	}
	for p.peek() == op {
		p.pos++
		right, err := operand(depth)
		if err != nil {
			return nil, err
		}
		left = &node{op: op, left: left, right: right}
	}
	return left, nil
}

func (p *exprParser) leaf(depth int) (*node, error) {
	token := p.peek()
	p.pos++
	switch {
	case depth > maxDepth:
		return nil, fmt.Errorf("more than %d nested parentheses", maxDepth)
	case token == "" || token == ")" || token == "and" || token == "or":
		return nil, fmt.Errorf("an evidence name is missing at %q", token)
	case token == "not":
		return nil, fmt.Errorf("not is not an operator here: use unless, or evidence with missing")
	case token == "(":
		inner, err := p.or(depth + 1)
		if err != nil {
			return nil, err
		}
		if p.peek() != ")" {
			return nil, fmt.Errorf("a closing parenthesis is missing")
		}
		p.pos++
		return inner, nil
	case !isName(token):
		return nil, fmt.Errorf("%q is not an evidence name: use letters, digits and _", token)
	}
	return &node{name: token}, nil
}

func exprTokens(text string) []string {
	text = strings.NewReplacer("(", " ( ", ")", " ) ").Replace(text)
	return strings.Fields(text)
}

// isName reports whether s is a name: a lower-case letter, then letters, digits
// and underscores.
func isName(s string) bool {
	for i, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z'
		if !letter && (i == 0 || c != '_' && (c < '0' || c > '9')) {
			return false
		}
	}
	return s != ""
}
