package top

import (
	"regexp"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// style is how text looks. The colours are two of the sixteen that the user has chosen;
// nothing is told by them alone.
type style uint8

const (
	plain style = iota
	bold
	dim
	reverse
	cause // what broke
	waits // who waits for it
	styles
)

// codes are SGR parameters (ECMA-48, 8.3.117), with colours and without.
var codes = [2][styles]string{
	{bold: "1", dim: "2", reverse: "7", cause: "1"},
	{bold: "1", dim: "2", reverse: "7", cause: "1;31", waits: "34"},
}

// span is text in one style; it holds visible characters alone (internal/safetext).
type span struct {
	style style
	text  string
}

// line is what stands in one row.
type line []span

// cell is one column of a row. A wide character has an empty cell behind it.
type cell struct {
	text  string
	style style
}

// canvas is a screen of exactly its size, whatever is drawn on it.
type canvas struct {
	width, height int
	cells         []cell
}

func newCanvas(width, height int) *canvas {
	c := &canvas{width: max(width, 0), height: max(height, 0)}
	c.cells = make([]cell, c.width*c.height)
	for i := range c.cells {
		c.cells[i].text = " "
	}
	return c
}

// put writes text from column x of row y on, up to column end. It returns the column
// behind it.
func (c *canvas) put(x, y, end int, s style, text string) int {
	end = min(end, c.width)
	if y < 0 || y >= c.height {
		return x
	}
	row := c.cells[y*c.width : (y+1)*c.width]
	for i, r := range text {
		wide := runeWidth(r)
		switch {
		case wide == 0 && x > 0 && x <= end && i > 0:
			row[x-1].text += string(r)
			continue
		case wide == 0:
			continue
		case x+wide > end:
			return x
		}
		row[x] = cell{characterOf(r), s}
		for more := 1; more < wide; more++ {
			row[x+more] = cell{"", s}
		}
		x += wide
	}
	return x
}

// draw writes a line from column x on, up to column end.
func (c *canvas) draw(x, y, end int, l line) int {
	for _, part := range l {
		x = c.put(x, y, end, part.style, part.text)
	}
	return x
}

// paint gives the cells from x to end of a row one style.
func (c *canvas) paint(x, y, end int, s style) {
	for ; x < min(end, c.width) && y < c.height; x++ {
		c.cells[y*c.width+x].style = s
	}
}

// lines are the rows with their styles, with colours or without.
func (c *canvas) lines(colors bool) []string {
	table := codes[0]
	if colors {
		table = codes[1]
	}
	rows := make([]string, c.height)
	for y := range rows {
		var b strings.Builder
		now := ""
		for _, one := range c.cells[y*c.width : (y+1)*c.width] {
			if want := table[one.style]; want != now {
				if now != "" {
					b.WriteString("\x1b[m")
				}
				if want != "" {
					b.WriteString("\x1b[" + want + "m")
				}
				now = want
			}
			b.WriteString(one.text)
		}
		if now != "" {
			b.WriteString("\x1b[m")
		}
		rows[y] = b.String()
	}
	return rows
}

// text is the rows without styles and without the blanks at their ends.
func (c *canvas) text() string {
	var b strings.Builder
	for y := range c.height {
		var row strings.Builder
		for _, one := range c.cells[y*c.width : (y+1)*c.width] {
			row.WriteString(one.text)
		}
		b.WriteString(strings.TrimRight(row.String(), " ") + "\n")
	}
	return b.String()
}

// ascii has the characters of one byte as strings.
var ascii = func() (all [128]string) {
	for i := range all {
		all[i] = string(rune(i))
	}
	return all
}()

func characterOf(r rune) string {
	if r < 128 {
		return ascii[r]
	}
	return string(r)
}

// runeWidth is in how many columns a terminal shows a character.
func runeWidth(r rune) int {
	if r < 0x7f {
		return 1
	}
	return ansi.StringWidthWc(string(r))
}

// Width is how many columns of a terminal text takes.
func Width(text string) int {
	n := 0
	for _, r := range text {
		n += runeWidth(r)
	}
	return n
}

func widthOf(l line) int {
	n := 0
	for _, part := range l {
		n += Width(part.text)
	}
	return n
}

// clip cuts text to so many columns; two dots say that it was cut.
func clip(text string, most int) string {
	if Width(text) <= most {
		return text
	}
	const mark = ".."
	var b strings.Builder
	left := most - len(mark)
	for _, r := range text {
		if left -= runeWidth(r); left < 0 {
			break
		}
		b.WriteRune(r)
	}
	if most < len(mark) {
		return b.String()
	}
	return strings.TrimRight(halfEscaped.ReplaceAllString(b.String(), ""), " ") + mark
}

// halfEscaped is the beginning of a character that is shown escaped (internal/safetext): a part of
// it says nothing.
var halfEscaped = regexp.MustCompile(`\\(x[0-9a-f]?|u[0-9a-f]{0,3}|U[0-9a-f]{0,7})?$`)

// pad fills text with blanks to so many columns, or cuts it.
func pad(text string, columns int) string {
	text = clip(text, columns)
	return text + strings.Repeat(" ", max(columns-Width(text), 0))
}

// right is text at the right end of so many columns.
func right(text string, columns int) string {
	text = clip(text, columns)
	return strings.Repeat(" ", max(columns-Width(text), 0)) + text
}

// Wrap breaks text between words into lines of so many columns; a word that is longer is
// broken anywhere.
func Wrap(text string, columns int) []string {
	columns = max(columns, 1)
	var lines []string
	now, used := "", 0
	for word := range strings.FieldsSeq(text) {
		size := Width(word)
		if now != "" && used+1+size <= columns {
			now, used = now+" "+word, used+1+size
			continue
		}
		if now != "" {
			lines = append(lines, now)
		}
		for size > columns {
			head := cutAt(word, columns)
			lines, word = append(lines, head), word[len(head):]
			size = Width(word)
		}
		now, used = word, size
	}
	if now != "" || len(lines) == 0 {
		lines = append(lines, now)
	}
	return lines
}

// cutAt is as much of a word as so many columns hold, one character at least.
func cutAt(word string, columns int) string {
	used := 0
	for i, r := range word {
		if used += runeWidth(r); used > columns && i > 0 {
			return word[:i]
		}
	}
	return word
}
