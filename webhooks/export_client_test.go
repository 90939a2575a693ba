package webhooks

import (
	"context"

	"github.com/storageapi/storageapi/webhooks/internal/outbound"
)

// A Task is a delivery to attempt.
type Task = task

// Attempt makes one attempt, without loading or recording it.
func (s *WebhookService) Attempt(ctx context.Context, task *Task) Attempt {
	var cancel outbound.Canceler
	defer context.AfterFunc(ctx, cancel.Cancel)()
	return s.dispatcher.sender.attempt(&cancel, task).attempt
}

// CloseIdle closes idle connections.
func (s *WebhookService) CloseIdle() { s.dispatcher.sender.client.CloseIdle() }
