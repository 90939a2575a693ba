package input

import "iter"

// Pages iterates over the items of all pages. fetch returns the items that follow the cursor, and
// the next cursor. The cursor is "" before the first page and after the last one.
func Pages[T any](fetch func(after string) (items []T, next string, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for next, more := "", true; more; more = next != "" {
			var items []T
			var err error
			if items, next, err = fetch(next); err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
		}
	}
}
