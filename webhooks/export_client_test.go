package webhooks

import "context"

// Attempt makes one attempt, and neither claims nor settles anything.
func (s *WebhookService) Attempt(ctx context.Context, task *Task) Attempt {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return s.dispatcher.client.attempt(ctx, cancel, task).attempt
}
