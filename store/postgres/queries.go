package postgres

import (
	"embed"
	"strings"
)

// queries has the long statements, one per file. Each file stands alone, so that it can be read by
// itself and run with EXPLAIN; columns that several statements read are repeated in each file. A
// comment in the file describes the statement and its parameters.
//
//go:embed queries/*.sql
var queries embed.FS

// query returns the statement of a file, without its comment lines.
func query(name string) string {
	text, err := queries.ReadFile("queries/" + name + ".sql")
	if err != nil {
		panic(err)
	}
	var statement strings.Builder
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			statement.WriteString(line)
		}
	}
	return strings.TrimSpace(statement.String())
}
