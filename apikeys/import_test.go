package apikeys_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/testclock"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
)

var pepper = []byte("a pepper of the other system")

// legacies are two kinds with the same format, one without and one with a pepper.
var legacies = []apikeys.Legacy{
	{Kind: "plain", Prefix: "old_", MinLength: 36, MaxLength: 80, Alphabet: base62},
	{Kind: "peppered", Prefix: "old_", MinLength: 36, MaxLength: 80, Alphabet: base62, Pepper: pepper},
	{Kind: "tail", MinLength: 20, MaxLength: 64, Alphabet: base62 + "-", Digest: func(value string) [32]byte { return sha256.Sum256([]byte(value[8:])) }},
}

func newImporter(t testing.TB, store driver.KeyStore) (*apikeys.KeyService, *testclock.Clock) {
	t.Helper()
	clock := testclock.At(noon)
	return newService(t, store, apikeys.Config{Now: clock.Now, Legacy: legacies, MaxPerAccount: 6}), clock
}

func oldValue(i int) string { return fmt.Sprintf("old_%032d", i) }

func sum(value string) string { s := sha256.Sum256([]byte(value)); return string(s[:]) }

func mac(value string) string {
	m := hmac.New(sha256.New, pepper)
	m.Write([]byte(value))
	return string(m.Sum(nil))
}

func ofTable(kind, digest string) apikeys.ImportedKey {
	return apikeys.ImportedKey{Kind: kind, Digest: digest, Name: "of the table", Scopes: readFiles, CreatedAt: noon.Add(-24 * time.Hour)}
}

// imports imports one key and returns its ID. It fails the test if the import fails.
func imports(t *testing.T, s *apikeys.KeyService, key apikeys.ImportedKey) string {
	t.Helper()
	result := s.Import(t.Context(), account, []apikeys.ImportedKey{key})[0]
	if result.Err != nil || result.KeyID == "" {
		t.Fatalf("Import = %+v", result)
	}
	return result.KeyID
}

// TestImport checks that the key's value works regardless of the form in which its digest was
// stored, and that the digest itself is refused.
func TestImport(t *testing.T) {
	s, clock := newImporter(t, memory.New())
	forms := map[string]func(string) string{
		"raw": func(d string) string { return d }, "hex": func(d string) string { return hex.EncodeToString([]byte(d)) },
		"HEX":    func(d string) string { return strings.ToUpper(hex.EncodeToString([]byte(d))) },
		"base64": func(d string) string { return base64.StdEncoding.EncodeToString([]byte(d)) },
		"url":    func(d string) string { return base64.RawURLEncoding.EncodeToString([]byte(d)) },
	}
	i := 0
	for name, form := range forms {
		for kind, digestOf := range map[string]func(string) string{"plain": sum, "peppered": mac, "tail": func(v string) string { return sum(v[8:]) }} {
			i++
			value := oldValue(i)
			if kind == "tail" {
				value = fmt.Sprintf("%020d-abc", i)
			}
			stored := form(digestOf(value))
			refused(t, s, value)
			id := imports(t, s, ofTable(kind, stored))
			p := accepted(t, s, value)
			if p.KeyID != id || p.Account != account || p.Scopes != readFiles || p.Replaced || !p.ExpiresAt.IsZero() {
				t.Errorf("%s, %s: %+v", name, kind, p)
			}
			refused(t, s, stored)
			for _, form := range forms { // try the digest as a value, in every form
				refused(t, s, form(digestOf(value)))
				refused(t, s, "old_"+form(digestOf(value)))
			}
			refused(t, s, value[:len(value)-1])
			refused(t, s, value+"0")
		}
	}
	key, err := s.Get(t.Context(), account, imports(t, s, ofTable("plain", sum(oldValue(1000)))))
	if err != nil || !key.CreatedAt.Equal(clock.Now().Add(-24*time.Hour)) || key.Name != "of the table" {
		t.Errorf("stored: %+v, %v", key, err)
	}
}

