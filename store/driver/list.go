package driver

// A ListQuery selects a page of a list that is ordered by descending ID, which is newest first.
type ListQuery struct {
	After string // the ID after which the page begins; empty means at the start
	Limit int    // page size; at least 1
}
