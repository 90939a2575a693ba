package contract

import (
	"math"
	"math/rand/v2"
	"path"
	"regexp/syntax"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// A generator makes values from schemas, most of them valid. For values that a schema cannot
// describe, such as existing IDs, it uses pools.
type generator struct {
	*rand.Rand
	pools map[string][]any // by schema name
}

// chance returns true in the given percentage of calls.
func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func pick[T any](g *generator, list []T) T { return list[g.IntN(len(list))] }

func (g *generator) value(ref *openapi3.SchemaRef) any {
	name := path.Base(ref.Ref)
	if pool := g.pools[name]; len(pool) > 0 && (name == "WebhookURL" || g.chance(80)) {
		return pick(g, pool) // always for URLs: a random URL might reach a real server
	}
	s := ref.Value
	switch {
	case s.Const != nil:
		return s.Const
	case len(s.Enum) > 0:
		return pick(g, s.Enum)
	case len(s.OneOf) > 0:
		return g.value(pick(g, s.OneOf))
	case len(s.Examples) > 0 && g.chance(40):
		return pick(g, s.Examples)
	}
	switch pick(g, s.Type.Slice()) {
	case "null":
		return nil
	case "boolean":
		return g.chance(50)
	case "integer":
		return g.integer(s)
	case "array":
		list := make([]any, int(s.MinItems)+g.IntN(4))
		for i := range list {
			list[i] = g.value(s.Items)
		}
		return list
	case "object":
		object := make(map[string]any)
		for name, property := range s.Properties {
			if g.chance(50) || strings.Contains(" "+strings.Join(s.Required, " ")+" ", " "+name+" ") {
				object[name] = g.value(property)
			}
		}
		return object
	}
	return g.text(s)
}

// integer returns the minimum or maximum of the schema, a value just beyond either, or a value in
// between.
func (g *generator) integer(s *openapi3.Schema) float64 {
	least, most := -1e15, 1e15
	if s.Min != nil {
		least = *s.Min
	}
	if s.Max != nil {
		most = *s.Max
	}
	switch g.IntN(8) {
	case 0:
		return least
	case 1:
		return most
	case 2:
		return least - 1
	case 3:
		return most + 1
	}
	return math.Floor(least + g.Float64()*(most-least))
}

func (g *generator) text(s *openapi3.Schema) string {
	pattern := s.Pattern
	if pattern == "" {
		pattern = `^\pL*$`
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return pattern
	}
	var b strings.Builder
	g.match(&b, parsed.Simplify())
	text := []rune(b.String())
	if s.MaxLength == nil {
		return string(text)
	}
	most := int(*s.MaxLength)
	if g.chance(10) { // use the maximum length, or one more
		text = append(text, []rune(strings.Repeat("a", most+1))...)
		return string(text[:most+g.IntN(2)])
	}
	return string(text[:min(len(text), most)])
}

// match appends to b a text that usually matches the expression.
func (g *generator) match(b *strings.Builder, re *syntax.Regexp) {
	switch re.Op {
	case syntax.OpLiteral:
		b.WriteString(string(re.Rune))
	case syntax.OpCharClass:
		i := 2 * g.IntN(len(re.Rune)/2)
		if g.chance(70) {
			i = 0 // the first range, usually ASCII
		}
		low, high := re.Rune[i], re.Rune[i+1]
		b.WriteRune(low + g.Int32N(min(high-low, 200)+1))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteByte('a' + byte(g.IntN(26)))
	case syntax.OpConcat, syntax.OpCapture:
		for _, sub := range re.Sub {
			g.match(b, sub)
		}
	case syntax.OpAlternate:
		g.match(b, pick(g, re.Sub))
	case syntax.OpQuest:
		if g.chance(50) {
			g.match(b, re.Sub[0])
		}
	case syntax.OpStar, syntax.OpPlus:
		n := g.IntN(4)
		if re.Op == syntax.OpPlus {
			n++
		}
		if g.chance(3) {
			n *= 100
		}
		for range n {
			g.match(b, re.Sub[0])
		}
	}
}

// junk returns a value of a random type, which is invalid in most places.
func (g *generator) junk() any {
	return pick(g, []any{
		nil, true, false, 0.0, -1.0, 1.0, 0.5, 1e300, 101.0, 31536001.0, "", " ", "a", "null", "0", "-1", "1e3", "\x00", "\u0085", "\u202e", "é", "😀", "a/b", "../..", "%00", "%",
		`"`, `\`, "*", `W/"a"`, `""`, "https://", "http://example.com", "https://127.0.0.1:1/", "https://u:p@example.com", "https://[::1", "https://localhost", "2001-01-01", "2030-02-30", "2999-12-31T23:59:60Z",
		"9999-12-31T23:59:59-23:59", "0.0", "00.1", "18446744073.709551616", "99999999999", "1.0000000001", "files.*", "FILES:READ", strings.Repeat("a", 129), strings.Repeat("é", 128), strings.Repeat("x", 3000),
		[]any{}, []any{nil}, []any{"a"}, []any{[]any{}}, map[string]any{}, map[string]any{"a": map[string]any{}},
	})
}

// spoil changes a random part of a value.
func (g *generator) spoil(value any) any {
	if g.chance(15) {
		return g.junk()
	}
	switch value := value.(type) {
	case map[string]any:
		for name := range value { // any field
			switch g.IntN(5) {
			case 0:
				delete(value, name)
			case 1:
				value[name+pick(g, []string{"s", " ", "_"})] = value[name]
			case 2:
				delete(value, name)
				value[strings.ToUpper(name)] = g.junk()
			default:
				value[name] = g.spoil(value[name])
			}
			return value
		}
		return map[string]any{"a": 1}
	case []any:
		if len(value) > 0 {
			i := g.IntN(len(value))
			value[i] = g.spoil(value[i])
			return value
		}
	case string:
		if g.chance(50) && !strings.HasPrefix(value, "https://") {
			return value + pick(g, []string{" ", "\n", "é", "x", "0", "\x7f"})
		}
	case float64:
		return value + pick(g, []float64{-1, 1, 0.5, 1e9})
	}
	return g.junk()
}
