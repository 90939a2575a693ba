package postgres

import (
	"embed"
	"strings"
)

// queries has the long statements, one a file. A file stands alone, so that it can be read, and
// be explained on a database: columns that several read are written out in each. Its comment says
// what it does and what its parameters are.
//
//go:embed queries/*.sql
var queries embed.FS

// query returns the statement of a file, without the lines that are comments.
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
