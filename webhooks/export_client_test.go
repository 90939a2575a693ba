package webhooks

import "context"

// Attempt makes one attempt, and neither claims nor settles anything.
func (s *WebhookService) Attempt(ctx context.Context, task *Task) Attempt {
	var stop stop
	defer context.AfterFunc(ctx, stop.now)()
	return s.dispatcher.client.attempt(&stop, task).attempt
}
