package auth_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/testclock"
	"github.com/storageapi/storageapi/scopes"
)

// anyKey accepts every token of the form "acct/key".
type anyKey struct{}

func (anyKey) Verify(_ context.Context, token string) (auth.Principal, error) {
	account, _, _ := strings.Cut(token, "/")
	return auth.Principal{Account: account, KeyID: token, Scopes: scopes.Specified()}, nil
}

// accounts is a guarded handler with a rate limit per account.
type accounts struct {
	*testing.T
	handler http.Handler
	clock   *testclock.Clock
}

func newAccounts(t *testing.T, limit auth.RateLimit) *accounts {
	t.Helper()
	c := testclock.At(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	a, err := auth.New(anyKey{}, auth.Config{RateLimit: limit, Now: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	return &accounts{t, a.Handler(nothing), c}
}

// ask sends a request and returns the quota headers of the response.
func (a *accounts) ask(account string, key int) (admitted bool, limit, remaining, reset, retryAfter string) {
	a.Helper()
	response, _ := serve(a.T, a.handler, request(account+"/"+strconv.Itoa(key)))
	get := response.Header.Get
	return response.StatusCode == 200, get("X-RateLimit-Limit"), get("X-RateLimit-Remaining"), get("X-RateLimit-Reset"), get("Retry-After")
}

func TestRateLimit_ManyKeysOfAnAccount_ShareItsLimit(t *testing.T) {
	for perAccount, want := range map[int]int{0: 20, 1: 5, 3: 15, 100: 200, -1: 200} {
		a := newAccounts(t, auth.RateLimit{PerSecond: 1, Burst: 5, PerAccount: perAccount})
		count := func(account string) (n int) {
			for range 10 {
				for key := range 40 {
					if admitted, _, _, _, _ := a.ask(account, key); admitted {
						n++
					}
				}
			}
			return n
		}
		for _, account := range []string{"one", "two"} { // accounts have separate limits
			if got := count(account); got != want {
				t.Errorf("PerAccount %d: %d requests admitted, want %d", perAccount, got, want)
			}
		}
		a.clock.Add(2 * time.Second)
		back := 2 * max(perAccount, 1)
		if perAccount == 0 {
			back = 8
		} else if perAccount < 0 || perAccount > 40 {
			back = 80
		}
		if got := count("one"); got != back {
			t.Errorf("PerAccount %d: %d requests admitted two seconds later, want %d", perAccount, got, back)
		}
	}
}

// The test first exhausts the limit of a key, and then the limit of its account.
func TestRateLimit_Headers_ShowSmallerQuota(t *testing.T) {
	a := newAccounts(t, auth.RateLimit{PerSecond: 0.5, Burst: 3, PerAccount: 2})
	for i, step := range []struct {
		key  int
		want string
	}{
		{1, "true 3 2 2 "},
		{1, "true 3 1 4 "},
		{1, "true 3 0 6 "},
		{1, "false 3 0 6 2"},
		{1, "false 3 0 6 2"}, // a rejection does not use the account's quota
		{2, "true 3 2 2 "},   // both quotas are equal
		{2, "true 3 1 4 "},
		{3, "true 6 0 6 "},
		{3, "false 6 0 6 1"},
		{1, "false 3 0 6 2"}, // the key must wait longer than the account
		{4, "false 6 0 6 1"}, // a rejection does not use the key's quota
	} {
		admitted, limit, remaining, reset, retryAfter := a.ask("one", step.key)
		if got := fmt.Sprint(admitted, " ", limit, " ", remaining, " ", reset, " ", retryAfter); got != step.want {
			t.Errorf("step %d: got %s, want %s", i, got, step.want)
		}
	}
	response, body := serve(t, a.handler, request("one/5"))
	const want = `{"error":{"code":"RATE_LIMIT_EXCEEDED","message":"The API keys of this account have made too many requests. Retry in 1 s."}}`
	if response.StatusCode != 429 || strings.TrimSpace(body) != want {
		t.Errorf("got %d %s, want 429 %s", response.StatusCode, body, want)
	}
}

// The test sends requests of random keys and accounts. In no time span may a key or an account
// exceed its limit. The reported remaining requests must be admitted at once, and so must a client
// that has waited for Retry-After.
func TestRateLimit_RandomRequests_EnforcesLimitsAndHeaders(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		limit := auth.RateLimit{PerSecond: 0.1 + 10*random.Float64(), Burst: 1 + random.IntN(6), PerAccount: 1 + random.IntN(4)}
		a := newAccounts(t, limit)
		interval := float64(time.Second) / limit.PerSecond
		admitted := make(map[string][]time.Time)
		for range 600 {
			a.clock.Add(time.Duration(random.ExpFloat64() * interval * []float64{0, 0.1, 0.5, 3}[random.IntN(4)]))
			account, key := strconv.Itoa(random.IntN(2)), random.IntN(5)
			ok, _, remaining, _, retryAfter := a.ask(account, key)
			if ok {
				id := account + "/" + strconv.Itoa(key)
				admitted[account] = append(admitted[account], a.clock.Now())
				admitted[id] = append(admitted[id], a.clock.Now())
			}
			if random.IntN(20) > 0 {
				continue
			}
			left, _ := strconv.Atoi(remaining)
			for i := range left + 1 {
				ok, _, _, _, again := a.ask(account, key)
				if ok != (i < left) {
					t.Fatalf("%+v: %d remaining, but request %d admitted = %v", limit, left, i+1, ok)
				}
				if ok {
					admitted[account] = append(admitted[account], a.clock.Now())
					admitted[account+"/"+strconv.Itoa(key)] = append(admitted[account+"/"+strconv.Itoa(key)], a.clock.Now())
				}
				retryAfter = again
			}
			wait, _ := strconv.Atoi(retryAfter)
			a.clock.Add(time.Duration(wait) * time.Second)
			if ok, _, _, _, _ := a.ask(account, key); !ok {
				t.Fatalf("%+v: not admitted after waiting %d s", limit, wait)
			}
			admitted[account] = append(admitted[account], a.clock.Now())
			admitted[account+"/"+strconv.Itoa(key)] = append(admitted[account+"/"+strconv.Itoa(key)], a.clock.Now())
		}
		for id, times := range admitted {
			n := float64(limit.PerAccount)
			if strings.Contains(id, "/") {
				n = 1
			}
			for i, from := range times {
				for j, to := range times[i:] {
					if most := n*float64(limit.Burst) + float64(to.Sub(from))*n/interval + 1e-3; float64(j+1) > most {
						t.Fatalf("%+v: %s made %d requests in %v", limit, id, j+1, to.Sub(from))
					}
				}
			}
		}
	}
}

func TestNew_PerAccountTooLarge_ReturnsError(t *testing.T) {
	_, err := auth.New(anyKey{}, auth.Config{RateLimit: auth.RateLimit{PerSecond: 1, PerAccount: 1_000_001}})
	if err == nil || !strings.Contains(err.Error(), "RateLimit.PerAccount must be at most 1000000") {
		t.Errorf("New = %v, want an error about RateLimit.PerAccount", err)
	}
}