// A value belongs to one key in one account.
func TestImport_SameValueWithOtherDigest_IsTheSameKey(t *testing.T) {
	s, _ := newImporter(t, memory.New())
	value := oldValue(1)
	id := imports(t, s, ofTable("plain", sum(value)))
	for _, kind := range []string{"peppered", "tail"} {
		again := s.Import(t.Context(), account, []apikeys.ImportedKey{ofTable(kind, sum(value))})[0]
		if want := (apikeys.ImportResult{KeyID: id, Existed: true}); again != want {
			t.Errorf("%s: got %+v, want %+v", kind, again, want)
		}
		other := s.Import(t.Context(), "other", []apikeys.ImportedKey{ofTable(kind, sum(value))})[0]
		if !errors.Is(other.Err, apierr.ErrExists) {
			t.Errorf("%s in another account: got %+v, want ErrExists", kind, other)
		}
	}
	if p := accepted(t, s, value); p.Account != account || p.KeyID != id {
		t.Errorf("the value is of %+v, want %s of %s", p, id, account)
	}
}

// A repeated import finds the existing key, even after a rotation.
func TestImport_Repeated_FindsExistingKey(t *testing.T) {
	s, clock := newImporter(t, memory.New())
	rows := []apikeys.ImportedKey{ofTable("plain", sum(oldValue(1))), ofTable("peppered", mac(oldValue(2)))}
	first := s.Import(t.Context(), account, rows)
	value := oldValue(1)
	accepted(t, s, value)
	p := accepted(t, s, value)
	if now, err := s.Recheck(t.Context(), p, value); err != nil || now != p {
		t.Errorf("Recheck = %+v, %v", now, err)
	}
	params := apikeys.CreateParams{Name: "made by it", Scopes: readFiles, By: s.Credential(t.Context(), value, p)}
	if _, _, err := s.Create(t.Context(), account, params); err != nil {
		t.Errorf("a creation by an imported key: %v", err)
	}
	stats, err := s.Imported(t.Context(), account)
	if want := (apikeys.ImportStats{Keys: 2, Used: 1, LastUsedAt: clock.Now()}); err != nil || stats != want {
		t.Errorf("Imported = %+v, %v, want %+v", stats, err, want)
	}

	_, token, err := s.Rotate(t.Context(), account, first[0].KeyID, apikeys.RotateParams{Grace: time.Hour})
	if err != nil || !strings.HasPrefix(token.Reveal(), "sak_") {
		t.Fatalf("Rotate = %v", err)
	}
	if old := accepted(t, s, value); !old.Replaced || old.ExpiresAt.IsZero() {
		t.Errorf("the old value during its grace period: %+v", old)
	}
	if stats, err := s.Imported(t.Context(), account); err != nil || stats.Keys != 2 || stats.Used != 1 {
		t.Errorf("in the grace period: %+v, %v", stats, err)
	}
	rows = append(rows, ofTable("plain", sum(oldValue(3))))
	again := s.Import(t.Context(), account, rows)
	want := []apikeys.ImportResult{{KeyID: first[0].KeyID, Existed: true}, {KeyID: first[1].KeyID, Existed: true}, {KeyID: again[2].KeyID}}
	if diff := cmp.Diff(want, again); diff != "" || again[2].KeyID == "" {
		t.Errorf("again (-want +got):\n%s", diff)
	}
	clock.Set(clock.Now().Add(time.Hour))
	refused(t, s, value)
	accepted(t, s, token.Reveal())
	if _, err := s.Recheck(t.Context(), p, value); !errors.Is(err, auth.ErrUnauthorized) {
		t.Errorf("Recheck of a dead value: %v", err)
	}
	if _, _, err := s.Create(t.Context(), account, params); !errors.Is(err, auth.ErrCredentialChanged) {
		t.Errorf("a creation by a value that was rotated away: %v", err)
	}
	if again := s.Import(t.Context(), account, rows[:1]); !again[0].Existed {
		t.Errorf("after the grace period: %+v", again)
	}
	refused(t, s, value)
	if stats, err := s.Imported(t.Context(), account); err != nil || stats.Keys != 2 || stats.Used != 0 {
		t.Errorf("after the grace period: %+v, %v", stats, err)
	}
}

// An imported key has the limits and labels of its row, which apply to its old value.
func TestImport_ValueWithLimits_IsHeldToThem(t *testing.T) {
	s, _ := newImporter(t, memory.New())
	row := ofTable("plain", sum(oldValue(1)))
	row.Resources, row.AllowedNetworks, row.RateLimit, row.Labels = []string{"b", "a"}, []string{"192.0.2.0/24"}, 60, map[string]string{"team": "billing"}
	key, err := s.Get(t.Context(), account, imports(t, s, row))
	if diff := cmp.Diff(row.Labels, key.Labels.Map()); err != nil || diff != "" || key.Resources.String() != "a b" {
		t.Errorf("limited to %q, %v; labels (-want +got):\n%s", key.Resources, err, diff)
	}
	p, err := s.VerifyFrom(t.Context(), oldValue(1), "192.0.2.7")
	if err != nil || p.LimitedTo != key.Resources || p.Networks != "192.0.2.0/24" || p.RateLimit != 60 {
		t.Errorf("in its network: %+v, %v", p, err)
	}
	if p, err = s.VerifyFrom(t.Context(), oldValue(1), "198.51.100.7"); !errors.Is(err, auth.ErrUnauthorized) {
		t.Errorf("outside its network: %+v, %v", p, err)
	}
}

