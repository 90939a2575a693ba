package httpapi

// idempotencyKey returns the request's Idempotency-Key; empty if it has none. What
// may be in it is for the service to check.
func (c *call) idempotencyKey() (string, error) {
	values, given := c.Header["Idempotency-Key"]
	if !given {
		return "", nil
	}
	if len(values) > 1 || values[0] == "" {
		return "", invalid("Idempotency-Key", "must be one value of 1 to 128 visible ASCII characters")
	}
	return values[0], nil
}
