package fields_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/internal/fields"
)

// A record has a field of each type.
type record struct {
	Name   string
	Kinds  []string
	At     time.Time
	Count  uint64
	On     bool
	Level  level
	Levels levels
	Column string
}

type level struct{ n byte }

func (l level) text() string {
	if l.n == 0 {
		return ""
	}
	return string(rune('a' + l.n))
}

func parseLevel(text string) (level, error) {
	if len(text) != 1 {
		return level{}, errors.New("secret " + text)
	}
	return level{text[0] - 'a'}, nil
}

type levels struct{ list string }

func (l levels) texts() []string { return strings.Fields(l.list) }

func parseLevels(list []string) (levels, error) { return levels{strings.Join(list, " ")}, nil }

func (r *record) Fields(w *fields.Walk) {
	if !w.Packed() {
		fields.Text(w, "column", fields.Placed, 0, &r.Column)
	}
	fields.Text(w, "name", 2, fields.Setting|fields.Created, &r.Name)
	fields.Texts(w, "kinds", 4, fields.Setting, &r.Kinds)
	fields.Time(w, "at", 6, fields.Guarded, &r.At)
	fields.Number(w, "count", 8, fields.Setting, &r.Count)
	fields.Bool(w, "on", 11, fields.Setting, &r.On)
	fields.Formatted(w, "level", 300, fields.Value, &r.Level, level.text, parseLevel)
	fields.FormattedTexts(w, "levels", 14, fields.Setting, &r.Levels, levels.texts, parseLevels)
}

func full() *record {
	return &record{
		Name: "é", Kinds: []string{"a", "", strings.Repeat("b", 300)}, At: time.UnixMilli(-7).UTC(), Count: 1<<64 - 1, On: true,
		Level: level{3}, Levels: levels{"x y"}, Column: "c",
	}
}

func unpack(packed string) (r record, err error) {
	w := fields.Unpacker(packed)
	for w.More() {
		r.Fields(&w)
	}
	return r, w.Err()
}

var same = cmp.AllowUnexported(record{}, level{}, levels{})

func TestPack_EveryType_RoundTripsWithoutPlacedFields(t *testing.T) {
	for _, want := range []*record{full(), {}} {
		got, err := unpack(string(fields.Pack(nil, want)))
		want.Column = ""
		if diff := cmp.Diff(*want, got, same); diff != "" || err != nil {
			t.Errorf("%v, (-want +got):\n%s", err, diff)
		}
	}
	if packed := fields.Pack([]byte("x"), &record{Column: "c"}); string(packed) != "x" {
		t.Errorf("Pack of zeros = %q, want nothing", packed)
	}
}

// Another version may have packed its fields in another order.
func TestUnpacker_AnyOrder_FindsAllFields(t *testing.T) {
	packed := "\x08\x01\x05" + "\x02\x01n" + "\x64\x01x" + "\x04\x02\x01k"
	r, err := unpack(packed)
	if err != nil || r.Name != "n" || r.Count != 5 || !cmp.Equal(r.Kinds, []string{"k"}) {
		t.Errorf("unpacked %+v, %v", r, err)
	}
	if unknown := fields.Unknown([]byte("before"), packed, new(record)); string(unknown) != "before\x64\x01x" {
		t.Errorf("Unknown = %q", unknown)
	}
}

func TestUnpacker_UnreadableFields_ReturnsError(t *testing.T) {
	for packed, want := range map[string]error{
		"\x65\x00": fields.ErrNewer, "\x02\x01n\x65\x00": fields.ErrNewer,
		"\x00\x00": fields.ErrCorrupt, "\x02": fields.ErrCorrupt, "\x02\x02n": fields.ErrCorrupt, "\xff": fields.ErrCorrupt,
		"\x04\x01\x05": fields.ErrCorrupt, "\x08\x02\x01\x01": fields.ErrCorrupt, "\x06\x00": fields.ErrCorrupt, "\xac\x02\x02ab": fields.ErrCorrupt,
	} {
		if _, err := unpack(packed); !errors.Is(err, want) {
			t.Errorf("unpacking %q: %v, want %v", packed, err, want)
		}
	}
}

func TestJSON_OmitsZeroValuesAndOtherUses(t *testing.T) {
	r := &record{Name: "é", Kinds: []string{"a", ""}, At: time.UnixMilli(-7), Count: 9, On: true, Level: level{3}, Levels: levels{"x y"}, Column: "c"}
	for _, test := range []struct {
		r    *record
		uses fields.Uses
		want string
	}{
		{r, 0, `{"column":"c","name":"é","kinds":["a",""],"at":-7,"count":9,"on":true,"level":"d","levels":["x","y"]}`},
		{r, fields.Created, `{"name":"é"}`},
		{&record{}, 0, `{}`},
	} {
		if object, err := fields.JSON(test.r, test.uses); string(object) != test.want || err != nil {
			t.Errorf("JSON with uses %d = %s, %v, want %s", test.uses, object, err, test.want)
		}
	}
}

func TestChanged_NamesSettingsInOrder(t *testing.T) {
	before, after := full(), full()
	after.At, after.Level, after.Column = time.Now(), level{1}, "d" // not settings
	if got := fields.Changed(before, after); got != nil || fields.Equal(before, after, fields.Conditioned) {
		t.Errorf("Changed = %q, want none; Equal = %t", got, fields.Equal(before, after, fields.Conditioned))
	}
	after.Kinds, after.On = []string{"a"}, false
	if diff := cmp.Diff([]string{"kinds", "on"}, fields.Changed(before, after)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if fields.Sum(before, fields.Created) != fields.Sum(after, fields.Created) || fields.Sum(before, fields.Setting) == fields.Sum(after, fields.Setting) {
		t.Error("Sum does not follow the fields with the uses")
	}
}

func TestCopy_SharesNothingAndRoundsTimes(t *testing.T) {
	original := full()
	original.At = time.Date(2026, 1, 2, 3, 4, 5, 6_789_012, time.FixedZone("", 3600))
	copied := *original
	fields.Copy(&copied)
	copied.Kinds[0] = "changed"
	if want := time.Date(2026, 1, 2, 2, 4, 5, 6_000_000, time.UTC); original.Kinds[0] != "a" || copied.At != want {
		t.Errorf("original %q, time %v, want %v", original.Kinds, copied.At, want)
	}
}

func TestCheck_ReturnsFirstError(t *testing.T) {
	var got []string
	err := fields.Check(full(), func(name, text string) error {
		got = append(got, name)
		if name == "level" {
			return errors.New(text)
		}
		return nil
	})
	if diff := cmp.Diff([]string{"column", "name", "kinds", "kinds", "kinds", "level"}, got); diff != "" || err == nil || err.Error() != "d" {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}
}
