package apikeys_test

import (
	"crypto/sha256"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
)

func TestTokenFormat(t *testing.T) {
	for _, prefix := range []string{"", "a", "live_sak", "x0_", "abcdefghijklmnop"} {
		service := newService(t, memory.New(), apikeys.Config{Prefix: prefix})
		if prefix == "" {
			prefix = "sak"
		}
		form := regexp.MustCompile("^" + prefix + "_[0-9A-Za-z]{38}$")
		for range 50 {
			key, token := create(t, service, time.Time{})
			text := token.Reveal()
			if !form.MatchString(text) {
				t.Fatalf("%q does not match %v", text, form)
			}
			if want := forge(prefix, text[len(prefix)+1:len(text)-6]); text != want {
				t.Fatalf("%q has the wrong checksum, want %q", text, want)
			}
			if key.Hash.Sum != sha256.Sum256([]byte(text)) || token.Hash() != key.Hash {
				t.Fatal("what is stored is not the SHA-256 of the whole token")
			}
			accepted(t, service, text)
		}
	}
}

// A biased generator, such as bytes modulo 62, would produce the first eight digits a quarter more
// often than the others and reach a χ² of more than 1,000.
func TestTokensAreUniformlyRandom(t *testing.T) {
	const tokens = 2000
	service := newService(t, memory.New(), apikeys.Config{MaxPerAccount: -1})
	seen := make(map[string]bool)
	var byDigit [256]int
	for range tokens {
		_, token := create(t, service, time.Time{})
		random := strings.TrimPrefix(token.Reveal(), "sak_")[:32]
		seen[random] = true
		for _, c := range []byte(random) {
			byDigit[c]++
		}
	}
	if len(seen) != tokens {
		t.Errorf("%d different tokens of %d", len(seen), tokens)
	}
	chi2, expected := 0.0, tokens*32/62.0
	for _, c := range []byte(base62) {
		off := float64(byDigit[c]) - expected
		chi2 += off * off / expected
	}
	if chi2 > 170 { // mean 61, standard deviation 11; chance of exceeding 170: 10⁻¹¹
		t.Errorf("χ² is %.0f: not uniform", chi2)
	}
}

// Changing a single character never produces a token that causes a store lookup.
func TestVerify_Typo_CausesNoStoreRead(t *testing.T) {
	store := newSpy()
	service := newService(t, store, apikeys.Config{})
	_, token := create(t, service, time.Time{})
	text := token.Reveal()

	typos := []string{
		"", "_", "sak", "sak_", text[1:], text[:len(text)-1], text + "0", "0" + text, " " + text, text + " ", text + "\n",
		text + "\x00", text + ", " + text, strings.ToLower(text), strings.ToUpper(text), text[4:], "_" + text[4:],
		"sak__" + text[4:], "Bearer " + text, `"` + text + `"`, strings.Repeat("a", 17) + text[3:], strings.Repeat(text, 1000),
		text[:4] + text[5:6] + text[4:5] + text[6:], // two neighbors are swapped
	}
	for i := range text {
		for c := range 256 {
			if byte(c) != text[i] {
				typos = append(typos, text[:i]+string([]byte{byte(c)})+text[i+1:])
			}
		}
		typos = append(typos, text[:i]+text[i+1:], text[:i]+"0"+text[i:]) // one character missing; one added
	}
	for _, random := range []string{text[4:36], text[4:35] + "!", text[4:35] + "_", text[4:34] + "é", text[4:35], text[4:36] + "0"} {
		typos = append(typos, summed("sak-"+random), summed("sak"+random), summed(random), summed("sak_"+random+"_"))
		if len(random) != 32 || strings.Trim(random, base62) != "" {
			typos = append(typos, forge("sak", random))
		}
	}
	accepted(t, service, text)
	store.reads = 0
	for _, typo := range typos {
		if typo == text { // for example, the swapped neighbors are equal
			continue
		}
		refused(t, service, typo)
		if store.reads > 0 {
			t.Fatalf("%q: the store was asked", typo)
		}
	}
}

func TestVerify_MalformedToken_DoesNotAllocate(t *testing.T) {
	service := newService(t, memory.New(), apikeys.Config{})
	good := numbered(1)
	for name, token := range map[string]string{
		"empty": "", "typo": good[:20] + "!" + good[21:], "wrong checksum": good[:len(good)-1] + "?", "long": strings.Repeat("a", 8<<10),
		"checksum of another": numbered(1)[:36] + numbered(2)[36:],
	} {
		if n := testing.AllocsPerRun(100, func() { _, _ = service.Verify(t.Context(), token) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestPrefix_Changed_OldTokensStayValid(t *testing.T) {
	store := memory.New()
	before := newService(t, store, apikeys.Config{Prefix: "old"})
	_, old := create(t, before, time.Time{})
	after := newService(t, store, apikeys.Config{Prefix: "new"})
	_, young := create(t, after, time.Time{})
	for _, service := range []*apikeys.KeyService{before, after} {
		accepted(t, service, old.Reveal())
		accepted(t, service, young.Reveal())
		refused(t, service, "new"+strings.TrimPrefix(old.Reveal(), "old"))
	}
}

func TestPrefix(t *testing.T) {
	for _, prefix := range []string{
		"_", "_sak", "1sak", "Sak", "saK", "sa-k", "sa k", "sak\n", "säk", "sak.", "sak:", "sak\x00", "abcdefghijklmnopq", " ", "sak!",
	} {
		_, err := apikeys.New(memory.New(), apikeys.Config{Prefix: prefix})
		var invalid *apierr.ValidationError
		if !errors.As(err, &invalid) || invalid.Field != "Prefix" {
			t.Errorf("%q: got %v, want a ValidationError for Prefix", prefix, err)
		}
	}
	if _, err := apikeys.New(nil, apikeys.Config{}); err == nil {
		t.Error("a nil store is accepted")
	}
}

// A token survives a trip through an HTTP header unchanged.
func TestToken_SentInHeader_IsUnchanged(t *testing.T) {
	_, token := create(t, newService(t, memory.New(), apikeys.Config{Prefix: "live_1"}), time.Time{})
	got := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Get("Api-Key") }))
	defer server.Close()
	request, err := http.NewRequest(http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Api-Key", token.Reveal())
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if text := <-got; text != token.Reveal() {
		t.Errorf("got %q", text)
	}
}

func TestZeroToken(t *testing.T) {
	var none apikeys.Token
	if none.Reveal() != "" || none.Hash().IsZero() {
		t.Errorf("the zero token reveals %q, its hash is zero: %v", none.Reveal(), none.Hash().IsZero())
	}
	if !(driver.Hash{}).IsZero() || !(driver.Hash{}).Equal(driver.Hash{}) {
		t.Error("the zero hash is not")
	}
}
