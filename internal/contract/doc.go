// Package contract proves, in its tests, that the API and its OpenAPI document are the same thing, by means that nobody
// here wrote: kin-openapi validates every request and answer, and redocly lints the document. It is a module of its own
// so that nobody who imports the library gets those.
//
//   - TestContract calls every operation, for success and for each failure that can be provoked, on a host with a file and
//     a receiver behind TLS. It fails if an answer is not as documented, and if a documented status was never seen.
//   - TestContractOfAHost does so on a host with a vocabulary of its own, by that host's document.
//   - TestWalk calls operations with values made from the document, good and bad, and more that is not in it. Its seed is
//     printed; -seed takes it again, -requests sets how many there are.
//   - TestLint runs redocly with its recommended rules. It needs Node.js and the package that package-lock.json pins;
//     "npm ci" in this directory gets that. Where the environment variable CI is set it fails without; elsewhere it is
//     skipped.
//
// That the document's routes are those of the code is tested in the library's own module.
//
// kin-openapi reads OpenAPI 3.1 and validates by JSON Schema 2020-12, so the document is taken as it is, but for two
// things: x-otherwise is put among the components, since references in extensions are not followed; and objects without
// additionalProperties are closed, so that an answer with a field too many does not go unnoticed. (For clients they are
// open: later versions may add fields.)
package contract
