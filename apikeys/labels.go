package apikeys

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/store/driver"
)

// Limits of a key's labels: their number, the characters of a name and of a value, and the bytes of
// all names and values together.
const (
	maxLabels     = 16
	maxLabelName  = 64
	maxLabelValue = 256
	maxLabelBytes = 4 << 10
)

// mergeLabels applies changes to labels. A nil value removes the label.
func mergeLabels(labels driver.Labels, changes map[string]*string) (driver.Labels, error) {
	if len(changes) == 0 {
		return labels, nil
	}
	merged, size := labels.Map(), 0
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		value := changes[name]
		switch {
		case value == nil:
			delete(merged, name)
			continue
		case !isLabelText(name, maxLabelName) || name == "" || strings.Contains(name, "="):
			return labels, input.Invalid("labels", fmt.Sprintf("must have names of 1 to %d characters, without =, control characters and outer spaces; %.32q is not one", maxLabelName, name))
		case !isLabelText(*value, maxLabelValue):
			return labels, input.Invalid("labels", fmt.Sprintf("must have values of at most %d characters, without control characters and outer spaces; that of %q is not one", maxLabelValue, name))
		}
		merged[name] = *value
	}
	for name, value := range merged {
		size += len(name) + len(value)
	}
	if len(merged) > maxLabels || size > maxLabelBytes {
		return labels, input.Invalid("labels", fmt.Sprintf("must be at most %d, with at most %d bytes in all; these would be %d with %d bytes", maxLabels, maxLabelBytes, len(merged), size))
	}
	return driver.LabelsOf(merged), nil
}

// isLabelText reports whether text is valid as the name or value of a label with at most most
// characters: text without control characters and outer spaces.
func isLabelText(text string, most int) bool {
	return input.PlainText(text) && utf8.RuneCountInString(text) <= most && strings.Trim(text, " ") == text
}
