package notices

// SetMaxWaiting sets how many targets may wait, until the function returned is called.
func SetMaxWaiting(most int) (reset func()) {
	old := maxWaiting
	maxWaiting = most
	return func() { maxWaiting = old }
}
