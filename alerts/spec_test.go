package alerts_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"pgregory.net/rapid"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/testclock"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// The rest of this file is an independent model of how reports behave; tests compare the service
// with it.

// A specOp is an operation on one account.
type specOp struct {
	kind    string        // "balance", "use", "change" (of a threshold), "webhook" (create), or "row" (create only in the store)
	amount  alerts.Amount // balance or threshold
	webhook int           // index of the webhook to change, in order of creation
	used    int64
	limit   int64
	period  string
}

func (op specOp) String() string {
	if op.kind == "use" {
		return fmt.Sprintf("use %d of %d in %s", op.used, op.limit, op.period)
	}
	return fmt.Sprintf("%s %d (%d)", op.kind, op.amount, op.webhook)
}

const specHysteresis = 2

var specRatios = []float64{0.5, 0.8}

// A spec is the model's state of one account. step returns a new state and does not modify the
// old one.
type spec struct {
	known      bool
	balance    alerts.Amount
	thresholds []alerts.Amount
	low        []bool
	period     string
	limit      int64
	told       []float64
}

// step returns the state after an operation, and the resulting notifications.
func (s spec) step(op specOp) (spec, string) {
	s.thresholds, s.low, s.told = slices.Clone(s.thresholds), slices.Clone(s.low), slices.Clone(s.told)
	switch op.kind {
	case "balance":
		s.known, s.balance = true, op.amount
	case "webhook", "row":
		s.thresholds, s.low = append(s.thresholds, op.amount), append(s.low, false)
		if op.kind == "row" {
			return s, ""
		}
	case "change":
		s.thresholds[op.webhook] = op.amount
	case "use":
		return s.use(op)
	}
	var told []string
	for i, threshold := range s.thresholds {
		if s.known && s.low[i] && s.balance >= threshold+specHysteresis {
			s.low[i] = false
		}
		if s.known && !s.low[i] && s.balance < threshold {
			s.low[i] = true
			told = append(told, fmt.Sprintf("%v below %v", s.balance, threshold))
		}
	}
	return s, inAnyOrder(told)
}

func (s spec) use(op specOp) (spec, string) {
	if op.period < s.period {
		return s, ""
	}
	unlimited := s.limit == 0
	if op.period > s.period || !unlimited && (op.limit > s.limit || op.limit == 0) {
		s.told = nil
	}
	s.period, s.limit = op.period, op.limit
	var told []string
	for _, ratio := range append(slices.Clone(specRatios), 1) {
		if op.limit > 0 && float64(op.used) >= ratio*float64(op.limit) && !slices.Contains(s.told, ratio) {
			s.told = append(s.told, ratio)
			told = append(told, fmt.Sprintf("%v: %d of %d in %s", ratio, op.used, op.limit, op.period))
		}
	}
	return s, strings.Join(told, ", ")
}

// equal reports whether two states behave the same from now on, regardless of the order in which
// their webhooks were created.
func (s spec) equal(t spec) bool {
	return s.known == t.known && s.balance == t.balance && s.period == t.period && s.limit == t.limit &&
		slices.Equal(s.told, t.told) && slices.Equal(s.webhooks(), t.webhooks())
}

// webhooks returns the relevant state of each webhook, sorted.
func (s spec) webhooks() []string {
	list := make([]string, len(s.thresholds))
	for i, threshold := range s.thresholds {
		list[i] = fmt.Sprint(threshold, s.low[i])
	}
	slices.Sort(list)
	return list
}

// spied is a store that passes the events of each update to its caller.
type spied struct{ store.Store }

type spyKey struct{}

func (s spied) UpdateAlert(ctx context.Context, account string, series string, change func(*driver.AlertStep) error) (int, error) {
	var events []driver.AlertEvent
	deliveries, err := s.Store.UpdateAlert(ctx, account, series, func(step *driver.AlertStep) error {
		err := change(step)
		events = step.Events
		return err
	})
	if told, ok := ctx.Value(spyKey{}).(*[]driver.AlertEvent); ok && err == nil {
		*told = append(*told, events...)
	}
	return deliveries, err
}