// A repeated import without creation times also finds the existing key, and it does not restore a
// value that a rotation has replaced.
func TestImport_RepeatedWithoutCreatedAt_FindsExistingKey(t *testing.T) {
	s, clock := newImporter(t, memory.New())
	row := ofTable("plain", sum(oldValue(1)))
	row.CreatedAt = time.Time{}
	id := imports(t, s, row)
	if key, err := s.Get(t.Context(), account, id); err != nil || !key.CreatedAt.Equal(clock.Now()) {
		t.Errorf("stored: %+v, %v", key, err)
	}
	again := func() {
		t.Helper()
		clock.Set(clock.Now().Add(time.Hour))
		want := []apikeys.ImportResult{{KeyID: id, Existed: true}}
		if diff := cmp.Diff(want, s.Import(t.Context(), account, []apikeys.ImportedKey{row})); diff != "" {
			t.Errorf("again (-want +got):\n%s", diff)
		}
	}
	again()
	if stats, err := s.Imported(t.Context(), account); err != nil || stats.Keys != 1 {
		t.Errorf("Imported = %+v, %v", stats, err)
	}
	dated := row
	dated.CreatedAt = noon.Add(-time.Hour)
	if results := s.Import(t.Context(), account, []apikeys.ImportedKey{dated}); results[0].KeyID != id || !results[0].Existed {
		t.Errorf("again, with a CreatedAt: %+v", results)
	}
	if _, _, err := s.Rotate(t.Context(), account, id, apikeys.RotateParams{}); err != nil {
		t.Fatal(err)
	}
	again()
	// A second rotation removes the previous value.
	if _, _, err := s.Rotate(t.Context(), account, id, apikeys.RotateParams{}); err != nil {
		t.Fatal(err)
	}
	again()
	refused(t, s, oldValue(1))
}

