// Package clients tests that clients can be generated from the OpenAPI document of a host with its own
// vocabulary: in Go by oapi-codegen, and in TypeScript by openapi-typescript. Each client is compiled
// with the program in goclient or tsclient, which uses it against the running host. The package is a
// separate module, so that hosts that import the library do not get the generators.
//
// TypeScript needs Node.js and the packages pinned in package-lock.json; run "npm ci" in this
// directory. Without them the test fails if the environment variable CI is set, and is skipped
// otherwise.
package clients
