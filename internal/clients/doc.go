// Package clients proves, in its tests, that clients can be generated from the OpenAPI document of a host with a
// vocabulary of its own: one in Go by oapi-codegen, one in TypeScript by openapi-typescript. Each is compiled with the
// program in goclient or tsclient, which uses it against the running host. It is a module of its own so that nobody who
// imports the library gets the generators.
//
// TypeScript needs Node.js and the packages that package-lock.json pins; "npm ci" in this directory gets those. Where the
// environment variable CI is set the test fails without; elsewhere it is skipped.
package clients