// An invalid key is refused without affecting the import of other keys. Its error names the invalid
// field and does not contain the digest.
func TestImport_InvalidKey_IsRefusedAlone(t *testing.T) {
	s, clock := newImporter(t, memory.New())
	const bcrypt = "$2b$12$EixZaYVK1fsbw1ZfbX3OXePaWxn96p36WQoeG6Lruj3vjPGga31lW"
	tests := []struct {
		field, says string
		change      func(*apikeys.ImportedKey)
	}{
		{"Kind", "Config.Legacy", func(k *apikeys.ImportedKey) { k.Kind = "other" }},
		{"Digest", "bcrypt: salted", func(k *apikeys.ImportedKey) { k.Digest = bcrypt }},
		{"Digest", "argon2: salted", func(k *apikeys.ImportedKey) { k.Digest = "$argon2id$v=19$m=65536,t=3,p=4$c2FsdA$aGFzaA" }},
		{"Digest", "PBKDF2", func(k *apikeys.ImportedKey) { k.Digest = "pbkdf2_sha256$600000$salt$hash" }},
		{"Digest", "32 bytes", func(k *apikeys.ImportedKey) { k.Digest = "" }},
		{"Digest", "32 bytes", func(k *apikeys.ImportedKey) { k.Digest = strings.Repeat("g", 64) }},
		{"Digest", "32 bytes", func(k *apikeys.ImportedKey) { k.Digest = strings.Repeat("00", 20) }},
		{"Digest", "MD5", func(k *apikeys.ImportedKey) { k.Digest = "5f4dcc3b5aa765d61d8327deb882cf99" }},
		{"Digest", "32 bytes", func(k *apikeys.ImportedKey) { k.Digest = base64.StdEncoding.EncodeToString(make([]byte, 32)) + "\n" }},
		{"name", "", func(k *apikeys.ImportedKey) { k.Name = "" }},
		{"scopes", "", func(k *apikeys.ImportedKey) { k.Scopes = readFiles.With("nothing:declared") }},
		{"expiresAt", "future", func(k *apikeys.ImportedKey) { k.ExpiresAt = clock.Now() }},
		{"resources", "64 names", func(k *apikeys.ImportedKey) { k.Resources = []string{} }},
		{"allowedNetworks", "IP networks", func(k *apikeys.ImportedKey) { k.AllowedNetworks = []string{"everywhere"} }},
		{"rateLimit", "at most", func(k *apikeys.ImportedKey) { k.RateLimit = 1_000_001 }},
		{"labels", "", func(k *apikeys.ImportedKey) { k.Labels = map[string]string{"": "a"} }},
		{"CreatedAt", "past", func(k *apikeys.ImportedKey) { k.CreatedAt = clock.Now().Add(time.Minute) }},
		{"CreatedAt", "1970", func(k *apikeys.ImportedKey) { k.CreatedAt = time.Unix(-1, 0) }},
	}
	var rows []apikeys.ImportedKey
	for i, test := range tests {
		row := ofTable("plain", sum(oldValue(i)))
		test.change(&row)
		rows = append(rows, row, ofTable("plain", sum(oldValue(100+i))))
	}
	for i, result := range s.Import(t.Context(), account, rows) {
		if i%2 == 1 {
			if result.Err != nil || result.KeyID == "" {
				t.Errorf("row %d, which is right: %+v", i, result)
			}
			continue
		}
		var wrong *apierr.ValidationError
		if test := tests[i/2]; !errors.As(result.Err, &wrong) || wrong.Field != test.field || !strings.Contains(wrong.Reason, test.says) || result.KeyID != "" {
			t.Errorf("%s: %+v", test.field, result)
		} else if d := rows[i].Digest; d != "" && strings.Contains(result.Err.Error(), d) {
			t.Errorf("%s: the error holds the digest", test.field)
		}
	}
	for _, result := range s.Import(t.Context(), "another", []apikeys.ImportedKey{ofTable("plain", sum(oldValue(100)))}) {
		if !errors.Is(result.Err, apierr.ErrExists) || result.KeyID != "" {
			t.Errorf("another account's key: %+v", result)
		}
	}
	if text := fmt.Sprintf("%v %+v %#v", rows[0], &rows[0], rows); strings.Contains(text, "of the table") {
		t.Errorf("it prints as %s", text)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, result := range s.Import(ctx, account, []apikeys.ImportedKey{ofTable("plain", sum(oldValue(999)))}) {
		if !errors.Is(result.Err, context.Canceled) {
			t.Errorf("after ctx has ended: %+v", result)
		}
	}
}

func TestLegacy_Invalid_ReturnsError(t *testing.T) {
	fine := legacies[0]
	for field, change := range map[string]func(*apikeys.Legacy){
		"Kind":      func(l *apikeys.Legacy) { l.Kind = "A" },
		"Alphabet":  func(l *apikeys.Legacy) { l.Alphabet = "" },
		"MinLength": func(l *apikeys.Legacy) { l.MinLength = 15 },
		"MaxLength": func(l *apikeys.Legacy) { l.MaxLength = 513 },
		"Pepper":    func(l *apikeys.Legacy) { l.Pepper, l.Digest = pepper, legacies[2].Digest },
	} {
		wrong := fine
		change(&wrong)
		_, err := apikeys.New(memory.New(), apikeys.Config{Legacy: []apikeys.Legacy{wrong}})
		if err == nil || !strings.Contains(err.Error(), "Legacy[0]."+field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, list := range [][]apikeys.Legacy{{fine, fine}, {fine, fine, fine, fine, fine}} {
		if _, err := apikeys.New(memory.New(), apikeys.Config{Legacy: list}); err == nil {
			t.Errorf("%d of one kind are taken", len(list))
		}
	}
}

// Verify must not read the store for a value in another format.
func TestLegacy_OtherFormat_CausesNoStoreRead(t *testing.T) {
	store := newSpy()
	s, _ := newImporter(t, store)
	before := store.reads
	for _, garbage := range []string{"", "old_", oldValue(1)[:35], "old_" + strings.Repeat("0", 77), "new" + oldValue(1)[3:] + "!", oldValue(1) + "!", strings.Repeat("x", 1<<16), "old_\x00" + oldValue(1)} {
		refused(t, s, garbage)
	}
	if store.reads != before {
		t.Errorf("%d store reads", store.reads-before)
	}
}