// A subject is the system that is compared with a spec. Its services share a store, as the nodes of
// a cluster do.
type subject struct {
	store    store.Store
	services []*service

	mu  sync.Mutex
	ids []string // IDs of the webhooks
}

func newSubject(store store.Store) *subject {
	s := &subject{store: store}
	for range 2 {
		s.services = append(s.services, must(open(spied{store}, testConfig{
			Alerts: alerts.Config{BalanceHysteresis: specHysteresis, ApproachingRatios: specRatios}, Now: testclock.At(noon).Now,
		})))
	}
	return s
}

// do performs an operation with one of the services, and returns the resulting notifications.
func (s *subject) do(node int, op specOp) string {
	var events []driver.AlertEvent
	ctx := context.WithValue(context.Background(), spyKey{}, &events)
	service := s.services[node%len(s.services)]
	var err error
	switch op.kind {
	case "balance":
		err = service.ReportBalance(ctx, account, op.amount)
	case "webhook":
		var webhook webhooks.Webhook
		webhook, err = service.Create(ctx, account, webhooks.CreateParams{URL: "https://example.com/", Events: onBalance, Threshold: uint64(op.amount)})
		s.mu.Lock()
		s.ids = append(s.ids, webhook.ID)
		s.mu.Unlock()
	case "row":
		err = s.store.CreateWebhook(ctx, webhooks.Webhook{
			ID: service.NewEventID(), Account: account, URL: "https://example.com/", Events: onBalance, Threshold: uint64(op.amount), WebhookHealth: driver.WebhookHealth{Active: true},
		}, driver.CreateOptions{})
	case "use":
		err = service.ReportBandwidth(ctx, account, op.used, op.limit, op.period)
	}
	if err != nil {
		panic(fmt.Sprintf("%v: %v", op, err))
	}
	var told []string
	for _, event := range events {
		told = append(told, outline(event))
	}
	if op.kind == "use" {
		return strings.Join(told, ", ")
	}
	return inAnyOrder(told)
}

// inAnyOrder joins notifications to different webhooks, in an order that does not depend on the
// store.
func inAnyOrder(told []string) string { return strings.Join(slices.Sorted(slices.Values(told)), ", ") }

// outline returns an event in the notation of the spec.
func outline(event driver.AlertEvent) string {
	var body struct {
		Data struct {
			Balance, Threshold, Period string
			UsedBytes, LimitBytes      int64
			Ratio                      float64
		}
	}
	unmarshal(event.Body, &body)
	d := body.Data
	if event.Type == alerts.TypeBalanceLow {
		return fmt.Sprintf("%s below %s", d.Balance, d.Threshold)
	}
	if event.Type == alerts.TypeBandwidthLimitReached {
		d.Ratio = 1
	}
	return fmt.Sprintf("%v: %d of %d in %s", d.Ratio, d.UsedBytes, d.LimitBytes, d.Period)
}

// anyOp draws operations with amounts close to the thresholds.
func anyOp(t *rapid.T) specOp {
	amounts := rapid.SampledFrom([]alerts.Amount{0, 1, 5, 9, 10, 11, 12, 13, 20, 1e9, 1e9 + 1, 1e9 + 1<<20, 2e9, 1e19})
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0:
		return specOp{kind: "webhook", amount: max(amounts.Draw(t, "threshold"), 1)}
	case 1, 2, 3, 4, 5:
		return specOp{kind: "balance", amount: amounts.Draw(t, "balance")}
	default:
		return specOp{
			kind: "use", used: rapid.Int64Range(0, 12).Draw(t, "used"), limit: rapid.SampledFrom([]int64{0, 4, 10, 12}).Draw(t, "limit"),
			period: rapid.SampledFrom([]string{"2026-10", "2026-11", "2026-12"}).Draw(t, "period"),
		}
	}
}

