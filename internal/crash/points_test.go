//go:build unix

package crash_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

// changes are the store methods that change the store or claim deliveries. A host can be killed
// before and after each call. The number is how many calls fit into a host's life.
var changes = map[string]int{
	"CreateKey":    3,
	"UpdateKey":    2,
	"DeleteKey":    2,
	"RecordKeyUse": 1,

	"CreateWebhook":   4,
	"UpdateWebhook":   4,
	"DeleteWebhook":   4,
	"Enqueue":         40,
	"Load":            40,
	"Settle":          40,
	"Redeliver":       2,
	"CreateRecovery":  2,
	"AdvanceRecovery": 4,
	"Purge":           1,
}

// reportChanges are the store methods that reports call. The number is how many calls fit into the
// life of a host that TestKillReports kills.
var reportChanges = map[string]int{
	"UpdateAlert": 200,
	"EnqueueOnce": 20,
}

// looks are the other methods. They only read, or need not survive a kill, such as Probe, or are
// not called by any host here, such as UpdateScan.
var looks = []string{
	"KeyByHash", "KeyByID", "ListKeys", "ExpiringKeys", "AccountSizes",
	"WebhookByID", "ListWebhooks", "EventDeliveries", "EventByID", "ListEvents", "ListDeliveries", "RecoveryByID", "Deliver", "Unreported", "Ping",
	"DueAlerts", "UnseenKeys", "FailingWebhooks", "HeldWebhooks", "OffWebhooks", "Now", "Probe", "UpdateScan",
	"Accounts", "Export", "Import", "EraseAccount",
	"ListAuditEntries", "PendingAccounts", "PendingAuditEntries", "AddAuditEntries", "TakeAuditEntries", "LeaseAudit",
	"Close", "Capabilities",
}

// A point is a moment in the life of a host: before the N-th call of a store method, or after its
// N-th return, counting from 1.
type point struct {
	Method string
	After  bool
	N      int
}

func (p point) String() string {
	if p.After {
		return "after " + p.Method
	}
	return "before " + p.Method
}

// A deadly store kills its host at a point.
type deadly struct {
	store.Store
	point point
	die   func()
	count atomic.Int64 // calls, or returns if point.After is set
}

// at must be called before a method; the function that it returns must be called after the method.
func (d *deadly) at(method string) func() {
	reach := func(after bool) {
		if d.point.Method == method && d.point.After == after && d.count.Add(1) == int64(d.point.N) {
			d.die()
		}
	}
	reach(false)
	return func() { reach(true) }
}

func (d *deadly) CreateKey(ctx context.Context, key apikeys.Key, options driver.CreateOptions) error {
	defer d.at("CreateKey")()
	return d.Store.CreateKey(ctx, key, options)
}

func (d *deadly) UpdateKey(ctx context.Context, account, id string, change func(*apikeys.Key, *audit.Entry) error) (apikeys.Key, error) {
	defer d.at("UpdateKey")()
	return d.Store.UpdateKey(ctx, account, id, change)
}

func (d *deadly) DeleteKey(ctx context.Context, account, id string, check func(apikeys.Key) error, entry audit.Entry) error {
	defer d.at("DeleteKey")()
	return d.Store.DeleteKey(ctx, account, id, check, entry)
}

func (d *deadly) RecordKeyUse(ctx context.Context, uses []driver.KeyUse) error {
	defer d.at("RecordKeyUse")()
	return d.Store.RecordKeyUse(ctx, uses)
}

func (d *deadly) CreateWebhook(ctx context.Context, webhook webhooks.Webhook, options driver.CreateOptions) error {
	defer d.at("CreateWebhook")()
	return d.Store.CreateWebhook(ctx, webhook, options)
}

func (d *deadly) UpdateWebhook(ctx context.Context, account, id string, change func(*webhooks.Webhook, *audit.Entry) error) (webhooks.Webhook, error) {
	defer d.at("UpdateWebhook")()
	return d.Store.UpdateWebhook(ctx, account, id, change)
}

func (d *deadly) DeleteWebhook(ctx context.Context, account, id string, check func(webhooks.Webhook) error, entry audit.Entry) error {
	defer d.at("DeleteWebhook")()
	return d.Store.DeleteWebhook(ctx, account, id, check, entry)
}

func (d *deadly) Enqueue(ctx context.Context, event webhooks.EncodedEvent) (int, error) {
	defer d.at("Enqueue")()
	return d.Store.Enqueue(ctx, event)
}

func (d *deadly) UpdateAlert(ctx context.Context, account, series string, change func(*driver.AlertStep) error) (int, error) {
	defer d.at("UpdateAlert")()
	return d.Store.UpdateAlert(ctx, account, series, change)
}

func (d *deadly) EnqueueOnce(ctx context.Context, event webhooks.EncodedEvent, dedupKeys []driver.DedupKey) (int, error) {
	defer d.at("EnqueueOnce")()
	return d.Store.EnqueueOnce(ctx, event, dedupKeys)
}

func (d *deadly) Load(ctx context.Context, refs []driver.DeliveryRef) ([]driver.LoadedDelivery, error) {
	defer d.at("Load")()
	return d.Store.Load(ctx, refs)
}

func (d *deadly) Settle(ctx context.Context, results []driver.AttemptResult, health []driver.HealthChange) (driver.Settled, error) {
	defer d.at("Settle")()
	return d.Store.Settle(ctx, results, health)
}

func (d *deadly) Redeliver(ctx context.Context, account, webhookID, eventID string, entry audit.Entry) error {
	defer d.at("Redeliver")()
	return d.Store.Redeliver(ctx, account, webhookID, eventID, entry)
}

func (d *deadly) CreateRecovery(ctx context.Context, recovery webhooks.Recovery, entry audit.Entry) error {
	defer d.at("CreateRecovery")()
	return d.Store.CreateRecovery(ctx, recovery, entry)
}

func (d *deadly) AdvanceRecovery(ctx context.Context, limit int) (bool, error) {
	defer d.at("AdvanceRecovery")()
	return d.Store.AdvanceRecovery(ctx, limit)
}

func (d *deadly) Purge(ctx context.Context, purge driver.Purge) (bool, error) {
	defer d.at("Purge")()
	return d.Store.Purge(ctx, purge)
}

// TestPoints checks that the lists above contain every store method, and that each method that
// changes the store can be killed at both points.
func TestPoints(t *testing.T) {
	all := reflect.TypeFor[store.Store]()
	for method := range all.Methods() {
		isChange := changes[method.Name]+reportChanges[method.Name] > 0
		if isChange == slices.Contains(looks, method.Name) {
			t.Errorf("%s must be among the changes or the looks", method.Name)
		}
		if !isChange {
			continue
		}
		for _, after := range []bool{false, true} {
			p := point{method.Name, after, 1}
			died := 0
			d := &deadly{Store: nil, point: p, die: func() { died++ }}
			call(t, reflect.ValueOf(d).MethodByName(method.Name))
			if died != 1 {
				t.Errorf("%s is no point: deadly must have the method", p)
			}
		}
	}
}

// call calls a method of a store without a backing store, and recovers from the panic.
func call(t *testing.T, method reflect.Value) {
	defer func() {
		if recover() == nil {
			t.Error(fmt.Sprint(method.Type(), " did not call the store"))
		}
	}()
	var in []reflect.Value
	for in0 := range method.Type().Ins() {
		in = append(in, reflect.Zero(in0))
	}
	method.Call(in)
}
