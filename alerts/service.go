package alerts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/storageapi/storageapi/alerts/internal/alerting"
	"github.com/storageapi/storageapi/internal/hostcode"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

// An AlertService decides which events follow from a host's reports, and publishes them. It is safe
// for concurrent use.
type AlertService struct {
	store   driver.AlertStore
	hooks   *webhooks.WebhookService
	policy  alerting.Policy
	scanner *scanner // nil without Config.Files
	hidden  []webhooks.EventType
	unit    string
	now     func() time.Time
	logger  *slog.Logger
}

const (
	storeTimeout       = 10 * time.Second // for one call of reevaluateDue
	reevaluateInterval = time.Minute
)

// New returns an AlertService that publishes through hooks and keeps its state in store, which must
// be the store of hooks. The Config of hooks must declare all of [Events] except the types in
// [Config.HideEvents]. New starts nothing: see [AlertService.Run]. The error names the invalid
// field of config.
func New(store driver.AlertStore, hooks *webhooks.WebhookService, config Config) (*AlertService, error) {
	if store == nil || hooks == nil {
		return nil, errors.New("alerts: nil Store or WebhookService")
	}
	for _, t := range EventTypes() {
		if _, ok := hooks.DeclaredEvent(t); !ok && !slices.Contains(config.HideEvents, t) {
			return nil, fmt.Errorf("alerts: webhooks.Config.Events must declare %q: append alerts.Events()", t)
		}
	}
	if err := config.check(); err != nil {
		return nil, fmt.Errorf("alerts: Config: %w", err)
	}
	s := &AlertService{
		store:  store,
		hooks:  hooks,
		policy: alerting.NewPolicy(uint64(config.DefaultBalanceThreshold), uint64(config.BalanceHysteresis), config.ApproachingRatios, config.FileLeads),
		now:    config.Now,
		logger: config.Logger,
		hidden: slices.Clone(config.HideEvents),
		unit:   config.Unit,
	}
	if config.Files != nil && !s.hides(TypeFilesExpiring) {
		s.scanner = &scanner{s, config.Files, config.FileScanInterval}
	}
	hooks.OnChange(s.webhookChanged)
	return s, nil
}

// hides reports whether [Config.HideEvents] contains the type.
func (s *AlertService) hides(t webhooks.EventType) bool { return slices.Contains(s.hidden, t) }

// Run scans the files of [Config.Files] until ctx is done. It also notifies webhooks whose alert
// is missing because a process was killed or the store failed. If [Config.Files] has not returned
// a second after ctx is done, Run logs that and returns without waiting for it. Several processes
// that share a store can run at the same time.
func (s *AlertService) Run(ctx context.Context) {
	if s.scanner != nil {
		scanned := hostcode.Go(func() { s.scanner.run(ctx) })
		defer func() {
			select {
			case <-scanned:
			case <-time.After(hostcode.Grace):
				s.logger.Error("storageapi: Run returned with a task still running", "task", "Config.Alerts.Files")
			}
		}()
	}
	for ctx.Err() == nil {
		began := time.Now()
		more, err := s.reevaluateDue(ctx)
		if err != nil && ctx.Err() == nil {
			s.logFailure("storageapi: re-evaluating due alerts failed", err, reevaluateInterval)
		}
		pause := reevaluateInterval
		if more {
			pause = 4 * time.Since(began) // deliveries continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// logFailure logs a failure, unless the cause is that the store has halted, which the
// WebhookService logs.
func (s *AlertService) logFailure(message string, err error, again time.Duration) {
	if halted := s.store.Capabilities().Halted; halted != nil && halted() != nil {
		return
	}
	s.logger.Error(message, "error", err, "again_in", again)
}