// Sequential reports behave as the spec says, whichever service makes them.
func TestReports_Sequential_FollowTheSpec(t *testing.T) {
	t.Parallel()
	check := func(t *rapid.T, open func() store.Store, reopen bool) {
		s := open()
		defer func() { _ = s.Close() }()
		subject, state := newSubject(s), spec{}
		for i := range rapid.IntRange(1, 40).Draw(t, "operations") {
			op := anyOp(t)
			if reopen && rapid.IntRange(0, 24).Draw(t, "reopen") == 0 {
				_ = s.Close()
				s = open()
				ids := subject.ids
				subject = newSubject(s)
				subject.ids = ids
			}
			var want string
			if n := len(subject.ids); op.kind == "webhook" && n > 0 && rapid.Bool().Draw(t, "change") {
				op.kind, op.webhook = "change", rapid.IntRange(0, n-1).Draw(t, "webhook")
				_, err := s.UpdateWebhook(context.Background(), account, subject.ids[op.webhook], func(w *webhooks.Webhook, _ *audit.Entry) error {
					w.Threshold = uint64(op.amount)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				state, want = state.step(op)
				op = specOp{kind: "balance", amount: state.balance} // a report evaluates the row
				if !state.known {
					continue
				}
			} else {
				state, want = state.step(op)
			}
			if got := subject.do(i, op); got != want {
				t.Fatalf("%v told %q, want %q", op, got, want)
			}
		}
	}
	t.Run("memory", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) { check(t, func() store.Store { return memory.New() }, false) })
	})
	t.Run("bolt", func(t *testing.T) {
		dir, n := t.TempDir(), 0
		rapid.Check(t, func(t *rapid.T) {
			n++
			check(t, func() store.Store {
				s, err := bolt.Open(filepath.Join(dir, fmt.Sprint(n)))
				if err != nil {
					t.Fatal(err)
				}
				return s
			}, true)
		})
	})
}

// reportsModel is the spec as a model for porcupine.
var reportsModel = porcupine.Model{
	Init: func() any { return spec{} },
	Step: func(state, input, output any) (bool, any) {
		next, want := state.(spec).step(input.(specOp))
		return want == output.(string), next
	},
	Equal: func(a, b any) bool { return a.(spec).equal(b.(spec)) },
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation { // accounts are independent
		var balance, use []porcupine.Operation
		for _, op := range history {
			if op.Input.(specOp).kind == "use" {
				use = append(use, op)
			} else {
				balance = append(balance, op)
			}
		}
		return [][]porcupine.Operation{balance, use}
	},
	DescribeOperation: func(input, output any) string {
		return fmt.Sprintf("%v told %q", input, output)
	},
}

// Concurrent reports have the effect of some sequence of reports. In that sequence, a report that
// ended before another began comes first.
func TestReportsAreLinearizable(t *testing.T) {
	t.Parallel()
	const clients, rounds, each = 4, 30, 12
	for name, open := range map[string]func(t *testing.T) store.Store{
		"memory": func(*testing.T) store.Store { return memory.New() },
		"bolt": func(t *testing.T) store.Store {
			s, err := bolt.Open(filepath.Join(t.TempDir(), "storage.db"))
			noError(t, err)
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			seed := 0
			next := rapid.Custom(anyOp)
			for range rounds {
				s := open(t)
				subject := newSubject(s)
				var mu sync.Mutex
				var history []porcupine.Operation
				var group sync.WaitGroup
				began := time.Now()
				for client := range clients {
					ops := make([]specOp, each)
					for i := range ops {
						seed++
						if ops[i] = next.Example(seed); ops[i].kind == "webhook" {
							ops[i].kind = "row" // Create makes two steps, which are not atomic
						}
					}
					group.Go(func() {
						for _, op := range ops {
							call := time.Since(began).Nanoseconds()
							told := subject.do(client, op)
							mu.Lock()
							history = append(history, porcupine.Operation{
								ClientId: client, Input: op, Call: call, Output: told, Return: time.Since(began).Nanoseconds(),
							})
							mu.Unlock()
						}
					})
				}
				group.Wait()
				if result := porcupine.CheckOperationsTimeout(reportsModel, history, 20*time.Second); result != porcupine.Ok {
					for _, op := range history {
						t.Logf("%d: %d–%d %v told %q", op.ClientId, op.Call, op.Return, op.Input, op.Output)
					}
					t.Fatalf("the history is %s", result)
				}
				noError(t, s.Close())
			}
		})
	}
}
